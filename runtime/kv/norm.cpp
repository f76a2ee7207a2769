#include "kv/norm.h"

#include "base/versioned.h"
#include "kv/block.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace halyard {

// ---- The description -----------------------------------------------------------------------------------------------

halyard_status read_norm(const halyard_norm_desc *norm, const char *name, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept {
    halyard_norm_desc given = {};
    HALYARD_TRY(read_struct(norm, name, &given, error));
    const struct {
        const char *field;
        std::int32_t value, last;
    } choices[] = {{"kind", given.kind, 1},         {"width", given.width, 1},
                   {"order", given.order, 1},       {"unit_offset", given.unit_offset, 1},
                   {"rounding", given.rounding, 3}, {"no_eps", given.no_eps, 1},
                   {"has_bias", given.has_bias, 1}, {"weight_per_head", given.weight_per_head, 1}};
    for (const auto &[field, value, last] : choices) {
        HALYARD_TRY(check_choice(name, field, value, last, error));
    }
    const std::optional<Dtype> weight = to_dtype(given.weight_dtype);
    const auto eps = static_cast<float>(given.eps);
    const bool begins_inside = given.window_offset >= 0 && given.window_offset < head_dim;
    const std::int64_t rest = begins_inside ? head_dim - given.window_offset : 0;
    const bool is_row = given.width == HALYARD_NORM_ROW, is_layer = given.kind == HALYARD_NORM_LAYER;
    const bool has_weight = weight.has_value();
    const char *const no_weight = ", but there is no weight: weight_dtype is 0";
    const char *const no_window = ", but a norm of rows has no window";
    HALYARD_TRY(
        check_fields(name,
                     {{given.weight_dtype != 0 && !is_input_dtype(weight), HALYARD_ERROR_UNKNOWN_VALUE, "weight_dtype",
                       given.weight_dtype, ", which is no dtype", has_weight ? " of weights" : ""},
                      {!(given.eps >= 0.0) || eps - eps != 0.0f, HALYARD_ERROR_SCALE, "eps", given.eps,
                       ", but must be at least 0, and finite in f32"},
                      {!begins_inside || given.window_size < 0 || given.window_size > rest, HALYARD_ERROR_WINDOW,
                       "window_offset", given.window_offset, " and window_size ", given.window_size,
                       ", which is not inside a head_dim of ", head_dim},
                      {!has_weight && given.unit_offset != 0, "unit_offset", given.unit_offset, no_weight},
                      {!has_weight && given.has_bias != 0, "has_bias", given.has_bias, no_weight},
                      {!has_weight && given.weight_per_head != 0, "weight_per_head", given.weight_per_head, no_weight},
                      {!has_weight && (given.rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0, "rounding",
                       given.rounding, ", with HALYARD_NORM_ROUND_AFTER_WEIGHT (2)", no_weight},
                      {given.has_bias != 0 && !is_layer, "has_bias", given.has_bias,
                       ", but kind is HALYARD_NORM_RMS (0): only layer norms have a bias"},
                      {given.no_eps != 0 && given.eps != 0.0, "eps", given.eps, ", but no_eps is 1"},
                      {is_row && given.window_offset != 0, "window_offset", given.window_offset, no_window},
                      {is_row && given.window_size != 0, "window_size", given.window_size, no_window},
                      {is_row && given.weight_per_head != 0, "weight_per_head", given.weight_per_head,
                       ", but a norm of rows has a weight for each element anyway"}},
                     error));
    *out = {.row = is_row,
            .after = given.order == HALYARD_NORM_AFTER,
            .unit_offset = given.unit_offset != 0,
            .rounding = given.rounding,
            .eps = given.no_eps == 0 && given.eps == 0.0 ? 1e-6f : eps,
            .weight = weight,
            .offset = given.window_offset,
            .size = given.window_size == 0 ? rest : given.window_size,
            .layer = is_layer,
            .has_bias = given.has_bias != 0,
            .per_head = given.weight_per_head != 0};
    return HALYARD_OK;
}

// ---- Weights -------------------------------------------------------------------------------------------------------

namespace {

/// All weights or biases in the caller's memory, if they are aligned floats there that need no change; else NULL.
const float *floats_in_memory(const KvCall &call, const Block &block, Array array) {
    const NormDesc &norm = *call.stages(block).norm;
    const char *const data = call.data(block.index, array);
    const bool adds_one = array == Array::weight && norm.unit_offset;
    return norm.weight == Dtype::f32 && !adds_one && reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0
               ? reinterpret_cast<const float *>(data)
               : nullptr;
}

/// Converts n weights or biases, from number `first` on, to floats in `room`.
void widen_weights(const KvCall &call, const Block &block, Array array, std::int64_t first, std::int64_t n,
                   float *room) {
    const NormDesc &norm = *call.stages(block).norm;
    const char *const data = call.data(block.index, array);
    if (data == nullptr) {
        std::fill_n(room, n, array == Array::weight ? 1.0f : -0.0f);  // adding -0 changes no number, not even -0
        return;
    }
    widen(call.kernels(), *norm.weight, {n, 1, 1}, {data + first * element_bytes(*norm.weight), {1, 0, 0}},
          {room, {1, 0, 0}});
    for (std::int64_t i = 0; i < n && array == Array::weight && norm.unit_offset; i++) {
        room[i] = 1.0f + room[i];
    }
}

/// A norm's weights and biases for the heads of a block. bias is NULL for an RMS norm.
struct Weights {
    const float *weight, *bias;
    std::int64_t stride_head;  // 0 if heads share them
};

template <bool is_layer>
Weights load_weights(const KvCall &call, const Block &block) {
    const NormDesc &norm = *call.stages(block).norm;
    Workspace &work = *block.work;
    const std::int64_t head = norm.row || norm.per_head ? block.head : 0, n = norm.n_weights(block.n_heads);
    const bool is_new = std::exchange(work.weights_of, head) != head;
    const auto of = [&](Array array, float *room) -> const float * {
        if (const float *const all = floats_in_memory(call, block, array); all != nullptr) {
            return all + head * norm.size;
        }
        if (is_new) {
            widen_weights(call, block, array, head * norm.size, n, room);
        }
        return room;
    };
    return {of(Array::weight, work.weights), is_layer ? of(Array::bias, work.weights + block_floats / 2) : nullptr,
            norm.per_head ? norm.size : 0};
}

// ---- Norms ---------------------------------------------------------------------------------------------------------

/// Norms elements, which are floats in the block or still words in x.
template <bool is_layer, typename T>
void call_norm(const KvCall &call, const Block &block, const Extents &extents, const Elements<T> &x,
               const Elements<float> &y) {
    const NormDesc &norm = *call.stages(block).norm;
    const StageKernels &kernels = call.kernels();
    const std::size_t dtype = index_of(call.tensor_plan(block).dtype), rounds_to = norm.rounding == 0 ? 0 : dtype;
    const Weights weights = load_weights<is_layer>(call, block);
    StageCall(extents, Elements<const float>{weights.weight, {1, weights.stride_head, 0}},
              Elements<const float>{weights.bias, {1, weights.stride_head, 0}}, x, y)
        .join(1, 2)
        .for_each_part([&](auto *w, [[maybe_unused]] auto *b, auto *v, auto *normed) {
            if constexpr (is_layer) {
                kernels.layer_norm[rounds_to](w, norm.eps, norm.rounding, b, v, normed);
            } else if constexpr (std::is_same_v<T, float>) {
                kernels.norm[rounds_to](w, norm.eps, norm.rounding, v, normed);
            } else {
                kernels.widen_norm[dtype](w, norm.eps, norm.rounding, v, normed);
            }
        });
}

template <bool is_layer>
void norm_heads(const KvCall &call, Block &block) noexcept {
    const NormDesc &norm = *call.stages(block).norm;
    const Elements<float> window = {block.work->floats + norm.offset, block.strides};
    call_norm<is_layer>(call, block, block.extents(norm.size), window, window);
}

template <bool is_layer>
void norm_rows(const KvCall &call, Block &block) noexcept {
    call_norm<is_layer>(call, block, {block.strides.token, 1, block.n_tokens}, block.floats(), block.floats());
}

template <bool is_layer>
void load_and_norm(const KvCall &call, Block &block) noexcept {
    const Side &in = call.tensor(block).x;
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    call_norm<is_layer>(call, block, block.extents(tensor_plan.head_dim),
                        Elements<const char>{call.x(block), {in.element, in.head, in.token}, tensor_plan.bytes},
                        block.floats());
}

}  // namespace

/// Only norms of whole heads before the rotation can be joined with the load; layer norms only for f32.
bool loads_and_norms(const Listing &of) noexcept {
    const auto &norm = of.stages.norm;
    return norm && !of.stages.from_groups && !of.x_is_scattered && !norm->after && !norm->row &&
           norm->size == of.tensor_plan.head_dim && (!norm->layer || of.tensor_plan.dtype == Dtype::f32);
}

void list_norm(const Listing &of, bool is_after) noexcept {
    if (!of.stages.norm || of.stages.norm->after != is_after) {
        return;
    }
    constexpr RunStep *norms[2][2] = {{norm_heads<false>, norm_rows<false>}, {norm_heads<true>, norm_rows<true>}};
    const NormDesc &norm = *of.stages.norm;
    of.steps.norm = of.steps.n;
    if (loads_and_norms(of)) {
        of.add("load and norm", norm.layer ? load_and_norm<true> : load_and_norm<false>);
    } else {
        of.add("norm", norms[norm.layer][norm.row]);
    }
}

// ---- Rows that are longer than a block -----------------------------------------------------------------------------

namespace {

/// Multiplies the floats of a block, less the row's mean, by the row's factor and the weights, and adds the biases.
template <bool is_layer>
void norm_by_factor(const KvCall &call, const Block &block, float mean, float factor) {
    const std::int32_t rounding = call.stages(block).norm->rounding;
    const bool rounds_before = (rounding & HALYARD_NORM_ROUND_BEFORE_WEIGHT) != 0;
    const bool rounds_after = (rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0;
    const Weights weights = load_weights<is_layer>(call, block);
    with_storage(call.tensor_plan(block).dtype, [&](auto storage) {
        const auto round_if = [&](bool rounds, float v) { return rounds ? storage.widen(storage.narrow(v)) : v; };
        for (std::int64_t e = 0; e < block.strides.token; e++) {
            float v = round_if(rounds_before, (block.work->floats[e] - mean) * factor) * weights.weight[e];
            v = is_layer ? v + weights.bias[e] : v;
            block.work->floats[e] = round_if(rounds_after, v);
        }
    });
}

}  // namespace

/// Walks over the tokens of a row norm. For each, it first finds the row's mean and factor, for which it runs the steps
/// before the norm on all blocks of the row; then it runs all steps. (This file is compiled without contraction, so
/// only std::fma fuses.)
template <bool is_layer>
void walk_long_rows(const KvCall &call, Block &block) noexcept {
    const NormDesc &norm = *call.stages(block).norm;
    const Steps &steps = call.steps(block);
    const TokenBlock tokens = block.tokens();
    const std::int64_t n_heads = block.n_heads;  // of a row, all heads of the tensor
    Workspace work;
    block.work = &work;
    const auto for_each_block = [&](const auto &function) {
        for (std::int64_t head = 0; head < n_heads; head += steps.limits.heads) {
            block.take_heads(head, std::min(steps.limits.heads, n_heads - head), norm.size);
            run_steps(call, block, 0, steps.norm);
            function();
        }
    };
    // Sums as kernels do: partial sum i of 16 takes elements i, i + 16 and so on.
    const auto mean_of = [&](const auto &add) {
        float sums[16] = {};
        std::int64_t n = 0;
        for_each_block([&] {
            for (std::int64_t e = 0; e < block.strides.token; e++, n++) {
                sums[n % 16] = add(sums[n % 16], work.floats[e]);
            }
        });
        for (int half = 8; half >= 1; half /= 2) {
            for (int i = 0; i < half; i++) {
                sums[i] += sums[i + half];
            }
        }
        return sums[0] / static_cast<float>(n);
    };
    for (std::int64_t token = 0; token < tokens.n_tokens; token++) {
        block.take_tokens(tokens, token, 1);
        const float mean = is_layer ? mean_of([](float sum, float v) { return sum + v; }) : 0.0f;
        const float mean_square = mean_of([=](float sum, float v) { return std::fma(v - mean, v - mean, sum); });
        const float factor = 1.0f / std::sqrt(mean_square + norm.eps);
        for_each_block([&] {
            norm_by_factor<is_layer>(call, block, mean, factor);
            run_steps(call, block, steps.norm + 1, steps.n);
        });
    }
    block.work = nullptr;
}

template void walk_long_rows<false>(const KvCall &call, Block &block) noexcept;
template void walk_long_rows<true>(const KvCall &call, Block &block) noexcept;

// ---- Norm and rotation in one kernel -------------------------------------------------------------------------------

namespace {

/// Norms and rotates a stretch, in one or more calls of the kernel.
void norm_and_rotate_stretch(const KvCall &call, const Block &block, const float *weight, const Stretch &stretch) {
    const TensorProgram &direct = call.kv_program.tensors[block.index].direct;
    const std::int64_t n_pairs = block.rows->n_pairs;
    halyard_buffer of_weight;
    halyard_dimension weight_dims[2];
    set_buffer(of_weight, weight, weight_dims);
    set_dimension(weight_dims[0], n_pairs, 1);
    set_dimension(weight_dims[1], 2, n_pairs);
    for_each_call(call.whole_heads(block), stretch, direct.find_limits(direct, stretch, n_pairs),
                  [&](halyard_buffer *tokens, halyard_buffer *x, halyard_buffer *y) {
                      call.kernels().norm_rotate[index_of(call.tensor_plan(block).dtype)](
                          &of_weight, call.stages(block).norm->eps, tokens, &block.rows->cos, &block.rows->sin,
                          call.plan().sin_sign, x, y);
                  });
}

template <Where to>
void norm_and_rotate_stretches(const KvCall &call, const Block &block, const float *weight) {
    for_each_stretch<Where::view, to>(
        call, block, [&](const Stretch &stretch) { norm_and_rotate_stretch(call, block, weight, stretch); });
}

/// The same with weights that must be converted to floats. (Not inlined, because it would make the stack frame of its
/// caller large, which slows small calls, as walk_blocks says.)
template <Where to>
[[gnu::noinline]] void widen_weights_and_rotate(const KvCall &call, const Block &block) {
    alignas(64) float room[max_head];
    widen_weights(call, block, Array::weight, 0, call.stages(block).norm->size, room);
    norm_and_rotate_stretches<to>(call, block, room);
}

template <Where to>
void norm_and_rotate(const KvCall &call, Block &block) noexcept {
    const float *const weight = floats_in_memory(call, block, Array::weight);
    weight != nullptr ? norm_and_rotate_stretches<to>(call, block, weight) : widen_weights_and_rotate<to>(call, block);
}

void norm_and_rotate_to_words(const KvCall &call, Block &block) noexcept {
    norm_and_rotate_stretch(call, block, load_weights<false>(call, block).weight, stretch_of_words(call, block));
}

}  // namespace

void list_norm_and_rotation(const Listing &of) noexcept {
    if (of.steps.in_blocks()) {
        of.add("norm and rotate", norm_and_rotate_to_words);
    } else {
        of.add("norm and rotate to the output",
               of.to_cache() ? norm_and_rotate<Where::cache> : norm_and_rotate<Where::view>);
    }
}

}  // namespace halyard
