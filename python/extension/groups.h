// Records of groups: what Python says of them, and their scales that lie apart.
#pragma once

#include "array.h"

#include <cstdint>
#include <optional>
#include <string>

namespace halyard::python {

/// The groups of a tensor, by a preset's name, and what their records are for heads of head_dim. `name` is what
/// messages call them; throws what the library says.
struct Groups {
    halyard_groups_desc desc{};
    halyard_groups_info info{};

    Groups() = default;
    Groups(nanobind::handle groups, std::int64_t head_dim, const std::string &name);

    /// Whether scales lie apart from the records; throws unless they are given just then.
    bool needs_scales(nanobind::handle scales, const std::string &name) const;

    /// Whether scales are powers of two, which arrays have as bytes; else they are floats, of those that lie apart.
    bool has_powers() const { return info.scale_stride == 1; }
};

/// How many elements heads have whose records are an array's last dimension; throws where that does not tell.
std::int64_t find_head_dim(nanobind::handle groups, const Array &records, const std::string &name);

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

/// Reads an array of scales of groups that lie apart, and gives these its strides. Throws where it is not as rows and
/// groups say; `wanted` is what it has to be.
void *read_group_scales(const Array &array, const HeadRows &rows, Groups &groups, const std::string &wanted);

}  // namespace halyard::python
