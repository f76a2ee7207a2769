// Reads the arguments of a run, and checks them.
#pragma once

#include "angles/angle_source.h"
#include "angles/positions.h"
#include "halyard/halyard.h"
#include "rotate/plan.h"

#include <cstdint>

namespace halyard {

/// One tensor of a run, input and output.
struct RunTensor {
    struct Strides {
        std::int64_t batch, token, head, element;  // 0 where the dimension has size 1
    };
    const char *x;
    char *y;
    Strides in, out;
    std::int64_t n_heads;  // 0 where the tensor has no elements
    const Kernel *kernel;
    bool in_place;
    bool non_temporal;  // the output is stored so: columns beside the window too, and pairs if there is a kernel for it
    bool within_int32;  // a kernel's 32-bit offsets reach all of it
};

struct Run {
    const halyard_plan *plan;
    const halyard_angle_source *angles;
    CheckedPositions positions;
    BadPosition bad_position;
    std::int64_t n_batch, n_tokens;
    RunTensor tensors[HALYARD_MAX_TENSORS];
    bool is_empty;              // no tensor has an element
    halyard_executor executor;  // n_threads is 0 when there is none
};

/// Checks everything but whether the angle source covers the positions. device: where the tensors' memory has to be.
halyard_status read_run(const halyard_plan *plan, const halyard_run_args *args, std::int32_t device, Run *run,
                        halyard_error *error) noexcept;

}  // namespace halyard
