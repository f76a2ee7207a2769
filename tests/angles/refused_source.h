// Checks that a description of an angle source is refused.
#pragma once

#include "refused.h"

inline void check_source_refused(const halyard_frequencies *frequencies, const halyard_angle_source_desc *desc,
                                 halyard_status status, const Words &words = {}) {
    auto *const untouched = reinterpret_cast<halyard_angle_source *>(16);
    halyard_angle_source *out = untouched;
    check_refused(status, words,
                  [&](auto *error) { return halyard_create_angle_source(frequencies, desc, &out, error); });
    CHECK(out == untouched);
}
