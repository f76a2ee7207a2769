// Pairings: which two elements of a head are rotated as a pair.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// HALYARD_PAIRING_…
enum class Pairing : std::int32_t { half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED };

/// Converts a number of the C ABI; none if it is no pairing.
constexpr std::optional<Pairing> to_pairing(std::int32_t number) noexcept {
    const bool exists = number == HALYARD_PAIRING_HALF || number == HALYARD_PAIRING_INTERLEAVED;
    return exists ? std::optional(Pairing(number)) : std::nullopt;
}

}  // namespace halyard
