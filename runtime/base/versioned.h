// How the C ABI's structs are read and filled in. Each begins with its size, so that a later version can tell what its
// caller was compiled with. As yet each has one size.
#pragma once

#include "base/error.h"
#include "halyard/halyard.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace halyard {

/// Says that a caller's struct has another size than this library's. name is for the message.
template <typename Struct>
halyard_status fail_size(const Struct &in, const char *name, halyard_error *error) noexcept {
    return fail(error, HALYARD_ERROR_STRUCT_SIZE, name, ".size is ", in.size, in.size == 0 ? ", not set" : "",
                ", but this library knows ", sizeof(Struct));
}

/// Whether a caller's struct is there and has this library's size: nothing else of it may be read before.
template <typename Struct>
halyard_status check_struct(const Struct *in, const char *name, halyard_error *error) noexcept {
    HALYARD_TRY(check_given(in, name, error));
    return in->size == sizeof(Struct) ? HALYARD_OK : fail_size(*in, name, error);
}

/// Copies a caller's struct.
template <typename Struct>
halyard_status read_struct(const Struct *in, const char *name, Struct *out, halyard_error *error) noexcept {
    HALYARD_TRY(check_struct(in, name, error));
    *out = *in;
    return HALYARD_OK;
}

/// What an element of an array, or a field of it, is called in sentences.
struct ElementName {
    char text[40];
    ElementName(const char *array, int index, const char *field = "") noexcept {
        std::snprintf(text, sizeof(text), "%s[%d]%s", array, index, field);
    }
};

/// A row of a table of checks: if the field is wrong, the sentence is "NAME.FIELD is PARTS…", and the status MISMATCH
/// if none is given.
struct FieldCheck {
    bool is_wrong;
    halyard_status status;
    std::string_view field;
    Part parts[5];

    template <typename... Parts>
    FieldCheck(bool wrong, halyard_status fails, std::string_view of, const Parts &...says) noexcept
        : is_wrong(wrong), status(fails), field(of), parts{Part(says)...} {}
    template <typename... Parts>
    FieldCheck(bool wrong, std::string_view of, const Parts &...says) noexcept
        : FieldCheck(wrong, HALYARD_ERROR_MISMATCH, of, says...) {}
};

/// Fails by the first field that is wrong. name is that of the struct, or empty.
template <std::size_t n>
halyard_status check_fields(std::string_view name, const FieldCheck (&checks)[n], halyard_error *error) noexcept {
    for (const FieldCheck &check : checks) {
        if (check.is_wrong) {
            const auto &[value, a, b, c, d] = check.parts;
            return fail(error, check.status, name, name.empty() ? "" : ".", check.field, " is ", value, a, b, c, d);
        }
    }
    return HALYARD_OK;
}

/// Checks a field of a struct that is one of 0 … last.
inline halyard_status check_choice(const char *name, const char *field, std::int32_t value, std::int32_t last,
                                   halyard_error *error) noexcept {
    return value >= 0 && value <= last
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".", field, " is ", value, ", but must be 0",
                      last == 0   ? ""
                      : last == 1 ? " or "
                                  : " to ",
                      last == 0 ? Part("") : Part(last));
}

/// Fills in a caller's struct, but for its size.
template <typename Struct>
halyard_status write_struct(const Struct &value, const char *name, Struct *info, halyard_error *error) noexcept {
    HALYARD_TRY(check_struct(info, name, error));
    *info = value;
    info->size = sizeof(Struct);
    return HALYARD_OK;
}

}  // namespace halyard
