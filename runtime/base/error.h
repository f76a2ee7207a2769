// How every function of the C ABI reports a failure, and how it reads versioned structs.
#pragma once

#include "halyard/halyard.h"

#include <cstddef>
#include <cstring>

namespace halyard {

/// Fills in *error (when it is not NULL and its size is set) and returns status. Format as printf.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
halyard_status
fail(halyard_error *error, halyard_status status, const char *format, ...) noexcept;

/// Fails with HALYARD_ERROR_NULL_POINTER naming the argument.
halyard_status fail_null(halyard_error *error, const char *argument) noexcept;

/// Copies a caller's versioned struct into *out: what a smaller size leaves out keeps out's default. `required` is the
/// size of its first version; name is for the message.
template <typename Struct>
halyard_status read_struct(const Struct *in, std::size_t required, const char *name, Struct *out,
                           halyard_error *error) noexcept {
    if (in == nullptr) {
        return fail_null(error, name);
    }
    if (in->size < required || in->size > sizeof(Struct)) {
        return fail(error, HALYARD_ERROR_STRUCT_SIZE, "%s.size is %u, but this library knows %zu to %zu", name,
                    static_cast<unsigned>(in->size), required, sizeof(Struct));
    }
    std::memcpy(out, in, in->size);
    return HALYARD_OK;
}

/// The same without a copy where the caller's struct is of this library's size: *out is then `in`, else copy.
template <typename Struct>
halyard_status view_struct(const Struct *in, std::size_t required, const char *name, Struct *copy, const Struct **out,
                           halyard_error *error) noexcept {
    if (in != nullptr && in->size == sizeof(Struct)) {
        *out = in;
        return HALYARD_OK;
    }
    *out = copy;
    return read_struct(in, required, name, copy, error);
}

/// The reverse, for structs that a caller wants filled in: copies as much of value as info->size holds, and keeps size.
template <typename Struct>
halyard_status write_struct(const Struct &value, std::size_t required, const char *name, Struct *info,
                            halyard_error *error) noexcept {
    if (info == nullptr) {
        return fail_null(error, name);
    }
    if (info->size < required || info->size > sizeof(Struct)) {
        return fail(error, HALYARD_ERROR_STRUCT_SIZE, "%s.size is %u, but this library knows %zu to %zu", name,
                    static_cast<unsigned>(info->size), required, sizeof(Struct));
    }
    const auto size = info->size;
    std::memcpy(info, &value, size);
    info->size = size;
    return HALYARD_OK;
}

}  // namespace halyard
