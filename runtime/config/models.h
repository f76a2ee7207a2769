// What Hugging Face's model types say about their RoPE without writing it into config.json.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <string_view>

namespace halyard {

/// How the layers of a model differ in their RoPE, where the config itself does not say so.
enum class Layers : std::int32_t {
    alike,
    gemma3,              // sliding_attention: a base of its own and no scaling
    gemma4,              // likewise, and full_attention: p-RoPE on wider heads
    olmo3,               // sliding_attention: no scaling
    modernbert,          // a base each
    not_full_attention,  // full_attention has no RoPE
    not_full_if_sliding  // likewise, in models with a sliding window
};

/// Defaults of one model type, as its configuration and modeling files in transformers 5.23.0 document them.
struct ModelType {
    const char *name;
    std::int32_t pairing = HALYARD_PAIRING_HALF;
    std::int32_t out_pairing = 0;  // 0: as pairing
    double base = 10000.0;         // of full_attention, where layers differ
    double partial_factor = 1.0;
    std::int64_t head_dim = 0;    // 0: hidden_size / num_attention_heads
    std::int64_t rotary_dim = 0;  // 0: head_dim times the partial factor
    Layers layers = Layers::alike;
    std::int32_t axis_map = HALYARD_AXIS_MAP_NONE;
    std::int32_t axis_counts[3] = {};
    bool has_vision = false;        // its image encoder is understood too
    bool yarn_is_longrope = false;  // early Phi-3 configs say "yarn"
};

/// NULL when there is none.
const ModelType *find_model_type(std::string_view name) noexcept;

/// Why a model type has no RoPE that the reader could find: "learned positions", say. NULL for all others.
const char *find_other_positions(std::string_view name) noexcept;

}  // namespace halyard
