// The tables of GPU kernels, and which kernel serves which tensors.
#pragma once

#include "core/kernels.h"

#include <span>

namespace halyard::cuda {

/// A kernel's function. It takes the addresses of its arguments (arguments.h). The first argument is a Call
/// (halide_runtime.h), which Halide's runtime passes to our handlers. It returns 0 or a negative code.
using KernelFunction = int (*)(void **arguments);

/// The pairings that a GPU kernel serves, and how it accesses memory.
struct CudaLayout {
    std::optional<Pairing> pairing, out_pairing;  // none: any
    std::int64_t bytes;                           // of an access, and the alignment that it needs; 0: any layout

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

    /// Whether it rotates tensors of this dtype and these pairings, in place or not, if they have its layout.
    bool serves(Dtype of, Pairing in, Pairing out, bool is_in_place) const noexcept {
        return dtype == of && in_place == is_in_place &&
               (layout == any_layout || (layout.pairing == in && layout.out_pairing == out));
    }
};

/// All rotation kernels, those with wider accesses first. The last ones serve any layout.
std::span<const CudaKernel> cuda_kernels() noexcept;

/// The kernels that do not rotate.
struct CudaHelpers {
    KernelFunction check_positions;
    KernelFunction copy_16, copy_32, copy_128;  // by bits of an access
};

const CudaHelpers &cuda_helpers() noexcept;

/// A kernel of the KV path. HALYARD_CUDA_KV in generators/kernels.inc documents the fields.
struct KvKernel {
    const char *name;
    int capability;  // the least compute capability of devices that it runs on: 80 is 8.0
    Dtype dtype, out_dtype;
    std::int64_t head_dim;
    Pairing pairing;
    std::int64_t rotary_dim, rotary_offset;
    Dtype weight;
    bool unit_offset;
    KernelFunction function;
};

/// All kernels of the KV path, those for newer devices first.
std::span<const KvKernel> kv_kernels() noexcept;

}  // namespace halyard::cuda
