// Reads the arguments of a run, and checks them.
#pragma once

#include "angles/angle_source.h"
#include "angles/moves.h"
#include "angles/positions.h"
#include "base/share.h"
#include "halyard/halyard.h"
#include "read/plan_desc.h"
#include "read/slots.h"

#include <cstdint>

namespace halyard {

struct Kernel;

/// One tensor of a run, input and output.
struct RunTensor {
    struct Strides {
        std::int64_t batch, token, head, element;  // 0 where the dimension has size 1
    };
    const char *x;
    char *y;               // of a tensor with a cache, that is y
    Strides in, out;       // a cache's tokens are strided by their slots
    std::int64_t n_heads;  // 0 where the tensor has no elements
    bool in_place;
    bool within_int32;  // a kernel's 32-bit offsets reach all of it
    // Chosen where the run is done (walk/choose.h):
    bool non_temporal;  // the output is stored so: columns beside the window too, and pairs if there is a kernel for it
    const Kernel *kernel;
};

/// What a run brings for the stages of one tensor; of what its plan doesn't ask for, NULL and an empty range.
struct RunStages {
    const char *weight;
    const char *scales;                                    // floats, static
    char *scales_out;                                      // floats, dynamic
    std::int64_t stride_batch, stride_token, stride_head;  // of scales_out; with a cache, stride_token is that of slots
    MemoryRange weight_memory, scales_memory, scales_out_memory;
};

/// What a run is but for its tensors.
struct RunFrame {
    const PlanDesc *plan;
    const halyard_angle_source *angles;
    CheckedPositions positions;
    const halyard_angle_source *from_angles;  // where keys come from; set only where the plan rerotates
    CheckedPositions from_positions;
    BadPosition bad_position;
    Share share;  // the part of it that is done
    std::int64_t n_batch, n_tokens;
    bool is_empty;                 // no tensor has an element
    std::uintptr_t written_apart;  // bytes that outputs beside their inputs span: no less than what is written there
    halyard_executor executor;     // n_threads is 0 when there is none
    CheckedSlots slots;            // without data where no token is stored in a cache

    Moves moves() const noexcept { return {angles, from_angles, &positions, &from_positions}; }
};

struct Run : RunFrame {
    RunTensor tensors[HALYARD_MAX_TENSORS];
    RunStages stages[HALYARD_MAX_TENSORS];  // set only where the plan has a road
};

/// What the tensors span in memory; empty tensors nothing.
struct Spans {
    MemoryRange x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
};

/// Checks everything but whether the angle source covers the positions, and what slots hold. device: where the tensors'
/// memory has to be.
halyard_status read_run(const PlanDesc *plan, const halyard_run_args *args, std::int32_t device, Run *run, Spans *spans,
                        halyard_error *error) noexcept;

}  // namespace halyard
