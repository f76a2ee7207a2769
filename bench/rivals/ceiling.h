// The loops that set a row's ceilings. Memory's: copies or multiplications of the bytes that a rotation reads and
// writes. The conversion's, for 16-bit elements: each is read, widened to f32, rounded back and written.
#pragma once

#include <cstddef>
#include <span>

namespace halyard::bench {

/// Rows of bytes, a stride apart. Both pointers are aligned to 64 bytes, and equal where a loop works in place.
struct Rows {
    const char *from;
    char *to;
    std::size_t n_rows, row_bytes, stride_bytes;
};

/// A loop, which leaves its elements as they are, NaNs apart.
struct CeilingLoop {
    enum class Of { memory, f16, bf16 };
    const char *name;  // ends in the width of its vectors
    Of of;             // memory, or the conversion of these elements
    bool in_place, out_of_place;
    void (*run)(const Rows &rows);
    /// For tests: the same with a product by a factor between widening and rounding; NULL where nothing is rounded.
    void (*scale)(const Rows &rows, float factor) = nullptr;
    bool keeps_subnormals = true;
};

/// All that this CPU can run. Where there are no vectors of a known width, memcpy and a plain multiplication are left.
std::span<const CeilingLoop> ceiling_loops();

// Those that need AVX2 and F16C; AVX-512 F, BW and VL; and AVX-512 BF16 besides.
extern const CeilingLoop loops_256[7], loops_512[8], loops_bf16[2];

}  // namespace halyard::bench
