// Reads the default config of every model type of transformers that has RoPE, and a config for every RoPE class of vLLM
// 0.32. What Halyard reads must equal the recorded values, which python/tests/models/test_model_types.py compared with the
// type's own code. The values of vLLM's cases are the class's frequencies. Also checks the page that lists the types.
#include "config/read_config.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

namespace {

using nlohmann::json;

constexpr const char *types = "model_types", *classes = "vllm_classes";

json read_cases(const std::string &file) {
    return json::parse(golden::read_file(places::configs() + "/../" + file + ".json"));
}

/// Checks the first, middle and last inv_freq against those of transformers or vLLM, which are rounded to float32.
void check_inv_freq(const halyard_frequencies_info &info, const json &facts) {
    const auto n_pairs = info.rotary_dim / 2;
    const std::int64_t places[] = {0, n_pairs / 2, n_pairs - 1};
    for (std::size_t i = 0; i < 3 && facts.contains("inv_freq"); ++i) {
        const double own = facts.at("inv_freq").at(i);
        CHECK(std::fabs(info.inv_freq[places[i]] - own) <= 2e-6 * std::fabs(own));
    }
}

/// Checks all configs of a file. Returns how many of them Halyard accepts (it must refuse the others).
std::size_t check_cases(const std::string &file) {
    std::size_t n_accepted = 0;
    for (const auto &one : read_cases(file)) {
        const std::string layer_type = one.value("layer_type", "");
        INFO(one.at(file == types ? "model_type" : "class").get<std::string>() << ", " << layer_type);
        const auto outcome = read(one.at("config").dump(), layer_type.empty() ? nullptr : layer_type.c_str(),
                                  one.value("seq_len", std::int64_t{0}));
        INFO(outcome.message);
        if (one.at("verdict") == "refused") {
            CHECK(outcome.status != HALYARD_OK);
            CHECK(outcome.message == one.at("words").get<std::string>());
            continue;
        }
        ++n_accepted;
        REQUIRE(outcome.status == HALYARD_OK);
        check_facts(outcome.info, one.at("facts"));
        check_inv_freq(outcome.info, one.at("facts"));
    }
    return n_accepted;
}

std::string join(const std::set<std::string> &names, const char *between) {
    std::string text;
    for (const auto &name : names) {
        text += (text.empty() ? "" : between) + name;
    }
    return text;
}

std::string describe(const json &facts) {
    const std::string in = facts.at("pairing"), out = facts.at("out_pairing");
    auto kind = in == out ? in : in + ", writes " + out;
    kind += facts.at("axis_map").is_null() ? "" : ", axes " + facts.at("axis_map").at(0).get<std::string>();
    return kind + (facts.contains("inv_freq") && facts.at("inv_freq").at(0) < 0.0 ? ", backward" : "");
}

/// Makes the table of runtime/models.md.
std::string make_type_table() {
    std::map<std::string, std::set<std::string>> right, refused;
    for (const auto &one : read_cases(types)) {
        const std::string type = one.at("model_type");
        if (one.contains("is_partial")) {
            continue;
        }
        if (one.at("verdict") == "refused") {
            const std::string words = one.at("words");
            const auto which = words.find(", which ");
            const bool is_of_type = words.starts_with("model_type is ") && which != words.npos;
            refused[is_of_type ? words.substr(which + 8) : words].insert(type);
            continue;
        }
        right[describe(one.at("facts"))].insert(type);
    }
    std::string text = "| Read as, or why not | Model types |\n|---|---|\n";
    for (const auto &[kind, names] : right) {
        text += "| " + kind + " | " + join(names, ", ") + " |\n";
    }
    for (const auto &[why, names] : refused) {
        text += "| refused: " + why + " | " + join(names, ", ") + " |\n";
    }
    return text;
}

}  // namespace

TEST_CASE("config: the model types of transformers", "[config]") { CHECK(check_cases(types) > 200); }

TEST_CASE("config: the RoPE classes of vLLM", "[config]") { CHECK(check_cases(classes) > 20); }

TEST_CASE("config: runtime/models.md lists the model types as they are tested", "[config]") {
    auto page = golden::read_file(places::models_page());
    const auto begin = page.find("| Read as, ");
    REQUIRE(begin != page.npos);
    const auto end = std::min(page.find("\n\n", begin), page.size() - 1) + 1;
    const auto table = make_type_table();
    if (std::getenv("HALYARD_WRITE_MODELS") != nullptr) {
        std::ofstream(places::models_page(), std::ios::binary) << page.replace(begin, end - begin, table);
        SKIP("wrote the table");
    }
    INFO("HALYARD_WRITE_MODELS=1 ./run test -R 'config: runtime/models.md' brings the page up to date");
    CHECK(page.substr(begin, end - begin) == table);
}
