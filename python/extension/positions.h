// The positions and slots of a call's tokens, and the threads that run the call.
#pragma once

#include "array.h"

namespace halyard::python {

/// A struct for the C ABI (Numbers is halyard_positions or halyard_slots), with the array that it points into.
template <typename Numbers>
class Tokens {
public:
    /// Reads an int (the first token's position or slot), or an array [tokens], [batch, tokens] or [batch, 1], which
    /// must be on `device`. If n_axes > 1, a dimension of axes comes first, but [tokens] alone serves all axes.
    /// Returns NULL if the argument is None. `name` is what error messages call the argument.
    const Numbers *read(const char *name, nb::handle argument, std::int64_t n_axes,
                        std::int32_t device = Array::on_cpu);

protected:
    Numbers numbers_{};
    std::optional<Array> array_;
    std::int64_t start_ = 0;
};

using Positions = Tokens<halyard_positions>;

/// Slots, and the working memory in which the library finds slots that occur twice.
class Slots : Tokens<halyard_slots> {
public:
    /// duplicates: "error" or "last". n_slots: of the smallest cache.
    const halyard_slots *read(nb::handle argument, const std::string &duplicates, std::int64_t n_slots,
                              std::int32_t device = Array::on_cpu);

    /// Sizes the working memory. Call it after read() if n_slots was not known there.
    void make_scratch(std::int64_t n_slots);

private:
    std::vector<unsigned char> scratch_;
};

/// Returns an executor with n_threads threads, which is kept for later calls; NULL for one thread. With n_threads 0, it
/// uses the threads of the OpenMP in the process, such as PyTorch's, because engines bind these to cores; NULL if
/// there is no OpenMP, or it has one thread. Call it with the GIL held.
const halyard_executor *find_executor(std::int32_t n_threads);

/// The number of threads of the OpenMP in the process; 1 if there is none. Needs no GIL.
std::int32_t count_openmp_threads();

}  // namespace halyard::python
