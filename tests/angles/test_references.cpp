// The references of tables: engines' own cos and sin, compared with those that their packages made
// (tests/data/make_parity.py says how those of vLLM and ggml), and Hugging Face's in float32.
#include "angles/references/vllm.h"
#include "angles/refused_source.h"
#include "checks/make_sources.h"
#include "checks/oracle.h"
#include "config/read_config.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using oracle::Random;

/// A halyard_scaling from the golden data's JSON, with the lists that it points to.
struct Scaling {
    halyard_scaling value = sized<halyard_scaling>();
    std::vector<double> short_factor, long_factor;

    explicit Scaling(const json &from) {
        static const std::vector<std::string> methods = {"default", "linear", "ntk",      "dynamic",
                                                         "yarn",    "llama3", "longrope", "proportional"};
        const auto method = std::find(methods.begin(), methods.end(), from.at("method").get<std::string>());
        value.method = static_cast<std::int32_t>(method - methods.begin());
        value.base = from.at("base");
        value.rotary_dim = from.at("rotary_dim");
        value.rotated_dim = from.value("rotated_dim", std::int64_t{0});
        value.factor = from.value("factor", 0.0);
        value.original_max_position = from.value("original_max_position", std::int64_t{0});
        value.seq_len = from.value("seq_len", std::int64_t{0});
        value.attention_factor = from.value("attention_factor", 0.0);
        value.beta_fast = from.value("beta_fast", 0.0);
        value.beta_slow = from.value("beta_slow", 0.0);
        value.no_truncate = from.value("no_truncate", 0);
        value.mscale = from.value("mscale", 0.0);
        value.mscale_all_dim = from.value("mscale_all_dim", 0.0);
        value.low_freq_factor = from.value("low_freq_factor", 0.0);
        value.high_freq_factor = from.value("high_freq_factor", 0.0);
        if (from.contains("short_factor")) {
            short_factor = from.at("short_factor").get<std::vector<double>>();
            long_factor = from.at("long_factor").get<std::vector<double>>();
            value.short_factor = short_factor.data();
            value.long_factor = long_factor.data();
            value.n_factors = static_cast<std::int64_t>(short_factor.size());
        }
    }
    Scaling(const Scaling &) = delete;
};

halyard_angle_source_desc describe_table(std::int32_t reference, const halyard_positions &listed) {
    auto desc = describe_source(HALYARD_ANGLES_TABLE, least_position, greatest_position);
    desc.listed = &listed;
    desc.reference = reference;
    return desc;
}

/// Rows [positions, 2, n_pairs].
template <typename Integer = std::int32_t>
std::vector<float> rows_at(const halyard::frequencies &frequencies, std::int32_t reference,
                           const std::vector<Integer> &positions) {
    const auto at = positions_of(positions);
    return rows_of(halyard::angle_source(frequencies, describe_table(reference, at)), &at, 1,
                   static_cast<std::int64_t>(positions.size()));
}

/// How many values of a dtype lie between two words of it, of any sign.
template <typename Word>
std::int64_t ulps_between(Word a, Word b) {
    constexpr auto sign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
    const auto order = [](Word word) {
        const auto magnitude = static_cast<std::int64_t>(word & static_cast<Word>(~sign));
        return (word & sign) != 0 ? -magnitude : magnitude;
    };
    return std::abs(order(a) - order(b));
}
std::int64_t ulps_between(float a, float b) {
    return ulps_between(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b));
}

struct Difference {
    std::int64_t greatest = 0, n_off = 0, n_all = 0;

    void add(std::int64_t ulps) {
        greatest = std::max(greatest, ulps);
        n_off += ulps != 0 ? 1 : 0;
        n_all++;
    }
    std::string text() const {
        return std::to_string(n_off) + " of " + std::to_string(n_all) + " by at most " + std::to_string(greatest);
    }
};

struct Dtype {
    const char *name;
    std::int32_t reference;
    std::uint16_t (*narrow)(float);
    float (*widen)(std::uint16_t);
};
constexpr Dtype dtypes[] = {{"f16", HALYARD_REFERENCE_VLLM_F16, halyard::F16::narrow, halyard::F16::widen},
                            {"bf16", HALYARD_REFERENCE_VLLM_BF16, halyard::BF16::narrow, halyard::BF16::widen}};

/// Calls see(ours, theirs, pair) for each cos and sin: ours of rows, [positions, 2, n_pairs], and theirs of arrays.
template <typename T, typename See>
void see_all(const golden::Section &section, const std::string &cos, const std::string &sin,
             const std::vector<float> &rows, std::size_t n_pairs, See see) {
    for (const bool is_sin : {false, true}) {
        const auto theirs = section.array<T>(is_sin ? sin : cos).values;
        REQUIRE(2 * theirs.size() == rows.size());
        for (std::size_t i = 0; i < theirs.size(); i++) {
            see(rows[i / n_pairs * 2 * n_pairs + (is_sin ? n_pairs : 0) + i % n_pairs], theirs[i], i % n_pairs);
        }
    }
}

/// Compares rows with an engine's of float32.
Difference compare(const golden::Section &section, const json &arrays, const std::vector<float> &rows,
                   std::size_t n_pairs) {
    Difference difference;
    see_all<float>(section, arrays.at("cos"), arrays.at("sin"), rows, n_pairs,
                   [&](float ours, float theirs, std::size_t) { difference.add(ulps_between(ours, theirs)); });
    return difference;
}

/// Compares rows with PyTorch's in one dtype, pair by pair where `same` says that both have one frequency.
Difference compare_with_vllm(const golden::Section &section, const json &arrays, const Dtype &dtype,
                             const std::vector<float> &rows, const std::vector<bool> &same) {
    Difference difference;
    const std::string name = dtype.name;
    see_all<std::uint16_t>(section, arrays.at("cos_" + name), arrays.at("sin_" + name), rows, same.size(),
                           [&](float ours, std::uint16_t theirs, std::size_t pair) {
                               REQUIRE(dtype.widen(dtype.narrow(ours)) == ours);
                               if (same[pair]) {
                                   difference.add(ulps_between(dtype.narrow(ours), theirs));
                               }
                           });
    return difference;
}

}  // namespace

TEST_CASE("references: vLLM's cos and sin are within an ulp, given its frequencies", "[sources][golden]") {
    const golden::Section section("parity");
    const auto positions = section.array<std::int32_t>("positions").values;
    for (const Dtype &dtype : dtypes) {
        std::string report;
        for (const auto &entry : section.cases()) {
            const Scaling scaling(entry.at("scaling"));
            if (scaling.value.method == HALYARD_SCALING_LINEAR) {
                continue;  // divides the positions
            }
            INFO(entry.at("name").get<std::string>());
            const auto inv_freq = section.array<float>(entry.at("vllm").at("inv_freq")).values;
            const auto frequencies =
                make_frequencies(std::vector<double>(inv_freq.begin(), inv_freq.end()),
                                 halyard::frequencies::from_scaling(scaling.value).info().attention_factor);
            const auto difference =
                compare_with_vllm(section, entry.at("vllm"), dtype, rows_at(frequencies, dtype.reference, positions),
                                  std::vector<bool>(inv_freq.size(), true));
            CHECK(difference.greatest <= 1);
            CHECK(difference.n_off * 100 <= difference.n_all);
            report += "\n  " + entry.at("name").get<std::string>() + ": " + difference.text();
        }
        WARN("vllm_" << dtype.name << ": cos and sin differ from PyTorch's" << report);
    }
}

TEST_CASE("references: all but a few of vLLM's frequencies are PyTorch's", "[sources][golden]") {
    const golden::Section section("parity");
    const auto positions = section.array<std::int32_t>("positions").values;
    std::string report;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const Scaling scaling(entry.at("scaling"));
        const auto frequencies = halyard::frequencies::from_scaling(scaling.value);
        const auto theirs = section.array<float>(entry.at("vllm").at("inv_freq")).values;
        halyard::VllmTable table;
        REQUIRE(halyard::make_vllm_table(*frequencies.get(), halyard::Reference::vllm_f16, &table, nullptr) ==
                HALYARD_OK);
        Difference of_inv_freq;
        std::vector<bool> same;
        for (std::size_t k = 0; k < theirs.size(); k++) {
            of_inv_freq.add(ulps_between(table.inv_freq.get()[k], theirs[k]));
            same.push_back(table.inv_freq.get()[k] == theirs[k]);
        }
        CHECK(of_inv_freq.greatest <= 1);
        CHECK(of_inv_freq.n_off <= 2);
        for (const Dtype &dtype : dtypes) {
            const auto difference = compare_with_vllm(section, entry.at("vllm"), dtype,
                                                      rows_at(frequencies, dtype.reference, positions), same);
            CHECK(difference.greatest <= 1);
            CHECK(difference.n_off * 100 <= difference.n_all);
        }
        report += "\n  " + entry.at("name").get<std::string>() + ": " + of_inv_freq.text();
    }
    WARN("inverse frequencies differ from PyTorch's" << report);
}

TEST_CASE("references: ggml's cos and sin are within an ulp of its operator's", "[sources][golden]") {
    const golden::Section section("parity");
    const auto positions = section.array<std::int32_t>("positions").values;
    std::string report;
    for (const auto &entry : section.cases()) {
        if (!entry.contains("ggml")) {
            continue;
        }
        INFO(entry.at("name").get<std::string>());
        const Scaling scaling(entry.at("scaling"));
        const auto frequencies = halyard::frequencies::from_scaling(scaling.value);
        const auto rows = rows_at(frequencies, HALYARD_REFERENCE_GGML, positions);
        const auto n_pairs = static_cast<std::size_t>(scaling.value.rotary_dim / 2);
        const Difference difference = compare(section, entry.at("ggml"), rows, n_pairs);
        CHECK(difference.greatest <= 1);
        report += "\n  " + entry.at("name").get<std::string>() + ": " + difference.text();
    }
    WARN("ggml: cos and sin differ from its operator's" << report);
}

namespace {

/// YaRN's scaling with some other arguments.
json yarn_with(const json &changes) {
    json scaling = {
        {"method", "yarn"}, {"base", 10000.0}, {"rotary_dim", 64}, {"factor", 4.0}, {"original_max_position", 4096}};
    scaling.update(changes);
    return scaling;
}

halyard::frequencies make(const json &changes) {
    const Scaling scaling(yarn_with(changes));
    return halyard::frequencies::from_scaling(scaling.value);
}

void refuse(const halyard::frequencies &frequencies, std::int32_t reference, const Words &words,
            halyard_status status = HALYARD_ERROR_UNSUPPORTED, std::int32_t kind = HALYARD_ANGLES_AUTO) {
    auto desc = describe_source(kind, 0, 9);
    desc.reference = reference;
    check_source_refused(frequencies.get(), &desc, status, words);
}

}  // namespace

TEST_CASE("references: what an engine has not is refused", "[sources][errors]") {
    constexpr auto f16 = HALYARD_REFERENCE_VLLM_F16, bf16 = HALYARD_REFERENCE_VLLM_BF16, ggml = HALYARD_REFERENCE_GGML;
    refuse(make({{"method", "dynamic"}}), ggml, {"HALYARD_REFERENCE_GGML", "method is dynamic"});
    refuse(make_frequencies({1.0, 0.5}), ggml, {"method is list"});
    refuse(make({{"base", 0x1.000001p0}}), ggml, {"base is 1", "logarithm"});
    const auto linear = make({{"method", "linear"}, {"attention_factor", 1.5}});
    refuse(linear, f16, {"VLLM_F16", "attention_factor is 1.5"});
    refuse(linear, bf16, {"VLLM_BF16", "attention_factor is 1.5"});
    refuse(make({{"method", "dynamic"}, {"factor", 0x1p60}, {"seq_len", 4096}}), bf16, {"base is 0"});
    refuse(make_frequencies({1.0, 0.5}, 65505.0), f16, {"attention_factor is 65505"});
    CHECK_NOTHROW(rows_at(make_frequencies({1.0, 0.5}, 65505.0), bf16, {1}));
    for (const std::int32_t reference : {f16, bf16, ggml}) {
        refuse(make({{"method", "proportional"}}), reference, {"factor is 4"});
        for (const double base : {0.5, 0x1p128}) {
            refuse(halyard::frequencies::from_base(base, 2), reference, {"base is"});
        }
        Scaling other(yarn_with({{"method", "default"}}));
        other.value.exponent_dim = 128;
        refuse(halyard::frequencies::from_scaling(other.value), reference, {"exponent_dim is 128"});
        for (const std::int32_t kind : {HALYARD_ANGLES_PHASE, HALYARD_ANGLES_FACTORED}) {
            refuse(halyard::frequencies::from_base(10000, 64), reference,
                   {"HALYARD_REFERENCE_" + std::string(reference == ggml ? "GGML" : "V")}, HALYARD_ERROR_MISMATCH,
                   kind);
        }
    }
}

TEST_CASE("references: an attention_factor that is 0 or infinite in float32 alone is refused", "[sources][errors]") {
    int n_refused[2] = {};
    // 1 + 0.1 m ln(factor) is just above 0, but not always in float32: just below e^8 it is 0.
    std::vector<std::pair<double, double>> factors = {{2980.9579, -1.25}};
    for (int factor = 2; factor <= 100; factor++) {
        factors.emplace_back(factor, -10.0 / std::log(factor) * (1 - 0x1p-33));
    }
    for (std::size_t i = 0; i < 2 * factors.size(); i++) {
        const auto [factor, m] = factors[i / 2];
        const auto frequencies =
            make({{"factor", factor}, {"mscale", i % 2 ? m : 1.0}, {"mscale_all_dim", i % 2 ? 1.0 : m}});
        auto desc = describe_source(HALYARD_ANGLES_TABLE, 5, 5);
        desc.reference = HALYARD_REFERENCE_GGML;
        halyard_angle_source *made = nullptr;
        auto error = sized<halyard_error>();
        if (halyard_create_angle_source(frequencies.get(), &desc, &made, &error) != HALYARD_OK) {
            check_error(error, HALYARD_ERROR_UNSUPPORTED, {"attention_factor is"});
            n_refused[i % 2]++;
        } else {
            const float cos = static_cast<const float *>(made->cos_rows)[0];  // of 5 radians: above 0
            CHECK((std::isfinite(cos) && cos > 0.0f));
        }
        halyard_destroy_angle_source(made);
    }
    CHECK((n_refused[0] > 0 && n_refused[1] > 0));
}

TEST_CASE("references: rows are the same however a table is made, and finite at every position", "[sources]") {
    Random random(Catch::getSeed());
    const golden::Section section("parity");
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const Scaling scaling(entry.at("scaling"));
        const auto frequencies = halyard::frequencies::from_scaling(scaling.value);
        for (const std::int32_t reference :
             {HALYARD_REFERENCE_VLLM_F16, HALYARD_REFERENCE_VLLM_BF16, HALYARD_REFERENCE_GGML}) {
            if (reference == HALYARD_REFERENCE_GGML && !entry.contains("ggml")) {
                continue;
            }
            auto desc = describe_source(HALYARD_ANGLES_AUTO, -3, 40);
            desc.reference = reference;
            std::vector<std::int32_t> near = {-3, -1, 0, 7, 40};
            const auto at = positions_of(near);
            const halyard::angle_source range(frequencies, desc);
            CHECK(range.info().kind == HALYARD_ANGLES_TABLE);
            CHECK(rows_of(range, &at, 1, 5) == rows_at(frequencies, reference, near));

            std::vector<std::int32_t> far = {least_position, greatest_position, (1 << 24) + 1, -(1 << 24) - 1};
            while (far.size() < 40) {
                far.push_back(static_cast<std::int32_t>(random.bits() >> random.in(32, 60)));
            }
            const double most = 1.0001 * frequencies.info().attention_factor;
            for (const float value : rows_at(frequencies, reference, far)) {
                CHECK(std::fabs(value) <= most + (reference == HALYARD_REFERENCE_GGML ? 0.0 : 0x1p-8));
            }
            // float32 has no odd positions there.
            const auto pair = rows_at(frequencies, reference, {(1 << 24), (1 << 24) + 1});
            CHECK(std::equal(pair.begin(), pair.begin() + scaling.value.rotary_dim,
                             pair.begin() + scaling.value.rotary_dim));
        }
    }
}

TEST_CASE("references: one axis or several, a pair has the row of its own position", "[sources][axes]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 12);
    for (const std::int32_t reference : {HALYARD_REFERENCE_VLLM_BF16, HALYARD_REFERENCE_GGML}) {
        auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, 99);
        desc.reference = reference;
        desc.axis_map = HALYARD_AXIS_MAP_SECTIONS;
        desc.n_axes = 3;
        const std::int64_t counts[] = {1, 2, 3};
        std::copy(std::begin(counts), std::end(counts), desc.axis_counts);
        const std::int32_t values[] = {5, 50, 99};  // an axis each
        auto at = halyard::positions(values, {1, 1});
        at.n_axes = 3;
        at.stride_axis = 1;
        const auto rows = rows_of(halyard::angle_source(frequencies, desc), &at, 1, 1);
        const auto each = rows_at(frequencies, reference, {5, 50, 99});
        for (std::size_t k = 0; k < 6; k++) {
            const std::size_t axis = k < 1 ? 0 : k < 3 ? 1 : 2;
            CHECK(rows[k] == each[axis * 12 + k]);
            CHECK(rows[6 + k] == each[axis * 12 + 6 + k]);
        }
    }
}

// ---- Hugging Face's angles -----------------------------------------------------------------------------------------

TEST_CASE("sources: hf_f32 is within an ulp of transformers' cos and sin, given its frequencies", "[sources][golden]") {
    const golden::Section section("hf_apply"), of_frequencies("frequencies");
    Difference difference;
    std::int64_t n_far_from_exact = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const auto evaluation = of_frequencies.find_case(entry.at("frequencies_case")).at("evaluations").at(0);
        const auto hf = of_frequencies.array<float>(evaluation.at("inv_freq_hf_f32")).values;
        const auto frequencies = make_frequencies({hf.begin(), hf.end()}, evaluation.at("attention_factor"));
        const auto positions = section.array<std::int64_t>(entry.at("positions")).values;
        const auto see = [&](std::int32_t reference, auto see_ulps) {
            see_all<float>(section, entry.at("cos"), entry.at("sin"), rows_at(frequencies, reference, positions),
                           hf.size(),
                           [&](float ours, float theirs, std::size_t) { see_ulps(ulps_between(ours, theirs)); });
        };
        see(HALYARD_REFERENCE_HF_F32, [&](std::int64_t ulps) { difference.add(ulps); });
        see(HALYARD_REFERENCE_EXACT, [&](std::int64_t ulps) { n_far_from_exact += ulps > 1 ? 1 : 0; });
    }
    CHECK(difference.greatest <= 1);
    // Hugging Face's angles are far from exact, so this comparison shows something.
    CHECK(n_far_from_exact > difference.n_all / 20);
    WARN("hf_f32: cos and sin differ from transformers' " << difference.text() << "; " << n_far_from_exact
                                                          << " of the exact ones by more than 1");
}

TEST_CASE("sources: hf_f32 is of the angle in float32, at every position", "[sources]") {
    Random random(Catch::getSeed());
    std::int64_t n_wrong = 0;
    for (int round = 0; round < 400; round++) {
        std::vector<double> list;
        for (int k = 0; k < 16; k++) {
            list.push_back(static_cast<float>(random.unit() * std::exp2(static_cast<double>(random.in(-40, 20)))));
        }
        const double factor = random.one_of(attention_factors);
        std::vector<std::int32_t> positions = {0, 1, -1, 16777217, least_position, greatest_position};
        while (positions.size() < 20) {
            positions.push_back(
                static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 60)));
        }
        const auto rows = rows_at(make_frequencies(list, factor), HALYARD_REFERENCE_HF_F32, positions);
        for (std::size_t i = 0; i < 20 * 16; i++) {
            const float angle = static_cast<float>(positions[i / 16]) * static_cast<float>(list[i % 16]);
            // long double is wide enough: it is most unlikely that the middle of two floats lies within its error.
            const long double scale = static_cast<float>(factor);
            const auto cos = static_cast<float>(scale * std::cos(static_cast<long double>(angle)));
            const auto sin = static_cast<float>(scale * std::sin(static_cast<long double>(angle)));
            const std::size_t where = i / 16 * 32 + i % 16;
            n_wrong += rows[where] == cos ? 0 : 1;
            n_wrong += rows[where + 16] == sin ? 0 : 1;
        }
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("sources: hf_f32 frequencies from a config are some ulp from transformers'", "[sources][golden]") {
    const golden::Section section("frequencies");
    std::int64_t greatest = 0;
    std::string report;
    for (const auto &entry : section.cases()) {
        Difference of_case;
        for (const auto &evaluation : entry.at("evaluations")) {
            const auto read = read_for(evaluation, read_golden(entry));
            const auto hf = section.array<float>(evaluation.at("inv_freq_hf_f32")).values;
            REQUIRE(read.info.rotary_dim == 2 * std::ssize(hf));
            for (std::size_t k = 0; k < hf.size(); k++) {
                of_case.add(ulps_between(static_cast<float>(read.info.inv_freq[k]), hf[k]));
            }
        }
        greatest = std::max(greatest, of_case.greatest);
        report += " " + entry.at("name").get<std::string>() + " " + std::to_string(of_case.greatest);
    }
    CHECK(greatest <= 4);
    WARN("ulp between float32(inv_freq) and transformers':" << report);
}

TEST_CASE("sources: hf_f32 reads given rows as they are", "[sources]") {
    const float rows[] = {0.25f, 0.5f, 0.75f, 1.0f};
    auto desc = describe_given(rows, rows + 2, 1, 4, 4);
    desc.reference = HALYARD_REFERENCE_HF_F32;
    const halyard::angle_source source{halyard::frequencies(), desc};
    CHECK(rows_of(source, nullptr, 1, 1) == std::vector<float>(rows, rows + 4));
}
