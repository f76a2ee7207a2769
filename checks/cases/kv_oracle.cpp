#include "checks/cases/kv_oracle.h"

#include <cmath>
#include <numeric>

namespace oracle {

using cases::Call;

namespace {

constexpr long double eps = 0x1p-23L;

struct TokenValues {
    std::vector<long double> value;
    std::vector<long double> length;  // hypot of the element's pair, to which errors are relative
    std::vector<long double> extra;   // further absolute errors, such as those of roundings to 16 bits
};

void norm(const Call &call, int i, TokenValues &state) {
    const halyard_norm_desc &norm = *call.kv[i].norm;
    const bool is_layer = norm.kind == HALYARD_NORM_LAYER, is_after = norm.order == HALYARD_NORM_AFTER;
    const std::int32_t dtype = call.dtype_of_stages(i), rounding = dtype != HALYARD_F32 ? norm.rounding : 0;
    const long double added = norm.no_eps != 0 ? 0 : static_cast<float>(norm.eps == 0 ? 1e-6 : norm.eps);
    const auto read = [&](const void *array, std::int64_t k) {
        const std::int64_t offset = k * cases::bytes_of(norm.weight_dtype);
        return cases::read_real(norm.weight_dtype, static_cast<const char *>(array) + offset);
    };
    const std::int64_t n_groups = norm.width == HALYARD_NORM_ROW ? 1 : call.x[i].shape[2], size = call.norm_size(i);
    for (std::int64_t group = 0; group < n_groups; group++) {
        const auto first = static_cast<std::size_t>(group * call.tensors[i].head_dim + norm.window_offset);
        const auto mean_of = [&](auto function) {
            long double sum = 0;
            for (std::size_t at = first; at < first + static_cast<std::size_t>(size); at++) {
                sum += function(at);
            }
            return sum / static_cast<long double>(size);
        };
        const long double mean = is_layer ? mean_of([&](std::size_t at) { return state.value[at]; }) : 0.0L;
        const auto square = [&](std::size_t at) { return (state.value[at] - mean) * (state.value[at] - mean); };
        const long double r = 1 / std::sqrt(mean_of(square) + added);
        // The error that a rounded mean causes in a normed value before the weight, in units of 1 + |normed value|.
        const auto square_of_length = [&](std::size_t at) { return state.length[at] * state.length[at]; };
        const long double off_mean =
            (static_cast<long double>(size) / 32 + 7) * eps * r * std::sqrt(mean_of(square_of_length));
        const long double d = !is_layer ? 0.0L : is_after && !(off_mean <= 0.25L) ? INFINITY : off_mean;
        for (std::int64_t e = 0; e < size; e++) {
            const auto at = first + static_cast<std::size_t>(e);
            const std::int64_t k = (norm.weight_per_head != 0 ? group * size : 0) + e;
            const float weight = norm.weight_dtype != 0 ? read(call.stages[i].weight, k) : 1.0f;
            const long double w = norm.unit_offset != 0 ? 1.0f + weight : weight;
            const long double b = norm.has_bias != 0 ? read(call.stages[i].bias, k) : 0.0f;
            const long double normed = (state.value[at] - mean) * r, off = d * (1 + std::fabs(normed));
            state.extra[at] = (state.extra[at] * r + off) * std::fabs(w);
            if ((rounding & HALYARD_NORM_ROUND_BEFORE_WEIGHT) != 0) {
                state.extra[at] += half_ulp(dtype, std::fabs(normed) * (1 + 64 * eps) + off) * std::fabs(w);
            }
            const long double before = is_layer && !is_after ? 0.0L : state.length[at] * r;
            state.length[at] = (before + (is_layer ? std::fabs(normed) : 0.0L)) * std::fabs(w) + std::fabs(b);
            state.value[at] = normed * w + b;
            if ((rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0) {
                const long double magnitude = std::fabs(normed * w) + std::fabs(b);
                state.extra[at] += half_ulp(dtype, std::fabs(state.value[at]) + 64 * eps * magnitude + state.extra[at]);
            }
        }
    }
}

/// A Hadamard transform of each n values, divided by sqrt(n). Errors are relative to the length (norm) of all n.
void hadamard_transform(std::int64_t n, std::vector<long double> &values, std::vector<long double> &errors) {
    const auto length_of = [n](const long double *of) { return std::sqrt(std::inner_product(of, of + n, of, 0.0L)); };
    for (std::size_t first = 0; first < values.size(); first += static_cast<std::size_t>(n)) {
        long double *const of = &values[first];
        const long double length = length_of(of), error = length_of(&errors[first]);
        const bool is_bound = length <= 0.999999L * std::numeric_limits<float>::max();
        // A Hadamard matrix is built from the one of half its size: [[H, H], [H, -H]].
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

void rotate(const Call &call, int i, const std::vector<long double> &cos, const std::vector<long double> &sin,
            TokenValues &state) {
    const TokenValues before = state;
    const halyard_tensor_desc &desc = call.tensors[i];
    const std::int64_t n_pairs = call.plan.rotary_dim / 2;
    for (std::int64_t head = 0; head < call.x[i].shape[2]; head++) {
        const auto at = [&](std::int32_t pairing, std::int64_t k, std::int64_t member) {
            return static_cast<std::size_t>(head * desc.head_dim + desc.rotary_offset +
                                            (pairing == HALYARD_PAIRING_HALF ? k + member * n_pairs : 2 * k + member));
        };
        for (std::int64_t k = 0; k < n_pairs; k++) {
            const auto in0 = at(desc.pairing, k, 0), in1 = at(desc.pairing, k, 1);
            const auto out0 = at(call.out_pairing(i), k, 0), out1 = at(call.out_pairing(i), k, 1);
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

KvValues exact_kv_values(const Call &call, int i, const cases::Head &token, const std::vector<long double> &x,
                         const std::vector<long double> &cos, const std::vector<long double> &sin) {
    const halyard_kv_desc &kv = call.kv[i];
    const std::int64_t head_dim = call.tensors[i].head_dim, rotary_dim = kv.no_rotation == 0 ? call.plan.rotary_dim : 0;
    TokenValues state = {x, {}, std::vector<long double>(x.size(), 0.0L)};
    for (const long double v : state.value) {
        state.length.push_back(std::fabs(v));
    }
    if (kv.hadamard != 0 && call.plan.rerotates != 0) {  // stored keys are transformed back before they are rotated
        for (std::size_t e = 0; e < x.size(); e++) {
            state.extra[e] = eps / 2 * state.length[e];  // the rounded product with the stored scale
        }
        hadamard_transform(kv.hadamard, state.value, state.extra);
        for (std::size_t e = 0; e < x.size(); e++) {
            state.length[e] = std::fabs(state.value[e]);
        }
    }
    const bool norms_after = kv.norm != nullptr && kv.norm->order == HALYARD_NORM_AFTER;
    if (kv.norm != nullptr && !norms_after) {
        norm(call, i, state);
    }
    if (rotary_dim > 0) {
        rotate(call, i, cos, sin, state);
    }
    if (norms_after) {
        norm(call, i, state);
    }
    KvValues result = {state.value, {}};
    for (std::size_t e = 0; e < x.size(); e++) {
        const std::int64_t head = static_cast<std::int64_t>(e) / head_dim;
        const std::int64_t offset = rotary_dim > 0 ? call.tensors[i].rotary_offset : 0;  // any number if not rotated
        const std::int64_t in_window = static_cast<std::int64_t>(e) % head_dim - offset;
        long double factor = in_window >= 0 && in_window < rotary_dim ? 2 : 0;
        if (kv.norm != nullptr) {
            factor += 4 + (static_cast<long double>(call.norm_size(i)) / 16 + 5) / 2;
        }
        long double scale = 1, underflow = 0x1p-148L;
        if (kv.position_scales != 0) {
            scale = cases::read_real(HALYARD_F32, place_of_position_scale(call, i, {token.batch, token.token, head}));
            factor += 0.5L;
            underflow *= 1 + std::fabs(scale);
        }
        result.value[e] *= scale;
        // A longer pair has no bound: its hypot overflows f32, so its members may become infinite.
        const bool is_bound = state.length[e] <= 0.999999L * std::numeric_limits<float>::max();
        const long double bound = factor * eps * state.length[e] + state.extra[e] * (1 + 64 * eps);
        result.bound.push_back(is_bound ? bound * std::fabs(scale) + underflow
                                        : std::numeric_limits<long double>::infinity());
    }
    if (kv.hadamard != 0) {
        hadamard_transform(kv.hadamard, result.value, result.bound);
    }
    return result;
}

bool may_be_stored(std::int32_t out_dtype, std::uint32_t word, long double value, long double bound,
                   std::optional<long double> scale) {
    if (!std::isfinite(value) || !std::isfinite(bound)) {
        return true;  // no bound is promised; run_modes.h checks that all targets agree
    }
    const long double stored = widen(out_dtype, word), most = greatest(out_dtype);
    if (scale) {
        bound = bound / *scale + 2 * eps * std::fabs(value / *scale) + 0x1p-148L;
        value /= *scale;
    }
    if (element_bytes(out_dtype) == 1) {  // conversions to 8 bits saturate
        value = std::clamp(value, out_dtype == HALYARD_INT8 ? -128.0L : -most, most);
    } else if (std::isinf(stored)) {
        return std::fabs(value) + bound >= overflow_threshold(out_dtype) && std::signbit(stored) == std::signbit(value);
    }
    const long double rounding = out_dtype == HALYARD_F32 ? 0.0L : half_ulp(out_dtype, std::fabs(value) + bound);
    return std::fabs(stored - value) <= bound + rounding;
}

}  // namespace oracle
