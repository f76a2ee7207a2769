// Keys of a config that speak of positions: each is understood, known to mean nothing here, or refused.
#pragma once

#include "config/language_model.h"

namespace halyard {

/// Throws Failure, naming the key, where one is not known: what it asks for would be left out without a word.
void check_keys(const Model &model);

/// The same for an image encoder's part.
void check_vision_keys(const JsonObject &vision);

}  // namespace halyard
