// Golden rotations, on every target of this machine, in place and out of place.
#include "checks/make_sources.h"
#include "data/golden_elements.h"

#include <catch2/generators/catch_generators_all.hpp>

#include <cmath>
#include <string>

namespace {

using nlohmann::json;

/// The exact value of each element of the output, and how far off it may be.
struct Exact {
    std::vector<long double> y, bound;
};

/// angle(token, k) gives exact cos and sin, f included; bound(x, exact) how far off an output may be.
template <typename Angle, typename Bound>
Exact rotate_exactly(const Rotation &rotation, const Elements &x, Angle angle, Bound bound) {
    Exact exact;
    exact.y.resize(static_cast<std::size_t>(x.count()));
    exact.bound.assign(exact.y.size(), 0);
    for (std::int64_t i = 0; i < x.count(); i++) {
        exact.y[static_cast<std::size_t>(i)] = x[i];  // the window is overwritten below
    }
    for (std::int64_t token = 0; token < x.shape[1]; token++) {
        for (std::int64_t k = 0; k < rotation.rotary_dim / 2; k++) {
            const oracle::Pair<long double> cos_sin = angle(token, k);
            const long double sin = rotation.inverse ? -cos_sin.x1 : cos_sin.x1;
            for (std::int64_t head = 0; head < x.shape[2]; head++) {
                const std::int64_t at = (token * x.shape[2] + head) * x.shape[3];
                const oracle::Pair<long double> pair = {x[at + rotation.index(rotation.pairing, k, 0)],
                                                        x[at + rotation.index(rotation.pairing, k, 1)]};
                const auto turned = oracle::rotate_exactly(pair, cos_sin.x0, sin);
                for (const int member : {0, 1}) {
                    const auto i =
                        static_cast<std::size_t>(at + rotation.index(rotation.pairing_of_output(), k, member));
                    const oracle::Pair<long double> seen =
                        member == 0 ? pair : oracle::Pair<long double>{pair.x1, pair.x0};
                    exact.y[i] = member == 0 ? turned.x0 : turned.x1;
                    exact.bound[i] = bound(seen, cos_sin, exact.y[i]);
                }
            }
        }
    }
    return exact;
}

/// The bound that halyard.h promises.
auto promised(std::int32_t dtype, long double attention_factor) {
    return [=](oracle::Pair<long double> x, oracle::Pair<long double>, long double exact) {
        return oracle::promised_bound(dtype, x, attention_factor, exact);
    };
}

/// The bound of a kernel whose cos and sin are given.
auto of_kernel(std::int32_t dtype) {
    return [=](oracle::Pair<long double> x, oracle::Pair<long double> cos_sin, long double exact) {
        const long double magnitude = std::fabs(x.x0 * cos_sin.x0) + std::fabs(x.x1 * cos_sin.x1);
        return oracle::kernel_bound(dtype, magnitude, exact);
    };
}

/// How many elements are farther off than `times` their bound plus `more`; outside the window the bound is 0.
template <typename Actual>
int count_beyond(const Exact &exact, Actual actual, long double times, long double more) {
    int n = 0;
    for (std::size_t i = 0; i < exact.y.size(); i++) {
        const long double value = actual(static_cast<std::int64_t>(i));
        n += std::fabs(value - exact.y[i]) <= times * exact.bound[i] + more ? 0 : 1;
    }
    return n;
}

int count_beyond(const Exact &exact, const Elements &actual, long double times = 1, long double more = 0) {
    return count_beyond(
        exact, [&](std::int64_t i) { return actual[i]; }, times, more);
}

/// Rotates x on every target, in place where that is possible and out of place, and compares.
void check_all_ways(Rotation rotation, const halyard::angle_source &angles, const halyard_positions *positions,
                    const Elements &x, const Exact &exact) {
    for (const char *target : targets_here()) {
        rotation.target = target;
        for (const bool in_place : {false, true}) {
            if (in_place && rotation.pairing != rotation.pairing_of_output()) {
                continue;
            }
            INFO(target << (in_place ? ", in place" : ", out of place"));
            CHECK(count_beyond(exact, rotate(rotation, angles, positions, x, in_place)) == 0);
        }
    }
}

}  // namespace

TEST_CASE("golden apply", "[golden]") {
    const golden::Storage storage = GENERATE(from_range(golden::storages));
    const golden::Section section("apply");
    REQUIRE(section.cases().size() == 44);
    for (const json &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>() << ", " << storage.name);
        Rotation rotation = golden::rotation_of(entry);
        rotation.dtype = storage.dtype;
        const auto positions = section.array<std::int64_t>(entry.at("positions"));
        const Elements x = golden::read_elements(section, entry.at(std::string("x_") + storage.name), storage.dtype);
        const Elements y = golden::read_elements(section, entry.at(std::string("y_") + storage.name), storage.dtype);

        // The library has attention_factor with listed frequencies only; a list is rounded to double.
        const double base = entry.at("base"), factor = entry.at("attention_factor");
        std::vector<long double> inv_freq = oracle::inv_freq_of(base, rotation.rotary_dim);
        auto frequencies = halyard::frequencies::from_base(base, rotation.rotary_dim);
        if (factor != 1.0) {
            const std::vector<double> list(inv_freq.begin(), inv_freq.end());
            inv_freq.assign(list.begin(), list.end());
            frequencies = make_frequencies(list, factor);
        }
        const auto angle = [&](std::int64_t token, std::int64_t k) {
            const long double theta = static_cast<long double>(positions.values[static_cast<std::size_t>(token)]) *
                                      inv_freq[static_cast<std::size_t>(k)];
            return oracle::Pair<long double>{factor * std::cos(theta), factor * std::sin(theta)};
        };
        const Exact exact = rotate_exactly(rotation, x, angle, promised(storage.dtype, factor));
        // The golden y is exact and rounded once. It differs from this oracle also by the last bit of long double in
        // theta < 2^21, and by the rounding of the list, each times |x0| + |x1| < 2^6.
        const Exact rounded = rotate_exactly(
            rotation, x, angle, [&](auto, auto, long double value) { return oracle::half_ulp(storage.dtype, value); });
        CHECK(count_beyond(rounded, y, 1, factor == 1.0 ? 0x1p-36L : 0x1p-26L) == 0);

        const auto given = positions_of(positions.values);
        check_all_ways(rotation, make_listed_table(frequencies, positions.values), &given, x, exact);
    }
}

TEST_CASE("golden seeds", "[golden]") {
    const golden::Section section("seeds");
    const json entry = section.find_case("numpy_seed3");
    const Rotation rotation = golden::rotation_of(entry);
    const auto x64 = section.array<double>("numpy_seed3.x"), y64 = section.array<double>("numpy_seed3.y");
    const Elements x(HALYARD_F32, {1, 5, 1, 4}, std::vector<float>(x64.values.begin(), x64.values.end()));
    const auto inv_freq = oracle::inv_freq_of(entry.at("base").get<double>(), 4);
    const Exact exact = rotate_exactly(
        rotation, x,
        [&](std::int64_t token, std::int64_t k) {
            const long double theta = token * inv_freq[static_cast<std::size_t>(k)];
            return oracle::Pair<long double>{std::cos(theta), std::sin(theta)};
        },
        promised(HALYARD_F32, 1));
    // The golden x is not rounded to float32: that moves |x0|, |x1| < 2 by 2^-24 each.
    const auto golden_y = [&](std::int64_t i) { return y64.values[static_cast<std::size_t>(i)]; };
    CHECK(count_beyond(exact, golden_y, 0, 2 * 0x1p-24L) == 0);
    const auto angles =
        halyard::angle_source::table(halyard::frequencies::from_base(entry.at("base").get<double>(), 4), 0, 4);
    check_all_ways(rotation, angles, nullptr, x, exact);

    const json cos_sin = section.find_case("cos_sin_at_position");
    const auto cos = section.array<double>("cs.cos"), sin = section.array<double>("cs.sin");
    const std::int32_t position = cos_sin.at("position");
    const auto at = halyard::positions(&position, {1, 1});
    float rows[8];
    halyard::make_rows(plan_for(8), halyard::angle_source::table(halyard::frequencies::from_base(100, 8), 0, 3), &at, 1,
                       1, rows, 8);
    for (std::size_t k = 0; k < 4; k++) {
        CHECK(rows[k] == static_cast<float>(cos.values[k]));
        CHECK(rows[4 + k] == static_cast<float>(sin.values[k]));
    }
}

TEST_CASE("golden hf_apply, exact frequencies", "[golden]") {
    const golden::Section section("hf_apply"), frequencies_section("frequencies");
    for (const json &entry : section.cases()) {
        // The first evaluation is the one without a length, since all positions are below the original maximum.
        const json frequencies_case = frequencies_section.find_case(entry.at("frequencies_case"));
        const json evaluation = frequencies_case.at("evaluations").at(0);
        const auto list =
            frequencies_section.array<double>(evaluation.at("inv_freq_exact_f64").get<std::string>()).values;
        const double factor = evaluation.at("attention_factor_exact_f64");
        const auto frequencies = make_frequencies(list, factor);
        const auto positions = section.array<std::int64_t>(entry.at("positions"));
        const auto given = positions_of(positions.values);
        const Rotation rotation = golden::rotation_of(entry);
        for (const char *name : {"q", "k"}) {
            INFO(entry.at("name").get<std::string>() << ", " << name);
            const Elements x = golden::read_elements(section, entry.at(name), HALYARD_F32);
            const Elements want = golden::read_elements(section, entry.at(std::string(name) + "_exact"), HALYARD_F32);
            const Exact exact = rotate_exactly(
                rotation, x,
                [&](std::int64_t token, std::int64_t k) {
                    const long double theta = static_cast<long double>(list[static_cast<std::size_t>(k)]) *
                                              positions.values[static_cast<std::size_t>(token)];
                    return oracle::Pair<long double>{factor * std::cos(theta), factor * std::sin(theta)};
                },
                promised(HALYARD_F32, factor));
            // The bound of two eps leaves room for the rounding of the golden y and of the list.
            CHECK(count_beyond(exact, want) == 0);
            check_all_ways(rotation, make_listed_table(frequencies, positions.values), &given, x, exact);
        }
    }
}

TEST_CASE("golden hf_apply and mrope, given cos and sin", "[golden]") {
    const auto [name, inputs] = GENERATE(table<const char *, std::vector<std::vector<std::string>>>(
        {{"hf_apply", {{"q", "q_out"}, {"k", "k_out"}}}, {"mrope", {{"x", "y"}}}}));
    const golden::Section section(name);
    for (const json &entry : section.cases()) {
        const Rotation rotation = golden::rotation_of(entry);
        const auto cos = section.array<float>(entry.at("cos")), sin = section.array<float>(entry.at("sin"));
        const auto source = halyard::angle_source::given(cos.values.data(), sin.values.data(), cos.shape[0],
                                                         cos.shape[1], rotation.rotary_dim);
        for (const auto &names : inputs) {
            INFO(entry.at("name").get<std::string>() << ", " << names[0]);
            const Elements x = golden::read_elements(section, entry.at(names[0]), HALYARD_F32);
            const Elements theirs = golden::read_elements(section, entry.at(names[1]), HALYARD_F32);
            const Exact exact = rotate_exactly(
                rotation, x,
                [&](std::int64_t token, std::int64_t k) {
                    const auto at = static_cast<std::size_t>(token * cos.shape[1] + k);
                    return oracle::Pair<long double>{cos.values[at], sin.values[at]};
                },
                of_kernel(HALYARD_F32));
            // transformers rounds as often as a kernel does.
            CHECK(count_beyond(exact, theirs) == 0);
            check_all_ways(rotation, source, nullptr, x, exact);
        }
    }
}

TEST_CASE("golden mrope, exact, with rows put together from three axes", "[golden]") {
    const golden::Section section("mrope");
    for (const json &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const Rotation rotation = golden::rotation_of(entry);
        const std::int64_t n_pairs = rotation.rotary_dim / 2;
        const auto freq_dim = entry.at("freq_dim").get<double>();
        const auto axis_of_pair = entry.at("axis_of_pair").get<std::vector<std::int64_t>>();
        std::vector<double> list;
        for (const json &index : entry.at("inv_freq_index")) {
            list.push_back(static_cast<double>(std::pow(static_cast<long double>(entry.at("base").get<double>()),
                                                        -2.0L * index.get<std::int64_t>() / freq_dim)));
        }
        const auto positions = section.array<std::int64_t>(entry.at("positions"));
        const std::int64_t n_axes = positions.shape[0], n_tokens = positions.shape[1];
        const auto angles = make_listed_table(make_frequencies(list), positions.values);

        std::vector<float> rows(static_cast<std::size_t>(n_tokens * 2 * n_pairs)), of_axis(rows.size());
        for (std::int64_t axis = 0; axis < n_axes; axis++) {
            const auto of_tokens = halyard::positions(positions.values.data() + axis * n_tokens, {1, n_tokens});
            halyard::make_rows(plan_for(rotation.rotary_dim), angles, &of_tokens, 1, n_tokens, of_axis.data(),
                               static_cast<std::int64_t>(of_axis.size()));
            for (std::size_t i = 0; i < rows.size(); i++) {
                rows[i] = axis_of_pair[i % static_cast<std::size_t>(n_pairs)] == axis ? of_axis[i] : rows[i];
            }
        }
        const Elements x = golden::read_elements(section, entry.at("x"), HALYARD_F32);
        const Exact exact = rotate_exactly(
            rotation, x,
            [&](std::int64_t token, std::int64_t k) {
                const auto pair = static_cast<std::size_t>(k);
                const std::int64_t position =
                    positions.values[static_cast<std::size_t>(axis_of_pair[pair] * n_tokens + token)];
                const long double theta = static_cast<long double>(list[pair]) * position;
                return oracle::Pair<long double>{std::cos(theta), std::sin(theta)};
            },
            promised(HALYARD_F32, 1));
        CHECK(count_beyond(exact, golden::read_elements(section, entry.at("y_exact"), HALYARD_F32)) == 0);
        check_all_ways(rotation, halyard::angle_source::given_by_token(rows.data(), n_tokens, rotation.rotary_dim),
                       nullptr, x, exact);
    }
}
