// Tensors and caches as memory: which bytes they describe, and whether two of them share any.
#pragma once

#include "halyard/halyard.h"

#include <cstddef>
#include <cstdint>

namespace halyard {

/// The addresses begin … end - 1; empty where both are equal.
struct MemoryRange {
    std::uintptr_t begin, end;

    std::uintptr_t n_bytes() const noexcept { return end - begin; }

    bool overlaps(const MemoryRange &other) const noexcept { return begin < other.end && other.begin < end; }
};

/// The smallest range that holds every element of a strided array, by checked arithmetic; false where it leaves the
/// address space. Sizes must be at least 1, strides are in elements. (Inline for the cost of a run.)
template <int n_dims>
[[gnu::always_inline]] inline bool find_memory_range(const void *data, const std::int64_t (&shape)[n_dims],
                                                     const std::int64_t (&strides)[n_dims], std::int64_t element_bytes,
                                                     MemoryRange *out) noexcept {
    // Beyond any machine's address space, and small enough that sums of a few reaches stay exact.
    constexpr std::int64_t limit = std::int64_t(1) << 58;
    std::int64_t below = 0, above = element_bytes;
    for (int i = 0; i < n_dims; i++) {
        std::int64_t reach = 0;
        if (shape[i] == 1) {
            continue;
        }
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
            __builtin_mul_overflow(reach, element_bytes, &reach) || reach > limit || reach < -limit) {
            return false;
        }
        below -= reach < 0 ? reach : 0;
        above += reach > 0 ? reach : 0;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    out->begin = address - static_cast<std::uintptr_t>(below);
    out->end = address + static_cast<std::uintptr_t>(above);
    return out->begin <= address && out->end >= address;
}

/// Whether all elements of a tensor lie apart from each other. Conservative: it asks that, ordered by size, each
/// stride steps over all that the smaller ones reach. The tensor must have a memory range.
bool elements_are_apart_in_some_order(const halyard_tensor &tensor) noexcept;

inline bool elements_are_apart(const halyard_tensor &tensor) noexcept {
    // Mostly the dimensions are in descending order of stride, which takes no sorting. The memory range is in bounds.
    std::int64_t reach = 0;
    for (int i = 3; i >= 0; i--) {
        if (tensor.shape[i] > 1) {
            if (tensor.strides[i] <= reach) {
                return elements_are_apart_in_some_order(tensor);
            }
            reach += tensor.strides[i] * (tensor.shape[i] - 1);
        }
    }
    return true;
}

/// Whether two tensors, whose dtypes were checked, may share a byte. Conservative, but exact for the layouts of the
/// field (slices of one packed buffer, and transposes of such).
bool may_share_bytes(const halyard_tensor &a, const halyard_tensor &b) noexcept;

/// Elements in up to six dimensions, as those of tensors and of caches with tiles are. Sizes are at least 1.
struct Lattice {
    static constexpr int n_dims = 6;
    const void *data;
    std::int64_t element_bytes;
    std::int64_t shape[n_dims], strides[n_dims];  // in elements
};

Lattice lattice_of(const halyard_tensor &tensor) noexcept;

inline bool find_memory_range(const Lattice &lattice, MemoryRange *out) noexcept {
    return find_memory_range(lattice.data, lattice.shape, lattice.strides, lattice.element_bytes, out);
}
bool elements_are_apart(const Lattice &lattice) noexcept;
bool may_share_bytes(const Lattice &a, const Lattice &b) noexcept;

}  // namespace halyard
