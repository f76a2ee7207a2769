// Groups: quantised heads, stored as records whose elements have few bits and, in groups, a scale each.
#pragma once

#include "base/storage.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

namespace halyard {

struct Block;
struct KvCall;

/// What a group's scale is computed from: its largest |v|, the v of largest |v|, or max - min. See halyard_kv.h.
enum class GroupRule { largest, signed_largest, range };

/// How scales are stored; the last two are E8M0 (powers of two), rounded up or as the OCP MX standard says.
enum class GroupScale { f32, f16, power_up, power_ocp };

/// Which two elements share a byte, as low and high nibble. none: no two. halves: i and i + group / 2. high_first:
/// 2 i + 1 and 2 i.
enum class Packing { none, halves, high_first };

/// What a record consists of. Each is copied to or from an array of a block's workspace.
enum class RecordPart { elements, scales, zero_point, raw };

/// A part of a record: n words of so many bytes each, `stride` bytes apart.
struct RecordField {
    RecordPart part;
    std::int64_t n, bytes, offset, stride;
    /// Copies the words. Strides are in bytes.
    void (*copy)(const RecordField &field, const char *from, std::int64_t from_stride, char *to,
                 std::int64_t to_stride);
};

/// A preset's format, completed by read_preset for heads of head_dim elements. Offsets and strides are in bytes.
struct GroupsDesc {                // NOLINT(*Padding)
    Dtype element = Dtype::uint8;  // int8, e4m3, or uint8: unsigned integers, of 4 bits if packing is not none
    GroupScale scale = GroupScale::f32;
    std::int64_t group = 0;  // elements of a group; 0 in the table: the whole head
    float floor = 0.0f;      // the least scale; for range, the scale if max = min
    std::int64_t data_offset = 0, data_stride = 0, scale_offset = 0, scale_stride = 0;
    bool scales_apart = false;  // scales are in an array outside the records
    bool rounds_away = false;   // halves round away from zero; else to even
    bool by_largest = false;    // elements are multiplied by 127 / the largest magnitude, not by 1 / the scale
    GroupRule rule = GroupRule::largest;
    Packing packing = Packing::none;
    std::int64_t zero_offset = 0;            // of the zero point of a head's one group
    std::int64_t n_raw = 0, raw_offset = 0;  // the head's last elements, which are stored as bf16
    std::int64_t head_dim = 0;               // 0 in the table: any
    std::int64_t n_grouped = 0, n_groups = 0, record_bytes = 0;
    RecordField fields[3] = {};  // what a record has of RecordPart
    int n_fields = 0;
    std::int64_t strides[3] = {};  // of scales outside the records: block or batch, token, head; all 0: dense

    bool are_dense() const noexcept { return (strides[0] | strides[1] | strides[2]) == 0; }
    bool has_zero() const noexcept { return rule == GroupRule::range; }
    bool is_4_bit() const noexcept { return packing != Packing::none; }
    /// Whether groups are 32 integers with an f16 scale, as in ggml's q8_0.
    bool is_q8() const noexcept { return element == Dtype::int8 && scale == GroupScale::f16; }
    bool is_power() const noexcept { return scale == GroupScale::power_up || scale == GroupScale::power_ocp; }
    std::int64_t scale_bytes() const noexcept { return is_power() ? 1 : scale == GroupScale::f16 ? 2 : 4; }
    std::int64_t data_bytes() const noexcept { return is_4_bit() ? group / 2 : group; }
    /// M in halyard_kv.h: the largest element; -8 for signed_largest.
    float greatest() const noexcept;
};

/// Sets *out to a preset's format, completed for heads of head_dim elements. `name` is for error messages: it names the
/// struct that holds the preset, and may be empty.
halyard_status read_preset(std::int32_t preset, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept;

/// Checks a halyard_groups_desc and sets *out. head_dim was checked.
halyard_status read_groups(const halyard_groups_desc *groups, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept;

/// Checks that the records of keys that are re-rotated have finite scales and zero points. Slots were checked before.
halyard_status check_records_to_rerotate(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
