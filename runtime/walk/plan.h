// A plan: a checked description, resolved to kernels.
#pragma once

#include "read/plan_desc.h"
#include "walk/dispatch.h"

#include <cstdint>

struct halyard_plan : halyard::PlanDesc {
    /// The kernels of a tensor.
    struct Chosen {
        const halyard::Kernel *kernels[halyard::n_places][halyard::n_layouts];
        const halyard::Kernel *in_blocks;  // rotates in blocks, in place if the pairings are one

        const halyard::Kernel &kernel(halyard::Place place, halyard::Layout layout) const noexcept {
            return *kernels[static_cast<int>(place)][static_cast<int>(layout)];
        }
    };
    Chosen chosen[HALYARD_MAX_TENSORS];
    halyard::Target target;  // the best one that is allowed
    halyard::RowKernels row_kernels;
    halyard::StageKernels stage_kernels;
};

namespace halyard {

/// Replaces the kernels of a plan, for checks, tests and measurements. `replace(kernel, place, layout)` is called for
/// each tensor, place and layout. It returns a pointer to the kernel to use from now on, which must outlive the plan
/// and serve the same calls as the plan's own: runs do not check it.
template <typename Replace>
void replace_kernels(halyard_plan &plan, const Replace &replace) {
    for (std::int32_t i = 0; i < plan.n_tensors; i++) {
        for (std::int32_t place = 0; place < n_places; place++) {
            for (std::int32_t layout = 0; layout < n_layouts; layout++) {
                const Kernel *&kernel = plan.chosen[i].kernels[place][layout];
                kernel = replace(*kernel, Place(place), Layout(layout));
            }
        }
    }
}

}  // namespace halyard
