// Frequencies by scaling method, for the C ABI and for configs: the same checks under the names that each caller knows.
#pragma once

#include "angles/frequencies.h"
#include "halyard/halyard.h"

#include <memory>

namespace halyard {

/// The fields of halyard_scaling as error messages call them.
struct ScalingNames {
    const char *base = "scaling.base";
    const char *rotary_dim = "scaling.rotary_dim";
    const char *rotated_dim = "scaling.rotated_dim";
    const char *factor = "scaling.factor";
    const char *original_max_position = "scaling.original_max_position";
    const char *max_position = "scaling.max_position";
    const char *seq_len = "scaling.seq_len";
    const char *attention_factor = "scaling.attention_factor";
    const char *beta_fast = "scaling.beta_fast";
    const char *beta_slow = "scaling.beta_slow";
    const char *mscale = "scaling.mscale";
    const char *mscale_all_dim = "scaling.mscale_all_dim";
    const char *low_freq_factor = "scaling.low_freq_factor";
    const char *high_freq_factor = "scaling.high_freq_factor";
    const char *short_factor = "scaling.short_factor";
    const char *long_factor = "scaling.long_factor";
    const char *n_factors = "scaling.n_factors";
};

/// Checks a whole halyard_scaling and makes its frequencies.
halyard_status make_scaled_frequencies(const halyard_scaling &scaling, const ScalingNames &names,
                                       std::unique_ptr<halyard_frequencies> *out, halyard_error *error) noexcept;

}  // namespace halyard
