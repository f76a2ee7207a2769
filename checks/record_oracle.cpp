#include "checks/record_oracle.h"

#include "checks/oracle.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace oracle {

// Records are exact to the byte only if each product, quotient and sum of floats is rounded once: no wider intermediate
// results, and no fused multiply-add.
static_assert(FLT_EVAL_METHOD == 0);

namespace {

/// The largest quantised value of an element: M in halyard_kv.h.
float element_type_max(const Record &record) {
    constexpr float all[] = {127, 255, 15, 448};
    return all[static_cast<int>(record.element)];
}

using enum Record::Element;
using enum Record::Rule;
using enum Record::Scale;

/// In the order of HALYARD_GROUPS_…. Without .group the group is the whole head. After .n_grouped come raw elements.
const Record presets[] = {
    {.scale = f16, .r_of_largest = true, .group = 32, .data_offset = 2},
    {.scale = f16, .group = 32, .data_offset = 2},
    {.scale = f16, .rounds_away = true, .group = 32, .data_offset = 2},
    {.element = uint4, .rule = signed_largest, .scale = f16, .group = 32, .data_offset = 2},
    {.floor = 1e-6f, .rounds_away = true, .scales_apart = true},
    {.element = e4m3, .floor = 1e-6f, .scales_apart = true},
    {.element = uint8, .rule = range, .floor = 1e-4f, .data_offset = 8, .zero_offset = 4},
    {.element = uint4, .rule = range, .floor = 1e-4f, .data_offset = 8, .zero_offset = 4},
    {.element = e4m3, .floor = 1e-4f / 448, .group = 128, .n_grouped = 512},
    {.element = e4m3, .scale = power_up, .floor = 1e-4f / 448, .group = 64, .n_grouped = 448, .scales_apart = true},
    {.element = e4m3, .scale = power_up, .floor = 1e-4f / 448, .group = 32, .n_grouped = 512, .scales_apart = true},
    {.element = e4m3, .scale = power_ocp, .group = 32, .data_offset = 1}};

/// A scale or a zero point as it is stored.
struct Stored {
    std::uint32_t word;
    float value;
    bool is_other;  // it was clamped, or rounded up to a power of two: reciprocals must be of `value`
};

Stored round_to(std::int32_t dtype, float value) {
    const float most = static_cast<float>(greatest(dtype)), nearest = widen(dtype, narrow(dtype, value));
    const float stored = std::isinf(nearest) ? std::copysign(most, value) : nearest;
    return {narrow(dtype, stored), stored, std::isinf(nearest)};
}

Stored power_of_two(int exponent) {
    exponent = std::clamp(exponent, -127, 127);
    return {static_cast<std::uint32_t>(exponent + 127), std::ldexp(1.0f, exponent), true};
}

Stored store_scale(const Record &record, float largest, float s) {
    if (record.scale == Record::Scale::power_ocp) {
        return power_of_two(largest == 0 ? -127 : std::ilogb(largest) - 8);
    }
    if (record.scale == Record::Scale::power_up) {
        int exponent = 0;
        const bool is_power = std::frexp(s, &exponent) == 0.5f;
        return power_of_two(exponent - (is_power ? 1 : 0));
    }
    return round_to(record.scale == Record::Scale::f32 ? HALYARD_F32 : HALYARD_F16, s);
}

/// A group's scale and zero point, and the reciprocal r that its elements are multiplied by.
struct Quantiser {
    Stored scale, zero;
    float r;
};

Quantiser quantiser_of(const Record &record, const float *group) {
    float signed_largest = 0, min = INFINITY, max = -INFINITY;  // of finite elements only
    for (std::int64_t i = 0; i < record.group; i++) {
        if (std::isfinite(group[i])) {
            signed_largest = std::fabs(group[i]) > std::fabs(signed_largest) ? group[i] : signed_largest;
            min = std::min(min, group[i]);
            max = std::max(max, group[i]);
        }
    }
    const bool has_any = min <= max;
    min = has_any && min != 0 ? min : 0.0f;  // +0, never -0
    max = has_any ? max : 0.0f;
    const float most = element_type_max(record), largest = std::fabs(signed_largest);
    float s = signed_largest / -8.0f;
    if (record.rule == Record::Rule::largest) {
        s = std::max(largest / most, record.floor);
    } else if (record.rule == Record::Rule::range) {
        s = (max - min) / most;
        s = s == 0 ? record.floor : s;
    }
    Quantiser result = {store_scale(record, largest, s), {}, 0};
    result.r = result.scale.is_other ? 1.0f / result.scale.value : record.r_of_largest ? most / largest : 1.0f / s;
    result.r = std::isfinite(result.r) ? result.r : 0.0f;
    if (record.rule == Record::Rule::range) {
        result.zero = round_to(HALYARD_F32, -min / (result.scale.is_other ? result.scale.value : s));
    }
    return result;
}

std::uint32_t quantise(const Record &record, const Quantiser &by, float v) {
    const bool is_zero = std::isnan(v) || by.r == 0;
    const float p = is_zero ? 0.0f : v * by.r;
    if (record.element == e4m3) {
        return narrow(HALYARD_E4M3, p);
    }
    float q = record.rounds_away ? std::round(p) : std::nearbyint(p);
    if (record.rule == Record::Rule::signed_largest) {
        q = std::trunc(p + 8.5f);
    } else if (record.rule == Record::Rule::range) {
        q = std::nearbyint(is_zero ? by.zero.value : std::fma(v, by.r, by.zero.value));
    }
    const float least = record.rule == Record::Rule::largest ? -128.0f : 0.0f;
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(q, least, element_type_max(record)))) & 255u;
}

/// The byte of a group that holds element i, and the bit offset in that byte.
std::pair<std::int64_t, int> place_of(const Record &record, std::int64_t i) {
    return record.element != uint4 ? std::pair(i, 0)
           : record.rule == range  ? std::pair(i / 2, i % 2 == 0 ? 4 : 0)
                                   : std::pair(i % (record.group / 2), i < record.group / 2 ? 0 : 4);
}

/// The address of a group's scale.
template <typename Byte>
Byte *scale_of(const Record &record, Byte *bytes, Byte *scales, std::int64_t group) {
    return (record.scales_apart ? scales : bytes) + record.scale_offset + group * record.scale_stride;
}

float read_scale(const Record &record, const char *at) {
    if (record.scale >= power_up) {
        const std::uint32_t exponent = read_word(HALYARD_UINT8, at);
        return exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                               : std::ldexp(1.0f, static_cast<int>(exponent) - 127);
    }
    const std::int32_t dtype = record.scale == Record::Scale::f32 ? HALYARD_F32 : HALYARD_F16;
    return widen(dtype, read_word(dtype, at));
}

}  // namespace

Record record_of(const halyard_groups_desc &desc, std::int64_t head_dim) {
    // A fuzzer's preset may be invalid.
    Record record = presets[std::clamp<std::int32_t>(desc.preset, HALYARD_GROUPS_GGML_Q8_0, HALYARD_GROUPS_MX) - 1];
    record.head_dim = head_dim;
    record.n_grouped = record.n_grouped != 0 ? record.n_grouped : head_dim;
    record.group = record.group != 0 ? record.group : record.n_grouped;
    record.data_stride = record.data_offset + record.data_bytes();
    // Each scale is in front of its group, or all scales follow the groups, or they are outside the record. Raw bf16
    // elements come last.
    const bool are_before = record.data_offset != 0;
    record.raw_offset = record.n_groups() * record.data_stride;
    record.scale_stride = are_before ? record.data_stride : record.scale_bytes();
    if (!are_before && !record.scales_apart) {
        record.scale_offset = record.raw_offset;
        record.raw_offset += record.dense_scales_bytes();
    }
    record.bytes = record.raw_offset + 2 * (head_dim - record.n_grouped);
    return record;
}

std::vector<Place> places_of(const Record &record) {
    std::vector<Place> places;
    const std::int64_t n_scale = record.scale_bytes();
    for (std::int64_t g = 0; g < record.n_groups(); g++) {
        places.push_back({record.data_offset + g * record.data_stride, record.data_bytes(), false, HALYARD_UINT8});
        places.push_back({record.scale_offset + g * record.scale_stride, n_scale, record.scales_apart, HALYARD_UINT8});
    }
    if (record.rule == Record::Rule::range) {
        places.push_back({record.zero_offset, n_scale, false, HALYARD_UINT8});
    }
    if (record.head_dim > record.n_grouped) {
        places.push_back({record.raw_offset, 2 * (record.head_dim - record.n_grouped), false, HALYARD_BF16});
    }
    return places;
}

void encode(const Record &record, const float *head, char *bytes, char *scales) {
    const auto n_scale = static_cast<std::size_t>(record.scale_bytes());
    for (std::int64_t g = 0; g < record.n_groups(); g++) {
        const float *const group = head + g * record.group;
        const Quantiser by = quantiser_of(record, group);
        std::memcpy(scale_of(record, bytes, scales, g), &by.scale.word, n_scale);
        if (record.rule == Record::Rule::range) {
            std::memcpy(bytes + record.zero_offset, &by.zero.word, n_scale);
        }
        char *const data = bytes + record.data_offset + g * record.data_stride;
        std::fill_n(data, record.data_bytes(), '\0');
        for (std::int64_t i = 0; i < record.group; i++) {
            const auto [byte, shift] = place_of(record, i);
            data[byte] = static_cast<char>(data[byte] | quantise(record, by, group[i]) << shift);
        }
    }
    for (std::int64_t i = record.n_grouped; i < record.head_dim; i++) {
        write_word(HALYARD_BF16, bytes + record.raw_offset + 2 * (i - record.n_grouped), narrow(HALYARD_BF16, head[i]));
    }
}

std::vector<float> decode(const Record &record, const char *bytes, const char *scales) {
    std::vector<float> head;
    for (std::int64_t g = 0; g < record.n_groups(); g++) {
        const float s = read_scale(record, scale_of(record, bytes, scales, g));
        const float z = record.rule == Record::Rule::range ? read_scale(record, bytes + record.zero_offset) : 8.0f;
        const char *const data = bytes + record.data_offset + g * record.data_stride;
        constexpr std::int32_t dtypes[] = {HALYARD_INT8, HALYARD_UINT8, HALYARD_UINT8, HALYARD_E4M3};
        for (std::int64_t i = 0; i < record.group; i++) {
            const auto [byte, shift] = place_of(record, i);
            const std::uint32_t word =
                read_word(HALYARD_UINT8, data + byte) >> shift & (record.element == uint4 ? 15 : 255);
            const float q = widen(dtypes[static_cast<int>(record.element)], word);
            head.push_back((record.rule == Record::Rule::largest ? q : q - z) * s);
        }
    }
    for (std::int64_t i = record.n_grouped; i < record.head_dim; i++) {
        const char *const at = bytes + record.raw_offset + 2 * (i - record.n_grouped);
        head.push_back(widen(HALYARD_BF16, read_word(HALYARD_BF16, at)));
    }
    return head;
}

}  // namespace oracle
