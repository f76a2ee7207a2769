// Computes the exact results of a tensor's whole KV path (norm, rotation, norm, scales, conversion) in long double,
// without any code of the runtime or the generators.
#pragma once

#include "checks/cases/call.h"

#include <optional>
#include <vector>

namespace oracle {

/// A token's exact elements before they are scaled, [heads, head_dim], and the error bounds that halyard.h promises.
struct KvValues {
    std::vector<long double> value, bound;
};
/// The values of one token of a call's tensor i. cos and sin are per pair, with the sign of the direction. In a
/// re-rotation x already includes the scale that the keys were stored with.
KvValues exact_kv_values(const cases::Call &call, int i, const cases::Head &token, const std::vector<long double> &x,
                         const std::vector<long double> &cos, const std::vector<long double> &sin);

/// Whether `word` is a permitted result of storing value / scale (scale 1 if there is none). Any word is permitted if
/// value or bound is not finite.
bool may_be_stored(std::int32_t out_dtype, std::uint32_t word, long double value, long double bound,
                   std::optional<long double> scale);

}  // namespace oracle
