// Golden cases of whole rotations: a rotation's description, and the elements before and after it.
#pragma once

#include "checks/rotate.h"
#include "data/golden.h"

#include <catch2/catch_test_macros.hpp>

namespace golden {

/// A storage type: its names in golden cases and .npy files, and the library's dtype.
struct Storage {
    const char *name, *descr;
    std::int32_t dtype;
};
inline constexpr Storage storages[] = {
    {"f32", "<f4", HALYARD_F32}, {"f16", "<f2", HALYARD_F16}, {"bf16", "<u2", HALYARD_BF16}};

inline std::int32_t pairing_of(const nlohmann::json &name) {
    return name.get<std::string>() == "half" ? HALYARD_PAIRING_HALF : HALYARD_PAIRING_INTERLEAVED;
}

/// The rotation that a golden case describes, with f32 elements.
inline Rotation rotation_of(const nlohmann::json &entry) {
    Rotation rotation;
    rotation.rotary_dim = entry.at("rotary_dim");
    rotation.head_dim = entry.value("head_dim", std::int64_t{0});
    rotation.offset = entry.value("offset", std::int64_t{0});
    rotation.pairing = pairing_of(entry.at("pairing"));
    rotation.out_pairing = entry.contains("out_layout") ? pairing_of(entry.at("out_layout")) : 0;
    rotation.inverse = entry.value("inverse", false);
    return rotation;
}

template <typename T>
Elements elements_of(const Array<T> &array, std::int32_t dtype) {
    Elements result(dtype, {1, array.shape.at(0), array.shape.at(1), array.shape.at(2)});
    REQUIRE(result.bytes.size() == array.values.size() * sizeof(T));
    std::memcpy(result.bytes.data(), array.values.data(), result.bytes.size());
    return result;
}

/// An array [tokens, heads, head_dim] of a section.
inline Elements read_elements(const Section &section, const std::string &name, std::int32_t dtype = HALYARD_F32) {
    return dtype == HALYARD_F32 ? elements_of(section.array<float>(name), dtype)
                                : elements_of(section.array<std::uint16_t>(name), dtype);
}

}  // namespace golden
