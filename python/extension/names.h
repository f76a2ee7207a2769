// What the C ABI's enumerations are called in Python.
#pragma once

#include "refuse.h"

#include <cstdint>
#include <optional>
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
inline constexpr Name angle_kinds[] = {{"auto", HALYARD_ANGLES_AUTO},         {"table", HALYARD_ANGLES_TABLE},
                                       {"factored", HALYARD_ANGLES_FACTORED}, {"phase", HALYARD_ANGLES_PHASE},
                                       {"given", HALYARD_ANGLES_GIVEN},       {"joined", HALYARD_ANGLES_JOINED}};
inline constexpr Name references[] = {{"exact", HALYARD_REFERENCE_EXACT},
                                      {"hf_f32", HALYARD_REFERENCE_HF_F32},
                                      {"vllm_f16", HALYARD_REFERENCE_VLLM_F16},
                                      {"vllm_bf16", HALYARD_REFERENCE_VLLM_BF16},
                                      {"ggml", HALYARD_REFERENCE_GGML}};
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
inline constexpr Name presets_of_groups[] = {{"ggml_q8_0", HALYARD_GROUPS_GGML_Q8_0},
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
inline constexpr Name elements_of_groups[] = {{"int8", HALYARD_ELEMENT_INT8}, {"uint8", HALYARD_ELEMENT_UINT8},
                                              {"int4", HALYARD_ELEMENT_INT4}, {"uint4", HALYARD_ELEMENT_UINT4},
                                              {"e4m3", HALYARD_ELEMENT_E4M3}, {"e5m2", HALYARD_ELEMENT_E5M2}};
inline constexpr Name packings_of_groups[] = {{"low_first", HALYARD_PACKING_LOW_FIRST},
                                              {"high_first", HALYARD_PACKING_HIGH_FIRST},
                                              {"halves", HALYARD_PACKING_HALVES}};
inline constexpr Name rules_of_groups[] = {
    {"largest", HALYARD_RULE_LARGEST}, {"signed", HALYARD_RULE_SIGNED}, {"range", HALYARD_RULE_RANGE}};
inline constexpr Name reciprocals_of_groups[] = {{"of_stored", HALYARD_RECIPROCAL_OF_STORED},
                                                 {"of_scale", HALYARD_RECIPROCAL_OF_SCALE},
                                                 {"of_largest", HALYARD_RECIPROCAL_OF_LARGEST}};
inline constexpr Name roundings_of_groups[] = {{"even", HALYARD_ROUNDING_EVEN}, {"away", HALYARD_ROUNDING_AWAY}};
inline constexpr Name scales_of_groups[] = {{"f32", HALYARD_GROUP_SCALE_F32},
                                            {"f16", HALYARD_GROUP_SCALE_F16},
                                            {"bf16", HALYARD_GROUP_SCALE_BF16},
                                            {"e8m0_up", HALYARD_GROUP_SCALE_E8M0_UP},
                                            {"e8m0_ocp", HALYARD_GROUP_SCALE_E8M0_OCP}};
inline constexpr Name raws_of_groups[] = {{"f32", HALYARD_F32}, {"f16", HALYARD_F16}, {"bf16", HALYARD_BF16}};
inline constexpr Name slot_policies[] = {{"error", HALYARD_SLOTS_CHECK}, {"last", HALYARD_SLOTS_RANGE_ONLY}};

/// The value of a name; throws HALYARD_ERROR_UNKNOWN_VALUE, naming the argument and the names that there are.
template <std::size_t n>
std::int32_t value_of(const Name (&names)[n], const char *argument, std::string_view name) {
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

template <std::size_t n>
std::optional<std::string> name_or_none(const Name (&names)[n], std::int32_t value) {
    for (const auto &row : names) {
        if (value == row.value) {
            return row.name;
        }
    }
    return std::nullopt;
}

template <std::size_t n>
std::string name_in(const Name (&names)[n], std::int32_t value) {
    return name_or_none(names, value).value_or("unknown");
}

}  // namespace halyard::python
