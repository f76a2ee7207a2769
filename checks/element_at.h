// Finds the elements of a tensor in memory.
#pragma once

#include "checks/oracle.h"
#include "halyard/halyard.h"

inline std::int64_t count_elements(const halyard_tensor &tensor) {
    return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
}

/// The address of element i, counted in the order of the shape, the last dimension fastest.
inline char *element_at(const halyard_tensor &tensor, std::int64_t i) {
    std::int64_t offset = 0;
    for (int d = 3; d >= 0; d--) {
        offset += i % tensor.shape[d] * tensor.strides[d];
        i /= tensor.shape[d];
    }
    return static_cast<char *>(tensor.data) + offset * oracle::element_bytes(tensor.dtype);
}
