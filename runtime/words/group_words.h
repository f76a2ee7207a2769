// What Python calls the fields of halyard_groups_desc and their values.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <span>

namespace halyard::words {

struct Word {
    const char *name;
    std::int32_t value;
};

inline constexpr Word presets[] = {{"ggml_q8_0", HALYARD_GROUPS_GGML_Q8_0},
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
inline constexpr Word elements[] = {{"int8", HALYARD_ELEMENT_INT8}, {"uint8", HALYARD_ELEMENT_UINT8},
                                    {"int4", HALYARD_ELEMENT_INT4}, {"uint4", HALYARD_ELEMENT_UINT4},
                                    {"e4m3", HALYARD_ELEMENT_E4M3}, {"e5m2", HALYARD_ELEMENT_E5M2}};
inline constexpr Word packings[] = {{"low_first", HALYARD_PACKING_LOW_FIRST},
                                    {"high_first", HALYARD_PACKING_HIGH_FIRST},
                                    {"halves", HALYARD_PACKING_HALVES}};
inline constexpr Word rules[] = {
    {"largest", HALYARD_RULE_LARGEST}, {"signed", HALYARD_RULE_SIGNED}, {"range", HALYARD_RULE_RANGE}};
inline constexpr Word reciprocals[] = {{"of_stored", HALYARD_RECIPROCAL_OF_STORED},
                                       {"of_scale", HALYARD_RECIPROCAL_OF_SCALE},
                                       {"of_largest", HALYARD_RECIPROCAL_OF_LARGEST}};
inline constexpr Word roundings[] = {{"even", HALYARD_ROUNDING_EVEN}, {"away", HALYARD_ROUNDING_AWAY}};
inline constexpr Word scale_dtypes[] = {{"f32", HALYARD_GROUP_SCALE_F32},
                                        {"f16", HALYARD_GROUP_SCALE_F16},
                                        {"bf16", HALYARD_GROUP_SCALE_BF16},
                                        {"e8m0_up", HALYARD_GROUP_SCALE_E8M0_UP},
                                        {"e8m0_ocp", HALYARD_GROUP_SCALE_E8M0_OCP}};
inline constexpr Word raw_dtypes[] = {{"f32", HALYARD_F32}, {"f16", HALYARD_F16}, {"bf16", HALYARD_BF16}};

/// Fields whose values are words, beside preset.
inline constexpr struct {
    const char *name;
    std::int32_t halyard_groups_desc::*field;
    std::span<const Word> words;
} choices[] = {{"element", &halyard_groups_desc::element, elements},
               {"packing", &halyard_groups_desc::packing, packings},
               {"rule", &halyard_groups_desc::rule, rules},
               {"reciprocal", &halyard_groups_desc::reciprocal, reciprocals},
               {"rounding", &halyard_groups_desc::rounding, roundings},
               {"scale_dtype", &halyard_groups_desc::scale_dtype, scale_dtypes},
               {"raw_dtype", &halyard_groups_desc::raw_dtype, raw_dtypes}};

/// Fields whose values are numbers, beside floor and scales_apart.
inline constexpr struct {
    const char *name;
    std::int64_t halyard_groups_desc::*field;
} sizes[] = {{"group", &halyard_groups_desc::group},
             {"n_grouped", &halyard_groups_desc::n_grouped},
             {"record_bytes", &halyard_groups_desc::record_bytes},
             {"data_offset", &halyard_groups_desc::data_offset},
             {"data_stride", &halyard_groups_desc::data_stride},
             {"scale_offset", &halyard_groups_desc::scale_offset},
             {"scale_stride", &halyard_groups_desc::scale_stride},
             {"zero_offset", &halyard_groups_desc::zero_offset},
             {"zero_stride", &halyard_groups_desc::zero_stride},
             {"raw_offset", &halyard_groups_desc::raw_offset}};

}  // namespace halyard::words
