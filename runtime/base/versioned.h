// How the C ABI's structs are read that begin with their size, so that later versions can append fields.
#pragma once

#include "base/error.h"
#include "halyard/halyard.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace halyard {

/// The sizes that a struct had in each version of the ABI, the current one last. To append a field, append the new
/// size: the assertions below don't compile before. A caller that was compiled with an earlier version goes on working.
template <typename Struct>
inline constexpr std::array<std::uint32_t, 0> released_sizes = {};

template <>
inline constexpr std::array released_sizes<halyard_scaling> = {160u};
template <>
inline constexpr std::array released_sizes<halyard_config_options> = {24u};
template <>
inline constexpr std::array released_sizes<halyard_frequencies_info> = {168u};
template <>
inline constexpr std::array released_sizes<halyard_positions> = {72u};
template <>
inline constexpr std::array released_sizes<halyard_angle_source_desc> = {120u};
template <>
inline constexpr std::array released_sizes<halyard_angle_source_info> = {48u};
template <>
inline constexpr std::array released_sizes<halyard_tensor_desc> = {88u};
template <>
inline constexpr std::array released_sizes<halyard_plan_desc> = {56u};
template <>
inline constexpr std::array released_sizes<halyard_linear_angles> = {64u};
template <>
inline constexpr std::array released_sizes<halyard_rows_args> = {72u};
template <>
inline constexpr std::array released_sizes<halyard_tensor> = {88u};
template <>
inline constexpr std::array released_sizes<halyard_executor> = {24u};
template <>
inline constexpr std::array released_sizes<halyard_run_args> = {96u};
template <>
inline constexpr std::array released_sizes<halyard_bound_run_args> = {136u};
template <>
inline constexpr std::array released_sizes<halyard_norm_desc> = {64u};
template <>
inline constexpr std::array released_sizes<halyard_scale_desc> = {16u};
template <>
inline constexpr std::array released_sizes<halyard_cache_desc> = {96u};
template <>
inline constexpr std::array released_sizes<halyard_groups_desc> = {32u};
template <>
inline constexpr std::array released_sizes<halyard_groups_info> = {80u};
template <>
inline constexpr std::array released_sizes<halyard_slots> = {72u};
template <>
inline constexpr std::array released_sizes<halyard_stages> = {136u};
template <>
inline constexpr std::array released_sizes<halyard_target_info> = {288u};

template <typename Struct>
constexpr bool is_released_size(std::uint32_t size) noexcept {
    constexpr auto &sizes = released_sizes<Struct>;
    static_assert(!sizes.empty() && sizes.back() == sizeof(Struct), "append the struct's new size to released_sizes");
    return std::find(sizes.begin(), sizes.end(), size) != sizes.end();
}

/// Says that a struct's size is none that this library knows. name is for the message.
template <typename Struct>
halyard_status fail_size(std::uint32_t size, const char *name, halyard_error *error) noexcept {
    return fail(error, HALYARD_ERROR_STRUCT_SIZE, name, ".size is ", size, size == 0 ? ", not set" : "",
                ", but this library knows ", released_sizes<Struct>.front(),
                released_sizes<Struct>.size() > 1 ? " and later ones up to " : "",
                released_sizes<Struct>.size() > 1 ? Part(sizeof(Struct)) : Part(""));
}

/// Copies a caller's versioned struct into *out: what an earlier version's size leaves out keeps out's default.
template <typename Struct>
halyard_status read_struct(const Struct *in, const char *name, Struct *out, halyard_error *error) noexcept {
    if (in == nullptr) {
        return fail_null(error, name);
    }
    if (!is_released_size<Struct>(in->size)) {
        return fail_size<Struct>(in->size, name, error);
    }
    std::memcpy(out, in, in->size);
    return HALYARD_OK;
}

/// Reads a caller's versioned struct, but copies it only if its size is not this library's: *out is `in` or `copy`.
/// What an earlier version's size leaves out is zero.
template <typename Struct>
halyard_status view_struct(const Struct *in, const char *name, Struct *copy, const Struct **out,
                           halyard_error *error) noexcept {
    if (in != nullptr && in->size == sizeof(Struct)) {
        *out = in;
        return HALYARD_OK;
    }
    *copy = {};
    *out = copy;
    return read_struct(in, name, copy, error);
}

/// Fills in a caller's versioned struct: copies as much of value as info->size holds, and keeps size.
template <typename Struct>
halyard_status write_struct(const Struct &value, const char *name, Struct *info, halyard_error *error) noexcept {
    HALYARD_TRY(check_given(info, name, error));
    if (!is_released_size<Struct>(info->size)) {
        return fail_size<Struct>(info->size, name, error);
    }
    const auto size = info->size;
    std::memcpy(info, &value, size);
    info->size = size;
    return HALYARD_OK;
}

/// Element i of an array of versioned structs, which lie as far apart as the first one's size says.
template <typename Struct>
const Struct *element_of(const Struct *array, std::int64_t i) noexcept {
    return reinterpret_cast<const Struct *>(reinterpret_cast<const char *>(array) + i * std::int64_t{array->size});
}

}  // namespace halyard
