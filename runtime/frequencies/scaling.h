// Frequencies by scaling method. The C ABI and configs share it: every number is checked here, and only here, under the
// name that the caller knows it by.
#pragma once

#include "frequencies/frequencies.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>
#include <string_view>

namespace halyard {

/// The fields of halyard_scaling as error messages call them.
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
    std::string_view object = "scaling.";  // stands before the names of all other fields

    std::string_view whole() const noexcept { return object.substr(0, object.rfind('.')); }
};

/// Checks a whole halyard_scaling and makes its frequencies.
halyard_status make_scaled_frequencies(const halyard_scaling &scaling, const ScalingNames &names,
                                       std::unique_ptr<halyard_frequencies> *out, halyard_error *error) noexcept;

}  // namespace halyard
