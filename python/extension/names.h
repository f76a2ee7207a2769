// What the C ABI's enumerations are called in Python.
#pragma once

#include "halyard/halyard_kv.h"
#include "refuse.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace halyard::python {

struct Name {
    const char *name;
    std::int32_t value;
};

inline constexpr Name pairings[] = {{"half", HALYARD_PAIRING_HALF}, {"interleaved", HALYARD_PAIRING_INTERLEAVED}};
inline constexpr Name dtypes[] = {{"f32", HALYARD_F32},   {"f16", HALYARD_F16},   {"bf16", HALYARD_BF16},
                                  {"e4m3", HALYARD_E4M3}, {"e5m2", HALYARD_E5M2}, {"int8", HALYARD_INT8}};
inline constexpr Name angle_kinds[] = {{"auto", HALYARD_ANGLES_AUTO},
                                       {"table", HALYARD_ANGLES_TABLE},
                                       {"phase", HALYARD_ANGLES_PHASE},
                                       {"given", HALYARD_ANGLES_GIVEN}};
inline constexpr Name references[] = {{"exact", HALYARD_REFERENCE_EXACT}, {"hf_f32", HALYARD_REFERENCE_HF_F32}};
inline constexpr Name axis_maps[] = {{"none", HALYARD_AXIS_MAP_NONE},
                                     {"sections", HALYARD_AXIS_MAP_SECTIONS},
                                     {"interleaved", HALYARD_AXIS_MAP_INTERLEAVED}};
inline constexpr Name layouts[] = {{"bshd", 0}, {"bhsd", 1}};  // whether heads come first
inline constexpr Name bad_positions[] = {{"error", HALYARD_BAD_POSITION_ERROR},
                                         {"clamp", HALYARD_BAD_POSITION_CLAMP},
                                         {"identity", HALYARD_BAD_POSITION_IDENTITY}};
inline constexpr Name norm_kinds[] = {{"rms", HALYARD_NORM_RMS}, {"layer", HALYARD_NORM_LAYER}};
inline constexpr Name norm_widths[] = {{"head", HALYARD_NORM_HEAD}, {"row", HALYARD_NORM_ROW}};
inline constexpr Name norm_orders[] = {{"before", HALYARD_NORM_BEFORE}, {"after", HALYARD_NORM_AFTER}};
inline constexpr Name norm_roundings[] = {{"none", 0},
                                          {"before_weight", HALYARD_NORM_ROUND_BEFORE_WEIGHT},
                                          {"after_weight", HALYARD_NORM_ROUND_AFTER_WEIGHT},
                                          {"both", HALYARD_NORM_ROUND_BEFORE_WEIGHT | HALYARD_NORM_ROUND_AFTER_WEIGHT}};
inline constexpr Name presets[] = {{"ggml_q8_0", HALYARD_GROUPS_GGML_Q8_0},
                                   {"ggml_q8_0_neon", HALYARD_GROUPS_GGML_Q8_0_NEON},
                                   {"ggml_q8_0_reference", HALYARD_GROUPS_GGML_Q8_0_REFERENCE},
                                   {"ggml_q4_0", HALYARD_GROUPS_GGML_Q4_0},
                                   {"vllm_int8", HALYARD_GROUPS_VLLM_INT8},
                                   {"vllm_fp8", HALYARD_GROUPS_VLLM_FP8},
                                   {"openvino_u8", HALYARD_GROUPS_OPENVINO_U8},
                                   {"openvino_u4", HALYARD_GROUPS_OPENVINO_U4},
                                   {"mla_v32", HALYARD_GROUPS_MLA_V32},
                                   {"mla_v4", HALYARD_GROUPS_MLA_V4},
                                   {"mla_v41", HALYARD_GROUPS_MLA_V41},
                                   {"mx", HALYARD_GROUPS_MX}};
inline constexpr Name slot_policies[] = {{"error", HALYARD_SLOTS_CHECK}, {"last", HALYARD_SLOTS_RANGE_ONLY}};

/// The value of a name; throws HALYARD_ERROR_UNKNOWN_VALUE, naming the argument and the names that there are.
inline std::int32_t value_of(std::span<const Name> names, const char *argument, std::string_view name) {
    std::string known;
    for (const auto &row : names) {
        if (name == row.name) {
            return row.value;
        }
        known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    refuse(HALYARD_ERROR_UNKNOWN_VALUE,
           std::string(argument) + " is \"" + std::string(name.substr(0, 40)) + "\", which is none of: " + known);
}

inline std::optional<std::string> name_or_none(std::span<const Name> names, std::int32_t value) {
    for (const auto &row : names) {
        if (value == row.value) {
            return row.name;
        }
    }
    return std::nullopt;
}

inline std::string name_in(std::span<const Name> names, std::int32_t value) {
    return name_or_none(names, value).value_or("unknown");
}

}  // namespace halyard::python
