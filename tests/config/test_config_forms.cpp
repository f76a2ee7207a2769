// What else a config may say: other forms of the same, layer types, image encoders.
#include "config/read_config.h"

using nlohmann::json;

TEST_CASE("config: other ways to say the same", "[config]") {
    const auto usual = read_good(llama().dump());
    const auto same = [&](const json &config) { return is_same(usual, read_good(config.dump())); };
    CHECK(same(llama(R"({"rope_scaling": {"rope_type": null, "type": "llama3"}})")));
    CHECK(same(llama(R"({"rope_scaling": {"type": "llama3"}})")));
    CHECK(same(llama(R"({"rope_theta": null, "rope_scaling": {"rope_theta": 500000}})")));
    CHECK(same(llama(R"({"head_dim": 128, "hidden_size": null, "num_attention_heads": null})")));
    CHECK(same(llama(R"({"max_position_embeddings": 131072.0})")));
    CHECK(same(llama(R"({"partial_rotary_factor": 1, "unknown": [{"rope_theta": null, "property": 3}]})")));
    CHECK(same(llama(R"({"rope_scaling": {"mrope_interleaved": false}})")));
    CHECK(same(llama(R"({"partial_rotary_factor": 1.0, "rotary_dim": 128})")));
    CHECK(same(llama(R"({"num_hidden_layers": 3, "rope_scaling_layers": [0, 1, 2]})")));
    CHECK(same(llama(R"({"model_type": "other", "position_embedding_type": "default"})")));
    CHECK(same(llama(R"({"original_max_position_embeddings": 8192,
        "rope_scaling": {"original_max_position_embeddings": null}})")));
    CHECK(same(llama(R"({"model_type": "some-other-model"})")));
    CHECK(read_good(llama(R"({"model_type": "some-other-model"})").dump()).info.pairing == 0);
    auto v5 = llama();
    v5["rope_parameters"] = v5["rope_scaling"];
    CHECK(same(v5));
    v5.erase("rope_scaling");
    CHECK(same(v5));
    CHECK(same(json{{"model_type", "llava"}, {"text_config", llama()}}));
    CHECK(same(json{{"model_type", "llava"}, {"rope_theta", 500000.0}, {"text_config", llama()}}));
    CHECK(same(json{{"text_config", llama()}, {"vlm_config", {{"text_config", llama()}}}}));  // as ColPali
    auto nameless = llama(R"({"max_position_embeddings": null, "rope_scaling": {"max_position_embeddings": 131072}})");
    CHECK(read_good(nameless.dump()).info.rotary_dim == 128);
    CHECK(is_same(read_good(R"({"model_type": "internlm", "head_dim": 128, "rotary": {"base": 10000}})"),
                  read_good(R"({"model_type": "internlm", "head_dim": 128, "rope_theta": 10000})")));
    CHECK(is_same(read_good(R"({"model_type": "llama", "head_dim": 64, "rope_scaling_layers": [0]})"),
                  read_good(R"({"model_type": "llama", "head_dim": 64})")));
    auto untyped = llama(R"({"model_type": null})");
    CHECK(same(json{{"model_type", "llama"}, {"text_config", untyped}}));

    // Names of methods, and what they fall back to.
    CHECK(is_same(read_good(phi3().dump(), nullptr, 5000),
                  read_good(phi3(R"({"rope_scaling": {"type": "su"}})").dump(), nullptr, 5000)));
    CHECK(is_same(read_good(phi3().dump()), read_good(phi3(R"({"rope_scaling": {"type": "yarn"}})").dump())));
    CHECK(is_same(read_good(llama_yarn(R"(, "factor": 16)").dump()),
                  read_good(llama_yarn(R"(, "factor": null)").dump())));
    CHECK(read_good(llama_yarn(R"(, "attention_factor": 1.5)").dump()).info.attention_factor == 1.5);
    CHECK(read_good(llama(R"({"rope_scaling": {"original_max_position_embeddings": null}})").dump()).info.rotary_dim ==
          128);
    CHECK(std::string(read_good(R"({"model_type": "llama", "head_dim": 64, "rope_scaling": {}})").info.method) ==
          "default");

    // Early Phi-3.5-MoE states an attention factor for each range.
    const auto moe = phi3(R"({"model_type": "phimoe", "rope_scaling": {"short_mscale": 1.25, "long_mscale": 1.5}})");
    CHECK(read_good(moe.dump(), nullptr, 4096).info.attention_factor == 1.25);
    CHECK(read_good(moe.dump(), nullptr, 4097).info.attention_factor == 1.5);

    // One length for all layers, and another one for those that have a base of their own.
    CHECK(read_good(R"({"model_type": "gemma3_text", "head_dim": 64, "original_max_position_embeddings": 4096,
        "max_position_embeddings": 65536, "rope_parameters": {"sliding_attention": {"rope_theta": 1e4},
        "full_attention": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 8,
        "original_max_position_embeddings": 8192}}})",
                    "full_attention")
              .info.original_max_position == 8192);
    // Models that split pairs by axes where a config counts them, and those that turn whole heads unless it says else.
    CHECK(read_good(R"({"model_type": "hunyuan_vl_text", "head_dim": 64, "rope_theta": 1e4})").info.n_axes == 0);
    const auto minimax = [](const std::string &more) {
        return read_good(R"({"model_type": "minimax_m3_vl_text")" + more + "}").info.rotary_dim;
    };
    CHECK(minimax("") == 128);
    CHECK(minimax(R"(, "rotary_dim": 128)") == 128);
    CHECK(minimax(R"(, "rotary_dim": 64, "partial_rotary_factor": 0.5)") == 64);
    // Which order a model that is not known has in the end is not known either.
    CHECK(read_good(llama(R"({"model_type": "other", "rope_interleave": true})").dump()).info.pairing == 0);

    // Weights can be in half order, too.
    auto deepseek = json::parse(read_fixture("deepseek-v3"));
    deepseek["rope_interleave"] = false;
    CHECK(read_good(deepseek.dump()).info.pairing == HALYARD_PAIRING_HALF);
    CHECK(read_good(deepseek.dump()).info.out_pairing == HALYARD_PAIRING_HALF);
}

TEST_CASE("config: layer types", "[config]") {
    const auto mismatch = [](const std::string &text, const char *layer_type, const char *word) {
        CAPTURE(text, layer_type);
        const auto outcome = read(text, layer_type);
        CHECK(outcome.status == HALYARD_ERROR_MISMATCH);
        CAPTURE(outcome.message);
        CHECK(outcome.message.find(word) != std::string::npos);
    };
    for (const char *fixture : {"gemma-3-4b", "gemma-4", "olmo-3-7b", "modernbert-base"}) {
        mismatch(read_fixture(fixture), nullptr, "sliding_attention");
        mismatch(read_fixture(fixture), "chunked_attention", "chunked_attention");
        mismatch(read_fixture(fixture), "", "''");
    }
    // Layers without RoPE.
    mismatch(read_fixture("llama-4-scout"), "full_attention", "no RoPE");
    mismatch(read_fixture("command-r7b"), "full_attention", "no RoPE");
    mismatch(read_fixture("exaone-4.0-32b"), "full_attention", "no RoPE");
    for (const char *name : {"llama-4-scout", "command-r7b", "exaone-4.0-32b"}) {
        const char *type = std::string(name) == "llama-4-scout" ? "chunked_attention" : "sliding_attention";
        CHECK(is_same(read_good(read_fixture(name)), read_good(read_fixture(name), type)));
    }
    for (const char *type : {"linear_attention", "conv", "mamba"}) {
        auto mixed = llama();
        mixed["layer_types"] = {"full_attention", type};
        mismatch(mixed.dump(), type, "no RoPE");
        mismatch(llama().dump(), type, "the config has no layer_types");
    }
    const auto unslid = R"({"model_type": "exaone4", "head_dim": 64, "sliding_window": null, "layer_types":
        ["full_attention"]})";
    CHECK(read_good(unslid, "full_attention").info.rotary_dim == 64);
    CHECK(read_good(llama(R"({"layer_types": ["full_attention"]})").dump(), "full_attention").info.rotary_dim == 128);
    mismatch(llama(R"({"layer_types": ["full_attention"]})").dump(), "sliding_attention", "sliding_attention");
    mismatch(llama().dump(), "full_attention", "layer_types");
    CHECK(is_same(read_good(read_fixture("smollm3-3b")), read_good(read_fixture("smollm3-3b"), "full_attention")));

    const auto per_layer = json::parse(R"({"model_type": "other", "head_dim": 64, "rope_theta": 7, "layer_types":
        ["a", "b", "c"], "rope_parameters": {"a": {"rope_theta": 100}, "b": {"rope_theta": 100}, "c": null}})");
    CHECK(is_same(read_good(per_layer.dump()),
                  read_good(per_layer.dump(), "b")));  // no layer type is needed where all layers with RoPE are alike
    mismatch(per_layer.dump(), "c", "no RoPE");
    mismatch(per_layer.dump(), "d", "'a', 'b'");
    auto more = per_layer;  // in the list alone, and as null alone
    more["layer_types"] = {"a", "b", "e"};
    mismatch(more.dump(), "e", "no RoPE");
    more["rope_parameters"]["full_attention"] = nullptr;
    mismatch(more.dump(), "full_attention", "no RoPE");
    const auto one_width = llama(R"({"layer_types": ["full_attention"], "per_layer_config": {"0": {"head_dim": 64}}})");
    CHECK(read_good(one_width.dump(), "full_attention").info.head_dim == 64);
    CHECK(is_same(read_good(R"({"model_type": "olmo3", "head_dim": 64})"),
                  read_good(R"({"model_type": "olmo3", "head_dim": 64})", "full_attention")));
    auto wider = per_layer;
    wider["per_layer_config"] = json::parse(R"({"1": {"head_dim": 128}})");
    CHECK(read_good(wider.dump(), "a").info.head_dim == 64);
    CHECK(read_good(wider.dump(), "b").info.head_dim == 128);
    mismatch(wider.dump(), nullptr, "'a', 'b'");

    // Gemma 4 as transformers writes it: each layer's width under its number. Drafters beside it repeat a method.
    auto saved = json::parse(read_fixture("gemma-4-12b"));
    auto &inside = saved.at("text_config");
    inside.erase("global_head_dim");
    inside["rope_parameters"]["rope_theta"] = nullptr;
    inside["rope_parameters"]["rope_type"] = "default";
    for (const char *layer : {"05", "11", "17", "23", "29", "35", "41", "47"}) {
        inside["per_layer_config"][layer] = {{"head_dim", 512}, {"num_key_value_heads", 1}};
    }
    for (const char *type : {"full_attention", "sliding_attention"}) {
        const auto outcome = read_good(saved.dump(), type);
        CHECK(is_same(outcome, read_good(read_fixture("gemma-4-12b"), type)));
        CHECK(outcome.info.head_dim == (std::string(type) == "full_attention" ? 512 : 256));
    }

    // For Gemma 4 the model type alone says everything.
    const std::string gemma4 = R"({"model_type": "gemma4_text"})";
    CHECK(is_same(read_good(gemma4, "full_attention"), read_good(read_fixture("gemma-4"), "full_attention")));
    CHECK(is_same(read_good(gemma4, "sliding_attention"), read_good(read_fixture("gemma-4"), "sliding_attention")));
}

TEST_CASE("config: the layer of a number", "[config]") {
    const auto step = read_fixture("step-3.5-flash"), mimo = read_fixture("mimo-v2-flash");
    for (std::int64_t layer = 0; layer < 45; ++layer) {
        const char *const type = layer % 4 == 0 ? "full_attention" : "sliding_attention";
        CHECK(is_same(read(step, nullptr, 0, &layer), read_good(step, type)));
    }
    // Bases by layer count before that of all; those of 0 have no RoPE. Layers of one type need not be alike.
    const std::string granite = R"({"model_type": "granite_swa", "head_dim": 64, "rope_theta": 1e4, "layer_types":
        ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
        "layer_rope_theta": [0, 5e5, 5e5, )",
                      alike = granite + "0]}", differing = granite + "1e6]}";
    const std::string v4 = R"({"model_type": "deepseek_v4", "rope_parameters": {"main": {"rope_theta": 1e4},
        "compress": {"rope_theta": 16e4}}, "layer_types": ["sliding_attention", "compressed_sparse_attention"]})",
                      smollm3 = R"({"model_type": "smollm3", "head_dim": 64})",
                      cohere2 = R"({"model_type": "cohere2", "head_dim": 64)";
    const struct {
        std::string text;
        std::int64_t layer;
        double base;
        const char *layer_type = nullptr;
    } read_rightly[] = {{mimo, 5, 5e6},
                        {mimo, 6, 1e4},
                        {mimo, 47, 5e6, "full_attention"},
                        {differing, 2, 5e5},
                        {differing, 3, 1e6},
                        {read_fixture("gemma-3-4b"), 5, 1e6, "full_attention"},
                        {read_fixture("llama-2-7b"), 31, 1e4},
                        {smollm3, 6, 2e6},
                        {v4, 0, 1e4},
                        {v4, 1, 16e4}};
    for (const auto &one : read_rightly) {
        INFO(one.text << ", layer " << one.layer);
        CHECK(read(one.text, one.layer_type, 0, &one.layer).info.base == one.base);
    }
    CHECK(read_good(alike).info.base == 5e5);
    const struct {
        std::string text;
        std::int64_t layer;
        const char *words;
        const char *layer_type = nullptr;
    } refused[] = {
        {step, 45, "the model has 45"},
        {step, 1, "layer 1 is of type 'sliding_attention', but layer_type is 'full_attention'", "full_attention"},
        {differing, 0, "layer_rope_theta has no number but 0"},
        {differing, 4, "the model has 4"},
        {R"({"model_type": "llama", "head_dim": 64, "n_layers": 9, "layer_types": ["full_attention"]})", 5,
         "the model has 1"},
        {read_fixture("smollm3-3b"), 3, "layer 3 has no RoPE"},
        {smollm3, 7, "layer 7 has no RoPE"},
        {cohere2 + "}", 6, "layer_type is needed beside layer 6"},
        {cohere2 + R"(, "layer_types": ["sliding_attention", "full_attention"]})", 1, "have no RoPE"},
        {read_fixture("gemma-4-12b"), 48, "the model has 48"},
        {read_fixture("qwen2-vl-7b"), 0, "all layers of an image encoder are alike", "vision"}};
    for (const auto &one : refused) {
        INFO(one.text);
        check_outcome(read(one.text, one.layer_type, 0, &one.layer), HALYARD_ERROR_MISMATCH, {one.words});
    }
    check_outcome(read(step), HALYARD_ERROR_MISMATCH, {"layer_type is needed"});
    check_outcome(read(alike, "full_attention"), HALYARD_ERROR_MISMATCH, {"no number but 0"});
    for (const char *type : {"sliding_attention", static_cast<const char *>(nullptr)}) {
        check_outcome(read(differing, type), HALYARD_ERROR_MISMATCH, {"layer_rope_theta has 500000 and 1000000"});
    }
    const std::int64_t negative = -1;
    check_outcome(read(mimo, nullptr, 0, &negative), HALYARD_ERROR_SHAPE, {"options.layer is -1"});
}

TEST_CASE("config: what latent attention has without its keys, or turned off", "[config]") {
    const std::string sizes = R"("hidden_size": 2048, "num_attention_heads": 16)";
    const auto read_type = [&](const std::string &type, const std::string &more = "") {
        return read(R"({"model_type": ")" + type + R"(", )" + sizes + more + "}");
    };
    CHECK(read_type("deepseek_v3", R"(, "rope_theta": 5e4)").info.rotary_dim == 64);
    CHECK(read_type("deepseek_v2").info.pairing == HALYARD_PAIRING_INTERLEAVED);
    CHECK(read_type("deepseek_v2", R"(, "use_mla": true)").info.rotary_dim == 64);
    for (const char *width : {"", R"(, "qk_rope_head_dim": 0)", R"(, "qk_rope_head_dim": 64)"}) {
        const auto info = read_type("deepseek_v2", R"(, "use_mla": false)" + std::string(width)).info;
        CHECK(info.rotary_dim == 128);
        CHECK(info.pairing == HALYARD_PAIRING_HALF);
        CHECK(info.out_pairing == HALYARD_PAIRING_HALF);
    }
    check_outcome(read_type("deepseek_v3", R"(, "use_mla": false)"), HALYARD_ERROR_UNSUPPORTED, {"use_mla is false"});
    check_outcome(read_type("deepseek_v2", R"(, "qk_rope_head_dim": 0)"), HALYARD_ERROR_SHAPE,
                  {"qk_rope_head_dim is 0"});
    // As DeepSeek-OCR is published: the part does not say its type.
    auto ocr = json::parse(read_fixture("deepseek-ocr"));
    ocr["language_config"].erase("model_type");
    CHECK(is_same(read_good(ocr.dump()), read_good(read_fixture("deepseek-ocr"))));
    CHECK(read_good(ocr.dump()).info.pairing == HALYARD_PAIRING_HALF);
    // Its word for YaRN, whose magnitude differs where only one of two numbers is stated.
    const auto yarn = [&](const char *word, const char *more) {
        return read_type("sarvam_mla", R"(, "rope_scaling": {"type": ")" + std::string(word) +
                                           R"(", "factor": 40, "original_max_position_embeddings": 4096)" + more + "}");
    };
    for (const char *more : {"", R"(, "mscale": 0.7, "mscale_all_dim": 0.7)"}) {
        CHECK(is_same(yarn("deepseek_yarn", more), yarn("yarn", more)));
    }
    check_outcome(yarn("deepseek_yarn", R"(, "mscale": 0.7)"), HALYARD_ERROR_CONFIG, {"mscale_all_dim", "missing"});
}

TEST_CASE("config: image encoders", "[config]") {
    const auto head_dim = [](const char *fixture) {
        const auto outcome = read_good(read_fixture(fixture), "vision");
        CHECK(outcome.info.n_axes == 2);
        CHECK(outcome.info.rotary_dim == outcome.info.head_dim);
        return outcome.info.head_dim;
    };
    CHECK(head_dim("qwen2-vl-7b") == 80);
    CHECK(head_dim("qwen2.5-vl-7b") == 80);
    CHECK(head_dim("qwen3-vl-8b") == 72);
    CHECK(read(read_fixture("llama-2-7b"), "vision").status == HALYARD_ERROR_UNSUPPORTED);
    CHECK(read(R"({"model_type": "qwen2_vl"})", "vision").status == HALYARD_ERROR_CONFIG);
    CHECK(
        read(R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1282, "num_heads": 16}})", "vision").status ==
        HALYARD_ERROR_CONFIG);
}
