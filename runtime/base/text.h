// The text of an explanation, written into a buffer of the caller's.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace halyard {

/// Refuses a buffer that cannot take a text.
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

    /// Adds a line for a kernel whose schedule is not the default.
    void add_schedule(const char *schedule) {
        if (std::strcmp(schedule, "default") != 0) {
            add("        its schedule is tuned for ");
            add(schedule);
            add("\n");
        }
    }

    /// Ends the text with a zero byte if the buffer has room for one, and writes the length of the whole text.
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
