// The largest magnitude, or both ends of the range, of the finite elements of heads.
#pragma once

#include "kv/operands.h"
#include "kv/stage_kernels.h"

namespace halyard {

/// The largest magnitude of each head, 0 where nothing is finite: [token][head], dense.
inline void find_largest(const StageKernels &kernels, const Extents &extents, const Elements<float> &block,
                         float *largest) noexcept {
    StageOperand x(block, sizeof(float)), y(largest, extents.n_heads);
    StageCall<2> call(extents, x, y);
    call.join(1, 2);
    call.for_each_part([&](halyard_buffer *(&buffers)[2]) { kernels.largest[0](buffers[0], buffers[1]); });
}

/// The least and the greatest element likewise. No zero has a sign.
inline void find_range(const StageKernels &kernels, const Extents &extents, const Elements<float> &block, float *least,
                       float *greatest) noexcept {
    StageOperand x(block, sizeof(float)), low(least, extents.n_heads), high(greatest, extents.n_heads);
    StageCall<3> call(extents, x, low, high);
    call.join(1, 2);
    call.for_each_part([&](halyard_buffer *(&buffers)[3]) { kernels.range[0](buffers[0], buffers[1], buffers[2]); });
}

}  // namespace halyard
