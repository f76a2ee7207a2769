#include "core/rotate.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace halyard {

namespace {

/// How many of n items, each `stride` after the one before, begin within `room` of the first; at least one.
std::int64_t count_fitting(std::int64_t n, std::int64_t stride, std::int64_t room) {
    return n <= 1 || stride == 0 ? n : std::min(n, 1 + room / std::abs(stride));
}

/// Whether items of n elements lie side by side in x and in y, by the strides of both.
bool are_adjacent(std::int64_t in_stride, std::int64_t out_stride, std::int64_t n) {
    return in_stride == n && out_stride == n;
}

/// Copies n elements, from number `first` on, of n_heads heads of n_tokens tokens. (If rows hold later pairs of long
/// heads, the call for the first pairs has copied.)
template <bool is_dense>
void copy_columns(const TensorCall &call, const Stretch &stretch, std::int64_t first, std::int64_t n,
                  std::int64_t n_heads, std::int64_t n_tokens) {
    const Side &in = call.tensor.x, &out = call.tensor.y;
    const std::int64_t bytes = call.tensor_plan.bytes;
    for (std::int64_t token = 0; token < n_tokens && n > 0 && call.rows.first_pair == 0; token++) {
        for (std::int64_t head = 0; head < n_heads; head++) {
            const char *from = stretch.x + (token * stretch.in_token + head * in.head + first * in.element) * bytes;
            char *to = stretch.y + (token * stretch.out_token + head * out.head + first * out.element) * bytes;
            if constexpr (is_dense) {
                std::memcpy(to, from, static_cast<std::size_t>(n * bytes));
            } else {
                for (std::int64_t i = 0; i < n; i++, from += in.element * bytes, to += out.element * bytes) {
                    std::memcpy(to, from, static_cast<std::size_t>(bytes));
                }
            }
        }
    }
}

/// How far the pairs of a head extend in x or in y, in elements.
std::int64_t reach_of_head(const TensorProgram &tensor, std::int64_t n_pairs) {
    const auto reach = [=](const Side &side) { return (n_pairs - 1) * std::abs(side.pair) + std::abs(side.member); };
    return std::max(reach(tensor.in()), reach(tensor.y));
}

}  // namespace

Limits find_no_limits(const TensorProgram &, const Stretch &stretch, std::int64_t) noexcept {
    return {stretch.n_heads, stretch.n_tokens};
}

Limits find_limits_of_far(const TensorProgram &tensor, const Stretch &stretch, std::int64_t n_pairs) noexcept {
    const auto larger = [](std::int64_t a, std::int64_t b) { return std::max(std::abs(a), std::abs(b)); };
    const std::int64_t head = reach_of_head(tensor, n_pairs);
    const std::int64_t stride_head = larger(tensor.in().head, tensor.y.head);
    const std::int64_t heads = count_fitting(stretch.n_heads, stride_head, max_offset - head);
    const std::int64_t rest = max_offset - head - (heads - 1) * stride_head;
    return {heads, count_fitting(stretch.n_tokens, larger(stretch.in_token, stretch.out_token), rest)};
}

void set_part_dims(const Side &side, int halve, std::int64_t n_pairs, const Stretch &part, std::int64_t stride_token,
                   halyard_dimension (&dims)[4]) noexcept {
    set_dimension(dims[0], n_pairs >> (halve & (side.dims[1].extent - 1)), side.dims[0].stride);  // see set_kernel_dims
    set_dimension(dims[1], side.dims[1].extent, side.dims[1].stride);
    set_dimension(dims[2], part.n_heads, side.dims[2].stride);
    set_dimension(dims[3], part.n_tokens, stride_token >> halve);
}

// ---- Ways to rotate a stretch --------------------------------------------------------------------------------------

namespace {

void call_within(const TensorCall &call, const Stretch &stretch, const Limits &reach) {
    const Limits limits = {count_heads_at_once(call.tensor, reach.heads, stretch.n_tokens), reach.tokens};
    for_each_call(call, stretch, limits, [&](halyard_buffer *tokens, halyard_buffer *x, halyard_buffer *y) {
        call.kernel.function(tokens, &call.rows.cos, &call.rows.sin, call.plan.sin_sign, x, y);
    });
}

/// For tensors that 32-bit offsets do not reach as a whole.
void rotate_far_by_kernel(const TensorCall &call, const Stretch &stretch) noexcept {
    call_within(call, stretch, find_limits_of_far(call.tensor, stretch, call.plan.rotary_dim / 2));
}

void leave_heads(const TensorCall &, const Stretch &) noexcept {}

/// Copies whole heads. Adjacent heads of contiguous elements are copied at once, and so are tokens where adjacent.
template <bool is_dense, bool heads_are_adjacent>
void copy_heads(const TensorCall &call, const Stretch &stretch) noexcept {
    std::int64_t n = call.tensor_plan.head_dim * (heads_are_adjacent ? stretch.n_heads : 1),
                 n_tokens = stretch.n_tokens;
    if (is_dense && are_adjacent(stretch.in_token, stretch.out_token, n)) {
        n *= std::exchange(n_tokens, 1);
    }
    copy_columns<is_dense>(call, stretch, 0, n, heads_are_adjacent ? 1 : stretch.n_heads, n_tokens);
}

/// Copies whole heads, whose windows the rotation then overwrites: for tokens that are adjacent.
void copy_and_rotate(const TensorCall &call, const Stretch &stretch) noexcept {
    call.tensor.copy(call, stretch);
    call.tensor.rotate_windows(call, stretch);
}

/// The same for heads that are adjacent, a few tokens at a time, whose input and output fit an L1 cache of 48 KiB.
/// Copying only the elements outside the windows took 1.03 to 1.8 times as long (64 heads of 80 with rotary_dim 32, 32
/// of 256 with 64; 1 to 4096 tokens, in the CPU's caches or not), and 1.1 to 2.2 times as long if tokens are adjacent
/// (Zen 5, 2026-11-29).
void copy_and_rotate_parts(const TensorCall &call, const Stretch &stretch) noexcept {
    constexpr std::int64_t part_bytes = 24 << 10;
    const std::int64_t token_bytes = stretch.n_heads * call.tensor_plan.head_dim * call.tensor_plan.bytes;
    for_each_part(call, stretch, {stretch.n_heads, std::max<std::int64_t>(part_bytes / token_bytes, 1)},
                  [&](const Stretch &part) { copy_and_rotate(call, part); });
}

template <bool is_dense>
void rotate_and_copy_rest(const TensorCall &call, const Stretch &stretch) noexcept {
    const std::int64_t offset = call.tensor_plan.rotary_offset, end = offset + call.plan.rotary_dim;
    call.tensor.rotate_windows(call, stretch);
    copy_columns<is_dense>(call, stretch, 0, offset, stretch.n_heads, stretch.n_tokens);
    copy_columns<is_dense>(call, stretch, end, call.tensor_plan.head_dim - end, stretch.n_heads, stretch.n_tokens);
}

}  // namespace

void rotate_by_kernel(const TensorCall &call, const Stretch &stretch) noexcept {
    call_within(call, stretch, {stretch.n_heads, stretch.n_tokens});
}

void choose_other_rotation(const halyard_plan &plan, const TensorPlan &tensor_plan, std::int64_t in_token,
                           std::int64_t out_token, TensorProgram &tensor) noexcept {
    const std::int64_t head_dim = tensor_plan.head_dim;
    tensor.find_limits = tensor.within_int32 ? find_no_limits : find_limits_of_far;
    if (tensor.kernel->function == nullptr) {
        tensor.rotate_windows = rotate_by_reference;
    } else if (tensor_plan.rotates && !tensor.within_int32) {
        const bool reaches_head = reach_of_head(tensor, plan.rotary_dim / 2) <= max_offset;
        tensor.rotate_windows = reaches_head ? rotate_far_by_kernel : rotate_by_reference;
    }
    if (tensor.in_place || (tensor_plan.rotates && head_dim == plan.rotary_dim)) {  // nothing to copy
        tensor.rotate = tensor_plan.rotates ? tensor.rotate_windows : leave_heads;
        return;
    }
    const bool is_dense = tensor.x.element == 1 && tensor.y.element == 1;
    const bool heads_are_adjacent = is_dense && are_adjacent(tensor.x.head, tensor.y.head, head_dim);
    tensor.copy = !is_dense            ? copy_heads<false, false>
                  : heads_are_adjacent ? copy_heads<true, true>
                                       : copy_heads<true, false>;
    tensor.rotate = !tensor_plan.rotates                          ? tensor.copy
                    : heads_are_adjacent                          ? copy_and_rotate_parts
                    : !is_dense                                   ? rotate_and_copy_rest<false>
                    : are_adjacent(in_token, out_token, head_dim) ? copy_and_rotate
                                                                  : rotate_and_copy_rest<true>;
}

}  // namespace halyard
