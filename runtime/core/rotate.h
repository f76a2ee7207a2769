// Calls kernels: for some heads of some tokens of one tensor.
#pragma once

#include "core/check_and_bind.h"
#include "core/rows.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace halyard {

/// The largest offset that a generated kernel's 32-bit arithmetic can hold.
inline constexpr std::int64_t max_offset = INT32_MAX;

/// Sets extent and stride of a dimension; kernels do not read min. One store writes both numbers, because stores limit
/// the speed of a call for a single head.
inline void set_dimension(halyard_dimension &dim, std::int64_t extent, std::int64_t stride) noexcept {
    const std::int32_t numbers[2] = {static_cast<std::int32_t>(extent), static_cast<std::int32_t>(stride)};
    const auto both = std::bit_cast<std::uint64_t>(numbers);
    static_assert(offsetof(halyard_dimension, stride) == offsetof(halyard_dimension, extent) + sizeof(std::int32_t));
    std::memcpy(&dim.extent, &both, sizeof(both));
}

/// Sets host and dim of a buffer; kernels read nothing else of it.
inline void set_buffer(halyard_buffer &buffer, const void *host, const halyard_dimension *dims) noexcept {
    buffer.host = static_cast<std::uint8_t *>(const_cast<void *>(host));
    buffer.dim = const_cast<halyard_dimension *>(dims);
}

/// Rows of cos and sin as kernels read them, for some pairs.
struct Rows {
    halyard_buffer cos, sin;    // floats, at any address
    halyard_dimension dims[2];  // of cos and sin: pairs, rows
    std::int64_t first_pair, n_pairs;

    Rows(const void *cos_rows, const void *sin_rows, std::int64_t n_rows, std::int64_t stride_row, std::int64_t first,
         std::int64_t n) noexcept
        : first_pair(first), n_pairs(n) {
        set_buffer(cos, cos_rows, dims);
        set_buffer(sin, sin_rows, dims);
        set_dimension(dims[0], n, 1);
        set_dimension(dims[1], n_rows, stride_row);  // NOLINT(*UninitializedObject): see set_buffer
    }
    Rows(const Rows &) = delete;
    Rows &operator=(const Rows &) = delete;
};

/// Tokens whose rows are found or made together.
struct TokenBlock {
    std::int64_t first, n_tokens;      // counted through all batch rows
    const std::int32_t *row_of_token;  // [n_tokens]
};

/// x or y of a kernel's call: the address of the first pair, and the dimensions [pairs, members, heads, tokens].
struct Operand {
    const void *data;
    const halyard_dimension *dims;
};

/// Calls function(tokens, x, y) with the buffers of a kernel's operands. In place, x is ignored: it is y.
template <typename Function>
[[gnu::always_inline]] inline void with_buffers(const TokenBlock &block, bool in_place, const Operand &x,
                                                const Operand &y, const Function &function) noexcept {
    halyard_buffer tokens, from, to;
    halyard_dimension of_tokens[1];
    set_dimension(of_tokens[0], block.n_tokens, 1);
    set_buffer(tokens, block.row_of_token, of_tokens);
    set_buffer(to, y.data, y.dims);
    if (!in_place) {
        set_buffer(from, x.data, x.dims);
    }
    function(&tokens, in_place ? &to : &from, &to);
}

/// Calls a kernel that only rotates.
inline void call_kernel(const Kernel &kernel, std::uint32_t sin_sign, Rows &rows, const TokenBlock &block,
                        bool in_place, const Operand &x, const Operand &y) noexcept {
    with_buffers(block, in_place, x, y, [&](halyard_buffer *tokens, halyard_buffer *from, halyard_buffer *to) {
        kernel.function(tokens, &rows.cos, &rows.sin, sin_sign, from, to);
    });
}

/// Sets pair, member and dims of a side, for this pairing and TensorProgram::halve. (Inline for the cost of a run.)
[[gnu::always_inline]] inline void set_kernel_dims(int halve, Pairing pairing, std::int64_t n_pairs,
                                                   std::int64_t n_heads, std::int64_t n_tokens, Side &side) noexcept {
    const bool is_half = pairing == Pairing::half;
    side.pair = is_half ? side.element : 2 * side.element;
    side.member = is_half ? n_pairs * side.element : side.element;
    const bool pair_in_word = halve != 0 && !is_half;
    set_dimension(side.dims[0], pair_in_word ? n_pairs : n_pairs >> halve, pair_in_word ? 1 : side.pair);
    set_dimension(side.dims[1], pair_in_word ? 1 : 2, side.member >> halve);
    set_dimension(side.dims[2], n_heads, side.head >> halve);
    set_dimension(side.dims[3], n_tokens, side.token >> halve);
}

/// A call for one tensor: the program's part of it, and what depends on pointers.
struct TensorCall {
    const halyard_plan &plan;
    const TensorPlan &tensor_plan;
    const TensorProgram &tensor;
    const Kernel &kernel;
    Rows &rows;
};

/// Some heads of some tokens, which are evenly spaced in x and in y.
struct Stretch {
    const char *x;  // the first element of the first head of the first token
    char *y;
    const std::int32_t *row_of_token;  // [n_tokens]
    std::int64_t n_heads, n_tokens;
    std::int64_t in_token, out_token;  // strides between tokens
};

/// How many heads and tokens of a stretch the 32-bit offsets of one kernel's call can reach. (They reach one head; if
/// not, bind has chosen the reference.)
struct Limits {
    std::int64_t heads, tokens;
};
FindLimits find_no_limits, find_limits_of_far;

/// How many of n_heads heads of n_tokens tokens one call of a kernel rotates.
inline std::int64_t count_heads_at_once(const TensorProgram &tensor, std::int64_t n_heads,
                                        std::int64_t n_tokens) noexcept {
    constexpr std::int64_t few_tokens = 8;
    return n_tokens < few_tokens ? n_heads : std::min(n_heads, tensor.heads_at_once);
}

/// Calls function(part) for parts of a stretch that are within the limits.
template <typename Function>
void for_each_part(const TensorCall &call, const Stretch &stretch, const Limits &limits, const Function &function) {
    const std::int64_t of_x = call.tensor.in().head, of_y = call.tensor.y.head, bytes = call.tensor_plan.bytes;
    for (std::int64_t token = 0; token < stretch.n_tokens; token += limits.tokens) {
        const std::int64_t n_tokens = std::min(stretch.n_tokens - token, limits.tokens);
        for (std::int64_t head = 0; head < stretch.n_heads; head += limits.heads) {
            // Not a copy that is changed: it would load two words at once that were just stored apart, and so wait.
            function(Stretch{stretch.x + (token * stretch.in_token + head * of_x) * bytes,
                             stretch.y + (token * stretch.out_token + head * of_y) * bytes,
                             stretch.row_of_token + token, std::min(stretch.n_heads - head, limits.heads), n_tokens,
                             stretch.in_token, stretch.out_token});
        }
    }
}

/// Sets the dims of one side of such a part: the extents are the part's, the strides those of set_kernel_dims, except
/// that the part's tokens are stride_token elements apart.
void set_part_dims(const Side &side, int halve, std::int64_t n_pairs, const Stretch &part, std::int64_t stride_token,
                   halyard_dimension (&dims)[4]) noexcept;

/// Calls function(tokens, x, y), as with_buffers does, with the pairs of the call's rows of such parts.
template <typename Function>
void for_each_call(const TensorCall &call, const Stretch &stretch, const Limits &limits, const Function &function) {
    const TensorProgram &tensor = call.tensor;
    const Side &in = tensor.in(), &out = tensor.y;
    const std::int64_t n_pairs = call.rows.n_pairs;
    const std::int64_t of_x = in.window + call.rows.first_pair * in.pair * call.tensor_plan.bytes;
    const std::int64_t of_y = out.window + call.rows.first_pair * out.pair * call.tensor_plan.bytes;
    for_each_part(call, stretch, limits, [&](const Stretch &part) {
        halyard_dimension x_dims[4], y_dims[4];
        set_part_dims(in, tensor.halve, n_pairs, part, part.in_token, x_dims);
        set_part_dims(out, tensor.halve, n_pairs, part, part.out_token, y_dims);
        with_buffers({0, part.n_tokens, part.row_of_token}, tensor.in_place, {part.x + of_x, x_dims},
                     {part.y + of_y, y_dims}, function);
    });
}

RotateStretch rotate_by_kernel;
void choose_other_rotation(const halyard_plan &plan, const TensorPlan &tensor_plan, std::int64_t in_token,
                           std::int64_t out_token, TensorProgram &tensor) noexcept;

/// Chooses how stretches of a tensor are rotated, by its strides and its kernel, which are set; tokens are in_token and
/// out_token elements apart. Sets heads_at_once, rotate, rotate_windows, copy and find_limits. (Inline for the cost of
/// a run.)
[[gnu::always_inline]] inline void choose_rotation(const halyard_plan &plan, const TensorPlan &tensor_plan,
                                                   std::int64_t in_token, std::int64_t out_token,
                                                   TensorProgram &tensor) noexcept {
    // Heads that are a multiple of 4 KiB apart, as often in [batch, heads, tokens, head_dim], have their elements in
    // the same sets of an L1 cache, which hold 8 or 12 lines: more heads would evict each other's lines. Eight at a
    // time take .66 to .90 of the time in place, for f32 and f16, and .80 to 1.02 out of place (32 and 64 heads of 128,
    // 8 to 256 tokens; Xeon of family 6 model 207, 2026-11-30). On a Zen 4 they take .79 to .99 for f32, and f16 gains
    // nothing. bf16 gains nothing on either, as its arithmetic takes longer.
    const bool share_sets = tensor_plan.dtype != Dtype::bf16 && tensor.y.head * tensor_plan.bytes % 4096 == 0;
    tensor.heads_at_once = share_sets ? 8 : INT64_MAX;
    tensor.rotate = tensor.rotate_windows = rotate_by_kernel;
    tensor.find_limits = find_no_limits;
    if (!tensor_plan.rotates || !tensor.within_int32 || tensor.kernel->function == nullptr ||
        (!tensor.in_place && tensor_plan.head_dim != plan.rotary_dim)) {
        choose_other_rotation(plan, tensor_plan, in_token, out_token, tensor);
    }
}

// ---- The portable reference (reference.cpp): what kernels compute, in plain C++ with std::fma ---------------------

/// Calls function(storage) with the converter of a dtype that can be rotated: F32{}, F16{} or BF16{}.
template <typename Function>
void with_storage(Dtype dtype, const Function &function) {
    dtype == Dtype::f32 ? function(F32{}) : dtype == Dtype::f16 ? function(F16{}) : function(BF16{});
}

/// Rotates the windows of a stretch of any strides, with the arithmetic of generators/arithmetic/rotation.h.
RotateStretch rotate_by_reference;

/// Makes one row, with the arithmetic of generators/rows_generator.cpp.
void phase_row_reference(std::int32_t position, const Phases &phases, std::int64_t n_pairs, float *cos_row,
                         float *sin_row) noexcept;

}  // namespace halyard
