// A checked description of records: heads whose elements are kept in groups, each with a scale.
#pragma once

#include "base/overlap.h"
#include "base/storage.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// A checked halyard_groups_desc with its preset and defaults filled in.
struct GroupsDesc : halyard_groups_desc {
    std::int64_t n_groups, n_raw;  // groups of a head, elements behind them
    std::optional<Dtype> raw;

    bool has_zero() const noexcept { return rule == HALYARD_RULE_RANGE; }
    bool is_e8m0() const noexcept { return scale_dtype >= HALYARD_GROUP_SCALE_E8M0_UP; }
    bool is_4_bit() const noexcept { return packing != 0; }
    /// What scales and zero points are rounded to; none: E8M0.
    std::optional<Dtype> scale() const noexcept {
        return is_e8m0() ? std::nullopt : to_dtype(scale_dtype);  // the first three have the numbers of dtypes
    }
    std::int64_t scale_bytes() const noexcept { return is_e8m0() ? 1 : element_bytes(*scale()); }
    std::int64_t data_bytes() const noexcept { return is_4_bit() ? group / 2 : group; }
    /// The greatest element: M in halyard.h.
    float greatest() const noexcept;
};

/// How scales of a tensor's records lie that lie apart from them.
struct GroupStrides {
    std::int64_t stride_batch, stride_token, stride_head;  // in bytes; of a cache the first is from block to block
};

/// Checks the groups of tensor `index`, of which `field` is the name. head_dim was checked.
halyard_status read_groups(const halyard_groups_desc *groups, int index, const char *field, std::int64_t head_dim,
                           GroupsDesc *out, halyard_error *error) noexcept;

}  // namespace halyard
