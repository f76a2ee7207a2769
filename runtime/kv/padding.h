// Copies of heads that are no whole vectors, for kernels that reduce heads.
#pragma once

#include "kv/operands.h"

namespace halyard {

/// Kernels that reduce heads take so many elements at once.
inline constexpr std::int64_t whole_vectors = 16;

inline std::int64_t padded(std::int64_t n_elements) {
    return (n_elements + whole_vectors - 1) / whole_vectors * whole_vectors;
}

/// What heads are padded with: zeros, which change no sum, or their first element, which changes neither end of a
/// range.
enum class Padding { zeros, first_element };

inline constexpr std::int64_t padded_floats = 2 * 1024;

/// Copies n heads, each padded to whole vectors.
inline void copy_padded(Padding padding, std::int64_t n_elements, std::int64_t n_heads, std::int64_t stride_head,
                        const float *from, float *to) {
    for (std::int64_t h = 0; h < n_heads; h++, from += stride_head, to += padded(n_elements)) {
        std::copy_n(from, n_elements, to);
        std::fill(to + n_elements, to + padded(n_elements), padding == Padding::zeros ? 0.0f : to[0]);
    }
}

/// Calls function(extents, heads, first_head, token) with the heads of a block if they are whole vectors, else with
/// padded copies of some heads of a token. If `writes`, what it changes is copied back.
template <typename Function>
void with_whole_vectors(Padding padding, bool writes, const Extents &extents, const Elements<float> &block,
                        const Function &function) {
    if (extents.n_elements % whole_vectors == 0) {
        function(extents, block, 0, 0);
        return;
    }
    alignas(64) float copy[padded_floats];
    const std::int64_t stride = padded(extents.n_elements), at_once = padded_floats / stride;
    for (std::int64_t t = 0; t < extents.n_tokens; t++) {
        for (std::int64_t first = 0; first < extents.n_heads; first += at_once) {
            const std::int64_t n_heads = std::min(at_once, extents.n_heads - first);
            float *const heads = block.data + t * block.strides.token + first * block.strides.head;
            copy_padded(padding, extents.n_elements, n_heads, block.strides.head, heads, copy);
            function(Extents{stride, n_heads, 1}, Elements<float>{copy, {1, stride, 0}}, first, t);
            for (std::int64_t h = 0; h < n_heads && writes; h++) {
                std::copy_n(copy + h * stride, extents.n_elements, heads + h * block.strides.head);
            }
        }
    }
}

}  // namespace halyard
