#include "core/kernels.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <type_traits>

#define HALYARD_KERNEL(name, ...) extern "C" halyard_rotate_kernel name;
#define HALYARD_ROW_KERNEL(name, target) extern "C" halyard_rows_phase_kernel name;
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target) extern "C" halyard_##stage##_kernel name;
#include "built_kernels.inc"

namespace halyard {

namespace {

using enum Dtype;  // as the rows name them

constexpr Kernel table[] = {
#define HALYARD_KERNEL(name, target, pairing, out_pairing, dtype, place, packed, ...)                                  \
    {#name, Target::target, row_pairing::pairing, row_pairing::out_pairing, dtype, Place::place, packed, __VA_ARGS__,  \
     name},
#include "built_kernels.inc"
    {"halyard_rotate_reference", Target::reference, row_pairing::strided, row_pairing::strided, f32,
     Place::out_of_place, false, usual_non_temporal_mib, "default", nullptr},
};
static_assert(std::is_sorted(std::begin(table), std::end(table),
                             [](const Kernel &a, const Kernel &b) { return a.target < b.target; }),
              "the first kernel that fits is of the best target");
static_assert(std::all_of(std::begin(table), std::end(table),
                          [](const Kernel &kernel) { return kernel.non_temporal_mib >= least_non_temporal_mib; }));

/// Takes a kernel of a stage if it is halyard_widen, which rows need; ignores all other stages.
template <typename Function>
constexpr void take_widen(RowKernels &kernels, Dtype dtype, std::string_view stage, Function *function) {
    if constexpr (std::is_same_v<Function, halyard_widen_kernel>) {
        if (stage == "widen" && !is_8_bit(dtype)) {
            kernels.widen[index_of(dtype)] = function;
        }
    }
}

constexpr RowKernels row_kernels_of(Target target) {
    RowKernels kernels = {Target::reference, nullptr, {}};
#define HALYARD_ROW_KERNEL(name, of)                                                                                   \
    if (target == Target::of) {                                                                                        \
        kernels.target = target;                                                                                       \
        kernels.phase = name;                                                                                          \
    }
#define HALYARD_STAGE_KERNEL(name, stage, dtype, of)                                                                   \
    if (target == Target::of) {                                                                                        \
        take_widen(kernels, dtype, #stage, name);                                                                      \
    }
#include "built_kernels.inc"
    return kernels;
}

}  // namespace

std::span<const Kernel> kernels() noexcept { return table; }

const char *why_not(const Kernel &kernel, const Task &task) noexcept {
    if (kernel.function == nullptr) {
        return nullptr;
    }
    if (kernel.dtype != task.dtype) {
        return "is for another dtype";
    }
    if (kernel.place == Place::non_temporal && task.place == Place::out_of_place) {
        return "is for large outputs on whole cache lines";
    }
    if ((kernel.place == Place::in_place) != (task.place == Place::in_place)) {
        return kernel.place == Place::in_place ? "works in place only" : "works out of place only";
    }
    if (!kernel.pairing) {
        return nullptr;
    }
    if (kernel.pairing != task.pairing || kernel.out_pairing != task.out_pairing) {
        return "is for another pairing";
    }
    if (task.layout == Layout::strided) {
        return "needs heads whose elements are neighbours in memory";
    }
    if (kernel.packed && task.layout != Layout::even) {
        return "needs even strides and halves";
    }
    return nullptr;
}

const Kernel &select(const Task &task, TargetSet allowed) noexcept {
    for (const Kernel &kernel : table) {
        if ((allowed & bit(kernel.target)) != 0 && why_not(kernel, task) == nullptr) {
            return kernel;
        }
    }
    return table[std::size(table) - 1];
}

RowKernels select_row_kernels(TargetSet allowed) noexcept {
    for (std::int32_t i = 0; i < n_targets; i++) {
        const RowKernels found = row_kernels_of(Target(i));
        if ((allowed & bit(Target(i))) != 0 && found.target == Target(i)) {
            return found;
        }
    }
    return row_kernels_of(Target::reference);
}

}  // namespace halyard
