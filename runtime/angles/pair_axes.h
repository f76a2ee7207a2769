// Axis maps: which axis of positions each pair of an angle source reads.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <memory>

namespace halyard {

/// An axis map of any kind, as the axis of each pair.
struct PairAxes {
    /// The range from an axis' first pair to its last. Pairs in between may belong to other axes.
    struct Span {
        std::int64_t first, last;  // last is not included
        bool comes_first;          // no pair of the range belongs to an axis of a lower number
        const std::int32_t *own;   // [n_own] the pairs that belong to the axis itself
        std::int64_t n_own;
    };

    std::int32_t n_axes = 1;
    std::unique_ptr<std::uint8_t[]> of_pair;  // the axis of each pair; NULL if there is one axis
    std::unique_ptr<std::int32_t[]> by_axis;  // all pairs, those of axis 0 first; NULL likewise
    Span spans[HALYARD_MAX_AXES] = {};        // not set if there is one axis

    std::int32_t of(std::int64_t pair) const noexcept { return of_pair == nullptr ? 0 : of_pair.get()[pair]; }

    std::uint64_t n_bytes(std::int64_t n_pairs) const noexcept {
        return of_pair == nullptr ? 0 : static_cast<std::uint64_t>(n_pairs) * (sizeof(of_pair[0]) + sizeof(by_axis[0]));
    }
};

/// Checks the axis map of a description and sets *out.
halyard_status read_pair_axes(const halyard_angle_source_desc &desc, std::int64_t n_pairs, PairAxes *out,
                              halyard_error *error) noexcept;

}  // namespace halyard
