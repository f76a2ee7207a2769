// What a call says of its tokens, positions and slots, and the threads that it takes.
#pragma once

#include "array.h"

namespace halyard::python {

/// halyard_positions or halyard_slots, and what they point into.
template <typename Numbers>
class Tokens {
public:
    /// Reads the number of the first token, or an array [tokens], [batch, tokens] or [batch, 1] behind a dimension of
    /// axes, if there are several that differ. NULL where the argument is None. `name` is what messages call it. An
    /// array has to lie on `device`.
    const Numbers *read(const char *name, nb::handle argument, std::int64_t n_axes,
                        std::int32_t device = Array::on_cpu);

protected:
    Numbers numbers_{};
    std::optional<Array> array_;
    std::int64_t start_ = 0;
};

using Positions = Tokens<halyard_positions>;

/// Slots with the scratch in which doubled ones are found.
class Slots : Tokens<halyard_slots> {
public:
    /// n_slots is that of the smallest cache.
    const halyard_slots *read(nb::handle argument, const std::string &duplicates, std::int64_t n_slots,
                              std::int32_t device = Array::on_cpu);

    /// Where the smallest cache is known later: once that is so.
    void make_scratch(std::int64_t n_slots);

private:
    std::vector<unsigned char> scratch_;
};

/// The pool of so many threads, which is kept for the next call; NULL for one thread. For 0 those that the process's
/// OpenMP has (PyTorch's, where that was loaded), for engines bind threads to cores; NULL where there is one or no
/// OpenMP. Call it with the GIL held.
const halyard_executor *find_executor(std::int32_t n_threads);

/// Of the process's OpenMP; 1 where there is none. It takes no GIL.
std::int32_t count_openmp_threads();

}  // namespace halyard::python
