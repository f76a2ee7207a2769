// A run is bind and call. bind reads a plan, angles and shapes, checks all of them, and makes a program. call brings
// the pointers, and does what the program says. halyard_run has its program on the stack, a bound run on the heap.
#pragma once

#include "angles/angle_source.h"
#include "angles/positions.h"
#include "core/plan.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// x or y of a tensor: all but its address. Strides are in elements, and 0 where there is one.
struct Side {
    std::int64_t batch, token, head, element;
    std::int64_t pair, member;  // from pair to pair, and from one member of a pair to the other
    std::int64_t window;        // in bytes, from a head's first element to its first pair
    Reach reach;
    halyard_dimension dims[4];  // pairs, members, heads and tokens, as the kernel reads them
};

/// One tensor of a program. In place, no pairs and dims of x are set. Of a tensor that is not plain only n_heads,
/// in_place, and the strides and reaches of the sides that it has are set.
struct ProgramTensor {
    std::int64_t n_heads;  // 0 where the tensor has no elements; nothing else is set then
    bool in_place;
    bool lists_x, lists_y;  // whether the memory of x and of y is looked at; in place, y is the same
    bool is_even;           // all tokens, also those of different batch rows, follow each other with one stride
    bool is_one_call;       // one call of kernel, with dims as they are here, does all tokens that a block can have
    bool within_int32;      // a kernel's 32-bit offsets reach all of it
    const Kernel *kernel;   // its function is NULL where the reference does it
    const Kernel *large;    // NULL, or what serves as kernel where y begins on a cache line, with non-temporal stores
    Side x, y;

    const Side &in() const noexcept { return in_place ? y : x; }
};

struct Program {
    const halyard_plan *plan;
    const halyard_angle_source *angles;  // NULL if no tensor is rotated
    Positions positions;                 // of the tokens that all tensors have
    BadPosition bad_position;
    bool is_empty;              // no tensor has an element
    bool reads_rows;            // kernels read the rows of angles where they lie; else rows are made
    std::int64_t n_tasks;       // 1: the executor is not called
    halyard_executor executor;  // n_threads is 0 where there is none
    ProgramTensor tensors[HALYARD_MAX_TENSORS];
};

/// Checks everything that is no pointer, and fills in the program. (args' pointers tell whether tensors are in place.)
/// device: where the tensors must lie. Kernels are chosen for the CPU only.
halyard_status bind(const halyard_plan *plan, const halyard_run_args *args, std::int32_t device, Program *program,
                    halyard_error *error) noexcept;

}  // namespace halyard
