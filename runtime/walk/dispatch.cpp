#include "walk/dispatch.h"

#include "base/error.h"
#include "base/versioned.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

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

/// The kernels of one target, which is the reference where it has none.
constexpr StageKernels stage_kernels_of(Target target) {
    StageKernels kernels = {};
    kernels.target = Target::reference;
#define HALYARD_STAGE_KERNEL(name, stage, dtype, of)                                                                   \
    if (target == Target::of) {                                                                                        \
        kernels.target = target;                                                                                       \
        kernels.stage[index_of(dtype)] = name;                                                                         \
    }
#include "built_kernels.inc"
    return kernels;
}

constexpr RowKernels row_kernels_of(Target target) {
    RowKernels kernels = {Target::reference, nullptr, {}};
#define HALYARD_ROW_KERNEL(name, of)                                                                                   \
    if (target == Target::of) {                                                                                        \
        kernels.target = target;                                                                                       \
        kernels.phase = name;                                                                                          \
    }
#include "built_kernels.inc"
    const StageKernels stages = stage_kernels_of(target);
    std::copy_n(stages.widen, n_input_dtypes, kernels.widen);
    return kernels;
}

struct TargetWords {
    const char *name;
    const char *isa;
};

constexpr TargetWords words[] = {
#define HALYARD_TARGET(name, processor, features, isa) {#name, isa},
#define HALYARD_GPU_TARGET(name, processor, features, isa) {#name, isa},
#include "kernels.inc"
    {"reference", "portable C++"},
};
static_assert(std::size(words) == n_targets, "words for every target");

/// The kernels of the best allowed target that has some, or else the reference's.
template <typename Kernels>
Kernels first_allowed(Kernels (&kernels_of)(Target), TargetSet allowed) {
    for (std::int32_t i = 0; i < n_targets; i++) {
        if ((allowed & bit(Target(i))) != 0 && kernels_of(Target(i)).target == Target(i)) {
            return kernels_of(Target(i));
        }
    }
    return kernels_of(Target::reference);
}

TargetSet built_targets() {
    TargetSet built = 0;
    for (const Kernel &kernel : table) {
        built |= bit(kernel.target);
    }
    return built;
}

/// The names of targets, for error messages.
void list_names(Sentence &&sentence) {
    const char *separator = "";
    for (const TargetWords &target : words) {
        sentence.add(std::exchange(separator, ", "));
        sentence.add(target.name);
    }
}

/// Finds a target by name and checks that it can be used. source says where the name came from.
halyard_status find_target(const char *name, const char *source, Target *found, halyard_error *error) {
    for (std::int32_t i = 0; i < n_targets; i++) {
        if (std::strcmp(name, words[i].name) != 0) {
            continue;
        }
        *found = Target(i);
        if (*found == Target::cuda_sm80) {
            return fail(error, HALYARD_ERROR_TARGET_NOT_BUILT, source, " is ", name,
                        ", which is for a device's memory: see halyard_gpu.h");
        }
        if ((built_targets() & bit(*found)) == 0) {
            return fail(error, HALYARD_ERROR_TARGET_NOT_BUILT, source, " is ", name,
                        ", but this library was built without it");
        }
        if ((supported_targets() & bit(*found)) == 0) {
            return fail(error, HALYARD_ERROR_TARGET_UNSUPPORTED, source, " is ", name, ", but this machine is not ",
                        words[i].isa);
        }
        return HALYARD_OK;
    }
    char names[128];
    list_names({names, sizeof(names)});
    return fail(error, HALYARD_ERROR_UNKNOWN_TARGET, source, " is \"", std::string_view(name).substr(0, 40),
                "\", which is none of ", names);
}

/// The value of an environment variable; NULL when it is unset or empty.
const char *environment(const char *variable) {
    const char *value = std::getenv(variable);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

}  // namespace

KernelList kernels() noexcept { return {table, static_cast<std::int32_t>(std::size(table))}; }

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
        return "needs even offsets, strides and halves";
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

RowKernels select_row_kernels(TargetSet allowed) noexcept { return first_allowed(row_kernels_of, allowed); }

StageKernels select_stage_kernels(TargetSet allowed) noexcept { return first_allowed(stage_kernels_of, allowed); }

const char *name_of(Target target) noexcept { return words[static_cast<std::int32_t>(target)].name; }

halyard_status allowed_targets(const char *target, const char *max_target, TargetSet *allowed,
                               halyard_error *error) noexcept {
    const char *target_source = "target", *max_source = "max_target";
    if (target != nullptr && max_target != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "target and max_target are both given");
    }
    if (target == nullptr && max_target == nullptr) {
        target = environment("HALYARD_TARGET");
        target_source = "the environment variable HALYARD_TARGET";
        max_target = target == nullptr ? environment("HALYARD_MAX_TARGET") : nullptr;
        max_source = "the environment variable HALYARD_MAX_TARGET";
    }
    Target found = Target::reference;
    if (target != nullptr) {
        HALYARD_TRY(find_target(target, target_source, &found, error));
        *allowed = bit(found);
        return HALYARD_OK;
    }
    TargetSet usable = built_targets() & supported_targets();
    if (max_target != nullptr) {
        HALYARD_TRY(find_target(max_target, max_source, &found, error));
        usable &= ~(bit(found) - 1);  // better targets have lower bits
    }
    *allowed = usable;
    return HALYARD_OK;
}

const char *why_not(Target target) noexcept {
    if ((built_targets() & bit(target)) == 0) {
        return "not built into this library";
    }
    if ((supported_targets() & bit(target)) == 0) {
        return "not supported by this machine";
    }
    return "excluded by the request or the environment";
}

}  // namespace halyard

using namespace halyard;

extern "C" {

int32_t halyard_get_target_count(void) { return n_targets; }

halyard_status halyard_get_target_info(int32_t index, halyard_target_info *info, halyard_error *error) {
    HALYARD_TRY(check_error(error));
    if (index < 0 || index >= n_targets) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "index is ", index, ", but targets are numbered 0 to ",
                    n_targets - 1);
    }
    const Target target = Target(index);
    halyard_target_info value = {};
    value.built = (built_targets() & bit(target)) != 0 ? 1 : 0;
    value.supported = (supported_targets() & bit(target)) != 0 ? 1 : 0;
    value.name = words[index].name;
    value.isa = words[index].isa;

    Sentence reason(value.reason, sizeof(value.reason));
    TargetSet allowed = 0;
    halyard_error environment_error = {sizeof(halyard_error), HALYARD_OK, ""};
    if (allowed_targets(nullptr, nullptr, &allowed, &environment_error) != HALYARD_OK) {
        // A plan would fail with this sentence.
        reason.add(environment_error.message);
    } else if ((allowed & bit(target)) == 0) {
        reason.add(why_not(target));
    } else if ((allowed & (bit(target) - 1)) != 0) {
        reason.add(name_of(best_of(allowed)));
        reason.add(" is better");
    } else {
        value.active = 1;
    }
    return write_struct(value, "info", info, error);
}

}  // extern "C"
