// Works out what a tensor's whole KV path ought to give: norm, rotation, norm, scales, conversion. Without any code of
// the runtime or the generators, and in long double.
#pragma once

#include "checks/cases/call.h"

#include <optional>
#include <vector>

namespace oracle {

/// What one token holds before it is scaled, [heads, head_dim], and how far from it halyard.h lets results be.
struct KvValues {
    std::vector<long double> value, bound;
};
/// Of a call's tensor i. cos and sin are those of the token's pairs, with the sign of the direction. Keys that move are
/// scaled in x.
KvValues path_of_values(const cases::Call &call, int i, const cases::Head &token, const std::vector<long double> &x,
                        const std::vector<long double> &cos, const std::vector<long double> &sin);

/// Whether a word can be what is stored of a value by a scale, 1 if there is none. Anything can, where value or bound
/// is not finite.
bool may_be_stored(std::int32_t out_dtype, std::uint32_t word, long double value, long double bound,
                   std::optional<long double> scale);

}  // namespace oracle
