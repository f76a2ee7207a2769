// Golden configs: their frequencies and pairings. test_axis_maps.cpp tests those with axes.
#include "config/read_config.h"

using nlohmann::json;

namespace {

/// Calls check(text) with a case's config in its older and in its newer form, if it has them.
void for_each_form(const json &entry, const auto &check) {
    for (const char *form : {"config_old", "config_new"}) {
        if (!entry.at(form).is_null()) {
            INFO(entry.at("name").get<std::string>() << ", " << form);
            check(golden::read_file(places::golden() + "/frequencies/" + entry.at(form).get<std::string>()));
        }
    }
}

/// Reads a config for an evaluation's layer type and context length.
Outcome read_for(const json &evaluation, const std::string &text) {
    const auto &layer_type = evaluation.at("layer_type"), &seq_len = evaluation.at("seq_len");
    return read_good(text, layer_type.is_null() ? nullptr : layer_type.get_ref<const std::string &>().c_str(),
                     seq_len.is_null() ? 0 : seq_len.get<std::int64_t>());
}

/// The largest relative error of a config's frequencies. Checks that a frequency is 0 if the exact frequency is 0.
template <typename Real>
double error_of(const halyard_frequencies_info &info, const std::vector<Real> &exact) {
    REQUIRE(std::ssize(exact) == info.rotary_dim / 2);
    double worst = 0;
    for (std::size_t k = 0; k < exact.size(); ++k) {
        CHECK((exact[k] == 0) == (info.inv_freq[k] == 0));
        worst = std::max(worst, exact[k] == 0 ? 0 : static_cast<double>(std::fabs(info.inv_freq[k] / exact[k] - 1)));
    }
    return worst;
}

}  // namespace

TEST_CASE("config: golden frequencies, old and new form", "[config][golden]") {
    const golden::Section section("frequencies"), applied("hf_apply");
    REQUIRE(section.cases().size() >= 17);
    for (const json &entry : section.cases()) {
        for_each_form(entry, [&](const std::string &text) {
            for (const json &evaluation : entry.at("evaluations")) {
                INFO(evaluation.at("layer_type") << ", " << evaluation.at("seq_len"));
                const auto outcome = read_for(evaluation, text);
                check_facts(outcome.info, {{"rotary_dim", evaluation.at("rotary_dim")},
                                           {"head_dim", evaluation.at("head_dim")},
                                           {"method", evaluation.at("rope_type")},
                                           {"pairing", entry.at("pairing")},
                                           {"axis_map", nullptr}});
                for (const char *factor : {"attention_factor_exact_f64", "attention_factor"}) {
                    const double exact = evaluation.at(factor);
                    CHECK(std::fabs(outcome.info.attention_factor / exact - 1) <= 1e-14);
                }
                CHECK(error_of(outcome.info, section.array<double>(evaluation.at("inv_freq_exact_f64")).values) <=
                      1e-14);
                CHECK(error_of(outcome.info, section.array<float>(evaluation.at("inv_freq_hf_f32")).values) <= 1e-6);
            }
        });
    }
    for (const json &entry : applied.cases()) {
        for_each_form(section.find_case(entry.at("frequencies_case")), [&](const std::string &text) {
            check_facts(read_good(text).info, {{"pairing", entry.at("pairing")},
                                               {"out_pairing", entry.at("out_layout")},
                                               {"rotary_dim", entry.at("rotary_dim")}});
        });
    }
}
