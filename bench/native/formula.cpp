// The formula of halyard.h in long double, and what it allows results to be off by.
#include "native/work.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bench {

namespace {

constexpr long double ulp = 0x1p-23L;
using Values = std::vector<long double>;

long double length_of(const Values &values) {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0L));
}

/// A head on its way: its elements, what each may be off by, and the lengths of their pairs.
struct Head {
    Values value, bound, length;
};

/// Sylvester's, orthonormal. What an element may be off by is said for the whole head.
void transform(Head &head) {
    Values &v = head.value;
    const auto n = v.size();
    const long double allowed =
        (std::log2(static_cast<long double>(n)) + 2) / 2 * ulp * length_of(v) + length_of(head.bound);
    for (std::size_t apart = 1; apart < n; apart *= 2) {
        for (std::size_t i = 0; i < n; i++) {
            if ((i & apart) == 0) {
                const long double a = v[i], b = v[i + apart];
                v[i] = a + b;
                v[i + apart] = a - b;
            }
        }
    }
    const long double root = std::sqrt(static_cast<long double>(n));
    std::for_each(v.begin(), v.end(), [&](long double &value) { value /= root; });
    std::fill(head.bound.begin(), head.bound.end(), allowed);
    std::fill(head.length.begin(), head.length.end(), std::sqrt(2.0L) * length_of(v) / root);  // as a pair on average
}

/// Half the distance of the numbers there.
long double half_ulp(std::int64_t dtype, long double value) {
    const int n_fraction = dtype == HALYARD_F16 ? 10 : dtype == HALYARD_BF16 ? 7 : 3;
    const int least = dtype == HALYARD_F16 ? -14 : dtype == HALYARD_BF16 ? -126 : -6;
    return std::ldexp(0.5L, std::max(value > 0 ? std::ilogb(value) : least, least) - n_fraction);
}

/// Of q8_0: a scale is a 127th of the group's largest value, rounded to f16, and elements are rounded by it before
/// that.
long double rounding_in_record(const Head &head, std::size_t j) {
    constexpr long double half_ulp_of_scale = 0x1p-11L * 1.001L;
    long double largest = 0;
    const std::size_t first = j - j % group_size;
    for (std::size_t i = first; i < first + group_size; i++) {
        largest = std::max(largest, std::fabs(head.value[i]) + head.bound[i]);
    }
    return 0.5L * largest / 127 * (1 + half_ulp_of_scale) +
           half_ulp_of_scale * (std::fabs(head.value[j]) + head.bound[j]);
}

/// cos and sin of a token's pairs.
struct Turn {
    Values cos, sin;
    Turn(const bench_work &work, std::int64_t token) {
        for (std::int64_t k = 0; k < work.desc.rotary_dim / 2; k++) {
            const long double theta = angle(work.desc.rotary_dim, work.positions[static_cast<std::size_t>(token)], k);
            cos.push_back(std::cos(theta));
            sin.push_back(std::sin(theta));
        }
    }
};

void norm(const bench_work &work, std::int64_t p, Head &head) {
    const auto n = static_cast<std::size_t>(work.desc.parts[p].norm_size);
    const long double squares = std::inner_product(&head.value[0], &head.value[n], &head.value[0], 0.0L);
    const long double r = 1 / std::sqrt(squares / static_cast<long double>(n) + eps);
    for (std::size_t j = 0; j < n; j++) {
        head.value[j] *= r * work.read_weight(p, static_cast<std::int64_t>(j));
    }
}

/// Sets what elements may be off by: c units in the last place of a pair's length, beyond what they were off by.
void rotate(const bench_work &work, std::int64_t p, const Turn &turn, long double c, Head &head) {
    const bench_part &part = work.desc.parts[p];
    const auto n_pairs = part.rotates ? static_cast<std::size_t>(work.desc.rotary_dim / 2) : 0;
    const auto first = static_cast<std::size_t>(part.rotary_offset);
    const Values x = head.value, off = head.bound;
    for (std::size_t j = 0; j < x.size(); j++) {
        head.length[j] = std::fabs(x[j]);
    }
    const auto places = [&](bool half, std::size_t k) {
        return half ? std::pair(first + k, first + k + n_pairs) : std::pair(first + 2 * k, first + 2 * k + 1);
    };
    for (std::size_t k = 0; k < n_pairs; k++) {
        const auto [from0, from1] = places(work.is_half(), k);
        const auto [to0, to1] = places(work.is_half_out(), k);
        head.value[to0] = x[from0] * turn.cos[k] - x[from1] * turn.sin[k];
        head.value[to1] = x[from0] * turn.sin[k] + x[from1] * turn.cos[k];
        head.length[to0] = head.length[to1] = std::hypot(x[from0], x[from1]);
        head.bound[to0] = head.bound[to1] = std::hypot(off[from0], off[from1]);
    }
    for (std::size_t j = 0; j < x.size(); j++) {
        head.bound[j] += c * ulp * head.length[j] + 0x1p-149L;
    }
}

Head expect_head(const bench_work &work, std::int64_t p, std::int64_t token, std::int64_t h, const Turn &turn,
                 bool norms) {
    const bench_part &part = work.desc.parts[p];
    const auto n = static_cast<std::size_t>(part.head_dim);
    Head head = {Values(n), Values(n), Values(n)};
    for (std::size_t j = 0; j < n; j++) {
        head.value[j] = work.first_x(p, token, h, static_cast<std::int64_t>(j));
    }
    const bool is_transformed = work.desc.hadamard && part.is_cached;
    if (is_transformed && work.is_shift()) {
        transform(head);
    }
    long double c = 2;
    if (norms && part.norm_size > 0) {
        norm(work, p, head);
        c += 4 + (static_cast<long double>(part.norm_size) / 16 + 5) / 2;
    }
    rotate(work, p, turn, c, head);
    if (is_transformed) {
        transform(head);
    }
    return head;
}

void add_stored(const bench_work &work, std::int64_t p, const Head &head, std::vector<bench_work::Element> &elements) {
    const std::int64_t dtype = work.stored_type(p);
    const bool is_scaled = dtype == HALYARD_E4M3 && !work.is_shift();
    const long double unit = is_scaled ? scale : 1.0L, most = dtype == HALYARD_E4M3 ? 448.0L : INFINITY;
    for (std::size_t j = 0; j < head.value.size(); j++) {
        const long double value = std::clamp(head.value[j] / unit, -most, most);
        const long double bound = head.bound[j] / unit + (is_scaled ? 2 * ulp * std::fabs(value) : 0);
        const long double rounding = is_records(dtype)      ? rounding_in_record(head, j)
                                     : dtype == HALYARD_F32 ? 0
                                                            : half_ulp(dtype, std::fabs(value) + bound);
        elements.push_back({static_cast<double>(value), static_cast<double>(bound + rounding),
                            static_cast<double>(head.length[j] / unit), static_cast<double>(rounding)});
    }
}

/// Calls visit(part, token, head) for the heads that are compared.
template <typename Visit>
void visit_heads(const bench_work &work, const Visit &visit) {
    const std::int64_t n_checked = std::min<std::int64_t>(work.desc.tokens, 64);
    for (std::int64_t i = 0; i < n_checked; i++) {
        const std::int64_t token = n_checked == 1 ? 0 : i * (work.desc.tokens - 1) / (n_checked - 1);
        for (std::int64_t p = 0; p < work.desc.n_parts; p++) {
            for (std::int64_t h = 0; h < work.desc.parts[p].heads; h++) {
                visit(p, token, h);
            }
        }
    }
}

}  // namespace

long double angle(std::int64_t rotary_dim, std::int64_t position, std::int64_t k) {
    return static_cast<long double>(position) *
           std::pow(10000.0L, -2.0L * static_cast<long double>(k) / static_cast<long double>(rotary_dim));
}

std::int64_t check(bench_work &work, double slack, bool norms, double &max_error) {
    std::vector<bench_work::Element> &expected = work.expected[norms ? 1 : 0];
    if (expected.empty()) {
        std::int64_t at = -1;
        std::unique_ptr<Turn> turn;
        visit_heads(work, [&](std::int64_t p, std::int64_t token, std::int64_t h) {
            if (token != at) {
                turn = std::make_unique<Turn>(work, at = token);
            }
            add_stored(work, p, expect_head(work, p, token, h, *turn, norms), expected);
        });
    }
    std::int64_t n_wrong = 0;
    const bench_work::Element *element = expected.data();
    max_error = 0.0;
    visit_heads(work, [&](std::int64_t p, std::int64_t token, std::int64_t h) {
        for (std::int64_t j = 0; j < work.desc.parts[p].head_dim; j++, element++) {
            const double error = std::fabs(work.read_y(p, token, h, j) - element->value);
            n_wrong += error <= element->bound + slack * element->length ? 0 : 1;
            const double relative = (error - (work.is_kv() ? element->rounding : 0.0)) / element->length;
            max_error = std::isnan(error)       ? INFINITY
                        : element->length > 0.0 ? std::max(max_error, relative)
                                                : max_error;
        }
    });
    return n_wrong;
}

}  // namespace bench
