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
    char *y;               // the cache, if the tensor has one
    Strides in, out;       // with a cache, out.token is 0: slots say where tokens go
    std::int64_t n_heads;  // 0 where the tensor has no elements
    bool in_place;
    bool within_int32;  // a kernel's 32-bit offsets reach all of it
    // Chosen where the run is done (walk/choose.h):
    bool non_temporal;  // for columns beside the window too, and for pairs if there is a kernel
    const Kernel *kernel;
};

/// An array for a stage of one tensor: NULL, with an empty range, where the plan does not ask for it.
struct StageMemory {
    char *data;  // written only where it is that of scales_out, cache and group_scales
    MemoryRange range;
};

/// What the stages of one tensor read and write.
struct RunStages {
    StageMemory arrays[n_stage_arrays];  // by StageArray; scales of all kinds but of groups are floats
    std::int64_t stride_batch, stride_token, stride_head;  // of scales_out; with a cache, stride_token steps by slot
    std::int64_t position_strides[3];                      // of position_scales: batch, token, head
    GroupStrides group_scales, from_group_scales;          // of groups whose scales lie apart

    char *data(StageArray array) const noexcept { return arrays[array].data; }
    const MemoryRange &memory(StageArray array) const noexcept { return arrays[array].range; }
};

/// A run without its tensors.
struct RunFrame {
    const PlanDesc *plan;
    const halyard_angle_source *angles;
    CheckedPositions positions;
    const halyard_angle_source *from_angles;  // where keys come from; set only where the plan rerotates
    CheckedPositions from_positions;
    BadPosition bad_position;
    bool is_bound;  // its arguments are those of halyard_run_bound, and have other names
    Share share;    // the part of it that is done
    std::int64_t n_batch, n_tokens;
    bool is_empty;                 // no tensor has an element
    bool writes_views;             // some output is no cache. Set where there are slots
    std::uintptr_t written_apart;  // bytes that out-of-place outputs span, an upper bound of what is written there
    halyard_executor executor;     // n_threads is 0 when there is none
    CheckedSlots slots;            // without data where no token is stored in a cache

    /// Those that are not written have no slot, and no output that is a view.
    Tokens tokens() const noexcept {
        return {n_batch, n_tokens, slots.data == nullptr || writes_views ? nullptr : &slots};
    }
    Moves moves() const noexcept { return {angles, from_angles, &positions, &from_positions}; }
};

struct Run : RunFrame {
    RunTensor tensors[HALYARD_MAX_TENSORS];
    RunStages stages[HALYARD_MAX_TENSORS];  // not set if the plan only rotates
};

/// What the tensors span in memory; empty tensors nothing.
struct Spans {
    MemoryRange x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
};

/// Reads and checks all arguments, but not yet whether the angle source covers the positions, nor what slots hold.
/// device: where the tensors must lie.
halyard_status read_run(const PlanDesc *plan, const halyard_run_args *args, std::int32_t device, Run *run, Spans *spans,
                        halyard_error *error) noexcept;

}  // namespace halyard
