// The table of kernels, and the choice of one.
#pragma once

#include "base/pairing.h"
#include "base/storage.h"
#include "halyard/halyard.h"
#include "walk/cpu.h"
#include "walk/kernel_abi.h"

#include <cstdint>
#include <optional>
#include <tuple>

namespace halyard {

/// The words for pairings in kernels.inc. A strided kernel serves any pairing, because a pairing is a matter of
/// strides.
namespace row_pairing {
inline constexpr std::optional<Pairing> half = Pairing::half, interleaved = Pairing::interleaved, strided;
}  // namespace row_pairing

/// How the heads of a tensor lie in memory. even: their elements are neighbours, and offsets, strides and half the
/// pairs are even, so that kernels can read words of two elements. dense: just neighbours. strided: neither. A layout
/// may take the kernels of those that follow it.
enum class Layout : std::int32_t { even, dense, strided };
inline constexpr std::int32_t n_layouts = 3;

/// Where a kernel writes: to other memory than it reads, to the same memory, or to other memory with non-temporal
/// stores, which bypass the caches.
enum class Place : std::int32_t { out_of_place, in_place, non_temporal };
inline constexpr std::int32_t n_places = 3;
/// No kernel stores smaller outputs of a run non-temporally, and mostly none below the usual size.
inline constexpr std::int32_t least_non_temporal_mib = 8;
inline constexpr std::int32_t usual_non_temporal_mib = 32;

/// A row of built_kernels.inc: a kernel of generators/kernels.inc.
struct Kernel {
    const char *name;
    Target target;
    std::optional<Pairing> pairing, out_pairing;  // none: any, in any layout
    Dtype dtype;
    Place place;
    bool packed;                                             // its elements are words of two
    std::int32_t non_temporal_mib = usual_non_temporal_mib;  // from so much output of a run on it is non-temporal
    const char *schedule = "default";                        // the CPU that it is tuned for
    halyard_rotate_kernel *function;                         // NULL in the last row, the reference
};

/// Whether two kernels serve the same tasks, and so differ only in their schedules.
inline bool serve_the_same(const Kernel &a, const Kernel &b) {
    const auto tasks = [](const Kernel &kernel) {
        return std::tuple(kernel.target, kernel.pairing, kernel.out_pairing, kernel.dtype, kernel.place, kernel.packed,
                          kernel.function == nullptr);
    };
    return tasks(a) == tasks(b);
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
    Dtype dtype;
    Pairing pairing, out_pairing;
    Place place;  // non_temporal: out of place, too large for the caches, and on whole cache lines
    Layout layout;
};

/// Why a kernel cannot serve a task; NULL when it can.
const char *why_not(const Kernel &kernel, const Task &task) noexcept;

/// The first kernel of an allowed target that can serve the task. The reference serves every task.
const Kernel &select(const Task &task, TargetSet allowed) noexcept;

/// A target's kernels that make rows of cos and sin. The reference has none: all are NULL.
struct RowKernels {
    Target target;
    halyard_rows_phase_kernel *phase;
    halyard_widen_kernel *widen[n_input_dtypes];  // of rows that are given (index_of)
};

/// The row kernels of the best allowed target.
RowKernels select_row_kernels(TargetSet allowed) noexcept;

/// A target's kernels for the stages beside the rotation: an array for each stage, with an entry for each dtype
/// (index_of). NULL where there is no kernel: widen_norm of f32 (norm serves it), largest, range, hadamard and
/// butterfly of other dtypes than f32, quantise of others than e4m3 and int8, store_groups and load_groups of
/// others than int8, and all of the reference.
struct StageKernels {
    Target target;
    halyard_widen_kernel *widen[n_dtypes];
    halyard_norm_kernel *norm[n_input_dtypes];
    halyard_widen_norm_kernel *widen_norm[n_input_dtypes];
    halyard_layer_norm_kernel *layer_norm[n_input_dtypes];
    halyard_norm_rotate_kernel *norm_rotate[n_input_dtypes];
    halyard_narrow_kernel *narrow[n_dtypes];
    halyard_largest_kernel *largest[n_input_dtypes];
    halyard_range_kernel *range[n_input_dtypes];
    halyard_quantise_kernel *quantise[n_dtypes];
    halyard_store_groups_kernel *store_groups[n_dtypes];
    halyard_load_groups_kernel *load_groups[n_dtypes];
    halyard_hadamard_kernel *hadamard[n_input_dtypes];
    halyard_butterfly_kernel *butterfly[n_input_dtypes];
};

/// The stage kernels of the best allowed target.
StageKernels select_stage_kernels(TargetSet allowed) noexcept;

/// A target's name.
const char *name_of(Target target) noexcept;

/// The targets that a plan may use: target and max_target as in halyard_plan_desc, then the environment.
halyard_status allowed_targets(const char *target, const char *max_target, TargetSet *allowed,
                               halyard_error *error) noexcept;

/// Why a target is not allowed, in a few words.
const char *why_not(Target target) noexcept;

}  // namespace halyard
