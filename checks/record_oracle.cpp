#include "checks/record_oracle.h"

#include "checks/oracle.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace oracle {

// Each product, quotient and sum of floats is one correctly rounded operation, subnormal numbers too: C++ says so of
// this arithmetic, if the compiler keeps to floats and fuses nothing.
static_assert(FLT_EVAL_METHOD == 0);

namespace {

bool is_power(const Record &record) { return record.scale >= Record::Scale::power_up; }

/// M of halyard.h.
float most_of(const Record &record) {
    switch (record.element) {
    case Record::Element::int8: return 127;
    case Record::Element::uint8: return 255;
    case Record::Element::uint4: return 15;
    case Record::Element::e4m3: break;
    }
    return 448;
}

// ---- Presets -------------------------------------------------------------------------------------------------------

using enum Record::Element;
using enum Record::Rule;
using enum Record::Scale;

/// In the order of HALYARD_GROUPS_…. Without a group it is the whole head; DeepSeek's latents have bf16 behind them.
const Record presets[] = {{.scale = f16, .is_of_largest = true, .group = 32, .data_offset = 2},
                          {.scale = f16, .group = 32, .data_offset = 2},
                          {.scale = f16, .is_away = true, .group = 32, .data_offset = 2},
                          {.element = uint4, .rule = signed_largest, .scale = f16, .group = 32, .data_offset = 2},
                          {.floor = 1e-6f, .is_away = true, .scale_stride = 4, .scales_apart = true},
                          {.element = e4m3, .floor = 1e-6f, .scale_stride = 4, .scales_apart = true},
                          {.element = uint8, .rule = range, .floor = 1e-4f, .data_offset = 8, .zero_offset = 4},
                          {.element = uint4, .rule = range, .floor = 1e-4f, .data_offset = 8, .zero_offset = 4},
                          {.element = e4m3,
                           .floor = 1e-4f / 448,
                           .group = 128,
                           .n_grouped = 512,
                           .bytes = 656,
                           .scale_offset = 512,
                           .scale_stride = 4,
                           .raw_offset = 528},
                          {.element = e4m3,
                           .scale = power_up,
                           .floor = 1e-4f / 448,
                           .group = 64,
                           .n_grouped = 448,
                           .bytes = 576,
                           .scale_stride = 1,
                           .raw_offset = 448,
                           .scales_apart = true},
                          {.element = e4m3,
                           .scale = power_up,
                           .floor = 1e-4f / 448,
                           .group = 32,
                           .n_grouped = 512,
                           .scale_stride = 1,
                           .scales_apart = true},
                          {.element = e4m3, .scale = power_ocp, .group = 32, .data_offset = 1}};

}  // namespace

Record record_of(const halyard_groups_desc &desc, std::int64_t head_dim) {
    // A fuzzer's preset may be none.
    Record record = presets[std::clamp<std::int32_t>(desc.preset, HALYARD_GROUPS_GGML_Q8_0, HALYARD_GROUPS_MX) - 1];
    const auto or_else = [](std::int64_t &value, std::int64_t other) { value = value != 0 ? value : other; };
    record.head_dim = head_dim;
    or_else(record.n_grouped, head_dim);
    or_else(record.group, record.n_grouped);
    record.data_stride = record.data_offset + record.data_bytes();
    or_else(record.scale_stride, record.data_stride);
    or_else(record.bytes, record.n_groups() * record.data_stride);
    record.scale_strides[0] = desc.scales_stride_block;
    record.scale_strides[1] = desc.scales_stride_token;
    record.scale_strides[2] = desc.scales_stride_head;
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

namespace {

// ---- Scales --------------------------------------------------------------------------------------------------------

/// A scale or a zero point as it is stored, and whether that is another number than the nearest.
struct Stored {
    std::uint32_t word;
    float value;
    bool is_other;
};

Stored round_to(std::int32_t dtype, float value) {
    Stored stored = {narrow(dtype, value), 0, false};
    stored.value = widen(dtype, stored.word);
    if (std::isinf(stored.value)) {
        stored.value = std::copysign(static_cast<float>(greatest(dtype)), value);
        stored.word = narrow(dtype, stored.value);
        stored.is_other = true;
    }
    return stored;
}

Stored power_of_two(int exponent) {
    exponent = std::clamp(exponent, -127, 127);
    return {static_cast<std::uint32_t>(exponent + 127), std::ldexp(1.0f, exponent), true};
}

/// What the finite elements of a group say.
struct Summary {
    float largest = 0, signed_largest = 0, min = 0, max = 0;
};

Summary sum_up(const Record &record, const float *group) {
    Summary of;
    bool has_any = false;
    for (std::int64_t i = 0; i < record.group; i++) {
        const float v = group[i];
        if (!std::isfinite(v)) {
            continue;
        }
        if (std::fabs(v) > of.largest) {
            of.largest = std::fabs(v);
            of.signed_largest = v;
        }
        of.min = !has_any || v < of.min ? v : of.min;
        of.max = !has_any || v > of.max ? v : of.max;
        has_any = true;
    }
    of.min = of.min == 0 ? 0.0f : of.min;  // zeros of both signs are one number, whichever comes first
    return of;
}

/// A group's scale and zero point, and what elements are multiplied by.
struct Quantiser {
    Stored scale, zero;
    float r;
};

Stored store_scale(const Record &record, const Summary &of, float s) {
    if (!is_power(record)) {
        return round_to(record.scale == Record::Scale::f32 ? HALYARD_F32 : HALYARD_F16, s);
    }
    const bool is_ocp = record.scale == Record::Scale::power_ocp;
    if ((is_ocp ? of.largest : s) == 0) {
        return power_of_two(-127);
    }
    if (is_ocp) {
        return power_of_two(std::ilogb(of.largest) - 8);
    }
    int exponent = 0;
    const bool is_power = std::frexp(s, &exponent) == 0.5f;
    return power_of_two(exponent - (is_power ? 1 : 0));
}

Quantiser quantiser_of(const Record &record, const float *group) {
    const Summary of = sum_up(record, group);
    const float most = most_of(record);
    float s = of.signed_largest / -8.0f;
    if (record.rule == Record::Rule::largest) {
        s = std::max(of.largest / most, record.floor);
    } else if (record.rule == Record::Rule::range) {
        s = (of.max - of.min) / most;
        s = s == 0 ? record.floor : s;
    }
    Quantiser result = {store_scale(record, of, s), {}, 0};
    result.r = result.scale.is_other ? 1.0f / result.scale.value : record.is_of_largest ? most / of.largest : 1.0f / s;
    result.r = std::isfinite(result.r) ? result.r : 0.0f;
    if (record.rule == Record::Rule::range) {
        result.zero = round_to(HALYARD_F32, -of.min / (result.scale.is_other ? result.scale.value : s));
    }
    return result;
}

// ---- Elements ------------------------------------------------------------------------------------------------------

/// v * r, of what is not finite too.
float product(float v, float r) { return std::isnan(v) || r == 0 ? 0.0f : v * r; }

std::uint32_t quantise(const Record &record, const Quantiser &by, float v) {
    const float p = product(v, by.r), most = most_of(record);
    if (record.element == Record::Element::e4m3) {
        return narrow(HALYARD_E4M3, p);
    }
    if (record.rule == Record::Rule::signed_largest) {
        return static_cast<std::uint32_t>(std::clamp(std::trunc(p + 8.5f), 0.0f, 15.0f));
    }
    if (record.rule == Record::Rule::range) {
        const bool is_zero = by.r == 0 || std::isnan(v);
        const float sum = is_zero ? by.zero.value : std::fma(v, by.r, by.zero.value);
        return static_cast<std::uint32_t>(std::clamp(std::nearbyint(sum), 0.0f, most));
    }
    const float q = record.is_away ? std::round(p) : std::nearbyint(p);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::clamp(q, -128.0f, most)));
}

/// The byte of a group that element i lies in, and how far up.
struct BitPlace {
    std::int64_t byte;
    int shift;
};

BitPlace place_of(const Record &record, std::int64_t i) {
    if (record.element != Record::Element::uint4) {
        return {i, 0};
    }
    return record.rule == Record::Rule::range ? BitPlace{i / 2, i % 2 == 0 ? 4 : 0}
                                              : BitPlace{i % (record.group / 2), i < record.group / 2 ? 0 : 4};
}

float read_scale(const Record &record, const unsigned char *at) {
    if (is_power(record)) {
        return *at == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, *at - 127);
    }
    const std::int32_t dtype = record.scale == Record::Scale::f32 ? HALYARD_F32 : HALYARD_F16;
    return widen(dtype, read_word(dtype, at));
}

float read_element(const Record &record, std::uint32_t word) {
    switch (record.element) {
    case Record::Element::int8: return static_cast<std::int8_t>(word);
    case Record::Element::e4m3: return widen(HALYARD_E4M3, word);
    case Record::Element::uint8:
    case Record::Element::uint4: break;
    }
    return static_cast<float>(word);
}

}  // namespace

void encode(const Record &record, const float *head, unsigned char *bytes, unsigned char *scales) {
    const auto n_scale = static_cast<std::size_t>(record.scale_bytes());
    for (std::int64_t g = 0; g < record.n_groups(); g++) {
        const float *const group = head + g * record.group;
        const Quantiser by = quantiser_of(record, group);
        std::memcpy((record.scales_apart ? scales : bytes) + record.scale_offset + g * record.scale_stride,
                    &by.scale.word, n_scale);
        if (record.rule == Record::Rule::range) {
            std::memcpy(bytes + record.zero_offset, &by.zero.word, n_scale);
        }
        unsigned char *const data = bytes + record.data_offset + g * record.data_stride;
        std::fill_n(data, record.data_bytes(), static_cast<unsigned char>(0));
        for (std::int64_t i = 0; i < record.group; i++) {
            const BitPlace at = place_of(record, i);
            const std::uint32_t bits = quantise(record, by, group[i]) & 255u;
            data[at.byte] = static_cast<unsigned char>(data[at.byte] | bits << at.shift);
        }
    }
    for (std::int64_t i = record.n_grouped; i < record.head_dim; i++) {
        write_word(HALYARD_BF16, bytes + record.raw_offset + 2 * (i - record.n_grouped), narrow(HALYARD_BF16, head[i]));
    }
}

std::vector<float> decode(const Record &record, const unsigned char *bytes, const unsigned char *scales) {
    std::vector<float> head;
    for (std::int64_t g = 0; g < record.n_groups(); g++) {
        const float s =
            read_scale(record, (record.scales_apart ? scales : bytes) + record.scale_offset + g * record.scale_stride);
        const float z = record.rule == Record::Rule::range ? read_scale(record, bytes + record.zero_offset) : 8.0f;
        const unsigned char *const data = bytes + record.data_offset + g * record.data_stride;
        for (std::int64_t i = 0; i < record.group; i++) {
            const BitPlace at = place_of(record, i);
            const float q =
                read_element(record, data[at.byte] >> at.shift & (record.element == Record::Element::uint4 ? 15 : 255));
            head.push_back((record.rule == Record::Rule::largest ? q : q - z) * s);
        }
    }
    for (std::int64_t i = record.n_grouped; i < record.head_dim; i++) {
        const unsigned char *const at = bytes + record.raw_offset + 2 * (i - record.n_grouped);
        head.push_back(widen(HALYARD_BF16, read_word(HALYARD_BF16, at)));
    }
    return head;
}

}  // namespace oracle
