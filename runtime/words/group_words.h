// What Python calls the presets of groups.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>

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

}  // namespace halyard::words
