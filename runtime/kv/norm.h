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

    std::int64_t n_weights(std::int64_t n_heads) const noexcept { return (row || per_head ? n_heads : 1) * size; }
};

/// Checks a norm of heads whose head_dim was checked. `name` is what sentences call it.
halyard_status read_norm(const halyard_norm_desc *norm, const char *name, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept;

/// A row that is longer than a block: what its elements are normed by. That is found by passes over all blocks of the
/// row, in which steps end with the norm; the last pass norms.
struct LongRow {
    enum Pass { none, find_mean, find_factor, apply, done } pass = none;
    float mean, factor;
    float sums[16];  // of the pass
    std::int64_t n;  // elements in them

    void begin(const NormDesc &norm) noexcept;
    /// Begins the next pass; false after the last one.
    bool next(const NormDesc &norm) noexcept;
};

}  // namespace halyard
