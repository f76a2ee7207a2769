#include "checks/kv_oracle.h"

#include "halyard/halyard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace oracle {

namespace {

constexpr long double eps = 0x1p-23L;

struct State {
    std::vector<long double> value;
    std::vector<long double> length;  // of the element's pair, which errors are relative to
    std::vector<long double> extra;   // the error of roundings to 16 bits
};

void norm(const KvPath &path, State &state) {
    const KvNorm &norm = *path.norm;
    const std::int64_t n_groups = norm.row ? 1 : path.n_heads;
    const std::int64_t size = norm.row ? path.n_heads * path.head_dim : norm.size;
    for (std::int64_t group = 0; group < n_groups; group++) {
        const auto first = static_cast<std::size_t>(group * path.head_dim + norm.offset);
        const auto mean_of = [&](auto function) {
            long double sum = 0;
            for (std::size_t at = first; at < first + static_cast<std::size_t>(size); at++) {
                sum += function(at);
            }
            return sum / static_cast<long double>(size);
        };
        const long double mean = norm.layer ? mean_of([&](std::size_t at) { return state.value[at]; }) : 0.0L;
        const auto square = [&](std::size_t at) { return (state.value[at] - mean) * (state.value[at] - mean); };
        const long double r = 1 / std::sqrt(mean_of(square) + norm.eps);
        // How far the rounded mean puts a normed value off before the weight, in units of 1 + |value|.
        const auto square_of_length = [&](std::size_t at) { return state.length[at] * state.length[at]; };
        const long double off_mean =
            (static_cast<long double>(size) / 32 + 7) * eps * r * std::sqrt(mean_of(square_of_length));
        const long double d = !norm.layer ? 0.0L : norm.after && !(off_mean <= 0.25L) ? INFINITY : off_mean;
        for (std::int64_t i = 0; i < size; i++) {
            const auto at = first + static_cast<std::size_t>(i);
            const auto of_weight = static_cast<std::size_t>((norm.per_head ? group * size : 0) + i);
            const long double w = norm.weight.empty() ? 1.0L : norm.weight[of_weight];
            const long double b = norm.bias.empty() ? 0.0L : norm.bias[of_weight];
            const long double normed = (state.value[at] - mean) * r, off = d * (1 + std::fabs(normed));
            state.extra[at] = (state.extra[at] * r + off) * std::fabs(w);
            if (norm.rounds_before) {
                state.extra[at] += half_ulp(path.dtype, std::fabs(normed) * (1 + 64 * eps) + off) * std::fabs(w);
            }
            const long double before = norm.layer && !norm.after ? 0.0L : state.length[at] * r;
            state.length[at] = (before + (norm.layer ? std::fabs(normed) : 0.0L)) * std::fabs(w) + std::fabs(b);
            state.value[at] = normed * w + b;
            if (norm.rounds_after) {
                const long double magnitude = std::fabs(normed * w) + std::fabs(b);
                state.extra[at] +=
                    half_ulp(path.dtype, std::fabs(state.value[at]) + 64 * eps * magnitude + state.extra[at]);
            }
        }
    }
}

/// Each n values become sums of them with signs, over the root of n. Their errors count with the length of all n.
void transform(std::int64_t n, std::vector<long double> &values, std::vector<long double> &errors) {
    const auto length_of = [n](const long double *of) { return std::sqrt(std::inner_product(of, of + n, of, 0.0L)); };
    for (std::size_t first = 0; first < values.size(); first += static_cast<std::size_t>(n)) {
        long double *const of = &values[first];
        const long double length = length_of(of), error = length_of(&errors[first]);
        const bool is_bound = length <= 0.999999L * std::numeric_limits<float>::max();
        // Each matrix is made of the one of half its size: H, H above H, -H.
        for (std::int64_t half = 1; half < n; half *= 2) {
            for (std::int64_t i = 0; i < n; i++) {
                if ((i & half) == 0) {
                    const long double a = of[i], b = of[i + half];
                    of[i] = a + b;
                    of[i + half] = a - b;
                }
            }
        }
        for (std::int64_t i = 0; i < n; i++) {
            const auto at = first + static_cast<std::size_t>(i);
            values[at] /= std::sqrt(static_cast<long double>(n));
            errors[at] = is_bound ? error + (std::log2(static_cast<long double>(n)) + 2) / 2 * eps * (length + error) +
                                        static_cast<long double>(n) * 0x1p-149L
                                  : std::numeric_limits<long double>::infinity();
        }
    }
}

void rotate(const KvPath &path, const std::vector<long double> &cos, const std::vector<long double> &sin,
            State &state) {
    const State before = state;
    const std::int64_t n_pairs = path.rotary_dim / 2;
    for (std::int64_t head = 0; head < path.n_heads; head++) {
        const auto at = [&](bool half, std::int64_t k, std::int64_t member) {
            return static_cast<std::size_t>(head * path.head_dim + path.rotary_offset +
                                            (half ? k + member * n_pairs : 2 * k + member));
        };
        for (std::int64_t k = 0; k < n_pairs; k++) {
            const auto in0 = at(path.half_in, k, 0), in1 = at(path.half_in, k, 1);
            const auto out0 = at(path.half_out, k, 0), out1 = at(path.half_out, k, 1);
            const long double c = cos[static_cast<std::size_t>(k)], s = sin[static_cast<std::size_t>(k)];
            const long double f = std::hypot(c, s);
            state.value[out0] = before.value[in0] * c - before.value[in1] * s;
            state.value[out1] = before.value[in1] * c + before.value[in0] * s;
            state.length[out0] = state.length[out1] = f * std::hypot(before.length[in0], before.length[in1]);
            state.extra[out0] = state.extra[out1] = f * std::hypot(before.extra[in0], before.extra[in1]);
        }
    }
}

}  // namespace

KvValues path_of_values(const KvPath &path, const std::vector<long double> &x, const std::vector<long double> &cos,
                          const std::vector<long double> &sin) {
    State state = {x, {}, std::vector<long double>(x.size(), 0.0L)};
    for (const long double v : state.value) {
        state.length.push_back(std::fabs(v));
    }
    if (path.hadamard != 0 && path.undoes) {
        for (std::size_t i = 0; i < x.size(); i++) {
            state.extra[i] = eps / 2 * state.length[i];  // of a product with a scale
        }
        transform(path.hadamard, state.value, state.extra);
        for (std::size_t i = 0; i < x.size(); i++) {
            state.length[i] = std::fabs(state.value[i]);
        }
    }
    if (path.norm && !path.norm->after) {
        norm(path, state);
    }
    if (path.rotary_dim > 0) {
        rotate(path, cos, sin, state);
    }
    if (path.norm && path.norm->after) {
        norm(path, state);
    }
    KvValues result = {state.value, {}};
    for (std::size_t i = 0; i < x.size(); i++) {
        const std::int64_t in_window = static_cast<std::int64_t>(i) % path.head_dim - path.rotary_offset;
        long double factor = in_window >= 0 && in_window < path.rotary_dim ? 2 : 0;
        if (path.norm) {
            const std::int64_t n = path.norm->row ? path.n_heads * path.head_dim : path.norm->size;
            factor += 4 + (static_cast<long double>(n) / 16 + 5) / 2;
        }
        long double scale = 1, underflow = 0x1p-148L;
        if (!path.position_scales.empty()) {
            scale = path.position_scales[i / static_cast<std::size_t>(path.head_dim)];
            factor += 0.5L;
            underflow *= 1 + std::fabs(scale);
        }
        result.value[i] *= scale;
        // A longer pair may be infinite, whatever its members should be.
        const bool is_bound = state.length[i] <= 0.999999L * std::numeric_limits<float>::max();
        const long double bound = factor * eps * state.length[i] + state.extra[i] * (1 + 64 * eps);
        result.bound.push_back(is_bound ? bound * std::fabs(scale) + underflow
                                        : std::numeric_limits<long double>::infinity());
    }
    if (path.hadamard != 0) {
        transform(path.hadamard, result.value, result.bound);
    }
    return result;
}

bool may_be_stored(std::int32_t out_dtype, std::uint32_t word, long double value, long double bound,
                   std::optional<long double> scale) {
    if (!std::isfinite(value) || !std::isfinite(bound)) {
        return true;  // no bound is promised; that all targets agree is checked elsewhere
    }
    const long double stored = widen(out_dtype, word), most = greatest(out_dtype);
    if (scale) {
        bound = bound / *scale + 2 * eps * std::fabs(value / *scale) + 0x1p-148L;
        value /= *scale;
    }
    if (element_bytes(out_dtype) == 1) {  // which saturates
        value = std::clamp(value, out_dtype == HALYARD_INT8 ? -128.0L : -most, most);
    } else if (std::isinf(stored)) {
        return std::fabs(value) + bound >= overflow_threshold(out_dtype) && std::signbit(stored) == std::signbit(value);
    }
    const long double rounding = out_dtype == HALYARD_F32 ? 0.0L : half_ulp(out_dtype, std::fabs(value) + bound);
    return std::fabs(stored - value) <= bound + rounding;
}

}  // namespace oracle
