// How every function of the C ABI reports a failure.
#pragma once

#include "halyard/halyard.h"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace halyard {

/// A part of an error message: text, or a number, written as by printf's %d and %g. It is small, so that the many calls
/// of fail() are small.
class Part {
public:
    Part(std::string_view text = {}) noexcept : text_(text) {}
    Part(const char *text) noexcept : text_(text) {}
    Part(double number) noexcept : kind_(Kind::real), real_(number) {}
    template <std::signed_integral Integer>
    Part(Integer number) noexcept : kind_(Kind::integer), integer_(number) {}
    template <std::unsigned_integral Integer>
    Part(Integer number) noexcept : kind_(Kind::natural), natural_(number) {}

private:
    friend struct Text;
    enum class Kind { text, integer, natural, real } kind_ = Kind::text;
    union {
        std::string_view text_;
        std::int64_t integer_;
        std::uint64_t natural_;
        double real_;
    };
};

/// See fail(). Cold, so that compilers keep the code of error messages apart from code that runs when a call succeeds:
/// a model's weights evict code from the CPU's caches, so a call takes longer for each cache line of code it touches.
[[gnu::cold]] halyard_status fail_with(halyard_error *error, halyard_status status,
                                       std::initializer_list<Part> parts) noexcept;

/// Writes status and a message of the parts to *error, unless error is NULL; its size was checked. Returns status.
template <typename... Parts>
halyard_status fail(halyard_error *error, halyard_status status, const Parts &...parts) noexcept {
    return fail_with(error, status, {Part(parts)...});
}

/// The first check of every function of the C ABI: whether `error` has its size set, so that it can hold a message. A
/// caller that forgot to set it would otherwise notice only when something else fails, and get no message then.
inline halyard_status check_error_size(const halyard_error *error) noexcept {
    return error == nullptr || error->size == sizeof(halyard_error) ? HALYARD_OK : HALYARD_ERROR_STRUCT_SIZE;
}

/// Fails with HALYARD_ERROR_NULL_POINTER naming the argument.
[[gnu::cold]] halyard_status fail_null(halyard_error *error, const char *argument) noexcept;

/// Checks that an argument is not NULL.
template <typename Pointer>
halyard_status check_given(Pointer argument, const char *name, halyard_error *error) noexcept {
    return argument != nullptr ? HALYARD_OK : fail_null(error, name);
}

/// Returns from the calling function with the status of a check, if that failed.
#define HALYARD_TRY(check)                                                                                             \
    do {                                                                                                               \
        if (const halyard_status tried = (check); tried != HALYARD_OK) {                                               \
            return tried;                                                                                              \
        }                                                                                                              \
    } while (false)

/// The exception by which code inside guard() fails with a status and a message.
class Failure : public std::runtime_error {
public:
    Failure(halyard_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    halyard_status status() const noexcept { return status_; }

private:
    halyard_status status_;
};

/// Runs a function that may throw, at the border of the C ABI, and converts its exceptions to a status. `what` is what
/// the function makes, such as "a config of 5 bytes", for the message. halyard_run needs no guard, since nothing in it
/// throws.
template <typename Function>
halyard_status guard(halyard_error *error, std::string_view what, const Function &function) noexcept {
    try {
        return function();
    } catch (const Failure &failure) {
        return fail(error, failure.status(), failure.what());
    } catch (const std::bad_alloc &) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", what);
    } catch (const std::exception &unforeseen) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, what, " failed: ", unforeseen.what());
    } catch (...) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, what, " failed");
    }
}

}  // namespace halyard
