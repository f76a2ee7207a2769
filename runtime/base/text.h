// Text that explanations are written into.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace halyard {

/// Refuses what is no buffer for a text.
inline halyard_status check_text(const char *text, std::int64_t n_bytes, halyard_error *error) noexcept {
    if (n_bytes < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_bytes is ", n_bytes, ", but must not be negative");
    }
    return text == nullptr && n_bytes > 0 ? fail_null(error, "text") : HALYARD_OK;
}

/// Text that grows in a caller's buffer and goes on counting where that ends.
struct Text {
    char *data;
    std::int64_t capacity;
    std::int64_t length = 0;

    void add(const char *part) {
        for (; *part != '\0'; part++, length++) {
            if (length < capacity - 1) {
                data[length] = *part;
            }
        }
    }

    /// A line for a kernel that has not the default schedule.
    void add_schedule(const char *schedule) {
        if (std::strcmp(schedule, "default") != 0) {
            add("        its schedule is tuned for ");
            add(schedule);
            add("\n");
        }
    }

    /// Ends it with a zero byte where there is room, and tells its length.
    void end(std::int64_t *n_needed) {
        if (capacity > 0) {
            data[std::min(length, capacity - 1)] = '\0';
        }
        if (n_needed != nullptr) {
            *n_needed = length;
        }
    }
};

}  // namespace halyard
