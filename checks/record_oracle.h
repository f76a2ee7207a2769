// Encodes floats into the records of halyard_kv.h and decodes them, without any code of the runtime or the generators.
// A record is one head: groups of quantised elements with their scales, and raw bf16 elements.
#pragma once

#include "halyard/halyard_kv.h"

#include <cstdint>
#include <vector>

namespace oracle {

/// The record format of a preset. Two uint4 elements share a byte: elements i and i + group / 2 by
/// Rule::signed_largest, neighbours by Rule::range.
struct Record {
    enum class Element { int8, uint8, uint4, e4m3 };
    enum class Rule { largest, signed_largest, range };
    enum class Scale { f32, f16, power_up, power_ocp };

    Element element = Element::int8;
    Rule rule = Rule::largest;
    Scale scale = Scale::f32;
    float floor = 0;
    bool r_of_largest = false, rounds_away = false;  // r is M / largest |v|, not 1 / scale; ties round away from zero
    std::int64_t head_dim = 0, group = 0, n_grouped = 0, bytes = 0;
    std::int64_t data_offset = 0, data_stride = 0, scale_offset = 0, scale_stride = 0, zero_offset = 0;
    std::int64_t raw_offset = 0;  // where the elements outside of all groups are stored as bf16
    bool scales_apart = false;

    std::int64_t n_groups() const { return n_grouped / group; }
    std::int64_t data_bytes() const { return element == Element::uint4 ? group / 2 : group; }
    std::int64_t scale_bytes() const { return scale == Scale::f32 ? 4 : scale == Scale::f16 ? 2 : 1; }
    /// The bytes of a head's scales when they are dense.
    std::int64_t dense_scales_bytes() const { return n_groups() * scale_stride; }
};

Record record_of(const halyard_groups_desc &desc, std::int64_t head_dim);

/// A range of bytes that encode() writes: in the record, or in a separate array of scales.
struct Place {
    std::int64_t offset, bytes;
    bool in_scales;      // offset counts from the head's scales, not from the record
    std::int32_t dtype;  // HALYARD_BF16 for raw elements, else HALYARD_UINT8
};
std::vector<Place> places_of(const Record &record);

/// Writes one head's record, and its scales if they lie outside of the record.
void encode(const Record &record, const float *head, char *bytes, char *scales);

/// The dequantised elements of a record.
std::vector<float> decode(const Record &record, const char *bytes, const char *scales);

}  // namespace oracle
