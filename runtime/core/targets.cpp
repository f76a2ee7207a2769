#include "core/targets.h"

#include "base/error.h"
#include "base/text.h"
#include "base/versioned.h"
#include "core/kernels.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

namespace halyard {

namespace {

struct TargetWords {
    const char *name;
    const char *isa;
};

constexpr TargetWords words[] = {
#define HALYARD_TARGET(name, processor, features, isa) {#name, isa},
#define HALYARD_CUDA_TARGET(name, processor, features, isa) {#name, isa},
#include "targets.inc"
    {"reference", "portable C++"},
};
static_assert(std::size(words) == n_targets, "words for every target");

TargetSet built_targets() {
    TargetSet built = 0;
    for (const Kernel &kernel : kernels()) {
        built |= bit(kernel.target);
    }
    return built;
}

/// Finds a target by name and checks that it can be used. `source`: where the name came from, for error messages.
halyard_status find_target(const char *name, const char *source, Target *found, halyard_error *error) {
    for (std::int32_t i = 0; i < n_targets; i++) {
        if (std::strcmp(name, words[i].name) != 0) {
            continue;
        }
        *found = Target(i);
        if (*found == Target::cuda_sm89 || *found == Target::cuda_sm80) {
            return fail(error, HALYARD_ERROR_TARGET_NOT_BUILT, source, " is ", name,
                        ", which is for a device's memory: see halyard_cuda.h");
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
    Text list{names, sizeof(names)};
    for (const TargetWords &target : words) {
        list.add(&target == words ? "" : ", ", target.name);
    }
    return fail(error, HALYARD_ERROR_UNKNOWN_TARGET, source, " is \"", std::string_view(name).substr(0, 40),
                "\", which is none of ", names);
}

/// The value of an environment variable; NULL when it is unset or empty.
const char *environment(const char *variable) {
    const char *value = std::getenv(variable);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

}  // namespace

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
    HALYARD_TRY(check_error_size(error));
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

    Text reason{value.reason, sizeof(value.reason)};
    TargetSet allowed = 0;
    halyard_error environment_error = {sizeof(halyard_error), HALYARD_OK, ""};
    if (allowed_targets(nullptr, nullptr, &allowed, &environment_error) != HALYARD_OK) {
        reason.add(environment_error.message);  // halyard_create_plan would fail with this message
    } else if ((allowed & bit(target)) == 0) {
        reason.add(why_not(target));
    } else if ((allowed & (bit(target) - 1)) != 0) {
        reason.add(name_of(best_of(allowed)), " is better");
    } else {
        value.active = 1;
    }
    return write_struct(value, "info", info, error);
}

}  // extern "C"
