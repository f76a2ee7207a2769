// The cos and sin that ggml's CPU backend rotates with, given what llama.cpp hands to ggml_rope_ext for a model.
#pragma once

#include "angles/references/references.h"
#include "frequencies/frequencies.h"
#include "halyard/halyard.h"

#include <memory>

namespace halyard {

/// Makes what writes such rows. Errors: UNSUPPORTED, OUT_OF_MEMORY.
halyard_status make_ggml_rows(const halyard_frequencies &frequencies, std::unique_ptr<TableRows> *out,
                              halyard_error *error) noexcept;

}  // namespace halyard
