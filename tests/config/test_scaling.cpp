// Compares the scaling methods with their formulas, which are repeated here in long double; and checks that bad
// arguments are refused.
#include "refused.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace {

using S = halyard_scaling;

constexpr std::int32_t by_default = HALYARD_SCALING_DEFAULT, linear = HALYARD_SCALING_LINEAR, ntk = HALYARD_SCALING_NTK,
                       dynamic = HALYARD_SCALING_DYNAMIC_NTK, yarn = HALYARD_SCALING_YARN,
                       llama3 = HALYARD_SCALING_LLAMA3, longrope = HALYARD_SCALING_LONGROPE,
                       proportional = HALYARD_SCALING_PROPORTIONAL;
using Methods = std::vector<std::int32_t>;
const Methods all = {by_default, linear, ntk, dynamic, yarn, llama3, longrope, proportional};

/// A valid scaling by a method.
halyard_scaling describe(std::int32_t method) {
    static const std::vector<double> short_list(512, 1.25), long_list = [] {
        std::vector<double> values;
        for (int k = 0; k < 512; ++k) {
            values.push_back(1.0 + 0.7 * k);
        }
        return values;
    }();
    auto scaling = sized<halyard_scaling>();
    scaling.method = method;
    scaling.base = 500000.0;
    scaling.rotary_dim = 128;
    scaling.factor = 8.0;
    scaling.original_max_position = 8192;
    scaling.max_position = 131072;
    scaling.low_freq_factor = 1.0;
    scaling.high_freq_factor = 4.0;
    scaling.short_factor = short_list.data();
    scaling.long_factor = long_list.data();
    scaling.n_factors = scaling.rotary_dim / 2;
    return scaling;
}

// ---- The formulas in long double ------------------------------------------------------------------------------

long double clamp(long double value) { return std::min(std::max(value, 0.0L), 1.0L); }

long double exact_inv_freq(const halyard_scaling &s, std::int64_t k) {
    const long double pi = 3.14159265358979323846264338327950288L;
    const long double d = s.rotary_dim;
    const long double e = s.exponent_dim == 0 ? d : static_cast<long double>(s.exponent_dim);
    const long double trained = s.original_max_position;
    const auto power = [&](long double base) { return std::pow(base, -2.0L * k / e); };
    const long double t = power(s.base);
    const auto pair_of = [&](long double turns) {
        return e * std::log(trained / (turns * 2 * pi)) / (2 * std::log(static_cast<long double>(s.base)));
    };
    switch (s.method) {
    case linear: return t / s.factor;
    case ntk: return power(s.base * std::pow(static_cast<long double>(s.factor), e / (d - 2)));
    case dynamic: {
        const long double length = std::max(s.seq_len, s.original_max_position);
        return power(s.base * std::pow(s.factor * length / trained - (s.factor - 1.0L), e / (d - 2)));
    }
    case yarn: {
        const long double factor = s.factor != 0 ? static_cast<long double>(s.factor) : s.max_position / trained;
        long double low = pair_of(s.beta_fast == 0 ? 32.0L : static_cast<long double>(s.beta_fast));
        long double high = pair_of(s.beta_slow == 0 ? 1.0L : static_cast<long double>(s.beta_slow));
        low = std::max(s.no_truncate != 0 ? low : std::floor(low), 0.0L);
        high = std::min(s.no_truncate != 0 ? high : std::ceil(high), d - 1);
        high += low == high ? 0.001L : 0.0L;
        const long double r = clamp((k - low) / (high - low));
        return t / factor * r + t * (1 - r);
    }
    case llama3: {
        const long double wavelength = 2 * pi / t;
        if (wavelength > trained / s.low_freq_factor) {
            return t / s.factor;
        }
        if (wavelength < trained / s.high_freq_factor) {
            return t;
        }
        const long double smooth =
            (trained / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        return (1 - smooth) * t / s.factor + smooth * t;
    }
    case longrope: return t / (s.seq_len > s.original_max_position ? s.long_factor : s.short_factor)[k];
    case proportional: {
        const std::int64_t rotated = s.rotated_dim == 0 ? s.rotary_dim : s.rotated_dim;
        return k < rotated / 2 ? t / (s.factor == 0 ? 1 : s.factor) : 0;
    }
    default: return t;
    }
}

double exact_attention_factor(const halyard_scaling &s) {
    const double factor =
        s.factor != 0 ? s.factor : static_cast<double>(s.max_position) / static_cast<double>(s.original_max_position);
    const auto magnitude = [&](double mscale) { return 0.1 * mscale * std::log(factor) + 1.0; };
    if (s.attention_factor != 0) {
        return s.attention_factor;
    }
    if (s.method == yarn) {
        return s.mscale != 0 && s.mscale_all_dim != 0 ? magnitude(s.mscale) / magnitude(s.mscale_all_dim)
                                                      : magnitude(1);
    }
    if (s.method == longrope && factor > 1) {
        return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(s.original_max_position)));
    }
    return 1.0;
}

constexpr const char *names[] = {"default", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope", "proportional"};

void check_against_formula(const halyard_scaling &scaling) {
    CAPTURE(scaling.method, scaling.base, scaling.rotary_dim, scaling.exponent_dim, scaling.rotated_dim, scaling.factor,
            scaling.original_max_position, scaling.seq_len, scaling.no_truncate);
    const auto frequencies = halyard::frequencies::from_scaling(scaling);
    const auto info = frequencies.info();
    CHECK((info.rotary_dim == scaling.rotary_dim && info.method == std::string(names[scaling.method])));
    CHECK(std::fabs(info.attention_factor / exact_attention_factor(scaling) - 1.0) < 1e-14);
    long double worst = 0;
    for (std::int64_t k = 0; k < scaling.rotary_dim / 2; ++k) {
        const long double exact = exact_inv_freq(scaling, k);
        if (exact < std::numeric_limits<double>::min()) {
            CHECK((info.inv_freq[k] >= 0 && info.inv_freq[k] <= std::numeric_limits<double>::min()));
            CHECK((exact > 0 || info.inv_freq[k] == 0));
            continue;
        }
        worst = std::max(worst, std::fabs(info.inv_freq[k] / exact - 1));
    }
    // Half an ulp of double. The oracle itself is less exact if long double is only double, or if its pow is inexact.
    CHECK(worst < (std::numeric_limits<long double>::digits > 53 ? 1.2e-16L : 1e-14L));
}

}  // namespace

TEST_CASE("scaling: every method follows its formula, at the ends of the numbers too", "[scaling]") {
    constexpr std::int64_t most_tokens = std::int64_t{1} << 53;
    constexpr struct {
        std::int64_t rotary_dim, original_max_position, seq_len;
    } widths[] = {
        {4, 2, most_tokens}, {8, most_tokens, most_tokens}, {20, 100, 100000}, {64, 4096, 100000}, {96, 4096, 4096},
        {128, 4096, 4097},   {1024, 4096, 100000}};
    for (const auto method : all) {
        for (const double base : {10000.0, 500000.0, 1e6, 1.5, 1.0000000001, 1.7e308}) {
            for (const auto &width : widths) {
                for (const double factor : {1.0, 4.0, 32.5, 0x1p60}) {
                    auto scaling = describe(method);
                    scaling.base = base;
                    scaling.rotary_dim = width.rotary_dim;
                    scaling.n_factors = width.rotary_dim / 2;
                    scaling.factor = factor;
                    scaling.original_max_position = width.original_max_position;
                    scaling.seq_len = width.seq_len;
                    check_against_formula(scaling);
                }
            }
        }
        auto scaling = describe(method);
        scaling.exponent_dim = 160;  // exponents as for a wider head
        check_against_formula(scaling);
        scaling.exponent_dim = 2;  // or as for a narrower one
        check_against_formula(scaling);
        scaling.attention_factor = 1.75;
        check_against_formula(scaling);
    }
}

TEST_CASE("scaling: options of the methods", "[scaling]") {
    const std::pair<std::int32_t, void (*)(S &)> options[] = {
        {yarn, [](S &s) { s.no_truncate = 1; }},
        {yarn, [](S &s) { s.beta_fast = s.beta_slow = 4.0; }},
        {yarn, [](S &s) { s.no_truncate = 1, s.beta_fast = s.beta_slow = 4.0; }},
        {yarn, [](S &s) { s.factor = 0.0; }},  // 0: max_position / original_max_position
        {yarn, [](S &s) { s.mscale = 0.707; }},
        {yarn, [](S &s) { s.mscale = 0.707, s.mscale_all_dim = 0.5; }},
        {yarn, [](S &s) { s.mscale = s.mscale_all_dim = 1.0; }},
        {llama3, [](S &s) { s.high_freq_factor = s.low_freq_factor; }},  // as Llama 4
        {longrope, [](S &s) { s.factor = 0.0; }},
        {longrope, [](S &s) { s.factor = 0.0, s.max_position = 4096; }},  // shorter than the original context
        // log(original_max_position) is 0, but nothing divides by it here: attention_factor is 1 or given.
        {longrope, [](S &s) { s.original_max_position = 1, s.factor = 1.0; }},
        {longrope, [](S &s) { s.original_max_position = 1, s.attention_factor = 1.5; }},
        {proportional, [](S &s) { s.rotated_dim = 32; }},
        {proportional, [](S &s) { s.rotated_dim = 32, s.factor = 0.0; }},
        {linear, [](S &s) { s.rotary_dim = 2; }},
        {yarn, [](S &s) { s.rotary_dim = 2; }},
        {llama3, [](S &s) { s.rotary_dim = 2; }},
    };
    for (const auto &[method, change] : options) {
        auto scaling = describe(method);
        change(scaling);
        check_against_formula(scaling);
    }
    // Fields that a method does not read may hold anything.
    auto scaling = describe(by_default);
    scaling.factor = scaling.beta_fast = scaling.beta_slow = scaling.mscale = scaling.mscale_all_dim = NAN;
    scaling.low_freq_factor = scaling.high_freq_factor = NAN;
    scaling.original_max_position = scaling.max_position = scaling.seq_len = scaling.n_factors = -1;
    scaling.rotated_dim = -7;
    scaling.short_factor = scaling.long_factor = nullptr;
    CHECK(halyard::frequencies::from_scaling(scaling).info().inv_freq[0] == 1.0);
}

namespace {

/// Checks that a valid scaling of each of these methods is refused after change().
void refuse(const Methods &methods, halyard_status status, const char *word, const std::function<void(S &)> &change) {
    auto *const untouched = reinterpret_cast<halyard_frequencies *>(0x1234);
    halyard_frequencies *out = untouched;
    for (const auto method : methods) {
        auto scaling = describe(method);
        change(scaling);
        CAPTURE(method, word);
        check_refused(status, {word},
                      [&](auto *error) { return halyard_create_frequencies_from_scaling(&scaling, &out, error); });
        CHECK(out == untouched);
    }
}

/// The same, after setting a field to each of these values.
template <typename Field>
void refuse(const Methods &methods, halyard_status status, const char *word, Field S::*field,
            std::initializer_list<std::type_identity_t<Field>> values) {
    for (const Field value : values) {
        refuse(methods, status, word, [=](S &s) { s.*field = value; });
    }
}

}  // namespace

TEST_CASE("scaling: bad arguments of any method", "[scaling][errors]") {
    constexpr std::int64_t most = INT64_MAX, least = INT64_MIN, widest = std::int64_t{1} << 20;
    constexpr auto unknown = HALYARD_ERROR_UNKNOWN_VALUE, width = HALYARD_ERROR_ROTARY_DIM, shape = HALYARD_ERROR_SHAPE,
                   range = HALYARD_ERROR_FREQUENCY, null = HALYARD_ERROR_NULL_POINTER;
    constexpr double infinity = HUGE_VAL;
    refuse(all, HALYARD_ERROR_STRUCT_SIZE, "size", &S::size, {0, 8, sizeof(S) - 1, sizeof(S) + 1});
    refuse({by_default}, unknown, "method", &S::method, {-1, 8, INT32_MAX, INT32_MIN});
    refuse(all, unknown, "no_truncate", &S::no_truncate, {2, -1});
    refuse(all, unknown, "reserved", &S::reserved, {1});
    refuse(all, range, "base", &S::base, {0.0, -1.0, NAN, infinity, -infinity, 1e-300});
    refuse(all, range, "attention_factor", &S::attention_factor, {-1.0, NAN, infinity, 1e30, 1e-40});
    refuse(all, width, "rotary_dim", &S::rotary_dim, {0, -2, 1, 127, widest + 2, most, least});
    refuse(all, width, "exponent_dim", &S::exponent_dim, {-1, 1, widest + 1, least});
    refuse({proportional}, width, "rotated_dim", &S::rotated_dim, {-2, 1, 3, 130, most});
    refuse({ntk, dynamic}, width, "rotary_dim", &S::rotary_dim, {2});
    refuse({all.begin() + 1, all.end()}, range, "factor", &S::factor, {0.5, -1.0, NAN, infinity, 1e30});
    refuse({linear, ntk, dynamic, llama3}, range, "factor", &S::factor, {0.0});
    refuse({dynamic, yarn, llama3, longrope}, shape, "original_max_position", &S::original_max_position,
           {0, -1, most, least});
    refuse({dynamic, longrope}, shape, "seq_len", &S::seq_len, {-1, most, least});
    refuse({yarn, longrope}, shape, "max_position", [](S &s) { s.factor = 0, s.max_position = 0; });
    refuse({yarn}, shape, "max_position", [](S &s) { s.factor = 0, s.max_position = s.original_max_position - 1; });
    refuse({yarn}, range, "base", &S::base, {1.0, 0.999});
    refuse({yarn}, range, "beta_fast", &S::beta_fast, {-1.0, NAN, infinity, 1e300, 1e-300, 0.5});
    refuse({yarn}, range, "beta_slow", &S::beta_slow, {-1.0, NAN, infinity, 1e300, 1e-300, 33.0});
    refuse({yarn}, range, "mscale", &S::mscale, {NAN, infinity, -infinity});
    refuse({yarn}, range, "mscale_all_dim", &S::mscale_all_dim, {NAN, infinity, -infinity});
    refuse({yarn}, range, "mscale", [](S &s) { s.mscale = -20, s.mscale_all_dim = 1; });
    refuse({llama3}, range, "low_freq_factor", &S::low_freq_factor, {0.0, -1.0, NAN, infinity});
    refuse({llama3}, range, "high_freq_factor", &S::high_freq_factor, {0.0, 0.5, -1.0, NAN, infinity});
    refuse({longrope}, shape, "n_factors", &S::n_factors, {0, 63, 65, -1, most});
    refuse({longrope}, null, "short_factor", &S::short_factor, {nullptr});
    refuse({longrope}, null, "long_factor", &S::long_factor, {nullptr});
    refuse({longrope}, shape, "original_max_position", &S::original_max_position, {1});
    std::vector<double> list(64, 1.0);
    for (const double value : {0.0, -1.0, double{NAN}, infinity, 1e30, 1e-30}) {
        list.back() = value;
        refuse({longrope}, range, "long_factor[63]", &S::long_factor, {list.data()});
    }
}
