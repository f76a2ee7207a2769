// Arrays of any dtype for tests of the tool's road, as words, and what the oracle says of them.
#pragma once

#include "checks/road_oracle.h"
#include "tool/arrays.h"

#include "halyard/halyard.h"

#include <cmath>
#include <cstring>

/// What .npy files call a dtype, and what the tool does.
inline std::string npy_name(std::int32_t dtype) {
    static const char *const names[] = {"", "<f4", "<f2", "<u2", "|u1", "|u1", "|i1"};
    return names[dtype];
}
inline std::string word_of(std::int32_t dtype) {
    static const char *const words[] = {"", "f32", "f16", "bf16", "e4m3", "e5m2", "int8"};
    return words[dtype];
}

using Words = std::vector<std::uint32_t>;

/// Numbers from about 1/8 to 4 with either sign, the same in every run; of 8-bit dtypes any bits.
inline Words make_words(std::int32_t dtype, std::size_t n, std::uint32_t state = 1) {
    Words words(n);
    for (auto &word : words) {
        state = state * 1664525 + 1013904223;
        const std::uint32_t sign = state >> 31, random = state >> 3, up = state >> 9;
        switch (dtype) {
        case HALYARD_F32: word = sign << 31 | (124 + up % 5) << 23 | (random & 0x7fffff); break;
        case HALYARD_F16: word = sign << 15 | (12 + up % 5) << 10 | (random & 0x3ff); break;
        case HALYARD_BF16: word = sign << 15 | (124 + up % 5) << 7 | (random & 0x7f); break;
        default: word = random & 0xff; break;
        }
    }
    return words;
}

inline std::vector<float> decode(std::int32_t dtype, const Words &words) {
    std::vector<float> values;
    for (const auto word : words) {
        values.push_back(static_cast<float>(oracle::decode(dtype, word)));
    }
    return values;
}

/// Returns the name.
inline std::string write_words(const ToolFolder &dir, const std::string &name, std::int32_t dtype, const Shape &shape,
                               const Words &words) {
    const auto n_bytes = static_cast<std::size_t>(oracle::element_bytes(dtype));
    std::string bytes;
    for (const auto word : words) {
        bytes.append(reinterpret_cast<const char *>(&word), n_bytes);
    }
    halyard::tool::write_npy(dir / name, npy_name(dtype), shape, bytes.data(), bytes.size());
    return name;
}

/// The words of a file that must be of this dtype and shape.
inline Words read_words(const std::string &path, std::int32_t dtype, const Shape &shape) {
    const auto array = halyard::tool::read_npy(path, {npy_name(dtype)});
    REQUIRE(array.shape == shape);
    const auto n_bytes = static_cast<std::size_t>(oracle::element_bytes(dtype));
    Words words(static_cast<std::size_t>(array.n_elements));
    for (std::size_t i = 0; i < words.size(); i++) {
        std::memcpy(&words[i], array.data.get() + i * n_bytes, n_bytes);
    }
    return words;
}

/// What the road makes of tokens [tokens, heads, head_dim] at positions 0, 1, … and the default base, in that order.
/// position_scales are those of all heads, or none.
inline oracle::RoadValues roads_of(oracle::Road road, const std::vector<float> &x, std::size_t n_tokens,
                                   const std::vector<float> &position_scales = {}) {
    const auto n = static_cast<std::size_t>(road.n_heads * road.head_dim);
    oracle::RoadValues all;
    for (std::size_t token = 0; token < x.size() / n; token++) {
        std::vector<long double> cos, sin;
        for (std::int64_t k = 0; k < road.rotary_dim / 2; k++) {
            const long double exponent =
                -2.0L * static_cast<long double>(k) / static_cast<long double>(road.rotary_dim);
            const long double angle = static_cast<long double>(token % n_tokens) * std::pow(10000.0L, exponent);
            cos.push_back(std::cos(angle));
            sin.push_back(std::sin(angle));
        }
        if (!position_scales.empty()) {
            const auto first = position_scales.begin() + static_cast<std::ptrdiff_t>(token) * road.n_heads;
            road.position_scales.assign(first, first + road.n_heads);
        }
        const auto from = x.begin() + static_cast<std::ptrdiff_t>(token * n);
        const auto one = oracle::road_of(road, {from, from + static_cast<std::ptrdiff_t>(n)}, cos, sin);
        all.value.insert(all.value.end(), one.value.begin(), one.value.end());
        all.bound.insert(all.bound.end(), one.bound.begin(), one.bound.end());
    }
    return all;
}
