#include "base/error.h"

#include "base/text.h"

#include <algorithm>
#include <charconv>

namespace halyard {

void Text::add_part(const Part &part) noexcept {
    char digits[32];
    char *const digits_end = digits + sizeof(digits);
    std::string_view text;
    switch (part.kind_) {
    case Part::Kind::text: text = part.text_; break;
    case Part::Kind::integer: text = {digits, std::to_chars(digits, digits_end, part.integer_).ptr}; break;
    case Part::Kind::natural: text = {digits, std::to_chars(digits, digits_end, part.natural_).ptr}; break;
    case Part::Kind::real:
        text = {digits, std::to_chars(digits, digits_end, part.real_, std::chars_format::general, 6).ptr};
        text = text == "-nan" ? "nan" : text;  // the sign of a NaN means nothing to a caller
        break;
    }
    for (const char c : text) {
        if (length < capacity - 1) {
            data[length] = c;
        }
        length++;
    }
    if (capacity > 0) {
        data[std::min(length, capacity - 1)] = '\0';
    }
}

halyard_status fail_with(halyard_error *error, halyard_status status, std::initializer_list<Part> parts) noexcept {
    if (error != nullptr) {
        error->code = status;
        Text message{error->message, sizeof(error->message)};
        for (const Part &part : parts) {
            message.add(part);
        }
    }
    return status;
}

halyard_status fail_null(halyard_error *error, const char *argument) noexcept {
    return fail(error, HALYARD_ERROR_NULL_POINTER, argument, " is NULL");
}

}  // namespace halyard

extern "C" const char *halyard_status_name(halyard_status status) {
    static const char *const names[] = {
        "HALYARD_OK",
        "HALYARD_ERROR_NULL_POINTER",
        "HALYARD_ERROR_STRUCT_SIZE",
        "HALYARD_ERROR_UNKNOWN_VALUE",
        "HALYARD_ERROR_SHAPE",
        "HALYARD_ERROR_ROTARY_DIM",
        "HALYARD_ERROR_WINDOW",
        "HALYARD_ERROR_OVERFLOW",
        "HALYARD_ERROR_STRIDE",
        "HALYARD_ERROR_OVERLAP",
        "HALYARD_ERROR_POSITION",
        "HALYARD_ERROR_FREQUENCY",
        "HALYARD_ERROR_UNKNOWN_TARGET",
        "HALYARD_ERROR_TARGET_NOT_BUILT",
        "HALYARD_ERROR_TARGET_UNSUPPORTED",
        "HALYARD_ERROR_THREADS",
        "HALYARD_ERROR_EXECUTOR",
        "HALYARD_ERROR_OUT_OF_MEMORY",
        "HALYARD_ERROR_MISMATCH",
        "HALYARD_ERROR_UNSUPPORTED",
        "HALYARD_ERROR_CONFIG",
        "HALYARD_ERROR_NO_DEVICE",
        "HALYARD_ERROR_DEVICE",
        "HALYARD_ERROR_SLOT",
        "HALYARD_ERROR_SCALE",
    };
    static_assert(sizeof(names) / sizeof(names[0]) == HALYARD_ERROR_SCALE + 1, "a name for every status");
    return status >= 0 && status <= HALYARD_ERROR_SCALE ? names[status] : nullptr;
}
