// Tensors and KV caches as memory: which bytes their elements occupy, and whether two of them share any.
#pragma once

#include "halyard/halyard.h"

#include <cstddef>
#include <cstdint>

namespace halyard {

/// The addresses begin … end - 1; empty if begin equals end.
struct MemoryRange {
    std::uintptr_t begin, end;

    std::uintptr_t n_bytes() const noexcept { return end - begin; }

    bool overlaps(const MemoryRange &other) const noexcept { return begin < other.end && other.begin < end; }
};

/// How far an array extends below and above the address of its first element, in bytes. above is 0 for no array.
struct Reach {
    std::uintptr_t below, above;

    std::uintptr_t n_bytes() const noexcept { return below + above; }
};

/// Sets *out to the reach of a strided array; returns false if no address space can hold it. Sizes must be at least 1.
/// Strides are in elements; those of dimensions of size 1 are ignored. Sets *is_descending to whether each stride is
/// larger than the largest offset within all later dimensions, so that no two elements overlap. (Inline, to make runs
/// cheaper.)
template <int n_dims>
[[gnu::always_inline]] inline bool find_reach(const std::int64_t (&shape)[n_dims],
                                              const std::int64_t (&strides)[n_dims], std::int64_t element_bytes,
                                              Reach *out, bool *is_descending) noexcept {
    std::uintptr_t below = 0, above = 0;  // in elements; if they wrap, the result is false
    std::int64_t magnitudes = 0;
    bool overflows = false, descends = true;
    for (int i = n_dims - 1; i >= 0; i--) {
        std::int64_t reach = 0;
        if (shape[i] != 1) {
            descends = descends && strides[i] > static_cast<std::int64_t>(above);  // false from a negative stride on
            overflows |= __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
            above += static_cast<std::uintptr_t>(reach > 0 ? reach : 0);
            below -= static_cast<std::uintptr_t>(reach < 0 ? reach : 0);
            magnitudes |= reach < 0 ? ~reach : reach;
        }
    }
    const auto bytes = static_cast<std::uintptr_t>(element_bytes);
    *out = {below * bytes, (above + 1) * bytes};
    *is_descending = descends;
    return !overflows && magnitudes >> 57 == 0;  // so that sums of a few reaches cannot overflow
}

/// Sets *out to the addresses of an array whose first element is at data; false if they leave the address space.
inline bool find_range(const void *data, const Reach &reach, MemoryRange *out) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    *out = {address - reach.below, address + reach.above};
    return out->begin <= address && out->end >= address;
}

/// find_reach and find_range in one call.
template <int n_dims>
bool find_memory_range(const void *data, const std::int64_t (&shape)[n_dims], const std::int64_t (&strides)[n_dims],
                       std::int64_t element_bytes, MemoryRange *out) noexcept {
    Reach reach = {0, 0};
    bool unused = false;
    return find_reach(shape, strides, element_bytes, &reach, &unused) && find_range(data, reach, out);
}

/// A strided array in up to six dimensions: a tensor, or a KV cache with tiles. Sizes are at least 1.
struct Lattice {
    static constexpr int n_dims = 6;
    const void *data;
    std::int64_t element_bytes;
    std::int64_t shape[n_dims], strides[n_dims];  // in elements
};

Lattice lattice_of(const halyard_tensor &tensor) noexcept;

/// Whether no two elements overlap. Conservative: true only if, ordered by size, each stride is larger than the reach
/// of all smaller ones. The lattice must fit into the address space.
bool elements_are_disjoint(const Lattice &lattice) noexcept;

/// Whether elements of two lattices may share a byte. Conservative, but exact for common layouts (slices of one packed
/// buffer, and transposes of such slices).
bool may_share_bytes(const Lattice &a, const Lattice &b) noexcept;

}  // namespace halyard
