// Quantisation groups: the format of a tensor's records (halyard.Groups), and the scales outside the records.
#pragma once

#include "array.h"

namespace halyard::python {

/// The shape of an array with a number for each head of each token, such as scales. block, token and head are the
/// indices of the dimensions of blocks (or batch rows), tokens and heads, -1 if the array lacks one; n_… are the sizes
/// that these dimensions must have.
struct HeadRows {
    int block, token, head;
    std::int64_t n_blocks, n_tokens, n_heads;

    /// Whether an array has exactly these dimensions and sizes, and n_more dimensions after them.
    bool fit(const Array &array, int n_more = 0) const;
    /// Sets the strides of blocks, tokens and heads in elements; 0 for a dimension that is missing or has size 1.
    void set_strides(const Array &array, std::int64_t (&strides)[3]) const;
};

/// How a tensor's heads are quantised in groups, and the layout of the records that store heads of head_dim elements.
struct Groups {
    std::string name;  ///< what error messages call them
    nb::object scales;
    std::int64_t head_dim = 0;
    halyard_groups_desc desc{};
    halyard_groups_info info{};

    Groups() = default;
    /// Reads a halyard.Groups for heads of n_elements. If `records` is given, finds the head_dim whose records are as
    /// long as that array's last dimension, and throws if there is none. Also throws what the library refuses.
    Groups(nb::handle groups, std::string called, std::int64_t n_elements, const Array *records);

    /// Whether the preset has scales outside the records. Throws if they are missing, or if they are given and
    /// the preset has none.
    bool needs_scales() const;
    /// Reads an array of scales outside the records: sets the strides in desc, and returns the array's memory. Throws
    /// if the array has another shape than `rows` and the groups; `wanted` describes that shape in the message.
    void *read_scales(const Array &array, const HeadRows &rows, const std::string &wanted);
    /// Whether scales outside the records are E8M0, powers of two in a byte each; else they are float32.
    bool has_powers() const { return info.scale_stride == 1; }
};

}  // namespace halyard::python
