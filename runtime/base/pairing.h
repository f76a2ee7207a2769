// Which two elements of a head are a pair.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// HALYARD_PAIRING_…
enum class Pairing : std::int32_t { half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED };

/// The pairing that a number of the C ABI stands for; none where there is no such pairing.
constexpr std::optional<Pairing> to_pairing(std::int32_t number) noexcept {
    const bool exists = number == HALYARD_PAIRING_HALF || number == HALYARD_PAIRING_INTERLEAVED;
    return exists ? std::optional(Pairing(number)) : std::nullopt;
}

}  // namespace halyard
