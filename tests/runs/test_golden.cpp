// Golden rotations (tests/data/golden), on every target of this machine, in place and out of place.
#include "count_wrong.h"
#include "data/golden_elements.h"

#include <catch2/generators/catch_generators_all.hpp>

#include <cmath>
#include <string>

namespace {

using nlohmann::json;
using Pair = oracle::Pair<long double>;

/// Makes a `bound` for count_wrong: the error bound that halyard.h promises.
auto promised_bound_of(std::int32_t dtype, long double attention_factor) {
    return [=](Pair x, const ExactCosSin &, long double exact) {
        return oracle::promised_bound(dtype, x, attention_factor, exact);
    };
}

/// Makes a `bound` for count_wrong: the error bound of a kernel that is given exact cos and sin.
auto kernel_bound_of(std::int32_t dtype) {
    return [=](Pair x, const ExactCosSin &at, long double exact) {
        return oracle::kernel_bound(dtype, std::fabs(x.x0 * at.cos) + std::fabs(x.x1 * at.sin), exact);
    };
}

/// Rotates x on every target, in place (if possible) and out of place, and checks the results. See count_wrong for
/// exact_at and bound.
template <typename ExactAt, typename Bound>
void check_in_and_out_of_place(Rotation rotation, const halyard::angle_source &angles, const Elements &x,
                               const ExactAt &exact_at, const Bound &bound) {
    for (const char *target : targets_here()) {
        rotation.target = target;
        for (const bool in_place : {false, true}) {
            if (!in_place || rotation.pairing == rotation.pairing_of_output()) {
                INFO(target << (in_place ? ", in place" : ", out of place"));
                CHECK(count_wrong(rotation, x, rotate(rotation, angles, nullptr, x, in_place), exact_at, bound) == 0);
            }
        }
    }
}

/// Calls check_in_and_out_of_place with rows by token of frequencies, and exact angles made from inv_freq. Also checks
/// that the golden y, which is the exact result rounded once, differs from the oracle by at most the bound of_golden.
template <typename Bound>
void check_case(const Rotation &rotation, const halyard::frequencies &frequencies,
                const std::vector<long double> &inv_freq, const std::vector<std::int64_t> &positions, const Elements &x,
                const Elements &y, const Bound &of_golden) {
    const double factor = frequencies.info().attention_factor;
    const auto angle = [&](std::int64_t token, std::int64_t k) {
        const ExactCosSin at =
            exact_cos_sin(inv_freq[static_cast<std::size_t>(k)], positions[static_cast<std::size_t>(token)]);
        return ExactCosSin{factor * at.cos, factor * at.sin};
    };
    CHECK(count_wrong(rotation, x, y, angle, of_golden) == 0);
    const auto rows = table_rows_at(frequencies, positions);
    const auto source =
        halyard::angle_source::given_by_token(rows.data(), std::ssize(positions), rotation.rotary_dim, true);
    check_in_and_out_of_place(rotation, source, x, angle, promised_bound_of(rotation.dtype, factor));
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
        const Elements x = golden::read_elements(section, entry.at(std::string("x_") + storage.name), storage.dtype);
        const Elements y = golden::read_elements(section, entry.at(std::string("y_") + storage.name), storage.dtype);
        // The library takes attention_factor only with a list of frequencies, which are doubles.
        const double base = entry.at("base"), factor = entry.at("attention_factor");
        std::vector<long double> inv_freq = oracle::inv_freq_of(base, rotation.rotary_dim);
        auto frequencies = halyard::frequencies::from_base(base, rotation.rotary_dim);
        if (factor != 1.0) {
            const std::vector<double> list(inv_freq.begin(), inv_freq.end());
            inv_freq.assign(list.begin(), list.end());
            frequencies = make_frequencies(list, factor);
        }
        // The golden y may differ from this oracle by three errors: its own rounding; the last bit of long double in
        // theta < 2^21; and the rounding of the list to double. The last two are multiplied by |x0| + |x1|, below 2^6.
        const auto of_golden = [&](Pair, const ExactCosSin &, long double value) {
            return oracle::half_ulp(storage.dtype, value) + (factor == 1.0 ? 0x1p-36L : 0x1p-26L);
        };
        check_case(rotation, frequencies, inv_freq, section.array<std::int64_t>(entry.at("positions")).values, x, y,
                   of_golden);
    }
}

TEST_CASE("golden seeds", "[golden]") {
    const golden::Section section("seeds");
    const json entry = section.find_case("numpy_seed3");
    const Rotation rotation = golden::rotation_of(entry);
    const auto x64 = section.array<double>("numpy_seed3.x"), y64 = section.array<double>("numpy_seed3.y");
    const Elements x(HALYARD_F32, {1, 5, 1, 4}, std::vector<float>(x64.values.begin(), x64.values.end()));
    const auto inv_freq = oracle::inv_freq_of(entry.at("base").get<double>(), 4);
    const auto angle = [&](std::int64_t token, std::int64_t k) {
        return exact_cos_sin(inv_freq[static_cast<std::size_t>(k)], token);
    };
    for (std::int64_t i = 0; i < 10; i++) {  // the golden x and y are float64
        const auto at = static_cast<std::size_t>(i / 2 * 4 + rotation.index(rotation.pairing, i % 2, 0));
        const auto beside = static_cast<std::size_t>(i / 2 * 4 + rotation.index(rotation.pairing, i % 2, 1));
        const ExactCosSin turn = angle(i / 2, i % 2);
        const Pair turned = oracle::rotate_exactly({x64.values[at], x64.values[beside]}, turn.cos, turn.sin);
        CHECK(std::fabs(y64.values[at] - turned.x0) <= 0x1p-48L);
        CHECK(std::fabs(y64.values[beside] - turned.x1) <= 0x1p-48L);
    }
    const auto angles =
        halyard::angle_source::table(halyard::frequencies::from_base(entry.at("base").get<double>(), 4), 0, 5);
    check_in_and_out_of_place(rotation, angles, x, angle, promised_bound_of(HALYARD_F32, 1));

    const json cos_sin = section.find_case("cos_sin_at_position");
    const auto cos = section.array<double>("cs.cos"), sin = section.array<double>("cs.sin");
    const std::int32_t position = cos_sin.at("position");
    const auto at = halyard::positions(&position, {1, 1});
    float rows[8];
    halyard::make_rows(plan_for(8), halyard::angle_source::table(halyard::frequencies::from_base(100, 8), 0, 4), &at,
                       {1, 1}, rows, 8);
    for (std::size_t k = 0; k < 4; k++) {
        CHECK(rows[k] == static_cast<float>(cos.values[k]));
        CHECK(rows[4 + k] == static_cast<float>(sin.values[k]));
    }
}

TEST_CASE("golden hf_apply, exact frequencies", "[golden]") {
    const golden::Section section("hf_apply"), frequencies_section("frequencies");
    for (const json &entry : section.cases()) {
        // The first evaluation has the frequencies for short contexts: all positions are below the original maximum.
        const json evaluation = frequencies_section.find_case(entry.at("frequencies_case")).at("evaluations").at(0);
        const auto list =
            frequencies_section.array<double>(evaluation.at("inv_freq_exact_f64").get<std::string>()).values;
        const double factor = evaluation.at("attention_factor_exact_f64");
        for (const char *name : {"q", "k"}) {
            INFO(entry.at("name").get<std::string>() << ", " << name);
            // The bound of two eps leaves room for the rounding of the golden y and of the list.
            check_case(golden::rotation_of(entry), make_frequencies(list, factor), {list.begin(), list.end()},
                       section.array<std::int64_t>(entry.at("positions")).values,
                       golden::read_elements(section, entry.at(name)),
                       golden::read_elements(section, entry.at(std::string(name) + "_exact")),
                       promised_bound_of(HALYARD_F32, factor));
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
            const auto angle = [&](std::int64_t token, std::int64_t k) {
                const auto at = static_cast<std::size_t>(token * cos.shape[1] + k);
                return ExactCosSin{cos.values[at], sin.values[at]};
            };
            // transformers rounds as often as a kernel does, so its result must be within the same bound.
            CHECK(count_wrong(rotation, x, theirs, angle, kernel_bound_of(HALYARD_F32)) == 0);
            check_in_and_out_of_place(rotation, source, x, angle, kernel_bound_of(HALYARD_F32));
        }
    }
}

TEST_CASE("golden decay: the score of equal vectors by distance", "[golden]") {
    const golden::Section section("decay");
    const json entry = section.cases().at(0);
    const auto want = section.array<double>(entry.at("dot_f64").get<std::string>());
    Rotation rotation;
    rotation.rotary_dim = entry.at("d");
    rotation.target = GENERATE(from_range(targets_here()));
    rotation.pairing = GENERATE(as<std::int32_t>{}, HALYARD_PAIRING_HALF, HALYARD_PAIRING_INTERLEAVED);
    const std::int32_t start = GENERATE(0, 44);
    const auto n = static_cast<std::int64_t>(want.values.size());
    Elements ones(HALYARD_F32, {1, n, 1, rotation.rotary_dim});
    const auto positions = halyard::consecutive_positions(&start, 1);
    const auto frequencies = halyard::frequencies::from_base(10000, rotation.rotary_dim);
    std::fill_n(reinterpret_cast<float *>(ones.at(0)), ones.count(), 1.0f);
    const Elements y = rotate(rotation, halyard::angle_source::table(frequencies, 0, start + n), &positions, ones);
    // The error of a dot product: both factors are pairs of length sqrt(2) with an error of sqrt(2) bounds.
    const long double bound =
        rotation.rotary_dim / 2 * 4 * 1.01L * oracle::promised_bound(HALYARD_F32, {1, 1}, 1, std::sqrt(2.0L));
    for (std::int64_t token = 0; token < n; token++) {
        long double dot = 0;
        for (std::int64_t i = 0; i < rotation.rotary_dim; i++) {
            dot += static_cast<long double>(y[i]) * y[token * rotation.rotary_dim + i];
        }
        CHECK(std::fabs(dot - want.values[static_cast<std::size_t>(token)]) <= bound);
    }
}
