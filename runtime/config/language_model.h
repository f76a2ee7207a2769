// Which language model a config is of.
#pragma once

#include "config/json_reader.h"
#include "config/models.h"

#include <string>
#include <vector>

namespace halyard {

/// The language model's part of a config, and what is known about its type.
struct Model {
    JsonObject config;
    std::string type;                     // "" where it is not stated
    const ModelType *known = &unknown_type;
    std::vector<JsonObject> around = {};  // the objects that the part is in, the whole first

    bool is_kind(Layers kind) const { return known->layers == kind; }
    bool is_known() const { return known != &unknown_type; }
};

/// Refuses a config that lacks what the type's code has numbers of its own for.
void check_needs(const ModelType &known, const std::string &type, const JsonObject &config, const JsonObject &scaling);

/// Throws Failure where the model has no RoPE, or one that is not supported.
Model find_model(const JsonObject &root);

// Keys that speak of positions (keys.cpp): each is understood, known to mean nothing here, or refused.

/// Throws Failure, naming the key, where one is not known: what it asks for would be left out without a word.
void check_keys(const Model &model);
/// The same for an image encoder's part.
void check_vision_keys(const JsonObject &vision);

/// "attn_config.rope is true", say, where the config says that the model has RoPE; "" where it does not.
std::string find_claim(const JsonObject &config);

}  // namespace halyard
