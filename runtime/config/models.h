// Properties of RoPE that follow from Hugging Face's model_type and that config.json does not state.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <string_view>

namespace halyard {

/// How the layers of a model differ in their RoPE, if the config does not state it.
enum class Layers : std::int32_t {
    alike,
    gemma3,              // sliding_attention: a base of its own and no scaling
    gemma4,              // likewise, and full_attention: p-RoPE on wider heads
    olmo3,               // sliding_attention: no scaling
    modernbert,          // each layer type has a base of its own
    mimo,                // likewise; hybrid_layer_pattern tells the types
    step,                // lists by layer; only yarn_only_types are scaled
    nested,              // rope_parameters must have an entry for each kind
    not_full_attention,  // full_attention has no RoPE
    not_full_if_sliding  // likewise, in models with a sliding window
};

/// How the code of a model scales q by position.
enum class QScale : std::int32_t { none, llama4, ministral, beam };

/// The defaults of some model types, for what their configs do not state.
struct ModelType {
    const char *names;  // separated by spaces
    std::int32_t pairing = HALYARD_PAIRING_HALF;
    std::int32_t out_pairing = 0;  // 0: as pairing
    double base = 10000.0;         // of full_attention, if layer types differ
    double partial_factor = 1.0;
    std::int64_t head_dim = 0;    // 0: hidden_size / num_attention_heads
    std::int64_t rotary_dim = 0;  // 0: head_dim times the partial factor
    std::int64_t mla_dim = 0;     // qk_rope_head_dim, if latent attention (MLA) has a separate rotated slice
    Layers layers = Layers::alike;
    std::int64_t unrotated_each = 0;  // one layer in this many has no RoPE, unless no_rope_layers lists such layers
    QScale q_scale = QScale::none;
    std::int32_t axis_map = HALYARD_AXIS_MAP_NONE;
    std::int32_t axis_counts[3] = {};
    std::int32_t n_equal_axes = 0;      // instead of axis_counts: the number of axes, which have equal numbers of pairs
    const char *needs[3] = {};          // keys for which its code has defaults that this table does not have
    const char *attention = nullptr;    // the key of the object that has the base
    const char *sliding_key = nullptr;  // the key of sliding_attention's base, if it has another one
    const char *base_list = nullptr;    // the key of a list of bases by layer, used before rope_theta; 0: no RoPE
    bool splits_pairs = false;          // axes split pairs: not supported
    bool is_backward = false;           // it rotates by -position
    bool has_vision = false;            // its image encoder is supported, too
    bool turns_whole = false;           // it ignores rotary_dim and rotates whole heads unless a factor is stated
    bool yarn_is_longrope = false;      // "yarn" means LongRoPE, as in early Phi-3 configs
};

/// The ModelType of all types that Halyard does not know.
inline constexpr ModelType unknown_type = {.names = "", .pairing = 0};

/// Whether a list of words, separated by spaces, has this one.
bool has_word(std::string_view list, std::string_view word) noexcept;

/// The model type of this name; NULL if it is not known.
const ModelType *find_model_type(std::string_view name) noexcept;

/// Why configs of a model type are refused: the words after "which" in the message.
struct ModelRefusal {
    const char *why;
    halyard_status status = HALYARD_ERROR_CONFIG;
};

/// Why a model type is refused; NULL if it is not.
const ModelRefusal *find_refusal(std::string_view name) noexcept;

}  // namespace halyard
