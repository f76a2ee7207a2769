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
    const ModelType *known = nullptr;     // NULL where the type is not known
    std::vector<JsonObject> around = {};  // the objects that the part is in, the whole first

    bool is_kind(Layers kind) const { return known != nullptr && known->layers == kind; }
};

/// Refuses a config that lacks what the type's code has numbers of its own for.
void check_needs(const ModelType &known, const std::string &type, const JsonObject &config, const JsonObject &scaling);

/// Throws Failure where the model has no RoPE, or one that is not supported.
Model find_model(const JsonObject &root);

}  // namespace halyard
