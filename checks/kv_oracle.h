// Works out what a tensor's whole KV path ought to give: norm, rotation, norm, scales, conversion. Without any code of
// the runtime or the generators, and in long double.
#pragma once

#include "checks/oracle.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace oracle {

struct KvNorm {
    bool row = false, after = false;
    bool rounds_before = false, rounds_after = false;  // the weight, to the input's dtype
    long double eps = 0;
    std::int64_t offset = 0, size = 0;  // of the window
    std::vector<float> weight, bias;    // [size], or all heads'; w, or f32(1 + w)
    bool layer = false;                 // takes the mean off
    bool per_head = false;              // each head has a weight of its own
};

struct KvPath {
    std::int32_t dtype = 0;
    std::int64_t n_heads = 0, head_dim = 0;
    std::int64_t rotary_dim = 0, rotary_offset = 0;  // rotary_dim 0: no rotation
    bool half_in = true, half_out = true;            // pairings
    std::optional<KvNorm> norm;
    std::int64_t hadamard = 0;           // elements of a block that is transformed
    bool undoes = false;                 // the same transform before the rotation, as of keys that move
    std::vector<float> position_scales;  // of the token's heads; empty: it has none
};

/// What one token holds before it is scaled, [heads, head_dim], and how far from it halyard.h lets results be.
struct KvValues {
    std::vector<long double> value, bound;
};
/// cos and sin are those of the token's pairs, with the sign of the direction. Keys that move have been scaled in x.
KvValues path_of_values(const KvPath &path, const std::vector<long double> &x, const std::vector<long double> &cos,
                          const std::vector<long double> &sin);

/// Whether a word can be what is stored of a value by a scale, 1 if there is none. Anything can, where value or bound
/// is not finite.
bool may_be_stored(std::int32_t out_dtype, std::uint32_t word, long double value, long double bound,
                   std::optional<long double> scale);

}  // namespace oracle
