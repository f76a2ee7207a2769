// How a config is read, step by step: which model it is, which of its layers are meant, and what their RoPE is. Every
// step throws ConfigError.
#pragma once

#include "config/json_reader.h"
#include "config/models.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard {

/// What the caller asks for.
struct Request {
    std::int64_t seq_len = 0;
    std::optional<std::string> layer_type;
};

/// The language model's config, and what is known about its type.
struct Model {
    JsonObject config;
    std::string type;  // "" where it is not stated
    const ModelType *known = nullptr;
};

Model find_model(const JsonObject &root);

/// One kind of layers, and the object that says how its RoPE is scaled, if there is one.
struct Layer {
    std::string type;  // "" where all layers are alike
    std::optional<JsonObject> scaling;
    bool has_own_base = false;  // where the object is one of several, a base outside is not its
};

Layer choose_layer(const Model &model, const Request &request);

/// What the frequencies of one kind of layers are made of.
struct Rope {
    halyard_scaling scaling = {};
    halyard_frequencies_info about = {};
    std::vector<double> short_factor, long_factor;
};

Rope read_rope(const Model &model, const Layer &layer, const Request &request);

/// Of the image encoder, for one axis; it is the same for both.
Rope read_vision(const JsonObject &root);

}  // namespace halyard
