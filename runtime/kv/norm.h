// Norms: RMS and layer norm, of a head, a window of it, or all heads of a token. The bounds of what they round stand in
// halyard.h and in kernel_abi.h.
#pragma once

#include "base/storage.h"
#include "halyard/halyard_kv.h"

#include <cstdint>
#include <optional>

namespace halyard {

struct Block;
struct KvCall;
struct KvTensor;

/// A checked halyard_norm_desc.
struct NormDesc {
    bool row;    // norms all heads of a token together, not each by itself
    bool after;  // comes after the rotation
    bool unit_offset;
    std::int32_t rounding;  // HALYARD_NORM_ROUND_…
    float eps;
    std::optional<Dtype> weight;  // none: there is no weight
    std::int64_t offset, size;    // of the window
    bool layer;                   // takes the mean off
    bool has_bias;
    bool per_head;  // each head has weights of its own

    /// How many rows of weights there are for so many heads.
    std::int64_t n_rows_of_weights(std::int64_t n_heads) const noexcept { return row || per_head ? n_heads : 1; }
    std::int64_t n_weights(std::int64_t n_heads) const noexcept { return n_rows_of_weights(n_heads) * size; }
};

/// Checks the norm of tensor `index`, whose head_dim was checked.
halyard_status read_norm(const halyard_norm_desc *norm, int index, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept;

/// How many heads are normed in one block at most; more go by find_row_factor.
std::int64_t most_heads_in_block(const KvTensor &stages, std::int64_t head_dim) noexcept;

/// What the elements of a row are normed by that is longer than a block.
struct RowFactor {
    bool is_found = false;
    float mean = 0.0f, factor = 0.0f;
};

/// Finds it for the token of a block by all n_heads heads, of which most_heads at a time go through the steps before
/// the norm.
void find_row_factor(const KvCall &call, Block &block, std::int64_t most_heads, std::int64_t n_heads) noexcept;

}  // namespace halyard
