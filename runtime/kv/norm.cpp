#include "kv/norm.h"

#include "base/versioned.h"
#include "kv/block.h"
#include "kv/rotation.h"

#include <algorithm>
#include <cmath>

namespace halyard {

// ---- The description -----------------------------------------------------------------------------------------------

namespace {

/// Reads which weights a norm has, and checks what needs them.
halyard_status check_weight(const halyard_norm_desc &given, const StageName &name, std::optional<Dtype> *weight,
                            halyard_error *error) {
    *weight = to_dtype(given.weight_dtype);
    if (given.weight_dtype != 0 && !is_input_dtype(*weight)) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name.text, ".weight_dtype is ", given.weight_dtype,
                    ", which is no dtype", *weight ? " of weights" : "");
    }
    if (const char *const field = given.unit_offset != 0       ? "unit_offset"
                                  : given.has_bias != 0        ? "has_bias"
                                  : given.weight_per_head != 0 ? "weight_per_head"
                                                               : nullptr;
        field != nullptr && !*weight) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, ".", field,
                    " is 1, but there is no weight: weight_dtype is 0");
    }
    if ((given.rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0 && !*weight) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, ".rounding is ", given.rounding,
                    ", with HALYARD_NORM_ROUND_AFTER_WEIGHT (2), but there is no weight: weight_dtype is 0");
    }
    if (given.has_bias != 0 && given.kind != HALYARD_NORM_LAYER) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text,
                    ".has_bias is 1, but kind is HALYARD_NORM_RMS (0): only layer norms have a bias");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_norm(const halyard_norm_desc *norm, int index, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept {
    const StageName name(index, "norm");
    halyard_norm_desc given = {};
    HALYARD_TRY(read_struct(norm, name.text, &given, error));
    const struct {
        const char *field;
        std::int32_t value, last;
    } choices[] = {{"kind", given.kind, 1},
                   {"width", given.width, 1},
                   {"order", given.order, 1},
                   {"unit_offset", given.unit_offset, 1},
                   {"rounding", given.rounding, 3},
                   {"no_eps", given.no_eps, 1},
                   {"has_bias", given.has_bias, 1},
                   {"weight_per_head", given.weight_per_head, 1}};
    for (const auto &[field, value, last] : choices) {
        HALYARD_TRY(check_choice(name.text, field, value, last, error));
    }
    HALYARD_TRY(check_weight(given, name, &out->weight, error));
    const auto eps = static_cast<float>(given.eps);
    if (!(given.eps >= 0.0) || eps - eps != 0.0f) {
        return fail(error, HALYARD_ERROR_SCALE, name.text, ".eps is ", given.eps,
                    ", but must be at least 0, and finite in f32");
    }
    if (given.no_eps != 0 && given.eps != 0.0) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, ".eps is ", given.eps, ", but no_eps is 1");
    }
    const bool begins_inside = given.window_offset >= 0 && given.window_offset < head_dim;
    const std::int64_t rest = begins_inside ? head_dim - given.window_offset : 0;
    if (!begins_inside || given.window_size < 0 || given.window_size > rest) {
        return fail(error, HALYARD_ERROR_WINDOW, name.text, ".window_offset is ", given.window_offset,
                    " and window_size ", given.window_size, ", which is not inside a head_dim of ", head_dim);
    }
    out->row = given.width == HALYARD_NORM_ROW;
    if (out->row && (given.window_offset != 0 || given.window_size != 0)) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text, ".window_", given.window_offset != 0 ? "offset" : "size",
                    " is ", given.window_offset != 0 ? given.window_offset : given.window_size,
                    ", but a norm of rows has no window");
    }
    if (out->row && given.weight_per_head != 0) {
        return fail(error, HALYARD_ERROR_MISMATCH, name.text,
                    ".weight_per_head is 1, but a norm of rows has a weight for each element anyway");
    }
    out->after = given.order == HALYARD_NORM_AFTER;
    out->unit_offset = given.unit_offset != 0;
    out->rounding = given.rounding;
    out->eps = given.no_eps == 0 && given.eps == 0.0 ? 1e-6f : eps;
    out->offset = given.window_offset;
    out->size = given.window_size == 0 ? rest : given.window_size;
    out->layer = given.kind == HALYARD_NORM_LAYER;
    out->has_bias = given.has_bias != 0;
    out->per_head = given.weight_per_head != 0;
    return HALYARD_OK;
}

// ---- Weights -------------------------------------------------------------------------------------------------------

namespace {

/// A norm's weights and biases for the heads of a block. bias is NULL of an RMS norm.
struct Numbers {
    const float *weight, *bias;
    std::int64_t stride_head;  // 0 where heads share them
};

/// Weights or biases as the caller has them. Where there are none they are `neutral`.
struct GivenNumbers {
    const char *data;
    bool unit_offset;
    float neutral;
};
GivenNumbers weights_of(const KvCall &call, const Block &block) {
    return {call.data(block, Array::weight), call.stages(block).norm->unit_offset, 1.0f};
}

/// Those from number `first` on if they are floats where the caller has them, else NULL.
const float *find_floats(const NormDesc &norm, const GivenNumbers &given, std::int64_t first) {
    const auto address = reinterpret_cast<std::uintptr_t>(given.data);
    const bool are_floats = norm.weight == Dtype::f32 && address % alignof(float) == 0 && !given.unit_offset;
    return are_floats && address != 0 ? reinterpret_cast<const float *>(given.data) + first : nullptr;
}

/// Makes floats of n of them from number `first` on.
void make_floats(const KvCall &call, const NormDesc &norm, const GivenNumbers &given, std::int64_t first,
                 std::int64_t n, float *out) {
    if (given.data == nullptr) {
        std::fill_n(out, n, given.neutral);
        return;
    }
    widen(call.kernels(), *norm.weight, n, given.data + first * element_bytes(*norm.weight), out);
    for (std::int64_t i = 0; i < n && given.unit_offset; i++) {
        out[i] = 1.0f + out[i];
    }
}

/// Finds the weights and biases of a block's heads, or has them made.
Numbers numbers_of(const KvCall &call, Block &block) {
    const NormDesc &norm = *call.stages(block).norm;
    const bool are_of_heads = norm.row || norm.per_head;
    const std::int64_t first = are_of_heads ? block.head * norm.size : 0, n = norm.n_weights(block.n_heads);
    const GivenNumbers weights = weights_of(call, block);
    const GivenNumbers biases = {norm.has_bias ? call.data(block, Array::bias) : nullptr, false,
                                 -0.0f};  // adding that changes not even a -0
    const float *const weight = find_floats(norm, weights, first), *const bias = find_floats(norm, biases, first);
    Workspace &work = *block.work;
    float *const second_half = work.weights + block_floats / 2;
    const std::int64_t wanted = are_of_heads ? block.head : 0;
    if (work.weights_of != wanted) {
        work.weights_of = wanted;
        if (weight == nullptr) {
            make_floats(call, norm, weights, first, n, work.weights);
        }
        if (norm.layer && bias == nullptr) {
            make_floats(call, norm, biases, first, n, second_half);
        }
    }
    return {weight == nullptr ? work.weights : weight,
            !norm.layer       ? nullptr
            : bias == nullptr ? second_half
                              : bias,
            norm.per_head ? norm.size : 0};
}

// ---- Norms ---------------------------------------------------------------------------------------------------------

template <typename T>
void call_norm(const KvCall &call, const Block &block, const Numbers &numbers, const Extents &extents,
               const Elements<T> &x, std::int64_t bytes, const Elements<float> &y) {
    const NormDesc &norm = *call.stages(block).norm;
    const StageKernels &kernels = call.kernels();
    const Dtype dtype = call.desc(block).dtype;
    const std::size_t rounds_to = norm.rounding == 0 ? 0 : index_of(dtype);
    StageOperand weight(Elements<const float>{numbers.weight, {1, numbers.stride_head, 0}}, sizeof(float)),
        bias(Elements<const float>{numbers.bias, {1, numbers.stride_head, 0}}, sizeof(float)), from(x, bytes),
        to(y, sizeof(float));
    StageCall all(extents, weight, bias, from, to);
    all.join(1, 2);
    const bool widens = sizeof(T) == 1 && dtype != Dtype::f32;
    halyard_norm_kernel *const rms = widens ? kernels.widen_norm[index_of(dtype)] : kernels.norm[rounds_to];
    all.for_each_part([&](auto *w, auto *b, auto *v, auto *normed) {
        norm.layer ? kernels.layer_norm[rounds_to](w, norm.eps, norm.rounding, b, v, normed)
                   : rms(w, norm.eps, norm.rounding, v, normed);
    });
}

// ---- Rows that are longer than a block -----------------------------------------------------------------------------
// This file is compiled without contraction, so nothing is fused but what std::fma fuses.

/// A sum over the elements of a row that come in pieces, in the order of kernels: partial sum i of 16 takes elements i,
/// i + 16 and so on.
struct RowSum {
    float sums[16] = {};
    std::int64_t n = 0;

    template <typename Add>
    void take(const float *elements, std::int64_t n_elements, Add add) {
        for (std::int64_t e = 0; e < n_elements; e++) {
            float &sum = sums[n++ % 16];
            sum = add(sum, elements[e]);
        }
    }
    float mean() {
        for (int half = 8; half >= 1; half /= 2) {
            for (int i = 0; i < half; i++) {
                sums[i] += sums[i + half];
            }
        }
        return sums[0] / static_cast<float>(n);
    }
};

float rounded(Dtype dtype, float value) {
    with_storage(dtype, [&](auto storage) { value = storage.widen(storage.narrow(value)); });
    return value;
}

void apply_row_factor(const KvCall &call, const Block &block, const Numbers &numbers) {
    const NormDesc &norm = *call.stages(block).norm;
    const Dtype dtype = call.desc(block).dtype;
    const RowFactor &row = block.work->row;
    for (std::int64_t e = 0; e < block.n_heads * norm.size; e++) {
        float &element = block.work->floats[e];
        float v = (norm.layer ? element - row.mean : element) * row.factor;
        v = (norm.rounding & HALYARD_NORM_ROUND_BEFORE_WEIGHT) != 0 ? rounded(dtype, v) : v;
        v *= numbers.weight[e];
        v = norm.layer ? v + numbers.bias[e] : v;
        element = (norm.rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0 ? rounded(dtype, v) : v;
    }
}

}  // namespace

std::int64_t most_heads_in_block(const KvTensor &stages, std::int64_t head_dim) noexcept {
    // Weights of heads may need as much room as the heads, and biases too.
    const bool are_many = stages.norm && stages.norm->layer && (stages.norm->row || stages.norm->per_head);
    return std::clamp<std::int64_t>((are_many ? block_floats / 2 : block_floats) / head_dim, 1, stages.most_heads);
}

void find_row_factor(const KvCall &call, Block &block, std::int64_t most_heads, std::int64_t n_heads) noexcept {
    const NormDesc &norm = *call.stages(block).norm;
    const std::int64_t head_dim = call.desc(block).head_dim;
    RowFactor &row = block.work->row;
    row = {};
    const auto sum_up = [&](auto add) {
        RowSum sum;
        for (std::int64_t head = 0; head < n_heads; head += most_heads) {
            block.take_heads(head, std::min(most_heads, n_heads - head), head_dim);
            run_steps_before_norm(call, block);
            sum.take(block.work->floats, block.n_heads * head_dim, add);
        }
        return sum.mean();
    };
    if (norm.layer) {
        row.mean = sum_up([](float sum, float element) { return sum + element; });
    }
    const float mean = sum_up([&](float sum, float element) {
        const float v = norm.layer ? element - row.mean : element;
        return std::fma(v, v, sum);
    });
    row.factor = 1.0f / std::sqrt(mean + norm.eps);
    row.is_found = true;
}

// ---- Steps ---------------------------------------------------------------------------------------------------------

void norm(const KvCall &call, Block &block) noexcept {
    const NormDesc &norm = *call.stages(block).norm;
    const Numbers numbers = numbers_of(call, block);
    if (block.work->row.is_found) {
        apply_row_factor(call, block, numbers);
        return;
    }
    const Extents extents =
        norm.row ? Extents{block.n_heads * norm.size, 1, block.n_tokens} : block.extents(norm.size);
    const Elements<float> window = {block.work->floats + norm.offset, block.strides};
    call_norm(call, block, numbers, extents, window, sizeof(float), window);
}

void load_and_norm(const KvCall &call, Block &block) noexcept {
    const Side &in = call.tensor(block).in();
    const TensorPlan &desc = call.desc(block);
    call_norm(call, block, numbers_of(call, block), block.extents(desc.head_dim),
              Elements<const char>{call.x(block), {in.element, in.head, in.token}}, desc.bytes, block.floats());
}

namespace {

/// Norms and rotates tokens that lie evenly apart on both sides.
void norm_and_rotate(const KvCall &call, const Block &block, const float *weight, const Stretch &stretch) {
    const ProgramTensor &direct = call.kv.tensors[block.index].direct;
    const TensorPlan &desc = call.desc(block);
    const std::int64_t n_pairs = call.plan().rotary_dim / 2;
    halyard_buffer of_weight, of_tokens, x, y;
    halyard_dimension weight_dims[2], token_dim[1], x_dims[4], y_dims[4];
    set_buffer(of_weight, weight, weight_dims);
    set_dimension(weight_dims[0], n_pairs, 1);
    set_dimension(weight_dims[1], 2, n_pairs);
    for_each_part(desc, direct, stretch, find_limits(direct, stretch, n_pairs), [&](const Stretch &part) {
        set_buffer(of_tokens, part.row_of_token, token_dim);
        set_dimension(token_dim[0], part.n_tokens, 1);
        set_buffer(x, part.x, x_dims);
        set_buffer(y, part.y, y_dims);
        set_part(direct.in(), *direct.kernel, n_pairs, part, part.in_token, x_dims);
        set_part(direct.y, *direct.kernel, n_pairs, part, part.out_token, y_dims);
        call.kernels().norm_rotate[index_of(desc.dtype)](&of_weight, call.stages(block).norm->eps, &of_tokens,
                                                         &block.rows->cos, &block.rows->sin, call.plan().sin_sign, &x,
                                                         &y);
    });
}

/// The same to the output with weights that have to be widened. (Not inlined, because it would make the stack frame of
/// its caller large. A model's weights evict the stack from the cache, so small calls must not touch such frames.)
[[gnu::noinline]] void widen_weights_and_rotate(const KvCall &call, const Block &block) {
    alignas(64) float weight[max_head];
    const NormDesc &norm = *call.stages(block).norm;
    make_floats(call, norm, weights_of(call, block), 0, norm.size, weight);
    for_each_stretch(call, block, [&](const Stretch &stretch) { norm_and_rotate(call, block, weight, stretch); });
}

}  // namespace

void norm_and_rotate(const KvCall &call, Block &block) noexcept {
    const float *const weight = find_floats(*call.stages(block).norm, weights_of(call, block), 0);
    if (weight == nullptr) {
        widen_weights_and_rotate(call, block);
        return;
    }
    for_each_stretch(call, block, [&](const Stretch &stretch) { norm_and_rotate(call, block, weight, stretch); });
}

void norm_and_rotate_to_words(const KvCall &call, Block &block) noexcept {
    const Numbers numbers = numbers_of(call, block);
    norm_and_rotate(call, block, numbers.weight, stretch_of_words(call, block));
}

}  // namespace halyard
