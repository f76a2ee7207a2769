// The ceiling that memory sets: the fastest ways to read and write as many bytes as a rotation does, with the widest
// vectors of this machine. Pointers must be aligned to 64 bytes.
#pragma once

#include <cstddef>

namespace halyard::bench {

/// A copy that does not depend on the C library, whose memcpy may be faster or slower.
void copy_with_vectors(void *to, const void *from, std::size_t n_bytes);

/// Copies with non-temporal stores; by memcpy where there are none.
void copy_non_temporally(void *to, const void *from, std::size_t n_bytes);

/// Multiplies rows of row_bytes / 4 floats by one.
void multiply_in_place(void *data, std::size_t n_rows, std::size_t row_bytes, std::size_t stride_bytes);

}  // namespace halyard::bench
