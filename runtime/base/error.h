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

/// A part of a sentence: text, or a number, which is written as printf's %d and %g would. Small, so that the many calls
/// of fail() are.
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

/// See fail(). Cold, so that compilers keep sentences out of the way of calls that succeed: a call whose code comes
/// from memory, as a model's weights have evicted it, takes as long as it has lines.
[[gnu::cold]] halyard_status fail_with(halyard_error *error, halyard_status status,
                                       std::initializer_list<Part> parts) noexcept;

/// Fills in *error, whose size is checked, with the parts in one sentence, unless error is NULL. Returns status.
template <typename... Parts>
halyard_status fail(halyard_error *error, halyard_status status, const Parts &...parts) noexcept {
    return fail_with(error, status, {Part(parts)...});
}

/// What every function of the C ABI asks first: whether `error` can hold a sentence. A caller that forgot its size
/// would otherwise find out only when something else fails, and then read nothing.
inline halyard_status check_error(const halyard_error *error) noexcept {
    return error == nullptr || error->size == sizeof(halyard_error) ? HALYARD_OK : HALYARD_ERROR_STRUCT_SIZE;
}

/// Fails with HALYARD_ERROR_NULL_POINTER naming the argument.
[[gnu::cold]] halyard_status fail_null(halyard_error *error, const char *argument) noexcept;

/// Checks that an argument is there.
template <typename Pointer>
halyard_status check_given(Pointer argument, const char *name, halyard_error *error) noexcept {
    return argument != nullptr ? HALYARD_OK : fail_null(error, name);
}

/// Leaves a function with the status of a check that failed.
#define HALYARD_TRY(check)                                                                                             \
    do {                                                                                                               \
        if (const halyard_status tried = (check); tried != HALYARD_OK) {                                               \
            return tried;                                                                                              \
        }                                                                                                              \
    } while (false)

/// What code behind a guard throws in order to fail with a status and a sentence.
class Failure : public std::runtime_error {
public:
    Failure(halyard_status status, const std::string &sentence) : std::runtime_error(sentence), status_(status) {}
    halyard_status status() const noexcept { return status_; }

private:
    halyard_status status_;
};

/// Runs a function that may throw, at the edge of the C ABI, and turns what it throws into a status. `what` is what the
/// function makes, as in "a config of 5 bytes", for the message. halyard_run needs no guard, since nothing in it
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
