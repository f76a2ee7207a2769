// Reads configs as a caller does. The fixtures in tests/data/configs hold what the published
// config.json of a model says about its RoPE, and nothing else.
#pragma once

#include "checks/sized.h"
#include "data/golden.h"
#include "data/places.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

inline std::string read_fixture(const std::string &name) {
    return golden::read_file(places::configs() + "/" + name + ".json");
}

/// What came of reading a config.
struct Outcome {
    halyard_status status = HALYARD_OK;
    std::string message;
    halyard::frequencies frequencies;
    halyard_frequencies_info info = {};
};

inline Outcome read(const std::string &text, const char *layer_type = nullptr, std::int64_t seq_len = 0,
                    const std::int64_t *layer = nullptr) {
    auto options = sized<halyard_config_options>();
    options.layer = layer;
    options.layer_type = layer_type;
    options.seq_len = seq_len;
    Outcome outcome;
    const auto untouched = reinterpret_cast<halyard_frequencies *>(0x1234);
    halyard_frequencies *out = untouched;
    auto error = sized<halyard_error>();
    // A copy that ends where the text ends: a sanitizer then sees every byte read beyond it.
    const std::vector<char> bytes(text.begin(), text.end());
    const char nothing = 0;
    outcome.status = halyard_create_frequencies_from_config(
        bytes.empty() ? &nothing : bytes.data(), static_cast<std::int64_t>(bytes.size()), &options, &out, &error);
    outcome.message = error.message;
    if (outcome.status == HALYARD_OK) {
        outcome.frequencies = halyard::frequencies(out);
        outcome.info = outcome.frequencies.info();
    } else {
        REQUIRE(out == untouched);
        REQUIRE(error.code == outcome.status);
        REQUIRE(!outcome.message.empty());
    }
    return outcome;
}

inline Outcome read_good(const std::string &text, const char *layer_type = nullptr, std::int64_t seq_len = 0) {
    auto outcome = read(text, layer_type, seq_len);
    INFO(outcome.message);
    REQUIRE(outcome.status == HALYARD_OK);
    return outcome;
}

/// The config of a case of the golden frequencies, in its newer form if it has both.
inline std::string read_golden(const nlohmann::json &entry) {
    const char *const form = entry.at("config_new").is_null() ? "config_old" : "config_new";
    return golden::read_file(places::golden() + "/frequencies/" + entry.at(form).get<std::string>());
}

/// Reads a config for the layers and the length that an evaluation of the golden data is about.
inline Outcome read_for(const nlohmann::json &evaluation, const std::string &text) {
    const auto &layer_type = evaluation.at("layer_type"), &seq_len = evaluation.at("seq_len");
    return read_good(text, layer_type.is_null() ? nullptr : layer_type.get_ref<const std::string &>().c_str(),
                     seq_len.is_null() ? 0 : seq_len.get<std::int64_t>());
}

/// Checks that a config was refused with this status, in plain words, and with these.
inline void check_outcome(const Outcome &outcome, halyard_status status, const std::vector<const char *> &words) {
    CAPTURE(outcome.message);
    CHECK(outcome.status == status);
    for (const char *word : words) {
        CAPTURE(word);
        CHECK(outcome.message.find(word) != std::string::npos);
    }
    CHECK(std::all_of(outcome.message.begin(), outcome.message.end(), [](char c) { return c >= ' ' && c <= '~'; }));
}

inline bool is_same(const halyard_frequencies_info &a, const halyard_frequencies_info &b) {
    return a.rotary_dim == b.rotary_dim && a.attention_factor == b.attention_factor &&
           std::memcmp(a.inv_freq, b.inv_freq, static_cast<std::size_t>(a.rotary_dim / 2) * sizeof(double)) == 0;
}

inline bool is_same(const Outcome &a, const Outcome &b) { return is_same(a.info, b.info); }

inline const char *name_of_pairing(std::int32_t pairing) {
    return pairing == HALYARD_PAIRING_HALF          ? "half"
           : pairing == HALYARD_PAIRING_INTERLEAVED ? "interleaved"
                                                    : "unknown";
}

/// Llama 3.1 8B, with some fields replaced; null removes one (RFC 7396).
inline nlohmann::json llama(const std::string &patch = "{}") {
    auto config = nlohmann::json::parse(R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})");
    config.merge_patch(nlohmann::json::parse(patch));
    return config;
}

/// The same, with some fields of its rope_scaling replaced.
inline nlohmann::json llama_scaled(const std::string &fields) { return llama(R"({"rope_scaling": {)" + fields + "}}"); }

inline nlohmann::json llama_yarn(const std::string &more = "") {
    return llama_scaled(R"("rope_type": "yarn", "low_freq_factor": null, "high_freq_factor": null)" + more);
}

/// Phi-3 mini, whose scaling has two lists.
inline nlohmann::json phi3(const std::string &patch = "{}") {
    auto config = nlohmann::json::parse(read_fixture("phi-3-mini-128k"));
    config.merge_patch(nlohmann::json::parse(patch));
    return config;
}

/// Checks that the table of runtime/models.md, which begins so, is up to date; or brings it up to date.
inline void check_models_page(const std::string &begins, const std::string &table) {
    auto page = golden::read_file(places::models_page());
    const auto begin = page.find(begins);
    REQUIRE(begin != std::string::npos);
    auto end = page.find("\n\n", begin);
    end = end == std::string::npos ? page.size() : end + 1;
    if (std::getenv("HALYARD_WRITE_MODELS") != nullptr) {
        std::ofstream(places::models_page(), std::ios::binary) << page.replace(begin, end - begin, table);
        SKIP("wrote the table");
    }
    INFO("HALYARD_WRITE_MODELS=1 ./run test -R 'config: runtime/models.md' brings the page up to date");
    CHECK(page.substr(begin, end - begin) == table);
}
