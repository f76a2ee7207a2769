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

/// Copies elements first … last - 1 of each head. What lies side by side in x and in y is copied at once.
void copy_columns(const TensorProgram &tensor, std::int64_t bytes, const Stretch &stretch, std::int64_t first,
                  std::int64_t last) {
    const Side &in = tensor.x, &out = tensor.y;
    const bool is_dense = in.element == 1 && out.element == 1;
    std::int64_t n = last - first, n_heads = stretch.n_heads, n_tokens = stretch.n_tokens;
    if (is_dense && are_adjacent(in.head, out.head, n)) {
        n *= std::exchange(n_heads, 1);
    }
    if (is_dense && are_adjacent(stretch.in_token, stretch.out_token, n)) {
        n *= std::exchange(n_tokens, 1);
    }
    for (std::int64_t token = 0; token < n_tokens && n > 0; token++) {
        for (std::int64_t head = 0; head < n_heads; head++) {
            const char *from = stretch.x + (token * stretch.in_token + head * in.head + first * in.element) * bytes;
            char *to = stretch.y + (token * stretch.out_token + head * out.head + first * out.element) * bytes;
            if (is_dense) {
                std::memcpy(to, from, static_cast<std::size_t>(n * bytes));
            } else {
                for (std::int64_t i = 0; i < n; i++, from += in.element * bytes, to += out.element * bytes) {
                    std::memcpy(to, from, static_cast<std::size_t>(bytes));
                }
            }
        }
    }
}

}  // namespace

Limits find_limits(const TensorProgram &tensor, const Stretch &stretch, std::int64_t n_pairs) noexcept {
    if (tensor.within_int32) {
        return {stretch.n_heads, stretch.n_tokens};
    }
    const Side &in = tensor.in(), &out = tensor.y;
    const auto larger = [](std::int64_t a, std::int64_t b) { return std::max(std::abs(a), std::abs(b)); };
    const std::int64_t head = std::max((n_pairs - 1) * std::abs(in.pair) + std::abs(in.member),
                                       (n_pairs - 1) * std::abs(out.pair) + std::abs(out.member));
    if (head > max_offset) {
        return {0, 0};
    }
    const std::int64_t stride_head = larger(in.head, out.head);
    const std::int64_t heads = count_fitting(stretch.n_heads, stride_head, max_offset - head);
    const std::int64_t rest = max_offset - head - (heads - 1) * stride_head;
    return {heads, count_fitting(stretch.n_tokens, larger(stretch.in_token, stretch.out_token), rest)};
}

void set_part_dims(const Side &side, const Kernel &kernel, std::int64_t n_pairs, const Stretch &part,
                   std::int64_t stride_token, halyard_dimension (&dims)[4]) noexcept {
    const int halve = kernel.packed ? 1 : 0;
    const bool halves = kernel.packed && kernel.pairing == Pairing::half;  // a word holds members of two pairs
    set_dimension(dims[0], halves ? n_pairs / 2 : n_pairs, side.dims[0].stride);
    set_dimension(dims[1], side.dims[1].extent, side.dims[1].stride);
    set_dimension(dims[2], part.n_heads, side.dims[2].stride);
    set_dimension(dims[3], part.n_tokens, stride_token >> halve);
}

namespace {

void rotate_window(const halyard_plan &plan, const TensorPlan &tensor_plan, const TensorProgram &tensor,
                   const Stretch &stretch, Rows &rows, const Kernel &kernel) {
    Limits limits = find_limits(tensor, stretch, plan.rotary_dim / 2);
    limits.heads = count_heads_at_once(tensor_plan, tensor, limits.heads, stretch.n_tokens);
    if (kernel.function == nullptr || limits.heads == 0) {
        rotate_reference(plan, tensor_plan, tensor, stretch, rows);
        return;
    }
    for_each_call(tensor_plan, tensor, kernel, stretch, rows, limits,
                  [&](halyard_buffer *tokens, halyard_buffer *x, halyard_buffer *y) {
                      kernel.function(tokens, &rows.cos, &rows.sin, plan.sin_sign, x, y);
                  });
}

}  // namespace

void rotate(const halyard_plan &plan, const TensorPlan &tensor_plan, const TensorProgram &tensor,
            const Stretch &stretch, Rows *rows, bool past_caches) noexcept {
    const std::int64_t bytes = tensor_plan.bytes, head_dim = tensor_plan.head_dim;
    if (rows == nullptr) {
        copy_columns(tensor, bytes, stretch, 0, tensor.in_place ? 0 : head_dim);
        return;
    }
    if (tensor.in_place || rows->first_pair != 0 || head_dim == plan.rotary_dim) {  // nothing to copy
        rotate_window(plan, tensor_plan, tensor, stretch, *rows, past_caches ? *tensor.large : *tensor.kernel);
        return;
    }
    const bool are_heads_adjacent = are_adjacent(tensor.x.head, tensor.y.head, head_dim);
    if (are_heads_adjacent || are_adjacent(stretch.in_token, stretch.out_token, head_dim)) {
        // Whole heads are copied, and the rotation overwrites their windows. Copying only the elements outside the
        // windows took 1.03 to 1.8 times as long (64 heads of 80 with rotary_dim 32, 32 of 256 with 64; 1 to 4096
        // tokens, in the CPU's caches or not), and 1.1 to 2.2 times as long if tokens are adjacent (Zen 5, 2026-11-29).
        constexpr std::int64_t part_bytes = 24 << 10;  // input and output of a part fit an L1 cache of 48 KiB
        const std::int64_t token_bytes = stretch.n_heads * head_dim * bytes;
        const std::int64_t n_tokens = are_heads_adjacent ? part_bytes / token_bytes : stretch.n_tokens;
        const Limits limits = {stretch.n_heads, std::max<std::int64_t>(n_tokens, 1)};
        for_each_part(tensor_plan, tensor, stretch, limits, [&](const Stretch &part) {
            copy_columns(tensor, bytes, part, 0, head_dim);
            rotate_window(plan, tensor_plan, tensor, part, *rows, *tensor.kernel);
        });
        return;
    }
    rotate_window(plan, tensor_plan, tensor, stretch, *rows, *tensor.kernel);
    copy_columns(tensor, bytes, stretch, 0, tensor_plan.rotary_offset);
    copy_columns(tensor, bytes, stretch, tensor_plan.rotary_offset + plan.rotary_dim, head_dim);
}

}  // namespace halyard
