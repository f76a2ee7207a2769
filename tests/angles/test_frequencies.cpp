// Frequencies from a base and from a list: bad arguments are refused, and the limits themselves are accepted.
// test_error_struct.cpp tests NULL for each argument.
#include "checks/make_sources.h"
#include "refused.h"

#include <limits>

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Checks that create(&out, error) fails with this status and does not change `out`.
void refuse(halyard_status status, const Words &words, const auto &create) {
    auto *const untouched = reinterpret_cast<halyard_frequencies *>(16);
    halyard_frequencies *out = untouched;
    check_refused(status, words, [&](auto *error) { return create(&out, error); });
    CHECK(out == untouched);
}

void refuse_base(halyard_status status, const Words &words, double base, std::int64_t rotary_dim) {
    CAPTURE(base, rotary_dim);
    refuse(status, words, [=](auto... to) { return halyard_create_frequencies_from_base(base, rotary_dim, to...); });
}

void refuse_list(halyard_status status, const Words &words, std::int64_t n_pairs, double second = 0.5,
                 double factor = 1.0) {
    CAPTURE(n_pairs, second, factor);
    const double list[] = {1, second};
    refuse(status, words,
           [&](auto... to) { return halyard_create_frequencies_from_list(list, n_pairs, factor, to...); });
}

}  // namespace

TEST_CASE("frequencies: arguments are checked", "[angles]") {
    for (const double base : {0.0, -1.0, infinity, -infinity, not_a_number}) {
        refuse_base(HALYARD_ERROR_FREQUENCY, {"base is", "finite and greater than 0"}, base, 128);
    }
    refuse_base(HALYARD_ERROR_FREQUENCY, {"base is nan"}, -not_a_number, 128);
    refuse_base(HALYARD_ERROR_FREQUENCY, {"base is"}, 5e-324, 128);
    refuse_base(HALYARD_ERROR_FREQUENCY, {}, 0x1.fp-41, 4);  // inv_freq[1] is just above 2^20
    for (const std::int64_t rotary_dim : Numbers{0, -2, 1, 127, (1 << 20) + 2, INT64_MIN}) {
        refuse_base(HALYARD_ERROR_ROTARY_DIM, {text(rotary_dim)}, 10000, rotary_dim);
    }
    for (const std::int64_t n_pairs : Numbers{0, -1, (1 << 19) + 1}) {
        refuse_list(HALYARD_ERROR_ROTARY_DIM, {}, n_pairs);
    }
    for (const double value : {infinity, -infinity, not_a_number, 0x1p20 + 1, -0x1p20 - 1}) {
        refuse_list(HALYARD_ERROR_FREQUENCY, {"inv_freq[1]"}, 2, value);
    }
    for (const double factor : {0.0, -1.0, infinity, not_a_number, 0x1p61, 0x1.fffffp-61, 1e-40}) {
        refuse_list(HALYARD_ERROR_FREQUENCY, {}, 2, 0.5, factor);
    }
}

TEST_CASE("frequencies: limits are inside", "[angles]") {
    const auto from_base = halyard::frequencies::from_base;
    CHECK(from_base(0x1p20, std::int64_t{1} << 20).get()->n_pairs == 1 << 19);
    CHECK(from_base(1e-300, 2).get()->inv_freq[0].hi == 1.0);  // inv_freq[0] is base^0
    CHECK(from_base(0x1p-40, 4).get()->inv_freq[1].hi == 0x1p20);
    CHECK(from_base(std::numeric_limits<double>::max(), 64).get()->inv_freq[31].hi > 0);
    CHECK(make_frequencies({0x1p20, -0x1p20}, 0x1p60).get()->n_pairs == 2);
    CHECK(make_frequencies({1.0}, 0x1p-60).get()->n_pairs == 1);
    const std::vector<double> list = {0x1.23456789abcdep-7, -3.0, 1e-310};
    const auto given = make_frequencies(list, 1.5);
    const auto info = given.info();
    CHECK((info.rotary_dim == 6 && info.attention_factor == 1.5 && info.method == std::string("list")));
    CHECK(std::vector<double>(info.inv_freq, info.inv_freq + 3) == list);
}
