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
    mimo,                // likewise, by hybrid_layer_pattern
    step,                // lists by layer, and scaling of yarn_only_types
    nested,              // rope_parameters must have an entry for each kind
    not_full_attention,  // full_attention has no RoPE
    not_full_if_sliding  // likewise, in models with a sliding window
};

/// How the code of a model scales q by position.
enum class QScale : std::int32_t { none, llama4, ministral, beam };

/// What models of some types do where their configs say nothing.
struct ModelType {
    const char *names;  // apart by spaces
    std::int32_t pairing = HALYARD_PAIRING_HALF;
    std::int32_t out_pairing = 0;  // 0: as pairing
    double base = 10000.0;         // of full_attention, where layers differ
    double partial_factor = 1.0;
    std::int64_t head_dim = 0;    // 0: hidden_size / num_attention_heads
    std::int64_t rotary_dim = 0;  // 0: head_dim times the partial factor
    std::int64_t mla_dim = 0;     // qk_rope_head_dim, where latent attention keeps the rotated columns apart
    Layers layers = Layers::alike;
    std::int64_t unrotated_each = 0;  // each so many layers one has no RoPE, unless no_rope_layers lists them
    QScale q_scale = QScale::none;
    std::int32_t axis_map = HALYARD_AXIS_MAP_NONE;
    std::int32_t axis_counts[3] = {};
    std::int32_t n_equal_axes = 0;      // instead of axis_counts: as many pairs for each
    const char *needs[3] = {};          // keys without which its code has numbers that are not stated here
    const char *attention = nullptr;    // the object with the base
    const char *sliding_key = nullptr;  // of the base of sliding_attention, where that is another one
    const char *base_list = nullptr;    // bases by layer, which count before rope_theta; 0: a layer without RoPE
    bool splits_pairs = false;          // by its axes: not supported
    bool is_backward = false;           // it turns by -position
    bool has_vision = false;            // its image encoder is understood too
    bool turns_whole = false;           // heads, whatever rotary_dim says, where no partial factor is stated
    bool yarn_is_longrope = false;      // early Phi-3 configs say "yarn"
};

/// Stands for all types that are not known here.
inline constexpr ModelType unknown_type = {.names = "", .pairing = 0};

/// Whether a list of words that are apart by spaces has this one.
bool has_word(std::string_view list, std::string_view word) noexcept;

/// NULL when there is none.
const ModelType *find_model_type(std::string_view name) noexcept;

/// Why configs of a model type are refused: what follows "which".
struct ModelRefusal {
    const char *why;
    halyard_status status = HALYARD_ERROR_CONFIG;
};

/// NULL for types that may be read.
const ModelRefusal *find_refusal(std::string_view name) noexcept;

}  // namespace halyard
