// What the machine's memory allows: the fastest ways to read and write as many bytes as a rotation does.
#pragma once

#include <cstddef>

namespace halyard::bench {

/// Multiplies n_bytes / 4 floats by almost one, with the widest vectors of this machine.
void multiply_in_place(float *data, std::size_t n_bytes);

/// Copies past the caches (n_bytes a multiple of 64, both pointers 64-byte aligned); memcpy where there is no such way.
void copy_past_caches(float *to, const float *from, std::size_t n_bytes);

}  // namespace halyard::bench
