// Reads and fills in the C ABI's structs. Each begins with its size, so that a later version can tell which version its
// caller was compiled with. So far each has one size.
#pragma once

#include "base/error.h"
#include "halyard/halyard.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace halyard {

/// Fails because a caller's struct has another size than this library's. name is for the message.
template <typename Struct>
halyard_status fail_size(const Struct &in, const char *name, halyard_error *error) noexcept {
    return fail(error, HALYARD_ERROR_STRUCT_SIZE, name, ".size is ", in.size, in.size == 0 ? ", not set" : "",
                ", but this library knows ", sizeof(Struct));
}

/// Checks that a caller's struct is not NULL, and that its size is sizeof(Struct). Call it before reading other fields.
template <typename Struct>
halyard_status check_struct(const Struct *in, const char *name, halyard_error *error) noexcept {
    HALYARD_TRY(check_given(in, name, error));
    return in->size == sizeof(Struct) ? HALYARD_OK : fail_size(*in, name, error);
}

/// Checks and copies a caller's struct.
template <typename Struct>
halyard_status read_struct(const Struct *in, const char *name, Struct *out, halyard_error *error) noexcept {
    HALYARD_TRY(check_struct(in, name, error));
    *out = *in;
    return HALYARD_OK;
}

/// The name of an array's element, or of a field of it, for error messages: "tensors[2].kv".
struct ElementName {
    char text[40];
    ElementName(const char *array, int index, const char *field = "") noexcept {
        std::snprintf(text, sizeof(text), "%s[%d]%s", array, index, field);
    }
};

/// A row of a table of checks. The message for a wrong field is "NAME.FIELD is PARTS…"; the default status is MISMATCH.
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

/// Fails for the first field that is wrong. name is the struct's name, or empty.
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

/// Checks that a field of a struct is one of 0 … last.
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

/// Copies value to a caller's struct, after checking the size in that struct.
template <typename Struct>
halyard_status write_struct(const Struct &value, const char *name, Struct *info, halyard_error *error) noexcept {
    HALYARD_TRY(check_struct(info, name, error));
    *info = value;
    info->size = sizeof(Struct);
    return HALYARD_OK;
}

}  // namespace halyard
