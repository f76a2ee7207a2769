// RMS norms and layer norms of a head, of a window in it, or of all heads of a token. halyard_kv.h bounds their errors.
#pragma once

#include "base/storage.h"
#include "halyard/halyard_kv.h"

#include <cstdint>
#include <optional>

namespace halyard {

struct Block;
struct KvCall;
struct KvTensorPlan;
struct Listing;

/// A checked halyard_norm_desc.
struct NormDesc {
    bool row;    // of all heads of a token together, not of each head by itself
    bool after;  // after the rotation
    bool unit_offset;
    std::int32_t rounding;  // HALYARD_NORM_ROUND_…
    float eps;
    std::optional<Dtype> weight;  // none: there is no weight
    std::int64_t offset, size;    // of the window that is normed
    bool layer;                   // a layer norm, which subtracts the mean; else an RMS norm
    bool has_bias;
    bool per_head;  // each head has weights of its own

    std::int64_t n_weights(std::int64_t n_heads) const noexcept { return (row || per_head ? n_heads : 1) * size; }
};

/// Checks a halyard_norm_desc for heads of head_dim elements, which was checked. `name` is for error messages.
halyard_status read_norm(const halyard_norm_desc *norm, const char *name, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept;

/// Whether the step of a norm also loads the tensor, which takes little more time than to load it.
bool loads_and_norms(const Listing &of) noexcept;

}  // namespace halyard
