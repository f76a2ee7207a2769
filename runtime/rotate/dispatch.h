// The table of kernels, and the choice of one.
#pragma once

#include "halyard/halyard.h"
#include "rotate/cpu.h"
#include "rotate/kernel_abi.h"

#include <cstdint>

namespace halyard {

/// HALYARD_PAIRING_… and one more that only kernels have.
enum class Pairing : std::int32_t { half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED, strided };

/// Where a kernel writes: to other memory than it reads, to the same, or to other memory past the caches.
enum class Place : std::int32_t { out_of_place, in_place, non_temporal };
inline constexpr std::int32_t n_places = 3;
/// No kernel stores smaller outputs of a run past the caches.
inline constexpr std::int32_t least_mib_past_caches = 8;
inline constexpr std::int32_t usual_mib_past_caches = 32;

/// A row of kernel_rows.inc: a kernel of generators/kernels.inc, or a variant of one for a CPU.
struct Kernel {
    const char *name;
    Target target;
    Pairing pairing, out_pairing;
    std::int32_t dtype;
    Place place;
    bool packed;            // its elements are words of two
    bool elsewhere = true;  // it also serves other CPUs than the one that it is tuned for
    std::int32_t past_caches_mib = usual_mib_past_caches;  // outputs of a run from so much on go past the caches
    const char *schedule = "default";                      // the CPU that it is tuned for
    halyard_rotate_kernel *function;                       // NULL in the last row, the reference
};

/// Whether either could stand for the other: the same kernel, or with another schedule.
inline bool serve_the_same(const Kernel &a, const Kernel &b) {
    return a.target == b.target && a.pairing == b.pairing && a.out_pairing == b.out_pairing && a.dtype == b.dtype &&
           a.place == b.place && a.packed == b.packed && (a.function == nullptr) == (b.function == nullptr);
}

struct KernelList {
    const Kernel *first;
    std::int32_t count;
    const Kernel *begin() const { return first; }
    const Kernel *end() const { return first + count; }
};

/// Every kernel that was built, best first; the last row is the reference.
KernelList kernels() noexcept;

/// What a kernel has to serve.
struct Task {
    std::int32_t dtype;
    std::int32_t pairing, out_pairing;
    Place place;           // non_temporal: out of place, too large for the caches, and on whole cache lines
    bool dense;            // the elements of each head are neighbours in memory
    bool even;             // and offsets, strides and half the pairs are even, so that words of two can be read
    const char *cpu = "";  // this machine's: see cpu_name()
};

/// Why a kernel cannot serve a task; NULL when it can.
const char *refusal(const Kernel &kernel, const Task &task) noexcept;

/// The first kernel of an allowed target that can serve the task. The reference serves every task.
const Kernel &select(const Task &task, TargetSet allowed) noexcept;

/// The makers of rows of one target; NULL in the reference's.
struct RowKernels {
    Target target;
    halyard_rows_phase_kernel *phase;
    halyard_rows_factored_kernel *factored;
};

/// Those of the best allowed target.
RowKernels select_row_kernels(TargetSet allowed) noexcept;

/// A target's name.
const char *name_of(Target target) noexcept;

/// The targets that a plan may use: target and max_target as in halyard_plan_desc, then the environment.
halyard_status allowed_targets(const char *target, const char *max_target, TargetSet *allowed,
                               halyard_error *error) noexcept;

/// Why a target is none of those that are allowed, in a few words.
const char *why_not(Target target) noexcept;

}  // namespace halyard
