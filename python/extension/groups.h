// Records of groups: what Python says of them, and their scales that lie apart.
#pragma once

#include "array.h"

namespace halyard::python {

/// Numbers of heads: which dimensions of an array are those of blocks or batch rows, tokens and heads, and how long
/// these have to be. -1: there is none.
struct HeadRows {
    int block, token, head;
    std::int64_t n_blocks, n_tokens, n_heads;

    /// Whether an array has these dimensions, and n_more behind them.
    bool fit(const Array &array, int n_more = 0) const;
    /// In elements, 0 where there is one step, to blocks, tokens and heads.
    void set_strides(const Array &array, std::int64_t (&strides)[3]) const;
};

/// The groups of a tensor, and what their records are for heads of head_dim.
struct Groups {
    std::string name;  ///< which messages call them
    nb::object scales;
    std::int64_t head_dim = 0;
    halyard_groups_desc desc{};
    halyard_groups_info info{};

    Groups() = default;
    /// Reads a halyard.Groups, for heads of so many elements or, if records are given, of as many as those have whose
    /// records are their last dimension; throws where there are none, and what the library says.
    Groups(nb::handle told, std::string of, std::int64_t n_elements, const Array *records);

    /// Whether scales lie apart from the records; throws unless they are given just then.
    bool needs_scales() const;
    /// Reads an array of scales that lie apart, and takes its strides. Throws where it is not as rows and groups say;
    /// `wanted` is what it has to be.
    void *read_scales(const Array &array, const HeadRows &rows, const std::string &wanted);
    /// Whether scales are powers of two, which arrays have as bytes; else they are floats, of those that lie apart.
    bool has_powers() const { return info.scale_stride == 1; }
};

}  // namespace halyard::python
