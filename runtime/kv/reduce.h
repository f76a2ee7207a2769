// The largest magnitude, or both ends of the range, of the finite elements of heads.
#pragma once

#include "kv/operands.h"
#include "kv/padding.h"
#include "kv/stage_kernels.h"

namespace halyard {

/// The largest magnitude of each head, 0 where nothing is finite: [token][head], dense.
inline void find_largest(const StageKernels &kernels, const Extents &extents, const Elements<float> &block,
                         float *largest) noexcept {
    with_whole_vectors(
        Padding::zeros, false, extents, block,
        [&](const Extents &whole, const Elements<float> &heads, std::int64_t first_head, std::int64_t token) {
            float *const found = largest + token * extents.n_heads + first_head;
            StageOperand from(heads, sizeof(float)), to(Elements<float>{found, {0, 1, whole.n_heads}}, sizeof(float));
            StageCall<2> call = {{whole.n_elements, whole.n_heads, whole.n_tokens}, {&from, &to}};
            call.join(1, 2);
            call.for_each_part([&](halyard_buffer *(&buffers)[2]) {
                buffers[1]->dim++;  // it is [heads, tokens]
                kernels.largest[0](buffers[0], buffers[1]);
            });
        });
}

/// The least and the greatest element likewise. No zero has a sign.
inline void find_range(const StageKernels &kernels, const Extents &extents, const Elements<float> &block, float *least,
                       float *greatest) noexcept {
    with_whole_vectors(
        Padding::first_element, false, extents, block,
        [&](const Extents &whole, const Elements<float> &heads, std::int64_t first_head, std::int64_t token) {
            const std::int64_t at = token * extents.n_heads + first_head;
            const ElementStrides of_head = {0, 1, whole.n_heads};
            StageOperand from(heads, sizeof(float)), low(Elements<float>{least + at, of_head}, sizeof(float)),
                high(Elements<float>{greatest + at, of_head}, sizeof(float));
            StageCall<3> call = {{whole.n_elements, whole.n_heads, whole.n_tokens}, {&from, &low, &high}};
            call.join(1, 2);
            call.for_each_part([&](halyard_buffer *(&buffers)[3]) {
                buffers[1]->dim++;
                buffers[2]->dim++;
                kernels.range[0](buffers[0], buffers[1], buffers[2]);
            });
        });
}

}  // namespace halyard
