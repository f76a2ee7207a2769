// The rows of vLLM's cos_sin_cache, which it makes in float32 and rounds to its dtype.
#pragma once

#include "angles/references/references.h"
#include "frequencies/frequencies.h"
#include "halyard/halyard.h"

#include <memory>

namespace halyard {

/// What an instance of vLLM's rotary embedding computes first, all float32.
struct VllmTable {
    std::unique_ptr<float[]> inv_freq;  // [n_pairs]
    float position_divisor = 1.0f;      // of LINEAR
    float factor = 1.0f;                // of cos and sin
};

/// Reference is vllm_f16 or vllm_bf16. Errors: UNSUPPORTED, OUT_OF_MEMORY.
halyard_status make_vllm_table(const halyard_frequencies &frequencies, Reference reference, VllmTable *out,
                               halyard_error *error) noexcept;

/// Makes what writes such rows, rounded and widened again. Errors: UNSUPPORTED, OUT_OF_MEMORY.
halyard_status make_vllm_rows(const halyard_frequencies &frequencies, Reference reference,
                              std::unique_ptr<TableRows> *out, halyard_error *error) noexcept;

}  // namespace halyard
