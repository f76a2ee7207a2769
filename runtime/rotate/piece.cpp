#include "rotate/piece.h"

#include "base/storage.h"
#include "rotate/reference.h"

#include <algorithm>

namespace halyard {

namespace {

std::int64_t distance(std::int64_t stride) { return stride < 0 ? -stride : stride; }

/// How many steps of a stride fit into room; at least the first element does.
std::int64_t fitting(std::int64_t count, std::int64_t stride, std::int64_t room) {
    return count <= 1 || stride == 0 ? count : std::min(count, 1 + room / distance(stride));
}

}  // namespace

void rotate_in_parts(const Kernel &kernel, const Piece &whole) noexcept {
    const auto head_reach = [&](const PairStrides &s) {
        return (whole.n_pairs - 1) * distance(s.pair) + distance(s.member);
    };
    const std::int64_t head = std::max(head_reach(whole.in), head_reach(whole.out));
    if (kernel.function == nullptr || head > max_offset) {
        rotate_reference(whole);
        return;
    }
    const bool rows_fit = whole.n_rows * whole.stride_row <= max_offset;
    const std::int64_t stride_head = std::max(distance(whole.in.head), distance(whole.out.head));
    const std::int64_t stride_token = std::max(distance(whole.in.token), distance(whole.out.token));
    const std::int64_t heads_at_once = fitting(whole.n_heads, stride_head, max_offset - head);
    const std::int64_t heads = head + (heads_at_once - 1) * stride_head;
    const std::int64_t tokens_at_once = rows_fit ? fitting(whole.n_tokens, stride_token, max_offset - heads) : 1;

    const std::int64_t bytes = element_bytes(whole.dtype);
    Piece piece = whole;
    for (std::int64_t token = 0; token < whole.n_tokens; token += tokens_at_once) {
        piece.n_tokens = std::min(tokens_at_once, whole.n_tokens - token);
        piece.row_of_token = whole.row_of_token + token;
        const std::int32_t first_row = 0;
        if (!rows_fit) {
            // One token, so its row can be the only one.
            const std::int64_t row = whole.row_of_token[token] * whole.stride_row * std::int64_t{sizeof(float)};
            piece.cos_rows = whole.cos_rows + row;
            piece.sin_rows = whole.sin_rows + row;
            piece.n_rows = 1;
            piece.row_of_token = &first_row;
        }
        for (std::int64_t at = 0; at < whole.n_heads; at += heads_at_once) {
            piece.n_heads = std::min(heads_at_once, whole.n_heads - at);
            piece.x = whole.x + (token * whole.in.token + at * whole.in.head) * bytes;
            piece.y = whole.y + (token * whole.out.token + at * whole.out.head) * bytes;
            call_kernel(kernel, piece);
        }
    }
}

}  // namespace halyard
