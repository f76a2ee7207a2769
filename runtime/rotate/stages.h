// The stages of a tensor's road beside the rotation, on blocks of f32.
#pragma once

#include "base/storage.h"

#include <cstdint>

namespace halyard {

/// The kernels by which a target does stages. There are none yet.
struct StageKernels {};

/// Strides of a stage's operand, in elements of its own dtype.
struct StageStrides {
    std::int64_t element, head, token;
};

/// A part of a block: some elements (a head, or its window) of some heads of some tokens.
struct Extents {
    std::int64_t n_elements, n_heads, n_tokens;
};

/// Loads x as f32.
void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents, const char *x, const StageStrides &in,
           float *block, const StageStrides &out) noexcept;

enum RoundingOfNorm { round_before_weight = 1, round_after_weight = 2 };

struct Norm {
    float eps;
    const float *weight;  // [heads or 1][n_elements]
    std::int64_t stride_weight_head;
    int rounding;  // flags of RoundingOfNorm
    Dtype round_to;
};

/// RMSNorm of n_elements each, in place.
void normalise(const StageKernels &kernels, const Norm &norm, const Extents &extents, float *block,
               const StageStrides &strides) noexcept;

/// The greatest finite magnitude of each head, 0 if there is none: amax is [token][head] dense.
void find_largest(const StageKernels &kernels, const Extents &extents, const float *block, const StageStrides &strides,
                  float *amax) noexcept;

/// Stores convert(x * r).
void narrow(const StageKernels &kernels, Dtype out_dtype, const Extents &extents, const float *block,
            const StageStrides &in, const float *r, const StageStrides &r_strides, char *y,
            const StageStrides &out) noexcept;

}  // namespace halyard
