// Works out the bytes of records of groups from the floats that are stored, and the floats from the bytes: as halyard.h
// describes them, without any code of the runtime or the generators.
#pragma once

#include "halyard/halyard_kv.h"

#include <cstdint>
#include <vector>

namespace oracle {

/// What a preset says of a head: of uint4 two elements share a byte, i and i + group / 2 by the rule of the signed
/// largest, neighbours by that of ranges.
struct Record {
    enum class Element { int8, uint8, uint4, e4m3 };
    enum class Rule { largest, signed_largest, range };
    enum class Scale { f32, f16, power_up, power_ocp };

    Element element = Element::int8;
    Rule rule = Rule::largest;
    Scale scale = Scale::f32;
    float floor = 0;
    bool is_of_largest = false, is_away = false;  // the reciprocal, M / largest |v|; halves
    std::int64_t head_dim = 0, group = 0, n_grouped = 0, bytes = 0;
    std::int64_t data_offset = 0, data_stride = 0, scale_offset = 0, scale_stride = 0, zero_offset = 0;
    std::int64_t raw_offset = 0;  // of elements in no group, as bf16
    bool scales_apart = false;

    std::int64_t n_groups() const { return n_grouped / group; }
    std::int64_t data_bytes() const { return element == Element::uint4 ? group / 2 : group; }
    std::int64_t scale_bytes() const { return scale == Scale::f32 ? 4 : scale == Scale::f16 ? 2 : 1; }
    /// Bytes of a head's scales in dense order.
    std::int64_t dense_scales() const { return n_groups() * scale_stride; }
};

Record record_of(const halyard_groups_desc &desc, std::int64_t head_dim);

/// A run of bytes of a record that hold something: in the record, or in memory of scales that lie apart.
struct Place {
    std::int64_t offset, bytes;
    bool in_scales;
    std::int32_t dtype;  // of raw elements; else HALYARD_UINT8
};
std::vector<Place> places_of(const Record &record);

/// Writes the places of one head's record.
void encode(const Record &record, const float *head, char *bytes, char *scales);

/// What the elements of a record are read as.
std::vector<float> decode(const Record &record, const char *bytes, const char *scales);

}  // namespace oracle
