// The output of calls that write floats for each token into a dense array of the caller's.
#pragma once

#include "base/error.h"
#include "base/overlap.h"

#include <cstdint>

namespace halyard {

/// The caller's array, which has room for n_floats floats, and for messages the names of these two arguments.
struct FloatsOut {
    const float *data;
    std::int64_t n_floats;
    const char *data_name, *n_floats_name, *what;  // what: the plural of what is written, as in "the rows need 5"
};

/// Sets *span to the addresses of the floats, and checks that the array has room for them. shape: batch rows, tokens of
/// each, floats of each token; none is negative.
inline halyard_status find_floats_out(const FloatsOut &out, const std::int64_t (&shape)[3], MemoryRange *span,
                                      halyard_error *error) noexcept {
    std::int64_t n_needed = 1;
    bool fits = true, is_empty = false;
    for (const std::int64_t n : shape) {
        is_empty = is_empty || n == 0;
        fits = fits && !__builtin_mul_overflow(n_needed, n, &n_needed);
    }
    n_needed = is_empty ? 0 : n_needed;
    if (!is_empty && out.data == nullptr) {
        return fail_null(error, out.data_name);
    }
    const std::int64_t dense[] = {1};
    if (!is_empty && !(fits && find_memory_range<1>(out.data, {n_needed}, dense, sizeof(float), span))) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "the ", out.what, " of ", shape[0], " x ", shape[1],
                    " tokens leave the address space");
    }
    if (out.n_floats < n_needed) {
        return fail(error, HALYARD_ERROR_SHAPE, out.n_floats_name, " is ", out.n_floats, ", but the ", out.what,
                    " need ", n_needed);
    }
    return HALYARD_OK;
}

}  // namespace halyard
