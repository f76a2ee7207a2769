// Reads configs through the public API. The fixtures in tests/data/configs hold only those fields of models' published
// config.json that matter for RoPE.
#pragma once

#include "checks/sized.h"
#include "data/golden.h"
#include "data/paths.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

inline std::string read_fixture(const std::string &name) {
    return golden::read_file(places::configs() + "/" + name + ".json");
}

/// The result of reading a config: frequencies, or a status and an error message.
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
    // A copy without a NUL at its end, so that a sanitizer finds any read beyond it.
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

/// Checks that a config was refused with this status, and with a plain error message that holds these words.
inline void check_outcome(const Outcome &outcome, halyard_status status, const std::string &words) {
    CAPTURE(outcome.message, words);
    CHECK(outcome.status == status);
    CHECK(outcome.message.find(words) != std::string::npos);
    CHECK(std::all_of(outcome.message.begin(), outcome.message.end(), [](char c) { return c >= ' ' && c <= '~'; }));
}

inline nlohmann::json name_of_pairing(std::int32_t pairing) {
    return pairing == HALYARD_PAIRING_HALF          ? nlohmann::json("half")
           : pairing == HALYARD_PAIRING_INTERLEAVED ? nlohmann::json("interleaved")
                                                    : nlohmann::json();
}

/// The scale of q as JSON, or null if there is none.
inline nlohmann::json q_scale_of(const halyard_frequencies_info &info) {
    if (info.q_scale_rule == HALYARD_Q_SCALE_NONE) {
        return {};
    }
    return {info.q_scale_rule == HALYARD_Q_SCALE_LOG ? "log" : "power",
            info.q_scale_layers == HALYARD_LAYERS_ALL ? "all" : "unrotated", info.q_scale, info.q_scale_length,
            info.q_scale_shift};
}

/// All facts of frequencies as JSON, except inv_freq.
inline nlohmann::json facts_of(const halyard_frequencies_info &info) {
    auto axes = info.axis_map == HALYARD_AXIS_MAP_NONE ? nlohmann::json() : nlohmann::json::array();
    if (axes.is_array()) {
        axes.push_back(info.axis_map == HALYARD_AXIS_MAP_SECTIONS ? "sections" : "interleaved");
        for (std::int32_t axis = 0; axis < info.n_axes; ++axis) {
            axes.push_back(info.axis_counts[axis]);
        }
    }
    return {{"pairing", name_of_pairing(info.pairing)},
            {"out_pairing", name_of_pairing(info.out_pairing)},
            {"head_dim", info.head_dim},
            {"rotary_dim", info.rotary_dim},
            {"base", info.base},
            {"method", info.method},
            {"attention_factor", info.attention_factor},
            {"axis_map", axes},
            {"original_max_position", info.original_max_position},
            {"max_position", info.max_position},
            {"first_seq_len", info.first_seq_len},
            {"last_seq_len", info.last_seq_len},
            {"q_scale", q_scale_of(info)},
            {"has_unrotated_layers", info.has_unrotated_layers == 1}};
}

/// Checks the facts that `expected` has.
inline void check_facts(const halyard_frequencies_info &info, const nlohmann::json &expected) {
    const auto facts = facts_of(info);
    for (const auto &[name, value] : expected.items()) {
        CAPTURE(name);
        CHECK((name == "inv_freq" || facts.at(name) == value));
    }
}

inline bool is_same(const halyard_frequencies_info &a, const halyard_frequencies_info &b) {
    return a.rotary_dim == b.rotary_dim && a.attention_factor == b.attention_factor &&
           std::memcmp(a.inv_freq, b.inv_freq, static_cast<std::size_t>(a.rotary_dim / 2) * sizeof(double)) == 0;
}

/// Replaces ' by ", so that tests can write JSON without escapes. No config contains '.
inline std::string with_double_quotes(std::string text) {
    std::replace(text.begin(), text.end(), '\'', '"');
    return text;
}
inline nlohmann::json parse(const std::string &text) { return nlohmann::json::parse(with_double_quotes(text)); }

/// A config, as text or parsed.
struct Text {
    std::string text;

    Text(const char *config) : text(with_double_quotes(config)) {}
    Text(const std::string &config) : text(with_double_quotes(config)) {}
    Text(const nlohmann::json &config) : text(config.dump()) {}
};

/// A config with a model_type, a head_dim and the given fields.
inline std::string type(const std::string &name, const std::string &fields = "") {
    return "{'model_type': '" + name + "', 'head_dim': 128" + (fields.empty() ? "}" : ", " + fields + "}");
}

inline nlohmann::json patched(nlohmann::json config, const std::string &patch) {
    config.merge_patch(parse(patch));
    return config;
}

/// Llama 3.1 8B, with some fields replaced; null removes one (RFC 7396).
inline nlohmann::json llama(const std::string &patch = "{}") {
    return patched(parse("{'model_type': 'llama', 'hidden_size': 4096, 'num_attention_heads': 32, 'rope_theta': 5e5,"
                         "'max_position_embeddings': 131072, 'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0,"
                         "'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 8192}}"),
                   patch);
}

/// Phi-3 mini, whose rope_scaling has two lists (short_factor and long_factor), with some fields replaced.
inline nlohmann::json phi3(const std::string &patch = "{}") {
    return patched(nlohmann::json::parse(read_fixture("phi-3-mini-128k")), patch);
}

/// Llama 3.1 8B and Phi-3 mini with some fields of rope_scaling replaced.
inline nlohmann::json scaled(const std::string &fields) { return llama("{'rope_scaling': {" + fields + "}}"); }
inline nlohmann::json phi3_scaled(const std::string &fields) { return phi3("{'rope_scaling': {" + fields + "}}"); }
inline nlohmann::json yarn(const std::string &fields) {
    return scaled("'rope_type': 'yarn', 'low_freq_factor': null, 'high_freq_factor': null, " + fields);
}

/// A multimodal config whose text_config is a language model's config, with other fields beside it.
inline nlohmann::json inside(const nlohmann::json &text_config, const std::string &beside = "{}") {
    return patched({{"model_type", "llava"}, {"text_config", text_config}}, beside);
}

inline std::string gemma3(const std::string &full, const std::string &beside = "") {
    return type("gemma3_text", "'rope_parameters': {'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4},"
                               "'full_attention': " +
                                   full + beside + "}");
}
inline std::string gemma4(const std::string &layers) {
    return type("gemma4_text", "'layer_types': ['sliding_attention', 'full_attention'], 'per_layer_config': " + layers);
}
inline std::string qwen2_vl(const std::string &fields) {
    return type("qwen2_vl", "'vision_config': {'embed_dim': 1280, 'num_heads': 16, " + fields + "}");
}
inline std::string sarvam(const std::string &scaling) {
    return type("sarvam_mla",
                "'rope_scaling': {'factor': 40, 'original_max_position_embeddings': 4096, " + scaling + "}");
}
