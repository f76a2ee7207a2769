#include "read/plan_desc.h"

#include "base/error.h"
#include "base/versioned.h"
#include "frequencies/frequencies.h"

#include <cstdio>

namespace halyard {

namespace {

/// Fills in what a description leaves to the frequencies, which may be NULL, and to its own other fields.
void set_defaults(const halyard_frequencies *frequencies, bool rerotates, halyard_tensor_desc &tensor) {
    const bool from_frequencies = tensor.pairing == 0 && frequencies != nullptr;
    if (from_frequencies) {  // keys that were rotated have the pairing that rotations write
        tensor.pairing = rerotates ? frequencies->about.out_pairing : frequencies->about.pairing;
    }
    if (tensor.out_pairing == 0) {
        tensor.out_pairing = from_frequencies ? frequencies->about.out_pairing : tensor.pairing;
    }
    if (tensor.head_dim == 0 && frequencies != nullptr) {
        tensor.head_dim = frequencies->about.head_dim;
    }
    if (tensor.dtype == 0 && (tensor.from_groups != nullptr || (rerotates && tensor.groups != nullptr))) {
        tensor.dtype = HALYARD_UINT8;
    }
    if (tensor.out_dtype == 0) {
        tensor.out_dtype = tensor.groups != nullptr ? HALYARD_UINT8 : tensor.dtype;
    }
}

halyard_status fail_long_head(const halyard_tensor_desc &tensor, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", index, "].head_dim is ", tensor.head_dim,
                ", but stages beside the rotation work on heads of at most ", max_staged_head, " elements");
}

/// Checks that a tensor has records where its dtypes are those of records, and reads these.
halyard_status read_records(const halyard_tensor_desc &tensor, int index, bool rerotates, TensorDesc *out,
                            halyard_error *error) {
    const bool reads = tensor.from_groups != nullptr || (rerotates && tensor.groups != nullptr);
    const bool writes = tensor.groups != nullptr;
    if ((reads || writes) && tensor.head_dim > max_staged_head) {
        return fail_long_head(tensor, index, error);
    }
    if (rerotates && tensor.from_groups != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index,
                    "].from_groups is set, but a plan that rerotates has groups alone, for what it reads and writes");
    }
    if (reads != (out->dtype == Dtype::uint8) || writes != (out->out_dtype == Dtype::uint8)) {
        const bool is_in = reads != (out->dtype == Dtype::uint8);
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index, "].", is_in ? "dtype" : "out_dtype", " is ",
                    name_of(is_in ? out->dtype : out->out_dtype), ", but ",
                    is_in && !rerotates ? "from_groups" : "groups", (is_in ? reads : writes) ? " is set" : " is NULL",
                    ": uint8 is for records");
    }
    if (tensor.scale != nullptr && (reads || writes)) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index,
                    "].scale is set, but groups have scales of their own");
    }
    if (writes) {
        HALYARD_TRY(read_groups(tensor.groups, index, "groups", tensor.head_dim, &out->groups.emplace(), error));
    }
    if (reads && rerotates) {
        out->from_groups = out->groups;
    } else if (reads) {
        HALYARD_TRY(
            read_groups(tensor.from_groups, index, "from_groups", tensor.head_dim, &out->from_groups.emplace(), error));
    }
    return HALYARD_OK;
}

/// Reads the stages beside the rotation of a tensor whose dtypes and head_dim were checked.
halyard_status read_stages(const halyard_tensor_desc &tensor, int index, bool rerotates, TensorDesc *out,
                           halyard_error *error) {
    if (tensor.norm != nullptr) {
        HALYARD_TRY(read_norm(tensor.norm, index, tensor.head_dim, &out->norm.emplace(), error));
    }
    if (tensor.scale != nullptr) {
        HALYARD_TRY(read_scale(tensor.scale, index, out->out_dtype, &out->scale.emplace(), error));
    }
    if (tensor.position_scales != 0 && tensor.position_scales != 1) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index, "].position_scales is ",
                    tensor.position_scales, ", but must be 0 or 1");
    }
    out->position_scales = tensor.position_scales != 0;
    const std::int64_t n = tensor.hadamard;
    if (n != 0 && (n < 2 || (n & (n - 1)) != 0 || tensor.head_dim % n != 0)) {
        return fail(error, HALYARD_ERROR_SHAPE, "tensors[", index, "].hadamard is ", n,
                    ", but must be 0 or a power of two from 2 on that divides head_dim, ", tensor.head_dim);
    }
    out->hadamard = n;
    std::int64_t stride = 0;
    if (tensor.cache != nullptr) {
        HALYARD_TRY(read_cache(tensor.cache, index, out->out_dim(), &out->cache.emplace(), error));
        if (out->groups && (!out->cache->is_linear(out->out_dim(), &stride) || (stride != 1 && out->out_dim() > 1))) {
            return fail(error, HALYARD_ERROR_STRIDE, "tensors[", index,
                        "].cache has elements that are apart, but the bytes of a record lie one after the other");
        }
    }
    if (out->from_groups && out->norm && out->norm->rounding != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index, "].norm->rounding is ", out->norm->rounding,
                    ", but records have no dtype to round to");
    }
    const bool is_in_rows = !out->cache || out->cache->is_linear(tensor.head_dim, &stride);
    // Blocks are transposed in registers, which is faster than kernels for any stride.
    const bool is_transposed = out->cache && is_in_rows && stride != 1 && !rerotates;
    out->is_staged = out->groups || out->from_groups || out->norm || out->position_scales || n != 0 || out->scale ||
                     out->dtype != out->out_dtype || is_8_bit(out->dtype) || !is_in_rows ||
                     (is_transposed && tensor.head_dim <= max_staged_head);
    return out->is_staged && tensor.head_dim > max_staged_head ? fail_long_head(tensor, index, error) : HALYARD_OK;
}

/// The arrays that a run has to bring for a tensor, as TensorDesc::asked.
std::uint8_t list_arrays(const TensorDesc &desc, bool rerotates) {
    unsigned arrays = 0;
    const auto ask_if = [&](bool condition, StageArray array) { arrays |= unsigned{condition} << array; };
    ask_if(desc.norm && desc.norm->weight, weight_array);
    ask_if(desc.norm && desc.norm->has_bias, bias_array);
    ask_if(desc.scale && !desc.scale->dynamic, scales_array);
    ask_if(desc.scale && desc.scale->dynamic, scales_out_array);
    ask_if(desc.cache.has_value(), cache_array);
    ask_if(desc.position_scales, position_scales_array);
    ask_if(desc.groups && desc.groups->scales_apart, group_scales_array);
    ask_if(desc.from_groups && desc.from_groups->scales_apart && !rerotates, from_group_scales_array);
    return static_cast<std::uint8_t>(arrays);
}

/// Refuses what keys cannot have that move from where they are, as they are.
halyard_status check_rerotated(const halyard_tensor_desc &tensor, int index, halyard_error *error) {
    if (tensor.out_dtype != tensor.dtype) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index, "].out_dtype is ",
                    name_of_dtype(tensor.out_dtype), ", but a plan that rerotates keeps the dtype, ",
                    name_of_dtype(tensor.dtype));
    }
    if (tensor.out_pairing != tensor.pairing) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index, "].out_pairing is ", tensor.out_pairing,
                    ", but a plan that rerotates keeps the pairing, ", tensor.pairing);
    }
    if (tensor.no_rotation != 0 || tensor.norm != nullptr || tensor.position_scales != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index, "].",
                    tensor.norm != nullptr        ? "norm"
                    : tensor.position_scales != 0 ? "position_scales"
                                                  : "no_rotation",
                    " is set, but a plan that rerotates does nothing but rotate");
    }
    return HALYARD_OK;
}

halyard_status check_tensor(const halyard_tensor_desc &tensor, int index, std::int64_t rotary_dim, bool rerotates,
                            TensorDesc *out, halyard_error *error) {
    const std::optional<Dtype> dtype = to_dtype(tensor.dtype);
    if (tensor.dtype == 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index, "].dtype is not set");
    }
    if (!dtype) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index, "].dtype is ", tensor.dtype,
                    ", which is no dtype");
    }
    if (is_8_bit(*dtype) && !rerotates && tensor.from_groups == nullptr) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", index, "].dtype is ", name_of(*dtype),
                    ", which only outputs and keys that rerotate can have");
    }
    if (!to_dtype(tensor.out_dtype)) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index, "].out_dtype is ", tensor.out_dtype,
                    ", which is no dtype");
    }
    if (tensor.no_rotation != 0 && tensor.no_rotation != 1) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index, "].no_rotation is ", tensor.no_rotation,
                    ", but must be 0 or 1");
    }
    const bool rotates = tensor.no_rotation == 0;
    if (rotates && tensor.pairing == 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index,
                    "].pairing is not set, and no frequencies tell it");
    }
    const std::int32_t unread = HALYARD_PAIRING_HALF;
    const std::optional<Pairing> pairing = to_pairing(rotates ? tensor.pairing : unread);
    const std::optional<Pairing> out_pairing = to_pairing(rotates ? tensor.out_pairing : unread);
    if (!pairing || !out_pairing) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "tensors[", index, "].", pairing ? "out_pairing" : "pairing",
                    " is ", pairing ? tensor.out_pairing : tensor.pairing, ", which is no pairing");
    }
    if (tensor.head_dim <= 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "tensors[", index, "].head_dim is ", tensor.head_dim,
                    ", but must be at least 1");
    }
    if (rotates && (tensor.rotary_offset < 0 || rotary_dim > tensor.head_dim - tensor.rotary_offset)) {
        return fail(error, HALYARD_ERROR_WINDOW, "tensors[", index, "].rotary_offset is ", tensor.rotary_offset, ": ",
                    rotary_dim, " elements from there are not inside a head_dim of ", tensor.head_dim);
    }
    if (rerotates) {
        HALYARD_TRY(check_rerotated(tensor, index, error));
    }
    *out = {};
    out->dtype = *dtype;
    out->pairing = *pairing;
    out->out_pairing = *out_pairing;
    out->head_dim = tensor.head_dim;
    out->rotary_offset = rotates ? tensor.rotary_offset : 0;
    out->out_dtype = *to_dtype(tensor.out_dtype);
    out->rotates = rotates;
    HALYARD_TRY(read_records(tensor, index, rerotates, out, error));
    return read_stages(tensor, index, rerotates, out, error);
}

/// Copies the tensors of a description, with their defaults filled in. `read` has HALYARD_MAX_TENSORS elements.
halyard_status read_tensor_descs(const halyard_plan_desc &given, halyard_tensor_desc *read, halyard_error *error) {
    for (int i = 0; i < given.n_tensors; i++) {
        char name[24];
        std::snprintf(name, sizeof(name), "tensors[%d]", i);
        HALYARD_TRY(read_struct(&given.tensors[i], name, &read[i], error));
        set_defaults(given.frequencies, given.rerotates != 0, read[i]);
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_plan_desc(const halyard_plan_desc *desc, PlanDesc *out, halyard_plan_desc *given,
                              halyard_error *error) noexcept {
    *out = {};
    *given = {};
    HALYARD_TRY(read_struct(desc, "desc", given, error));
    if (given->direction != HALYARD_FORWARD && given->direction != HALYARD_INVERSE) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "direction is ", given->direction, ", which is no direction");
    }
    if (given->rerotates != 0 && given->rerotates != 1) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.rerotates is ", given->rerotates, ", but must be 0 or 1");
    }
    if (const halyard_frequencies *const frequencies = given->frequencies) {
        if (given->rotary_dim != 0 && given->rotary_dim != 2 * frequencies->n_pairs) {
            return fail(error, HALYARD_ERROR_MISMATCH, "rotary_dim is ", given->rotary_dim,
                        ", but the frequencies' is ", 2 * frequencies->n_pairs);
        }
        given->rotary_dim = 2 * frequencies->n_pairs;
    }
    if (given->n_tensors < 1 || given->n_tensors > HALYARD_MAX_TENSORS) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_tensors is ", given->n_tensors, ", but must be 1 to ",
                    HALYARD_MAX_TENSORS);
    }
    HALYARD_TRY(check_given(given->tensors, "desc.tensors", error));
    halyard_tensor_desc read[HALYARD_MAX_TENSORS] = {};
    HALYARD_TRY(read_tensor_descs(*given, read, error));
    for (int i = 0; i < given->n_tensors; i++) {
        out->rotates = out->rotates || read[i].no_rotation == 0;
    }
    if (given->rotary_dim < 0 || given->rotary_dim % 2 != 0 || (given->rotary_dim == 0 && out->rotates)) {
        return fail(error, HALYARD_ERROR_ROTARY_DIM, "rotary_dim is ", given->rotary_dim,
                    ", but must be even and at least 2");
    }
    out->rotary_dim = out->rotates ? given->rotary_dim : 0;
    out->sin_sign = given->direction == HALYARD_INVERSE ? 0x80000000u : 0u;
    out->n_tensors = given->n_tensors;
    out->rerotates = given->rerotates != 0;
    out->only_rotates = !out->rerotates;
    for (int i = 0; i < given->n_tensors; i++) {
        HALYARD_TRY(check_tensor(read[i], i, given->rotary_dim, given->rerotates != 0, &out->tensors[i], error));
        TensorDesc &tensor = out->tensors[i];
        tensor.asked = list_arrays(tensor, out->rerotates);
        out->only_rotates = out->only_rotates && !tensor.is_staged && !tensor.cache && tensor.rotates;
    }
    return HALYARD_OK;
}

}  // namespace halyard
