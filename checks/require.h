// Checks what every call of the C API promises. A broken promise throws, so that tests fail and fuzzers keep the input.
#pragma once

#include "halyard/halyard.h"

#include <cstring>
#include <stdexcept>
#include <string>

inline void require(bool holds, const char *promise, const char *sentence = "") {
    if (!holds) {
        throw std::logic_error(std::string("broken: ") + promise + "; " + sentence);
    }
}

/// An error struct with known contents, so that a test sees whether a call filled it in.
struct WatchedError {
    halyard_error error = {sizeof(halyard_error), -1, "untouched"};

    /// Checks that a success left the struct alone, or that a failure filled it in. Returns the status.
    halyard_status check(halyard_status status) const {
        if (status == HALYARD_OK) {
            require(error.code == -1 && std::strcmp(error.message, "untouched") == 0, "success leaves the error alone");
            return status;
        }
        require(halyard_status_name(status) != nullptr, "a failure has a status with a name");
        require(error.code == status, "the error holds the status");
        require(std::memchr(error.message, '\0', sizeof(error.message)) != nullptr, "the sentence ends");
        require(error.message[0] != '\0' && std::strcmp(error.message, "untouched") != 0, "there is a sentence");
        return status;
    }
};

inline long n_calls = 0;

inline halyard_status count_and_check(const WatchedError &error, halyard_status status) {
    n_calls++;
    return error.check(status);
}
