#include "walk/piece.h"

#include "base/storage.h"
#include "walk/reference.h"

#include <algorithm>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace halyard {

namespace {

std::int64_t distance(std::int64_t stride) { return stride < 0 ? -stride : stride; }

/// How many steps of a stride fit into room; at least the first element does.
std::int64_t fitting(std::int64_t count, std::int64_t stride, std::int64_t room) {
    return count <= 1 || stride == 0 ? count : std::min(count, 1 + room / distance(stride));
}

/// Copies with non-temporal stores, where the compiler's target has them and the output is aligned; store_fence must
/// follow. Of the time by way of the caches, 4096 tokens take .54 with 64 of 256 columns rotated (16 heads) and .8 with
/// 32 of 80 (32 heads), rotation and copy together (f32, AVX2; Zen 4, 2026-11).
void copy_non_temporally(char *to, const char *from, std::size_t n) {
    std::size_t done = 0;
#ifdef __SSE2__
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128i) == 0) {
        for (; done + sizeof(__m128i) <= n; done += sizeof(__m128i)) {
            _mm_stream_si128(reinterpret_cast<__m128i *>(to + done),
                             _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + done)));
        }
    }
#endif
    std::memcpy(to + done, from + done, n - done);
}

/// Orders non-temporal stores before whatever the thread does next, such as telling another one.
void store_fence() {
#ifdef __SSE2__
    _mm_sfence();
#endif
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

void copy_elements(std::int64_t bytes, bool non_temporal, Extents extents, const Elements<const char> &x,
                   const Elements<char> &y) noexcept {
    const ElementStrides &in = x.strides, &out = y.strides;
    auto &[n, n_heads, n_tokens] = extents;
    if (in.element == 1 && out.element == 1 && in.head == n && out.head == n) {
        n *= n_heads;  // heads that lie side by side are one
        n_heads = 1;
    }
    for (std::int64_t token = 0; token < n_tokens && n > 0; token++) {
        for (std::int64_t head = 0; head < n_heads; head++) {
            const char *from = x.data + (token * in.token + head * in.head) * bytes;
            char *to = y.data + (token * out.token + head * out.head) * bytes;
            if (in.element == 1 && out.element == 1) {
                const auto n_bytes = static_cast<std::size_t>(n * bytes);
                if (non_temporal) {
                    copy_non_temporally(to, from, n_bytes);
                } else {
                    std::memcpy(to, from, n_bytes);
                }
                continue;
            }
            for (std::int64_t i = 0; i < n; i++) {
                std::memcpy(to, from, static_cast<std::size_t>(bytes));
                from += in.element * bytes;
                to += out.element * bytes;
            }
        }
    }
    if (non_temporal) {
        store_fence();
    }
}

}  // namespace halyard
