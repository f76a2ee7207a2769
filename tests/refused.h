// Checks of calls that must fail: their status, and an error message that names the argument and its value.
#pragma once

#include "checks/sized.h"

#include <catch2/catch_test_macros.hpp>

#include <climits>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

using Words = std::vector<std::string>;
using Numbers = std::initializer_list<std::int64_t>;

inline std::string text(std::int64_t value) { return std::to_string(value); }

/// Values of the size field that no version of this struct has had.
template <typename Struct>
std::vector<std::uint32_t> bad_sizes() {
    return {0, 1, 4, sizeof(Struct) - 1, sizeof(Struct) + 1, sizeof(Struct) + 8, UINT32_MAX};
}

/// Checks that an error struct holds the status and all the words.
inline void check_error(const halyard_error &error, halyard_status status, const Words &words) {
    const std::string message(error.message, strnlen(error.message, sizeof(error.message)));
    CAPTURE(message);
    CHECK(error.code == status);
    CHECK(message.size() > 8);
    CHECK(message.size() < sizeof(error.message));
    for (const std::string &word : words) {
        CAPTURE(word);
        CHECK(message.find(word) != std::string::npos);
    }
}

/// Checks call(halyard_error *). It must return the status when it is given an error struct, which it must fill in, and
/// when it is given NULL. If the error struct's size is unknown, it must return HALYARD_ERROR_STRUCT_SIZE.
template <typename Call>
void check_refused(halyard_status status, const Words &words, Call call) {
    auto unknown = sized<halyard_error>();
    unknown.size--;
    CHECK(call(&unknown) == HALYARD_ERROR_STRUCT_SIZE);
    auto error = sized<halyard_error>();
    CHECK(call(&error) == status);
    check_error(error, status, words);
    CHECK(call(static_cast<halyard_error *>(nullptr)) == status);
}
