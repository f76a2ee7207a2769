// A run is bind, then call. bind reads a plan, angles and shapes, checks all of them, and makes a program. call takes
// the program and pointers, and rotates. halyard_run has its program on the stack, a bound run on the heap.
#pragma once

#include "angles/angle_source.h"
#include "angles/positions.h"
#include "core/plan.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// x or y of a tensor, without its address. Strides are in elements, and 0 in dimensions of size 1.
struct Side {
    std::int64_t batch, token, head, element;
    std::int64_t pair, member;  // strides from pair to pair, and from one member of a pair to the other
    std::int64_t window;        // offset in bytes of a head's first pair from its first element
    Reach reach;
    halyard_dimension dims[4];  // pairs, members, heads and tokens, as the kernel reads them
};

struct TensorCall;
struct Stretch;
struct TensorProgram;
struct Limits;
using RotateStretch = void(const TensorCall &call, const Stretch &stretch) noexcept;
using FindLimits = Limits(const TensorProgram &tensor, const Stretch &stretch, std::int64_t n_pairs) noexcept;

/// One tensor of a program. In place, pair, member and dims of x are not set. If the tensor is not plain, it has no
/// kernel, and not set are n_together, the fields that choose_rotation sets, and pair, member and dims of either side.
struct TensorProgram {
    std::int64_t n_heads;  // 0 if the tensor has no elements; then only lists_x and lists_y are set, to false
    bool in_place;
    bool lists_x, lists_y;    // whether list_memory lists x and y; in place, only y, which is the same memory
    bool is_one_call;         // one call of the kernel, with these dims, can rotate all tokens of the run
    bool within_int32;        // a kernel's 32-bit offsets reach all elements
    std::uint8_t halve;       // 1 if the kernel is packed, so that two of the tensor's elements are one of its, else 0
    const Kernel *kernel;     // its function is NULL for the reference
    const Kernel *large;      // NULL, or the kernel with non-temporal stores, to be used if y begins on a cache line
    std::int64_t n_together;  // how many tokens are evenly spaced: a batch row's, or all
    std::int64_t heads_at_once;                     // the most heads of a kernel's call for several tokens
    RotateStretch *rotate, *rotate_windows, *copy;  // rotate also copies what it does not rotate; copy all of heads
    FindLimits *find_limits;                        // of a kernel's call
    Side x, y;

    const Side &in() const noexcept { return in_place ? y : x; }
};

struct Program {
    const halyard_plan *plan;
    const halyard_angle_source *angles;  // NULL if no tensor is rotated
    Positions positions;                 // one for each token; all tensors have the same tokens
    BadPosition bad_position;
    bool is_empty;              // no tensor has an element
    bool reads_rows;            // kernels read the rows of angles where they are in memory; else rows are made
    std::int64_t n_tasks;       // 1: the executor is not called
    halyard_executor executor;  // n_threads is 0 if there is none
    TensorProgram tensors[HALYARD_MAX_TENSORS];
};

/// Checks all arguments except pointers, and fills in the program. (Of the pointers it uses only x's and y's: equal
/// ones mean that the tensor is in place. It refuses positions without data.) device: where the tensors' memory must
/// be. Chooses kernels only for the CPU.
halyard_status bind(const halyard_plan *plan, const halyard_run_args *args, std::int32_t device, Program *program,
                    halyard_error *error) noexcept;

}  // namespace halyard
