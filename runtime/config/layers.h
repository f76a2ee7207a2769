// Which of a model's layers are meant, and which of the config's objects describes their RoPE.
#pragma once

#include "config/json_reader.h"
#include "config/language_model.h"

#include <optional>
#include <string>

namespace halyard {

/// One kind of layers.
struct Layer {
    std::string type;           // "" where all layers are alike
    JsonObject scaling;         // how their RoPE is scaled: an empty object where the config does not say
    bool is_scaled;             // whether it says
    bool has_own_base = false;  // the object is one of several, so a base beside them is not for these layers

    bool is_sliding() const { return type == "sliding_attention"; }
};

/// The layers of one type; without a type, all layers, which must then be alike. Throws Failure.
Layer choose_layer(const Model &model, const std::optional<std::string> &layer_type);

}  // namespace halyard
