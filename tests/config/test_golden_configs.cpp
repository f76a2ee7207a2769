// Golden configs: what their frequencies are, how they pair elements, and which axis each pair reads.
#include "checks/make_sources.h"
#include "config/read_config.h"

#include <algorithm>
#include <cmath>

using nlohmann::json;

TEST_CASE("config: golden frequencies, old and new form", "[config][golden]") {
    const golden::Section section("frequencies");
    REQUIRE(section.cases().size() >= 17);
    for (const json &entry : section.cases()) {
        for (const char *form : {"config_old", "config_new"}) {
            if (entry.at(form).is_null()) {
                continue;
            }
            const auto text = golden::read_file(places::golden() + "/frequencies/" + entry.at(form).get<std::string>());
            for (const json &evaluation : entry.at("evaluations")) {
                INFO(entry.at("name").get<std::string>()
                     << ", " << form << ", " << evaluation.at("layer_type") << ", " << evaluation.at("seq_len"));
                const auto outcome = read_for(evaluation, text);
                const auto &info = outcome.info;
                CHECK(info.rotary_dim == evaluation.at("rotary_dim").get<std::int64_t>());
                CHECK(info.head_dim == evaluation.at("head_dim").get<std::int64_t>());
                CHECK(info.method == evaluation.at("rope_type").get<std::string>());
                CHECK(name_of_pairing(info.pairing) == entry.at("pairing"));
                CHECK(info.axis_map == HALYARD_AXIS_MAP_NONE);
                const double factor = evaluation.at("attention_factor_exact_f64");
                CHECK(std::fabs(info.attention_factor / factor - 1) <= 1e-14);
                CHECK(std::fabs(info.attention_factor / evaluation.at("attention_factor").get<double>() - 1) <= 1e-14);
                const auto theirs = section.array<float>(evaluation.at("inv_freq_hf_f32")).values;
                const auto exact = section.array<double>(evaluation.at("inv_freq_exact_f64")).values;
                REQUIRE(static_cast<std::int64_t>(exact.size()) == info.rotary_dim / 2);
                double worst = 0, worst_theirs = 0;
                for (std::size_t k = 0; k < exact.size(); ++k) {
                    if (exact[k] == 0.0) {
                        CHECK(info.inv_freq[k] == 0.0);
                        continue;
                    }
                    worst = std::max(worst, std::fabs(info.inv_freq[k] / exact[k] - 1));
                    worst_theirs = std::max(worst_theirs, std::fabs(info.inv_freq[k] / theirs[k] - 1));
                }
                CHECK(worst <= 1e-14);
                CHECK(worst_theirs <= 1e-6);
            }
        }
    }
}

TEST_CASE("config: golden hf_apply, pairings read and written", "[config][golden]") {
    const golden::Section section("hf_apply"), frequencies("frequencies");
    for (const json &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const json &other = frequencies.find_case(entry.at("frequencies_case"));
        const auto outcome = read_for(other.at("evaluations").at(0), read_golden(other));
        CHECK(name_of_pairing(outcome.info.pairing) == entry.at("pairing"));
        CHECK(name_of_pairing(outcome.info.out_pairing) == entry.at("out_layout"));
        CHECK(outcome.info.rotary_dim == entry.at("rotary_dim").get<std::int64_t>());
    }
}

namespace {

void check_axes(const halyard_frequencies_info &info, const json &entry) {
    CHECK(info.rotary_dim == entry.at("rotary_dim").get<std::int64_t>());
    CHECK(info.head_dim == entry.at("head_dim").get<std::int64_t>());
    CHECK(name_of_pairing(info.pairing) == entry.at("pairing"));
    std::vector<std::int64_t> axes(static_cast<std::size_t>(info.rotary_dim / 2));
    for (std::size_t k = 0; k < axes.size(); ++k) {
        axes[k] = axis_of_pair(info.axis_map, {info.axis_counts, static_cast<std::size_t>(info.n_axes)},
                               static_cast<std::int64_t>(k));
    }
    CHECK(axes == entry.at("axis_of_pair").get<std::vector<std::int64_t>>());
    double worst = 0;
    for (std::size_t k = 0; k < entry.at("inv_freq_index").size(); ++k) {
        const long double exact =
            std::pow(static_cast<long double>(entry.at("base").get<double>()),
                     -2.0L * entry.at("inv_freq_index")[k].get<int>() / entry.at("freq_dim").get<int>());
        worst = std::max(worst, std::fabs(static_cast<double>(info.inv_freq[k] / exact - 1)));
    }
    CHECK(worst <= 1e-14);
}

}  // namespace

TEST_CASE("config: golden mrope", "[config][golden]") {
    const golden::Section section("mrope");
    for (const json &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        if (entry.at("kind") == "vision") {
            check_axes(read_good(read_fixture("qwen2-vl-7b"), "vision").info, entry);
            continue;
        }
        for (const char *form : {"config_old", "config_new"}) {
            const auto text = golden::read_file(places::golden() + "/mrope/" + entry.at(form).get<std::string>());
            const auto outcome = read_good(text);
            check_axes(outcome.info, entry);
            CHECK(std::string(outcome.info.method) == "default");
        }
    }
}
