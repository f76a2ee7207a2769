// Which of a model's layers are meant, and which of the config's objects describes their RoPE.
#pragma once

#include "config/json_reader.h"
#include "config/language_model.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard {

/// Whose frequencies are asked for.
struct AskedLayer {
    std::optional<std::string> type;
    std::optional<std::int64_t> number;  // counted from 0
};

/// One kind of layers, or one layer.
struct Layer {
    std::string type;                     // "" where all layers are alike
    JsonObject scaling;                   // how their RoPE is scaled: an empty object where the config does not say
    bool is_scaled;                       // whether it says
    bool has_own_base = false;            // the object is one of several, so a base beside them is not for these layers
    std::vector<std::string> types = {};  // of the model's layers by their numbers, where they are listed
    std::optional<std::int64_t> number = {};    // of the one layer that is meant
    std::optional<std::int64_t> n_layers = {};  // of the model: what lists have behind these is not part of it

    bool is_sliding() const { return type == "sliding_attention"; }
    /// Whether the layer of this number is one of these.
    bool has(std::size_t i) const;
};

/// The layers of one type, or the one of a number; without either, all layers, which must then be alike. Throws
/// Failure.
Layer choose_layer(const Model &model, const AskedLayer &asked);

/// Whether a model of EXAONE 4's kind has layers with a window. Its code has one unless the config says null.
bool slides(const JsonObject &config);

/// The one number that a list by layers has for these; zeros are layers without RoPE. Throws Failure.
Stated find_listed(const JsonObject &config, const char *key, const Layer &layer);

}  // namespace halyard
