// Counts the wrong elements of a rotation.
#pragma once

#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "checks/rotate.h"

/// Counts rotated elements of y whose error exceeds a bound, and unrotated ones that differ from x. exact_at(token, k)
/// returns the exact cos and sin of pair k; bound(pair, cos and sin, exact result) returns the bound.
template <typename ExactAt, typename Bound>
std::int64_t count_wrong(const Rotation &rotation, const Elements &x, const Elements &y, const ExactAt &exact_at,
                         const Bound &bound) {
    std::int64_t n_wrong = 0;
    const std::int64_t head_dim = rotation.full_head(), n_heads = x.shape[2];
    for (std::int64_t token = 0; token < x.shape[0] * x.shape[1]; token++) {
        for (std::int64_t k = 0; k < rotation.rotary_dim / 2; k++) {
            const ExactCosSin at = exact_at(token, k);
            for (std::int64_t head = token * n_heads; head < (token + 1) * n_heads; head++) {
                const auto in = [&](int member) -> long double {
                    return x[head * head_dim + rotation.index(rotation.pairing, k, member)];
                };
                const auto out = [&](int member) -> long double {
                    return y[head * head_dim + rotation.index(rotation.pairing_of_output(), k, member)];
                };
                const oracle::Pair<long double> pair = {in(0), in(1)};
                const auto exact = oracle::rotate_exactly(pair, at.cos, rotation.inverse ? -at.sin : at.sin);
                n_wrong += std::fabs(out(0) - exact.x0) <= bound(pair, at, exact.x0) ? 0 : 1;
                n_wrong += std::fabs(out(1) - exact.x1) <= bound({pair.x1, pair.x0}, at, exact.x1) ? 0 : 1;
            }
        }
    }
    for (std::int64_t i = 0; i < x.count(); i++) {
        const std::int64_t d = i % head_dim - rotation.offset;
        n_wrong += (d < 0 || d >= rotation.rotary_dim) && y.word(i) != x.word(i) ? 1 : 0;
    }
    return n_wrong;
}
