// The targets that Halyard knows, and which of them this machine can run.
#pragma once

#include <bit>
#include <cstdint>

namespace halyard {

/// The targets of generators/kernels.inc, best first. The reference runs everywhere.
enum class Target : std::int32_t {
#define HALYARD_TARGET(name, ...) name,
#define HALYARD_GPU_TARGET(name, ...) name,
#include "kernels.inc"
    reference
};
inline constexpr std::int32_t n_targets = static_cast<std::int32_t>(Target::reference) + 1;

/// A set of targets, one bit each.
using TargetSet = std::uint32_t;
constexpr TargetSet bit(Target target) { return TargetSet(1) << static_cast<std::int32_t>(target); }
constexpr Target best_of(TargetSet targets) { return Target(std::countr_zero(targets)); }

/// What this processor and its operating system support. Found once, then the same for the life of the process.
TargetSet supported_targets() noexcept;

}  // namespace halyard
