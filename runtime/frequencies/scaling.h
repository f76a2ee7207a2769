// Frequencies by scaling method, for the C ABI and for configs. All numbers are checked here and nowhere else; messages
// name them as the caller does.
#pragma once

#include "frequencies/frequencies.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>
#include <string_view>

namespace halyard {

/// The names of halyard_scaling's fields in error messages.
struct ScalingNames {
    std::string_view base = "scaling.base";
    std::string_view rotary_dim = "scaling.rotary_dim";
    std::string_view rotated_dim = "scaling.rotated_dim";
    std::string_view factor = "scaling.factor";
    std::string_view attention_factor = "scaling.attention_factor";
    std::string_view original_max_position = "scaling.original_max_position";
    std::string_view max_position = "scaling.max_position";
    std::string_view seq_len = "scaling.seq_len";
    std::string_view n_factors = "scaling.n_factors";
    std::string_view object = "scaling.";  // the prefix of all other fields' names

    std::string_view whole() const noexcept { return object.substr(0, object.rfind('.')); }
};

/// Checks a halyard_scaling and makes its frequencies.
halyard_status make_scaled_frequencies(const halyard_scaling &scaling, const ScalingNames &names,
                                       std::unique_ptr<halyard_frequencies> *out, halyard_error *error) noexcept;

}  // namespace halyard
