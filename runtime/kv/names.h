// Sentences about a stage's description.
#pragma once

#include "base/error.h"

#include <cstdio>

namespace halyard {

/// The name of a stage's description.
struct StageName {
    char text[32];
    StageName(int index, const char *stage) { std::snprintf(text, sizeof(text), "tensors[%d].kv.%s", index, stage); }
};

/// Says that a field is not one of 0 … last.
inline halyard_status fail_value(const StageName &name, const char *field, std::int32_t value, std::int32_t last,
                                 halyard_error *error) {
    return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name.text, ".", field, " is ", value, ", but must be 0",
                last == 0 ? Part("") : Part(" to "), last == 0 ? Part("") : Part(last));
}

inline bool is_within(std::int32_t value, std::int32_t last) { return value >= 0 && value <= last; }

}  // namespace halyard
