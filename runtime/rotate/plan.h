// A checked description, resolved to kernels.
#pragma once

#include "rotate/dispatch.h"

namespace halyard {

/// What decides between kernels once a plan is made: how a run's tensors lie in memory.
enum class Layout : std::int32_t { even, dense, strided };
inline constexpr std::int32_t n_layouts = 3;

}  // namespace halyard

struct halyard_plan {
    struct Tensor {
        halyard_tensor_desc desc;
        const halyard::Kernel *kernels[halyard::n_places][halyard::n_layouts];
    };
    std::int64_t rotary_dim;
    std::uint32_t sin_sign;  // 0x80000000 for the inverse
    std::int32_t n_tensors;
    halyard::Target target;  // the best one that is allowed
    halyard::RowKernels row_kernels;
    Tensor tensors[HALYARD_MAX_TENSORS];
};
