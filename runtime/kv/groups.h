// Groups: heads whose elements are kept as records, in groups of few bits that have a scale each.
#pragma once

#include "base/storage.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

namespace halyard {

struct Block;
struct KvCall;

/// By what of a group its scale is made: see halyard.h.
enum class GroupRule { largest, signed_largest, range };

/// How scales are stored: the last two as the exponents of powers of two, rounded up or as OCP says.
enum class GroupScale { f32, f16, power_up, power_ocp };

/// Which elements share a byte, the first in the low nibble: i and i + group / 2; or 2 i + 1 and 2 i. none: they have
/// 8 bits.
enum class Packing { none, halves, high_first };

/// What a preset says, and, once read, what follows from it for heads of head_dim elements. Places are in bytes.
struct GroupsDesc {                // NOLINT(*Padding)
    Dtype element = Dtype::uint8;  // int8, e4m3; uint8: numbers without a sign, of 4 bits where they are packed
    GroupScale scale = GroupScale::f32;
    std::int64_t group = 0;  // elements of one; in the table 0: the head's
    float floor = 0.0f;      // of scales
    std::int64_t data_offset = 0, data_stride = 0, scale_offset = 0, scale_stride = 0;
    bool scales_apart = false;  // not in the record
    bool rounds_away = false;   // halves, away from zero; else to even
    bool by_largest = false;    // elements are multiplied by 127 / the largest magnitude, not by 1 / the scale
    GroupRule rule = GroupRule::largest;
    Packing packing = Packing::none;
    std::int64_t zero_offset = 0;            // of the zero point of a head's one group
    std::int64_t n_raw = 0, raw_offset = 0;  // elements behind the groups, as bf16
    std::int64_t head_dim = 0;               // in the table 0: any
    std::int64_t n_grouped = 0, n_groups = 0, record_bytes = 0;
    std::int64_t strides[3] = {};  // of scales that lie apart: block or batch, token, head; all 0: dense

    bool are_dense() const noexcept { return (strides[0] | strides[1] | strides[2]) == 0; }
    bool has_zero() const noexcept { return rule == GroupRule::range; }
    bool is_4_bit() const noexcept { return packing != Packing::none; }
    bool is_power() const noexcept { return scale == GroupScale::power_up || scale == GroupScale::power_ocp; }
    std::int64_t scale_bytes() const noexcept { return is_power() ? 1 : scale == GroupScale::f16 ? 2 : 4; }
    std::int64_t data_bytes() const noexcept { return is_4_bit() ? group / 2 : group; }
    /// The greatest element: M in halyard.h.
    float greatest() const noexcept;
};

/// Finds a preset and works out what follows for heads of head_dim elements. `name` is what sentences call the struct
/// that has it, if one has.
halyard_status read_preset(std::int32_t preset, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept;

/// Reads groups. head_dim was checked.
halyard_status read_groups(const halyard_groups_desc *groups, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept;

/// Checks that the records of keys that move have finite scales and zero points. Slots were checked before.
halyard_status check_moved_records(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
