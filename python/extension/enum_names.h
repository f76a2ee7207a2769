// The Python names of the C ABI's enumerations.
#pragma once

#include "errors.h"
#include "halyard/halyard_kv.h"

#include <span>
#include <string_view>

namespace halyard::python {

/// names[value] is the Python name of an enumeration's value; NULL if Python has no name for it.
using Names = std::span<const char *const>;

inline constexpr const char *pairings[] = {nullptr, "half", "interleaved"};
inline constexpr const char *angle_kinds[] = {"auto", "table", "given", "phase"};
inline constexpr const char *references[] = {"exact", "hf_f32"};
inline constexpr const char *axis_maps[] = {nullptr, "none", "sections", "interleaved"};
inline constexpr const char *layouts[] = {"bshd", "bhsd"};      // 1: heads come before tokens
inline constexpr const char *cache_layouts[] = {"nhd", "hnd"};  // 1: heads come before slots
inline constexpr const char *bad_positions[] = {"error", "clamp", "identity"};
inline constexpr const char *norm_kinds[] = {"rms", "layer"};
inline constexpr const char *norm_widths[] = {"head", "row"};
inline constexpr const char *norm_orders[] = {"before", "after"};
inline constexpr const char *norm_roundings[] = {"none", "before_weight", "after_weight", "both"};
inline constexpr const char *presets[] = {nullptr,       "ggml_q8_0", "ggml_q8_0_neon", "ggml_q8_0_reference",
                                          "ggml_q4_0",   "vllm_int8", "vllm_fp8",       "openvino_u8",
                                          "openvino_u4", "mla_v32",   "mla_v4",         "mla_v41",
                                          "mx"};
inline constexpr const char *slot_policies[] = {"error", "last"};
static_assert(std::size(presets) == HALYARD_GROUPS_MX + 1);

/// The value of a name. For an unknown name, throws HALYARD_ERROR_UNKNOWN_VALUE with the argument and all known names.
inline std::int32_t value_of(Names names, std::string_view argument, std::string_view name) {
    std::string known;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] != nullptr && name == names[i]) {
            return static_cast<std::int32_t>(i);
        }
        known.append(known.empty() || names[i] == nullptr ? "" : ", ").append(names[i] == nullptr ? "" : names[i]);
    }
    refuse(HALYARD_ERROR_UNKNOWN_VALUE, argument, " is \"", name.substr(0, 40), "\", which is none of: ", known);
}

/// The name of a value; NULL, which becomes None in Python, if it has none.
inline const char *name_of(Names names, std::int32_t value) { return names[static_cast<std::size_t>(value)]; }

}  // namespace halyard::python
