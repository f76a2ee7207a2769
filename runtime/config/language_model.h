// Finds the language model that a config describes.
#pragma once

#include "config/json_reader.h"
#include "config/models.h"

#include <string>
#include <vector>

namespace halyard {

/// The language model's part of a config, and what is known about its type.
struct Model {
    JsonObject config;
    std::string type;                     // "" if it is not stated
    const ModelType *known = &unknown_type;
    std::vector<JsonObject> around = {};  // the objects that contain the part, outermost first

    bool is_kind(Layers kind) const { return known->layers == kind; }
    bool is_known() const { return known != &unknown_type; }
};

/// Refuses a config that lacks a key for which the type's code has a default that Halyard does not know.
void check_needs(const ModelType &known, const std::string &type, const JsonObject &config, const JsonObject &scaling);

/// Finds the language model's part of a config. Throws Failure if the model has no RoPE, or one that is not supported.
Model find_model(const JsonObject &root);

// Checks of keys about RoPE (keys.cpp): each key is understood, known to have no effect, or refused.

/// Throws Failure, naming the key, if a key about RoPE is not known: ignoring it could give wrong frequencies silently.
void check_keys(const Model &model);
/// The same for an image encoder's object.
void check_vision_keys(const JsonObject &vision);

/// The config's statement that the model has RoPE, such as "attn_config.rope is true"; "" if there is none.
std::string find_claim(const JsonObject &config);

}  // namespace halyard
