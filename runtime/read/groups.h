// A checked description of records: heads whose elements are kept in groups, each with a scale.
#pragma once

#include "base/overlap.h"
#include "base/storage.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// A checked halyard_groups_desc with its preset and defaults filled in.
struct GroupsDesc {
    std::int32_t element, packing, rule, reciprocal, rounding, scale_dtype;  // numbers of the C ABI
    bool scales_apart;
    std::optional<Dtype> raw;
    float floor;
    std::int64_t group, n_groups, n_raw;  // elements of a group, groups of a head, elements behind them
    std::int64_t record_bytes;
    std::int64_t data_offset, data_stride, scale_offset, scale_stride, zero_offset, zero_stride, raw_offset;
    std::int64_t scales_strides[3];  // of scales that lie apart: block or batch row, token, head; all 0: dense

    bool has_zero() const noexcept { return rule == HALYARD_RULE_RANGE; }
    bool is_e8m0() const noexcept { return scale_dtype >= HALYARD_GROUP_SCALE_E8M0_UP; }
    bool is_4_bit() const noexcept { return packing != 0; }
    /// What scales and zero points are rounded to; none: E8M0.
    std::optional<Dtype> scale() const noexcept {
        return is_e8m0() ? std::nullopt : to_dtype(scale_dtype);  // the first three have the numbers of dtypes
    }
    std::int64_t scale_bytes() const noexcept { return is_e8m0() ? 1 : element_bytes(*scale()); }
    std::int64_t data_bytes() const noexcept { return is_4_bit() ? group / 2 : group; }
    std::int64_t n_grouped() const noexcept { return group * n_groups; }
    /// The greatest element: M in halyard.h.
    float greatest() const noexcept;
};

/// Scales of a tensor's records that lie apart from them.
struct GroupScales {
    char *data;                                            // only read where they are those of from_groups
    std::int64_t stride_batch, stride_token, stride_head;  // in bytes; of a cache the first is from block to block
    MemoryRange memory;
};

/// Checks the groups of tensor `index`, of which `field` is the name. head_dim was checked.
halyard_status read_groups(const halyard_groups_desc *groups, int index, const char *field, std::int64_t head_dim,
                           GroupsDesc *out, halyard_error *error) noexcept;

}  // namespace halyard
