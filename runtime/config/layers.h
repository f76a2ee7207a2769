// Chooses the layers that a caller asks for, and the config's object that describes their RoPE.
#pragma once

#include "config/json_reader.h"
#include "config/language_model.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard {

/// The layers whose frequencies a caller asks for.
struct RequestedLayer {
    std::optional<std::string> type;
    std::optional<std::int64_t> number;  // counted from 0
};

/// The layers of one type, or one layer.
struct Layer {
    std::string type;                         // "" if all layers are alike
    JsonObject scaling;                       // rope_scaling or rope_parameters of these layers; empty if there is none
    bool is_scaled;                           // false: there is none
    bool has_own_base = false;                // scaling is an entry for these layers, so a base outside is not theirs
    std::vector<std::string> types = {};      // the types of all the model's layers by number, if they are listed
    std::optional<std::int64_t> number = {};  // if one layer is requested
    std::optional<std::int64_t> n_layers = {};  // of the model; further elements of lists by layer are ignored

    bool is_sliding() const { return type == "sliding_attention"; }
    /// Whether layer i of the model is one of these.
    bool has(std::size_t i) const;
};

/// Chooses the layers of the requested type, or the layer of the requested number; without either, all layers, which
/// must then be alike. Throws Failure.
Layer choose_layer(const Model &model, const RequestedLayer &asked);

/// Whether a model like EXAONE 4 has layers with a sliding window: yes, unless the config's sliding_window is null.
bool has_sliding_window(const JsonObject &config);

/// The number that a list by layer has for these layers, except layers with 0, which have no RoPE. Throws Failure if
/// their numbers differ.
StatedNumber find_listed(const JsonObject &config, const char *key, const Layer &layer);

}  // namespace halyard
