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
constexpr std::int64_t bytes_of(GroupScale scale) {
    return scale == GroupScale::f32 ? 4 : scale == GroupScale::f16 ? 2 : 1;
}

/// How v becomes an integer, as halyard_quantise_kernel numbers it. even: fma(v, r, z), to nearest even. away: v r,
/// halves away from zero. offset: v r + z, both operations rounded to float, and then towards zero.
enum class Rounding : std::int32_t { even = 0, away = 1, offset = 2 };

/// What r is, as halyard_store_groups_kernel numbers it: 1 / the scale, or M / the largest magnitude.
enum class Reciprocal : std::int32_t { of_scale = 1, of_largest = 2 };

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
    Rounding rounding = Rounding::even;
    Reciprocal reciprocal = Reciprocal::of_scale;
    GroupRule rule = GroupRule::largest;
    Packing packing = Packing::none;
    std::int64_t zero_offset = 0;            // of the zero point of a head's one group
    std::int64_t n_raw = 0, raw_offset = 0;  // the head's last elements, which are stored as bf16
    std::int64_t head_dim = 0;               // 0 in the table: any
    std::int64_t n_grouped = 0, n_groups = 0, record_bytes = 0;
    float greatest = 0.0f;       // M in halyard_kv.h: the largest element; -8 for signed_largest
    std::int64_t unpacked = 0;   // where quantised elements begin in the workspace, of one byte each
    RecordField fields[3] = {};  // what a record has of RecordPart
    int n_fields = 0;
    std::int64_t strides[3] = {};  // of scales outside the records: block or batch, token, head; all 0: dense

    bool are_dense() const noexcept { return (strides[0] | strides[1] | strides[2]) == 0; }
    bool has_zero() const noexcept { return rule == GroupRule::range; }
    bool is_4_bit() const noexcept { return packing != Packing::none; }
    /// Whether groups are 32 integers with an f16 scale, as in ggml's q8_0.
    bool is_q8() const noexcept { return element == Dtype::int8 && scale == GroupScale::f16; }
    bool is_power() const noexcept { return scale == GroupScale::power_up || scale == GroupScale::power_ocp; }
    std::int64_t data_bytes() const noexcept { return is_4_bit() ? group / 2 : group; }
    std::int64_t scale_bytes() const noexcept { return bytes_of(scale); }
};

/// Sets *out to a preset's format, completed for heads of head_dim elements. `name` is for error messages: it names the
/// struct that holds the preset, and may be empty.
halyard_status read_preset(std::int32_t preset, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept;

/// Checks a halyard_groups_desc and sets *out. head_dim was checked.
halyard_status read_groups(const halyard_groups_desc *groups, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept;

}  // namespace halyard
