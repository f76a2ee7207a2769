// Keys of a config that speak of positions: each is understood, known to mean nothing here, or refused.
#pragma once

#include "config/language_model.h"

namespace halyard {

/// Throws Failure, naming the key, where one is not known: what it asks for would be left out without a word.
void check_keys(const Model &model);

/// "attn_config.rope is true", say, where the config says that the model has RoPE; "" where it does not.
std::string find_claim(const JsonObject &config);

/// The same for an image encoder's part.
void check_vision_keys(const JsonObject &vision);

}  // namespace halyard
