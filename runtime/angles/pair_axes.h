// Which axis of positions each pair of a source reads.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <memory>

namespace halyard {

/// Every axis map as the axis of each pair.
struct PairAxes {
    /// The pairs from the first one of an axis to its last one. Some may be other axes'.
    struct Span {
        std::int64_t first, last;  // last is not included
        bool comes_first;          // none of them is of an axis before
        const std::int32_t *own;   // [n_own] those of the axis itself
        std::int64_t n_own;
    };

    std::int32_t n_axes = 1;
    std::unique_ptr<std::uint8_t[]> of_pair;  // NULL where there is one axis
    std::unique_ptr<std::int32_t[]> by_axis;  // likewise: pairs, those of axis 0 first
    Span spans[HALYARD_MAX_AXES] = {};        // set where there are several

    std::int32_t of(std::int64_t pair) const noexcept { return of_pair == nullptr ? 0 : of_pair.get()[pair]; }

    std::uint64_t n_bytes(std::int64_t n_pairs) const noexcept {
        return of_pair == nullptr ? 0 : static_cast<std::uint64_t>(n_pairs) * (sizeof(of_pair[0]) + sizeof(by_axis[0]));
    }
};

/// Reads the axis map of a description.
halyard_status read_pair_axes(const halyard_angle_source_desc &desc, std::int64_t n_pairs, PairAxes *out,
                              halyard_error *error) noexcept;

}  // namespace halyard
