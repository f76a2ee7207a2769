// Error messages and explanations, written into a buffer of fixed size.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <cstring>

namespace halyard {

/// Checks a caller's buffer, to which a text will be written.
inline halyard_status check_text(const char *text, std::int64_t n_bytes, halyard_error *error) noexcept {
    if (n_bytes < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_bytes is ", n_bytes, ", but must not be negative");
    }
    return text == nullptr && n_bytes > 0 ? fail_null(error, "text") : HALYARD_OK;
}

/// Text in a buffer of `capacity` bytes. It grows by add(), and always ends with a zero byte. When the buffer is full,
/// further text is dropped, but length still counts it.
struct Text {
    char *data;
    std::int64_t capacity;
    std::int64_t length = 0;

    template <typename... Parts>
    void add(const Parts &...parts) noexcept {
        (add_part(Part(parts)), ...);
    }

    /// Adds a line for a kernel whose schedule is not the default.
    void add_schedule(const char *schedule) {
        if (std::strcmp(schedule, "default") != 0) {
            add("        its schedule is tuned for ", schedule, "\n");
        }
    }

    /// Ends the text, even an empty one, with its zero byte, and sets *n_needed to the length of the whole text.
    void end(std::int64_t *n_needed) noexcept {
        add("");
        if (n_needed != nullptr) {
            *n_needed = length;
        }
    }

private:
    void add_part(const Part &part) noexcept;
};

}  // namespace halyard
