// The table of GPU kernels, and the choice of one.
#pragma once

#include "core/kernels.h"

#include <span>

namespace halyard::cuda {

/// A kernel takes the addresses of its arguments (arguments.h). The first is a Call (halide_runtime.h), which
/// Halide's runtime passes to our handlers. A kernel returns 0 or a negative code.
using KernelFunction = int (*)(void **arguments);

/// What a GPU kernel serves.
struct CudaLayout {
    std::optional<Pairing> pairing, out_pairing;  // none: any
    std::int64_t bytes;                           // of an access, to which memory is aligned; 0: any layout

    bool operator==(const CudaLayout &) const = default;
};

inline constexpr CudaLayout any_layout = {std::nullopt, std::nullopt, 0};

/// A GPU kernel of generators/kernels.inc.
struct CudaKernel {
    const char *name;
    CudaLayout layout;
    Dtype dtype;
    bool in_place;
    KernelFunction function;

    /// Whether it rotates such tensors, where they lie as it wants them.
    bool serves(Dtype of, Pairing in, Pairing out, bool where) const noexcept {
        return dtype == of && in_place == where &&
               (layout == any_layout || (layout.pairing == in && layout.out_pairing == out));
    }
};

/// All of them, those with wider accesses first. The last ones take any layout.
std::span<const CudaKernel> cuda_kernels() noexcept;

/// The kernels that do not rotate.
struct CudaHelpers {
    KernelFunction check_positions;
    KernelFunction copy_16, copy_32, copy_128;  // by bits of an element
};

const CudaHelpers &cuda_helpers() noexcept;

/// A kernel of the KV path: HALYARD_CUDA_KV in generators/kernels.inc says what its fields mean.
struct KvKernel {
    const char *name;
    int capability;  // of the devices that it runs on, at least: 80 is 8.0
    Dtype dtype, out_dtype;
    std::int64_t head_dim;
    Pairing pairing;
    std::int64_t rotary_dim, rotary_offset;
    Dtype weight;
    bool unit_offset;
    KernelFunction function;
};

/// All of them, those of newer devices first.
std::span<const KvKernel> kv_kernels() noexcept;

}  // namespace halyard::cuda
