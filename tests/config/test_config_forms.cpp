// Less common contents of configs: equivalent forms, layer types, single layers, image encoders, scales of q.
#include "config/read_config.h"

using nlohmann::json;

namespace {

constexpr const char *full = "full_attention", *sliding = "sliding_attention", *vision = "vision";

/// Two configs that must give the same frequencies.
struct SameConfigs {
    Text config, other;
    const char *layer_type = nullptr, *other_type = layer_type;
    std::int64_t seq_len = 0;
};

void check_same(const std::vector<SameConfigs> &rows) {
    for (const auto &[config, other, layer_type, other_type, seq_len] : rows) {
        CAPTURE(config.text, other.text);
        CHECK(
            is_same(read_good(config.text, layer_type, seq_len).info, read_good(other.text, other_type, seq_len).info));
    }
}

/// A config, and some of the facts (see facts_of) that must be read from it.
struct ConfigFacts {
    Text config;
    const char *facts, *layer_type = nullptr;
    std::int64_t seq_len = 0;
};

void check_facts(const std::vector<ConfigFacts> &rows) {
    for (const auto &[config, facts, layer_type, seq_len] : rows) {
        CAPTURE(config.text, facts);
        check_facts(read_good(config.text, layer_type, seq_len).info, parse(facts));
    }
}

json fixture(const char *name) { return json::parse(read_fixture(name)); }

std::string three_layer_kinds_config(const std::string &beside = "") {
    return type("other", "'rope_theta': 7, 'layer_types': ['a', 'b', 'c'], 'rope_parameters': {'a': {'rope_theta': "
                         "100}, 'b': {'rope_theta': 100}, 'c': null}" +
                             beside);
}
}  // namespace

TEST_CASE("config: other ways to say the same", "[config]") {
    auto both = llama();
    both["rope_parameters"] = both["rope_scaling"];
    auto moved = both;
    moved["rope_scaling"] = json::object();
    check_same({
        {llama("{'head_dim': 128, 'hidden_size': null, 'num_attention_heads': null}"), llama()},
        {llama("{'partial_rotary_factor': 1, 'unknown': [{'rope_theta': null, 'property': 3}]}"), llama()},
        {scaled("'mrope_interleaved': false"), llama()},
        {llama("{'num_hidden_layers': 3, 'rope_scaling_layers': [0, 1, 2]}"), llama()},
        {llama("{'model_type': 'other', 'position_embedding_type': 'default'}"), llama()},
        {both, llama()},
        {moved, llama()},
        {json{{"text_config", llama()}, {"vlm_config", {{"text_config", llama()}}}}, llama()},  // as ColPali's config
        {json{{"model_type", "llama"}, {"text_config", llama("{'model_type': null}")}}, llama()},
        // Frequencies of a model's other parts are ignored.
        {inside(llama(), "{'vision_config': {'rope_theta': 5}}"), llama()},
        {llama("{'drafter': {'model_type': 'x', 'rope_theta': 5}}"), llama()},
        // A key with the value null counts as missing.
        {llama().dump().insert(1, "'rope_fancy': null, "), llama()},
        {inside(llama()).dump().insert(1, "'rope_theta': null, "), llama()},
        {gemma3("{}", ", 'factro': null, 'factor': null"), gemma3("{}"), full},
        {gemma3("{}", ", 'type': 'default', 'truncate': true"), gemma3("{}"), full},
        {gemma4("{'1': {'head_dim': 512, 'rope_theta': null}}"), gemma4("{'1': {'head_dim': 512}}"), full},
        {qwen2_vl("'rope_fancy': null"), qwen2_vl("'depth': 1"), vision},
        {qwen2_vl("'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4, 'rope_fancy': null}"),
         qwen2_vl("'depth': 1"), vision},
        {qwen2_vl("'rope_parameters': {'rope_type': 'axial'}"), qwen2_vl("'depth': 1"), vision},
    });
    // Infinity and NaN are accepted in fields that are not read, and are plain text inside strings.
    for (const char *value :
         {"Infinity", "-Infinity", "NaN", "[0.0, Infinity]", "{\"a\": [NaN, -Infinity]}", R"("NaN \" Infinity \\")"}) {
        check_same({{llama().dump().insert(1, "\"time_step_limit\": " + std::string(value) + ", "), llama()}});
    }
}

TEST_CASE("config: other names of methods, and layers that are alike", "[config]") {
    auto ocr = fixture("deepseek-ocr");  // as published: the language model's part has no model_type
    ocr["language_config"].erase("model_type");
    // Gemma 4 as transformers saves it: widths are keyed by the layer's number. Its drafter repeats the scaling method.
    auto saved = fixture("gemma-4-12b");
    auto &text_config = saved.at("text_config");
    text_config.erase("global_head_dim");
    text_config["rope_parameters"]["rope_theta"] = nullptr;
    text_config["rope_parameters"]["rope_type"] = "default";
    for (const char *layer : {"05", "11", "17", "23", "29", "35", "41", "47"}) {
        text_config["per_layer_config"][layer] = {{"head_dim", 512}, {"num_key_value_heads", 1}};
    }
    check_same({
        {phi3_scaled("'type': 'su'"), phi3(), nullptr, nullptr, 5000},
        {phi3_scaled("'type': 'yarn'"), phi3()},
        {yarn("'factor': null"), yarn("'factor': 16")},
        {sarvam("'type': 'deepseek_yarn'"), sarvam("'type': 'yarn'")},
        {sarvam("'type': 'deepseek_yarn', 'mscale': 0.7, 'mscale_all_dim': 0.7"),
         sarvam("'type': 'yarn', 'mscale': 0.7, 'mscale_all_dim': 0.7")},
        {type("internlm", "'rotary': {'type': 'origin', 'base': 10000}"), type("internlm", "'rope_theta': 10000")},
        {type("internlm", "'max_position_embeddings': 2048, 'rope_scaling': {'type': 'dynamic'}"),
         type("internlm", "'max_position_embeddings': 2048, 'rope_scaling': {'type': 'dynamic', 'factor': 1}"), nullptr,
         nullptr, 4096},
        {type("llama", "'rope_scaling_layers': [0]"), type("llama")},
        {ocr, fixture("deepseek-ocr")},
        // With a layer type: all layers with RoPE are alike, or the model type alone tells which layers differ.
        {read_fixture("llama-4-scout"), read_fixture("llama-4-scout"), nullptr, "chunked_attention"},
        {type("olmo3"), type("olmo3"), nullptr, full},
        {type("exaone4", "'layer_types': ['sliding_attention']"), type("llama"), "chunked_attention", nullptr},
        {three_layer_kinds_config(), three_layer_kinds_config(), nullptr, "b"},
        {"{'model_type': 'gemma4_text'}", read_fixture("gemma-4"), full},
        {saved, read_fixture("gemma-4-12b"), full},
    });
}

TEST_CASE("config: what is read of rarer forms", "[config]") {
    const json phimoe = phi3("{'model_type': 'phimoe', 'rope_scaling': {'short_mscale': 1.25, 'long_mscale': 1.5}}");
    auto half = fixture("deepseek-v3");  // weights may be stored in half order
    half["rope_interleave"] = false;
    check_facts({
        {llama("{'model_type': 'some-other-model'}"), "{'pairing': null}"},
        {inside(llama("{'model_type': 'another'}"), "{'model_type': 'other'}"), "{'base': 5e5}"},
        {inside(llama("{'model_type': null}"), "{'model_type': null}"), "{'base': 5e5}"},
        {type("llama", "'rope_parameters': {'rope_theta': 1e4, 'partial_rotary_factor': 0.5}"), "{'rotary_dim': 64}"},
        {type("llama", "'use_mla': false"), "{'pairing': 'half'}"},
        {type("llama", "'rotary_emb_interleaved': false"), "{'pairing': 'half'}"},
        {yarn("'attn_factor': 1"), "{'rotary_dim': 128}"},
        {yarn("'factor': 1e18"), "{'max_position': 131072}"},  // 8192e18 positions are more than an integer holds
        {type("step3p5"), "{'base': 1e4}"},
        // Of an unknown model type, rotary_emb_interleaved tells both pairings, rope_interleave not the output's.
        {llama("{'model_type': 'other', 'rotary_emb_interleaved': true}"),
         "{'pairing': 'interleaved', 'out_pairing': 'interleaved'}"},
        {llama("{'model_type': 'other', 'rotary_emb_interleaved': false}"),
         "{'pairing': 'half', 'out_pairing': 'half'}"},
        {llama("{'model_type': 'other', 'rope_interleave': true}"), "{'pairing': null}"},
        {half, "{'pairing': 'half', 'out_pairing': 'half'}"},
        {llama("{'max_position_embeddings': null, 'rope_scaling': {'max_position_embeddings': 131072}}"),
         "{'rotary_dim': 128}"},
        // Early Phi-3.5-MoE configs have an attention factor for short and another for long contexts.
        {phimoe, "{'attention_factor': 1.25}", nullptr, 4096},
        {phimoe, "{'attention_factor': 1.5}", nullptr, 4097},
        // The config's original length is for all layers, except for those with a base of their own.
        {type("gemma3_text",
              "'original_max_position_embeddings': 4096, 'max_position_embeddings': 65536, 'rope_parameters': "
              "{'sliding_attention': {'rope_theta': 1e4}, 'full_attention': {'rope_type': 'yarn', 'rope_theta': 1e6, "
              "'factor': 8, 'original_max_position_embeddings': 8192}}"),
         "{'original_max_position': 8192}", full},
        // These models have several axes only if the config states them, and rotate whole heads unless it states a
        // rotary_dim.
        {type("hunyuan_vl_text"), "{'axis_map': null}"},
        {type("minimax_m3_vl_text"), "{'rotary_dim': 128}"},
        {type("minimax_m3_vl_text", "'rotary_dim': 128"), "{'rotary_dim': 128}"},
        {type("minimax_m3_vl_text", "'rotary_dim': 64, 'partial_rotary_factor': 0.5"), "{'rotary_dim': 64}"},
        // Multi-head latent attention (MLA) that is switched off.
        {type("deepseek_v2", "'use_mla': false"), "{'rotary_dim': 128, 'pairing': 'half', 'out_pairing': 'half'}"},
        {type("deepseek_v2", "'use_mla': false, 'qk_rope_head_dim': 64"), "{'rotary_dim': 128, 'pairing': 'half'}"},
    });
}

TEST_CASE("config: what is read of layers, lengths and image encoders", "[config]") {
    check_facts({
        {type("exaone4", "'sliding_window': null, 'layer_types': ['full_attention']"), "{'rotary_dim': 128}", full},
        {llama("{'layer_types': ['full_attention'], 'per_layer_config': {'0': {'head_dim': 64}}}"), "{'head_dim': 64}",
         full},
        {three_layer_kinds_config(", 'per_layer_config': {'1': {'head_dim': 64}}"), "{'head_dim': 128}", "a"},
        {three_layer_kinds_config(", 'per_layer_config': {'1': {'head_dim': 64}}"), "{'head_dim': 64}", "b"},
        {type("other", "'layer_types': ['full_attention\\u0000too'], 'rope_parameters': {'full_attention\\u0000too': "
                       "{'rope_theta': 1e4}}"),
         "{'base': 1e4}"},
        // The context lengths for which frequencies hold. Qwen2.5 has max_position_embeddings 32768 and
        // factor 4, so its max_position is 131072.
        {type("qwen", "'use_logn_attn': true, 'seq_length': 2048"), "{'last_seq_len': 2048}"},
        {type("qwen", "'use_logn_attn': false, 'seq_length': 2048"), "{'last_seq_len': 9007199254740992}", nullptr,
         2049},
        {type("qwen", "'use_dynamic_ntk': true"), "{'first_seq_len': 0, 'last_seq_len': 8192}", nullptr, 8192},
        {phi3(), "{'first_seq_len': 0, 'last_seq_len': 4096}", nullptr, 4096},
        {phi3(), "{'first_seq_len': 4097, 'last_seq_len': 9007199254740992}", nullptr, 4097},
        {read_fixture("internlm2.5-7b"), "{'base': 1e6, 'original_max_position': 32768, 'max_position': 32768}"},
        {read_fixture("qwen2.5-7b-yarn"), "{'base': 1e6, 'original_max_position': 32768, 'max_position': 131072}"},
        // Image encoders.
        {read_fixture("qwen2.5-vl-7b"), "{'rotary_dim': 80, 'axis_map': ['sections', 20, 20]}", vision},
        {read_fixture("qwen3-vl-8b"), "{'rotary_dim': 72, 'head_dim': 72}", vision},
    });
}

TEST_CASE("config: what is asked of q, and whether some layers rotate nothing", "[config]") {
    const std::string kinds = "'layer_types': ['sliding_attention', 'full_attention']";
    const auto ministral = [](const std::string &name, const std::string &fields) {
        return type(name, "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e6, 'factor': 16, " + fields + "}");
    };
    const auto beam = [](const std::string &of_full) {
        return type("beam",
                    "'rope_parameters': {'sliding_attention': {'rope_theta': 1e4}, 'full_attention': " + of_full + "}");
    };
    constexpr const char *nothing = "{'q_scale': null, 'has_unrotated_layers': false}",
                         *skips = "{'q_scale': null, 'has_unrotated_layers': true}",
                         *llama4 = "{'q_scale': ['log', 'unrotated', 0.1, 8192, 1], 'has_unrotated_layers': true}";
    check_facts({
        {type("llama"), nothing},
        // Llama 4 scales q in layers without RoPE: every fourth layer, unless the config lists them.
        {type("llama4_text"), llama4},
        {type("llama4_text", "'attn_scale': 0.25, 'floor_scale': 100"),
         "{'q_scale': ['log', 'unrotated', 0.25, 100, 1]}"},
        {type("llama4_text", "'attn_temperature_tuning': null"), llama4},
        {type("llama4_text", "'attn_temperature_tuning': false"), skips},
        {type("llama4_text", "'attn_temperature_tuning': 0"), skips},
        {type("llama4_text", "'num_hidden_layers': 3"), nothing},
        {type("llama4_text", "'num_hidden_layers': 3, 'no_rope_layer_interval': 3"), llama4},
        {type("llama4_text", "'no_rope_layers': [1, 0]"), llama4},
        {read_fixture("llama-4-scout"), llama4},
        // Ministral 3 and Mistral 4 scale q in all layers. Beam's numbers come from its code, not its config.
        {ministral("ministral3", "'llama_4_scaling_beta': 0.1, 'original_max_position_embeddings': 16384"),
         "{'q_scale': ['log', 'all', 0.1, 16384, 0], 'has_unrotated_layers': false}"},
        {ministral("mistral4", "'llama_4_scaling_beta': 0.5, 'original_max_position_embeddings': 8192"),
         "{'q_scale': ['log', 'all', 0.5, 8192, 0], 'has_unrotated_layers': false}"},
        {beam("null"), "{'q_scale': ['power', 'unrotated', 0.1, 2048, 1], 'has_unrotated_layers': true}", sliding},
        {beam("{'rope_type': 'default', 'rope_theta': 1e6}"), nothing, sliding},
        // Models that have layers without RoPE, but no scale of q.
        {read_fixture("smollm3-3b"), skips},
        {type("cohere2", kinds), skips},
        {type("exaone4", kinds + ", 'sliding_window': 4096"), skips},
        {type("exaone4", kinds), skips},
        {type("exaone4", kinds + ", 'sliding_window': null"), nothing},
        {type("granite_swa", "'layer_rope_theta': [1e4, 0, 1e4]"), skips},
        {type("granite_swa", "'layer_rope_theta': [1e4, 1e4]"), nothing},
        // Scales of q that are switched off, or in fields that the model does not read.
        {ministral("qwen2", "'llama_4_scaling_beta': 0, 'original_max_position_embeddings': 8192"), nothing},
        {type("unheard_of", "'rope_theta': 1e4, 'attn_temperature_tuning': false, 'use_logn_attn': false"), nothing},
        // A null in rope_parameters means a layer type without RoPE only if layer_types has the key.
        {type("llama", "'rope_parameters': {'rope_theta': 1e4, 'factor': null}"), nothing},
        {type("llama", "'layer_types': ['full_attention'], 'rope_parameters': {'full_attention': {'rope_theta': 1e4}, "
                       "'sliding_attention': null}"),
         nothing, full},
    });
}

TEST_CASE("config: the layer of a number", "[config]") {
    const auto step = read_fixture("step-3.5-flash"), mimo = read_fixture("mimo-v2-flash");
    for (std::int64_t layer = 0; layer < 45; ++layer) {
        CHECK(is_same(read(step, nullptr, 0, &layer).info, read_good(step, layer % 4 == 0 ? full : sliding).info));
    }
    // layer_rope_theta beats rope_theta, and a base of 0 means no RoPE. Layers of one type may differ.
    const std::string
        granite = "{'model_type': 'granite_swa', 'head_dim': 64, 'rope_theta': 1e4, 'layer_types': ['full_attention', "
                  "'sliding_attention', 'sliding_attention', 'sliding_attention'], 'layer_rope_theta': [0, 5e5, 5e5, ",
        alike = granite + "0]}", differing = granite + "1e6]}",
        v4 = type("deepseek_v4", "'rope_parameters': {'main': {'rope_theta': 1e4}, 'compress': {'rope_theta': 16e4}}, "
                                 "'layer_types': ['sliding_attention', 'compressed_sparse_attention']");
    const struct {
        Text config;
        std::int64_t layer;
        double base;  // 0 if the config must be refused with an error message that holds `words`
        const char *layer_type = nullptr, *words = "";
    } rows[] = {
        {mimo, 5, 5e6},
        {mimo, 47, 5e6, full},
        {differing, 3, 1e6},
        {read_fixture("llama-2-7b"), 31, 1e4},
        {type("smollm3"), 6, 2e6},
        {type("cohere2"), 6, 1e4, sliding},
        {v4, 0, 1e4},
        {v4, 1, 16e4},
        {step, 45, 0, nullptr, "the model has 45"},
        {step, 1, 0, full, "layer 1 is of type 'sliding_attention', but layer_type is 'full_attention'"},
        {differing, 0, 0, nullptr, "layer_rope_theta has no number but 0"},
        {type("llama", "'n_layers': 9, 'layer_types': ['full_attention']"), 5, 0, nullptr, "the model has 1"},
        {read_fixture("smollm3-3b"), 3, 0, nullptr, "layer 3 has no RoPE"},
        {type("smollm3"), 7, 0, nullptr, "layer 7 has no RoPE"},
        {type("cohere2"), 6, 0, nullptr, "layer_type is needed beside layer 6"},
        {type("exaone4"), 6, 0, nullptr, "layer_type is needed beside layer 6"},
        {type("llama4_text"), 6, 5e5},
        {type("cohere2", "'layer_types': ['sliding_attention', 'full_attention']"), 1, 0, nullptr, "have no RoPE"},
        {read_fixture("gemma-4-12b"), 48, 0, nullptr, "the model has 48"},
        {read_fixture("qwen2-vl-7b"), 0, 0, vision, "all layers of an image encoder are alike"},
    };
    for (const auto &one : rows) {
        INFO(one.config.text << ", layer " << one.layer);
        const auto outcome = read(one.config.text, one.layer_type, 0, &one.layer);
        CHECK(outcome.info.base == one.base);
        check_outcome(outcome, one.base != 0 ? HALYARD_OK : HALYARD_ERROR_MISMATCH, one.words);
    }
    CHECK(read_good(with_double_quotes(alike)).info.base == 5e5);
    check_outcome(read(step), HALYARD_ERROR_MISMATCH, "layer_type is needed");
    check_outcome(read(with_double_quotes(alike), full), HALYARD_ERROR_MISMATCH, "no number but 0");
    for (const char *type : {sliding, static_cast<const char *>(nullptr)}) {
        check_outcome(read(with_double_quotes(differing), type), HALYARD_ERROR_MISMATCH,
                      "layer_rope_theta has 500000 and 1000000");
    }
}
