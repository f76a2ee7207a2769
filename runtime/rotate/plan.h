// A checked description, resolved to kernels.
#pragma once

#include "base/storage.h"
#include "road/cache.h"
#include "road/stage_desc.h"
#include "rotate/dispatch.h"
#include "rotate/stages.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// A halyard_tensor_desc that was checked.
struct TensorDesc {
    Dtype dtype;
    Pairing pairing, out_pairing;
    std::int64_t head_dim, rotary_offset;
    Dtype out_dtype;
    bool rotates;
    bool is_staged;  // it goes through blocks of f32; else a kernel rotates it from where it is to where it goes
    std::optional<NormDesc> norm;
    std::optional<ScaleDesc> scale;
    std::optional<CacheDesc> cache;
};

}  // namespace halyard

struct halyard_plan {
    struct Tensor {
        halyard::TensorDesc desc;
        const halyard::Kernel *kernels[halyard::n_places][halyard::n_layouts];
        const halyard::Kernel *block_kernel;  // rotates in blocks, in place if the pairings are one

        const halyard::Kernel &kernel(halyard::Place place, halyard::Layout layout) const noexcept {
            return *kernels[static_cast<int>(place)][static_cast<int>(layout)];
        }
    };
    std::int64_t rotary_dim;
    std::uint32_t sin_sign;  // 0x80000000 for the inverse
    std::int32_t n_tensors;
    halyard::Target target;  // the best one that is allowed
    halyard::RowKernels row_kernels;
    halyard::StageKernels stage_kernels;
    bool rotates;    // a tensor at least
    bool rerotates;  // all tensors, from one position to another
    bool has_road;   // that, or a tensor has more than its rotation
    Tensor tensors[HALYARD_MAX_TENSORS];
};

namespace halyard {

/// Has a plan call other kernels than it chose: for checks, tests and measurements. `replace(kernel, place, layout)` is
/// asked for each tensor, place and layout, and returns a pointer to the kernel to call from now on. That one must
/// outlive the plan, and serve what the plan's own would be called for: a run does not check it again.
template <typename Replace>
void replace_kernels(halyard_plan &plan, const Replace &replace) {
    for (std::int32_t i = 0; i < plan.n_tensors; i++) {
        for (std::int32_t place = 0; place < n_places; place++) {
            for (std::int32_t layout = 0; layout < n_layouts; layout++) {
                const Kernel *&kernel = plan.tensors[i].kernels[place][layout];
                kernel = replace(*kernel, Place(place), Layout(layout));
            }
        }
    }
}

}  // namespace halyard
