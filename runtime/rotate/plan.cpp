#include "rotate/plan.h"

#include "angles/frequencies.h"
#include "base/error.h"
#include "base/text.h"
#include "base/versioned.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

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
    if (tensor.out_dtype == 0) {
        tensor.out_dtype = tensor.dtype;
    }
}

/// Reads the stages beside the rotation of a tensor whose dtypes and head_dim were checked.
halyard_status read_stages(const halyard_tensor_desc &tensor, int index, TensorDesc *out, halyard_error *error) {
    if (tensor.norm != nullptr) {
        if (const halyard_status status = read_norm(tensor.norm, index, tensor.head_dim, &out->norm.emplace(), error)) {
            return status;
        }
    }
    if (tensor.scale != nullptr) {
        if (const halyard_status status =
                read_scale(tensor.scale, index, out->out_dtype, &out->scale.emplace(), error)) {
            return status;
        }
    }
    std::int64_t stride = 0;
    if (tensor.cache != nullptr) {
        if (const halyard_status status =
                read_cache(tensor.cache, index, tensor.head_dim, &out->cache.emplace(), error)) {
            return status;
        }
    }
    out->is_staged = out->norm || out->scale || out->dtype != out->out_dtype || is_8_bit(out->dtype) ||
                     (out->cache && !out->cache->is_linear(tensor.head_dim, &stride));
    if (out->is_staged && tensor.head_dim > max_staged_head) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", index, "].head_dim is ", tensor.head_dim,
                    ", but stages beside the rotation work on heads of at most ", max_staged_head, " elements");
    }
    return HALYARD_OK;
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
    if (tensor.no_rotation != 0 || tensor.norm != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "tensors[", index, "].",
                    tensor.norm != nullptr ? "norm" : "no_rotation",
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
    if (is_8_bit(*dtype) && !rerotates) {
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
        if (const halyard_status status = check_rerotated(tensor, index, error)) {
            return status;
        }
    }
    *out = {};
    out->dtype = *dtype;
    out->pairing = *pairing;
    out->out_pairing = *out_pairing;
    out->head_dim = tensor.head_dim;
    out->rotary_offset = rotates ? tensor.rotary_offset : 0;
    out->out_dtype = *to_dtype(tensor.out_dtype);
    out->rotates = rotates;
    return read_stages(tensor, index, out, error);
}

/// Reads everything of a description but its targets; tensors has HALYARD_MAX_TENSORS elements.
halyard_status read_desc(const halyard_plan_desc *desc, halyard_plan_desc *out, TensorDesc *tensors,
                         halyard_error *error) {
    *out = {};
    if (const halyard_status status = read_struct(desc, "desc", out, error)) {
        return status;
    }
    if (out->direction != HALYARD_FORWARD && out->direction != HALYARD_INVERSE) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "direction is ", out->direction, ", which is no direction");
    }
    if (out->rerotates != 0 && out->rerotates != 1) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "desc.rerotates is ", out->rerotates, ", but must be 0 or 1");
    }
    if (const halyard_frequencies *const frequencies = out->frequencies) {
        if (out->rotary_dim != 0 && out->rotary_dim != 2 * frequencies->n_pairs) {
            return fail(error, HALYARD_ERROR_MISMATCH, "rotary_dim is ", out->rotary_dim, ", but the frequencies' is ",
                        2 * frequencies->n_pairs);
        }
        out->rotary_dim = 2 * frequencies->n_pairs;
    }
    if (out->n_tensors < 1 || out->n_tensors > HALYARD_MAX_TENSORS) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_tensors is ", out->n_tensors, ", but must be 1 to ",
                    HALYARD_MAX_TENSORS);
    }
    if (out->tensors == nullptr) {
        return fail_null(error, "desc.tensors");
    }
    halyard_tensor_desc read[HALYARD_MAX_TENSORS] = {};
    bool rotates = false;
    for (int i = 0; i < out->n_tensors; i++) {
        halyard_tensor_desc &tensor = read[i];
        const halyard_tensor_desc *const given = element_of(out->tensors, i);
        char name[24];
        std::snprintf(name, sizeof(name), "tensors[%d]", i);
        if (const halyard_status status = read_struct(given, name, &tensor, error)) {
            return status;
        }
        if (given->size != out->tensors->size) {
            return fail(error, HALYARD_ERROR_STRUCT_SIZE, name, ".size is ", given->size,
                        ", but that of tensors[0] is ", out->tensors->size);
        }
        set_defaults(out->frequencies, out->rerotates != 0, tensor);
        rotates = rotates || tensor.no_rotation == 0;
    }
    if (out->rotary_dim < 0 || out->rotary_dim % 2 != 0 || (out->rotary_dim == 0 && rotates)) {
        return fail(error, HALYARD_ERROR_ROTARY_DIM, "rotary_dim is ", out->rotary_dim,
                    ", but must be even and at least 2");
    }
    for (int i = 0; i < out->n_tensors; i++) {
        if (const halyard_status status =
                check_tensor(read[i], i, out->rotary_dim, out->rerotates != 0, &tensors[i], error)) {
            return status;
        }
    }
    return HALYARD_OK;
}

Task task_for(const TensorDesc &tensor, Dtype dtype, std::int64_t rotary_dim, Place place, Layout layout) {
    // Words of two neighbours: a matter of strides for the run, but of the members' distance already here.
    const bool even_halves = tensor.pairing == Pairing::interleaved || rotary_dim % 4 == 0;
    const bool is_even = layout == Layout::even && even_halves;
    return {dtype, tensor.pairing, tensor.out_pairing, place,
            is_even || layout == Layout::strided ? layout : Layout::dense};
}

/// What rotates a tensor in blocks of f32, whose heads follow each other.
Task block_task_for(const TensorDesc &tensor, std::int64_t rotary_dim) {
    const bool converts = tensor.pairing != tensor.out_pairing;
    const bool is_even = tensor.head_dim % 2 == 0 && rotary_dim % 2 == 0;
    return task_for(tensor, Dtype::f32, rotary_dim, converts ? Place::out_of_place : Place::in_place,
                    is_even ? Layout::even : Layout::dense);
}

const char *words_for(Place place) {
    switch (place) {
    case Place::out_of_place: return "out of place";
    case Place::in_place: return "in place";
    case Place::non_temporal: return "out of place past the caches";
    }
    return nullptr;
}

Target best_of(TargetSet allowed) {
    std::int32_t best = 0;
    while ((allowed & bit(Target(best))) == 0) {
        best++;
    }
    return Target(best);
}

void explain_tensor(Text &text, const Task &task, TargetSet allowed) {
    const Kernel &taken = select(task, allowed);
    for (const Kernel &kernel : kernels()) {
        const bool is_reference = kernel.function == nullptr;
        if (!is_reference &&
            (kernel.dtype != task.dtype || (kernel.place == Place::in_place) != (task.place == Place::in_place))) {
            continue;  // not a candidate: it would say nothing
        }
        const char *reason = refusal(kernel, task);
        text.add(&kernel == &taken ? "  * " : "    ");
        text.add(kernel.name);
        text.add(": ");
        if (&kernel == &taken) {
            text.add("taken");
        } else if (reason != nullptr) {
            text.add(reason);
        } else if ((allowed & bit(kernel.target)) == 0) {
            text.add(why_not(kernel.target));
        } else {
            text.add("comes after the one that is taken");
        }
        text.add("\n");
        text.add_schedule(kernel.schedule);
    }
}

}  // namespace

}  // namespace halyard

using namespace halyard;

extern "C" {

halyard_status halyard_create_plan(const halyard_plan_desc *desc, halyard_plan **out, halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    halyard_plan_desc checked;
    TensorDesc tensors[HALYARD_MAX_TENSORS];
    if (const halyard_status status = read_desc(desc, &checked, tensors, error)) {
        return status;
    }
    TargetSet allowed = 0;
    if (const halyard_status status = allowed_targets(checked.target, checked.max_target, &allowed, error)) {
        return status;
    }
    auto *plan = new (std::nothrow) halyard_plan{};
    if (plan == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a plan of ", sizeof(halyard_plan), " bytes");
    }
    plan->rotary_dim = checked.rotary_dim;
    plan->sin_sign = checked.direction == HALYARD_INVERSE ? 0x80000000u : 0u;
    plan->n_tensors = checked.n_tensors;
    plan->rerotates = plan->has_road = checked.rerotates != 0;
    plan->target = best_of(allowed);
    plan->row_kernels = select_row_kernels(allowed);
    plan->stage_kernels = select_stage_kernels(allowed);
    for (int i = 0; i < plan->n_tensors; i++) {
        plan->tensors[i].desc = tensors[i];
        plan->rotates = plan->rotates || tensors[i].rotates;
        plan->has_road = plan->has_road || tensors[i].is_staged || tensors[i].cache || !tensors[i].rotates;
        plan->tensors[i].block_kernel = &select(block_task_for(tensors[i], checked.rotary_dim), allowed);
        for (std::int32_t place = 0; place < n_places; place++) {
            for (std::int32_t layout = 0; layout < n_layouts; layout++) {
                plan->tensors[i].kernels[place][layout] = &select(
                    task_for(tensors[i], tensors[i].dtype, checked.rotary_dim, Place(place), Layout(layout)), allowed);
            }
        }
    }
    *out = plan;
    return HALYARD_OK;
}

const char *halyard_get_plan_target(const halyard_plan *plan) {
    return plan == nullptr ? nullptr : name_of(plan->target);
}

void halyard_destroy_plan(halyard_plan *plan) { delete plan; }

halyard_status halyard_explain_plan(const halyard_plan_desc *desc, char *text, int64_t n_bytes, int64_t *n_needed,
                                    halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (const halyard_status status = check_text(text, n_bytes, error)) {
        return status;
    }
    halyard_plan_desc checked;
    TensorDesc tensors[HALYARD_MAX_TENSORS];
    if (const halyard_status status = read_desc(desc, &checked, tensors, error)) {
        return status;
    }
    TargetSet allowed = 0;
    halyard_error reason = {sizeof(halyard_error), HALYARD_OK, ""};
    Text lines = {text, n_bytes};
    const halyard_status status = allowed_targets(checked.target, checked.max_target, &allowed, &reason);
    if (status == HALYARD_ERROR_MISMATCH) {
        return fail(error, status, reason.message);
    }
    if (status != HALYARD_OK) {
        lines.add("no kernel can be taken: ");
        lines.add(reason.message);
        lines.add("\n");
    } else {
        for (int i = 0; i < checked.n_tensors; i++) {
            const TensorDesc &tensor = tensors[i];
            char heading[128];
            if (!tensor.rotates || tensor.is_staged) {
                std::snprintf(heading, sizeof(heading), "tensor %d, %s:\n", i,
                              tensor.rotates ? "in blocks of f32" : "is not rotated");
                lines.add(heading);
                if (tensor.rotates) {
                    explain_tensor(lines, block_task_for(tensor, checked.rotary_dim), allowed);
                }
                continue;
            }
            for (const Place place : {Place::out_of_place, Place::non_temporal, Place::in_place}) {
                if (place == Place::in_place && tensor.pairing != tensor.out_pairing) {
                    continue;
                }
                for (const Layout layout : {Layout::even, Layout::strided}) {
                    const Task task = task_for(tensor, tensor.dtype, checked.rotary_dim, place, layout);
                    if (place == Place::non_temporal && select(task, allowed).place != place) {
                        continue;  // as for smaller outputs
                    }
                    std::snprintf(heading, sizeof(heading), "tensor %d, %s, %s heads:\n", i, words_for(place),
                                  layout == Layout::strided ? "strided" : "dense");
                    lines.add(heading);
                    explain_tensor(lines, task, allowed);
                }
            }
        }
    }
    lines.end(n_needed);
    return HALYARD_OK;
}

}  // extern "C"
