// What the machine's memory allows: the fastest ways to read and write as many bytes as a rotation does, written for
// the widest vectors of this machine. Pointers are 64-byte aligned.
#pragma once

#include <cstddef>

namespace halyard::bench {

/// Beside memcpy, which another machine's C library may do better or worse.
void copy_with_vectors(void *to, const void *from, std::size_t n_bytes);

/// Copies with non-temporal stores; by memcpy where there are none.
void copy_non_temporally(void *to, const void *from, std::size_t n_bytes);

/// Multiplies rows of row_bytes / 4 floats by one, so that data of any type stay as they are.
void multiply_in_place(void *data, std::size_t n_rows, std::size_t row_bytes, std::size_t stride_bytes);

}  // namespace halyard::bench
