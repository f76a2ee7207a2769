// Configs that are refused, with a sentence that names the field.
#include "config/read_config.h"

using nlohmann::json;

namespace {

struct Bad {
    json config;
    halyard_status status;
    std::vector<const char *> words;
};

constexpr halyard_status refused = HALYARD_ERROR_CONFIG, range = HALYARD_ERROR_FREQUENCY, shape = HALYARD_ERROR_SHAPE,
                         unsupported = HALYARD_ERROR_UNSUPPORTED, width = HALYARD_ERROR_ROTARY_DIM;

/// A config of little more than a model's type.
json type(const char *name, const std::string &more = "") {
    return json::parse(R"({"model_type": ")" + std::string(name) + R"(", "hidden_size": 4096,
        "num_attention_heads": 32)" +
                       more + "}");
}

void check_refused(const std::vector<Bad> &cases) {
    for (const Bad &bad : cases) {
        const auto text = bad.config.dump();
        CAPTURE(text.substr(0, 400));
        check_outcome(read(text), bad.status, bad.words);
    }
}

}  // namespace

TEST_CASE("config: fields of the wrong type are named", "[config][errors]") {
    check_refused({
        {llama(R"({"rope_theta": "10000"})"), refused, {"rope_theta is of type string"}},
        {llama(R"({"rope_theta": true})"), refused, {"rope_theta is of type boolean"}},
        {llama(R"({"rope_theta": [1, 2]})"), refused, {"rope_theta is of type array"}},
        {llama(R"({"rope_scaling": 4})"), refused, {"rope_scaling", "object"}},
        {llama(R"({"rope_scaling": [1]})"), refused, {"rope_scaling is of type array", "object"}},
        {llama_scaled(R"("rope_type": 3)"), refused, {"rope_scaling.rope_type", "string"}},
        {llama_scaled(R"("factor": "8")"), refused, {"rope_scaling.factor"}},
        {llama(R"({"model_type": 7})"), refused, {"model_type"}},
        {llama(R"({"hidden_size": "4096"})"), refused, {"hidden_size"}},
        {llama(R"({"layer_types": "full_attention"})"), refused, {"layer_types is of type string"}},
        {llama(R"({"layer_types": [1]})"), refused, {"layer_types[0]"}},
        {llama(R"({"text_config": "llama"})"), refused, {"text_config is of type string"}},
        {llama_yarn(R"(, "truncate": 1)"), refused, {"truncate"}},
        {phi3(R"({"rope_scaling": {"short_factor": 1}})"), refused, {"short_factor"}},
        {phi3(R"({"rope_scaling": {"short_factor": ["1"]}})"), refused, {"short_factor[0]"}},
        {llama_scaled(R"("long_factor": [1, null])"), refused, {"rope_scaling.long_factor[1] is of type null"}},
        {llama_scaled(R"("max_position_embeddings": -3)"), shape, {"rope_scaling.max_position_embeddings is -3"}},
    });
}

TEST_CASE("config: absurd values of scalings are named", "[config][errors]") {
    check_refused({
        {llama(R"({"rope_theta": 0})"), range, {"rope_theta is 0"}},
        {llama(R"({"rope_theta": -10000})"), range, {"rope_theta is -10000"}},
        {llama_scaled(R"("factor": 0)"), range, {"factor"}},
        {llama_scaled(R"("factor": 0.5)"), range, {"factor", "0.5"}},
        {llama_scaled(R"("factor": 1e300)"), range, {"factor"}},
        {llama_scaled(R"("low_freq_factor": 0)"), range, {"low_freq_factor"}},
        {llama_scaled(R"("high_freq_factor": 0.5)"), range, {"high_freq_factor"}},
        {llama(R"({"rope_scaling": {"rope_type": "dynamic", "alpha": 0}})"), range, {"rope_scaling.alpha is 0"}},
        {llama(R"({"rope_scaling": {"rope_type": "dynamic", "alpha": 0.5}})"), range, {"rope_scaling.alpha is 0.5"}},
        {json{{"model_type", "other"}, {"text_config", llama(R"({"rope_theta": 0})")}},
         range,
         {"text_config.rope_theta is 0"}},
        {llama_yarn(R"(, "beta_fast": -1)"), range, {"beta_fast"}},
        {llama_yarn(R"(, "beta_fast": 1, "beta_slow": 2)"), range, {"beta_fast", "beta_slow"}},
        {llama_yarn(R"(, "attention_factor": 0)"), range, {"attention_factor"}},
        {llama_yarn(R"(, "attention_factor": 1e-40)"), range, {"attention_factor", "in 2^-60 to 2^60"}},
        {llama_yarn(R"(, "mscale": -20, "mscale_all_dim": 1)"), range, {"mscale"}},
        {llama_yarn(R"(, "attn_factor": 2)"), unsupported, {"attn_factor"}},
        {llama_yarn(R"(, "extrapolation_factor": 2)"), unsupported, {"extrapolation_factor"}},
        {phi3(R"({"rope_scaling": {"long_factor": []}})"), shape, {"long_factor", "48"}},
        {phi3(R"({"rope_scaling": {"short_factor": [1, 2, 3]}})"), shape, {"short_factor", "3", "48"}},
        {phi3(R"({"rope_scaling": {"short_factor": [1], "long_factor": [1]}})"),
         shape,
         {"the length of rope_scaling.short_factor is 1", "48"}},
        {phi3(R"({"rope_scaling": {"short_mscale": -1.5, "long_mscale": 1}})"),
         range,
         {"rope_scaling.short_mscale is -1.5"}},
        {phi3(R"({"original_max_position_embeddings": 1})"), shape, {"original_max_position_embeddings"}},
        {phi3(R"({"rope_scaling": {"short_mscale": 0, "long_mscale": 1}})"), range, {"short_mscale"}},
    });
    auto zero_factor = phi3();
    zero_factor["rope_scaling"]["long_factor"][47] = 0;
    check_refused({{zero_factor, range, {"long_factor[47]"}}});
    const auto vision = json::parse(R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "num_heads": 16,
        "rope_parameters": {"rope_theta": -1}}})");
    check_outcome(read(vision.dump(), "vision"), range, {"vision_config.rope_parameters.rope_theta is -1"});
}

TEST_CASE("config: absurd lengths and widths are named", "[config][errors]") {
    check_refused({
        {llama_scaled(R"("original_max_position_embeddings": 0)"), shape, {"original_max_position_embeddings"}},
        {llama_scaled(R"("original_max_position_embeddings": 1.5)"), shape, {"original_max_position_embeddings"}},
        {llama(R"({"max_position_embeddings": 0})"), shape, {"max_position_embeddings"}},
        {llama(R"({"max_position_embeddings": -1})"), shape, {"max_position_embeddings"}},
        {llama(R"({"max_position_embeddings": 1e30})"), shape, {"max_position_embeddings"}},
        {llama(R"({"hidden_size": 0})"), shape, {"hidden_size"}},
        {llama(R"({"num_attention_heads": 0})"), shape, {"num_attention_heads"}},
        {llama(R"({"num_attention_heads": -32})"), shape, {"num_attention_heads"}},
        {llama(R"({"head_dim": 0})"), shape, {"head_dim"}},
        {llama(R"({"head_dim": 127})"), width, {"head_dim", "127"}},
        {llama(R"({"head_dim": 9007199254740992})"), width, {"head_dim"}},
        {llama(R"({"head_dim": 18446744073709551615})"), shape, {"head_dim"}},
        {llama(R"({"partial_rotary_factor": 0})"), refused, {"partial_rotary_factor"}},
        {llama(R"({"partial_rotary_factor": -0.5})"), refused, {"partial_rotary_factor"}},
        {llama(R"({"partial_rotary_factor": 1.5})"), refused, {"partial_rotary_factor"}},
        {llama(R"({"partial_rotary_factor": 0.001})"), width, {"partial_rotary_factor"}},
        {llama(R"({"partial_rotary_factor": 0.4})"), width, {"partial_rotary_factor", "51"}},
        {llama(R"({"rotary_pct": 2})"), refused, {"rotary_pct"}},
        {llama(R"({"rotary_dim": 256})"), refused, {"rotary_dim"}},
        {llama(R"({"rotary_dim": 0})"), shape, {"rotary_dim"}},
        {llama(R"({"qk_rope_head_dim": 63})"), width, {"qk_rope_head_dim is 63"}},
        {llama(R"({"rotary_dim": 33})"), width, {"rotary_dim is 33"}},
    });
}

TEST_CASE("config: missing fields are named", "[config][errors]") {
    check_refused({
        {type("nobody-knows"), refused, {"rope_theta"}},
        {json::parse(R"({"hidden_size": 4096, "num_attention_heads": 32})"), refused, {"rope_theta"}},
        {json::parse(R"({"model_type": "llama"})"), refused, {"hidden_size"}},
        {llama(R"({"num_attention_heads": null})"), refused, {"head_dim, or num_attention_heads to find it from,"}},
        {llama(R"({"hidden_size": null})"), refused, {"head_dim, or hidden_size to find it from,"}},
        {llama_scaled(R"("rope_type": null)"), refused, {"rope_type"}},
        {llama_scaled(R"("factor": null)"), refused, {"rope_scaling.factor"}},
        {llama_scaled(R"("low_freq_factor": null)"), refused, {"low_freq_factor"}},
        {llama_scaled(R"("high_freq_factor": null)"), refused, {"high_freq_factor"}},
        {llama(R"({"rope_scaling": {"original_max_position_embeddings": null}, "max_position_embeddings": null})"),
         refused,
         {"original_max_position_embeddings"}},
        {llama(R"({"rope_scaling": {"rope_type": "dynamic"}, "max_position_embeddings": null})"),
         refused,
         {"max_position_embeddings"}},
        {llama_scaled(R"("rope_type": "linear", "factor": null)"), refused, {"factor"}},
        {llama_yarn(R"(, "factor": null, "original_max_position_embeddings": null)"), refused, {"factor"}},
        {llama(R"({"max_position_embeddings": null, "rope_scaling": {"rope_type": "yarn", "factor": null,
            "low_freq_factor": null, "high_freq_factor": null}})"),
         refused,
         {"rope_scaling.factor"}},
        {phi3(R"({"rope_scaling": {"long_factor": null}})"), refused, {"long_factor"}},
        {phi3(R"({"rope_scaling": {"short_factor": null}})"), refused, {"short_factor"}},
        {phi3(R"({"rope_scaling": {"long_mscale": 1}})"), refused, {"short_mscale"}},
        {llama_scaled(R"("rope_type": "mrope")"), refused, {"mrope_section"}},
        {type("mellum", R"(, "rope_theta": 5e5)"), refused, {"rope_parameters has no entry for each kind of layers"}},
        {type("gpt_oss"), refused, {"rope_parameters, which"}},
    });
}

TEST_CASE("config: fields that contradict each other are named", "[config][errors]") {
    check_refused({
        {llama_scaled(R"("type": "yarn")"), refused, {"rope_type", "type"}},
        {llama_scaled(R"("rope_theta": 10000)"), refused, {"rope_scaling.rope_theta", "10000", "500000"}},
        {llama(R"({"rotary_emb_base": 10000})"), refused, {"rotary_emb_base", "rope_theta"}},
        {llama(R"({"rope_parameters": {"rope_type": "default"}})"), refused, {"rope_scaling", "rope_parameters"}},
        {llama(R"({"original_max_position_embeddings": 4096})"), refused, {"original_max_position_embeddings"}},
        {llama(R"({"partial_rotary_factor": 0.5, "rotary_pct": 0.25})"), refused, {"partial_rotary_factor"}},
        {llama(R"({"partial_rotary_factor": 0.5, "rotary_dim": 32})"), refused, {"rotary_dim", "32", "64"}},
        {llama(R"({"num_attention_heads": 30})"), refused, {"hidden_size", "num_attention_heads"}},
        {llama_yarn(R"(, "factor": null, "original_max_position_embeddings": 262144)"),
         shape,
         {"max_position_embeddings"}},
        {type("gemma3_text", R"(, "rope_parameters": {"rope_type": "default"})"),
         refused,
         {"rope_parameters.full_attention"}},
    });
}

TEST_CASE("config: axes that cannot be are named", "[config][errors]") {
    check_refused({
        {llama_scaled(R"("mrope_section": [16, 24, 23])"), refused, {"mrope_section", "63", "64"}},
        {llama_scaled(R"("mrope_section": [64])"), refused, {"mrope_section"}},
        {llama_scaled(R"("mrope_section": [16, 16, 16, 8, 8])"), refused, {"mrope_section"}},
        {llama_scaled(R"("mrope_section": [0, 32, 32])"), shape, {"mrope_section[0]"}},
        {llama_scaled(R"("mrope_section": [])"), refused, {"mrope_section has 0 numbers"}},
        {llama_scaled(R"("mrope_section": [16.5, 24, 23.5])"), shape, {"mrope_section[0] is 16.5"}},
        {llama_scaled(R"("mrope_section": [[16], [24], [24]])"), refused, {"mrope_section[0] is of type array"}},
        {llama_scaled(R"("mrope_section": [-16, 40, 40])"), shape, {"mrope_section[0]"}},
        {llama_scaled(R"("mrope_section": "16,24,24")"), refused, {"mrope_section"}},
        {llama_scaled(R"("mrope_section": [9007199254740992, 9007199254740992])"), refused, {"mrope_section"}},
        {llama_scaled(R"("mrope_section": [16, 24, 24])"), unsupported, {"mrope_section", "'llama'"}},
        {llama_scaled(R"("mrope_section": [16, 24, 24], "mrope_interleaved": 1)"), refused, {"mrope_interleaved"}},
        {type("keye", R"(, "rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]})"),
         unsupported,
         {"mrope_section", "'keye'"}},
        {type("qwen3_vl_text", R"(, "rope_scaling": {"rope_type": "default", "mrope_section": [20, 22, 22]})"),
         refused,
         {"mrope_section[1]"}},
        {type("qwen3_vl_text", R"(, "rope_scaling": {"rope_type": "default", "mrope_interleaved": false})"),
         refused,
         {"mrope_interleaved"}},
        {type("qwen3_vl_text", R"(, "rope_scaling": {"rope_type": "default", "interleaved": false})"),
         refused,
         {"rope_scaling.interleaved is false"}},
        {type("qwen2_vl", R"(, "rope_scaling": {"type": "mrope", "mrope_interleaved": true})"),
         refused,
         {"mrope_interleaved is true"}},
        {llama_scaled(R"("mrope_interleaved": true)"), refused, {"mrope_section, which mrope_interleaved needs"}},
        {type("qwen2_vl", R"(, "head_dim": 64)"), refused, {"mrope_section"}},
    });
}

TEST_CASE("config: methods and models that are not known, or have no RoPE", "[config][errors]") {
    check_refused({
        {llama_scaled(R"("rope_type": "ntk")"), unsupported, {"rope_type", "ntk"}},
        {llama_scaled(R"("rope_type": "")"), unsupported, {"rope_type"}},
        {llama_scaled(R"("rope_type": "axial")"), unsupported, {"rope_type", "axial"}},
        {llama_scaled(R"("rope_type": null, "type": "LINEAR")"), unsupported, {"type", "LINEAR"}},
        {type("ernie4_5_vl_moe"), unsupported, {"model_type"}},
        {type("bert"), refused, {"model_type", "bert", "no RoPE"}},
        {type("gpt2", R"(, "n_positions": 1024)"), refused, {"model_type", "gpt2"}},
        {type("whisper"), refused, {"model_type", "whisper"}},
        {type("bloom"), refused, {"model_type", "ALiBi"}},
        {type("t5"), refused, {"model_type", "t5"}},
        {type("mamba"), refused, {"model_type", "mamba"}},
        {json{{"model_type", "blip-2"}, {"text_config", {{"model_type", "opt"}}}}, refused, {"model_type"}},
        {json{{"model_type", "other"}, {"text_config", {{"model_type", "opt"}}}}, refused, {"model_type", "opt"}},
        {type("falcon", R"(, "alibi": true)"), refused, {"alibi"}},
        {type("chatglm", R"(, "position_encoding_2d": true)"), refused, {"position_encoding_2d"}},
        {type("gptj", R"(, "rotary": false)"), refused, {"rotary"}},
        {type("esm", R"(, "position_embedding_type": "absolute")"), refused, {"position_embedding_type"}},
        {type("smollm3", R"(, "no_rope_layers": [0, 0])"), refused, {"no_rope_layers"}},
        {type("granitemoehybrid"), refused, {"position_embedding_type", "no RoPE"}},
        {type("nanochat", R"(, "max_position_embeddings": 2048, "rope_scaling": {"type": "dynamic", "factor": 2})"),
         unsupported,
         {"-position"}},
    });
    check_outcome(read(read_fixture("qwen-7b"), nullptr, 8193), unsupported, {"use_dynamic_ntk"});
}

TEST_CASE("config: positions that begin anew in chunks are read as far as the first goes", "[config][errors]") {
    const auto chunks = [](const char *size, const char *local) {
        return type("qwen2", R"(, "rope_theta": 1e7, "dual_chunk_attention_config": {"chunk_size": )" +
                                 std::string(size) + R"(, "local_size": )" + local + "}")
            .dump();
    };
    const auto text = chunks("262144", "8192");
    const auto outcome = read_good(text, nullptr, 253952);
    CHECK(is_same(outcome, read_good(type("qwen2", R"(, "rope_theta": 1e7)").dump())));
    CHECK(outcome.info.last_seq_len == 253952);
    CHECK(outcome.frequencies.for_length(253952).info().last_seq_len == 253952);
    CHECK_THROWS_AS(outcome.frequencies.for_length(253953), halyard::error);
    check_outcome(read(text, nullptr, 253953), unsupported, {"dual_chunk_attention_config", "253952 tokens"});
    check_outcome(read(chunks("8192", "8192")), refused, {"dual_chunk_attention_config.local_size is 8192"});
    check_outcome(read(chunks("8192", "null")), refused, {"dual_chunk_attention_config.local_size is missing"});
    check_outcome(read(chunks("1.5", "1")), shape, {"dual_chunk_attention_config.chunk_size is 1.5"});
}

TEST_CASE("config: text that is no config", "[config]") {
    const std::pair<std::string, const char *> cases[] = {
        {"", "line 1, column 1"},
        {" \n\n ", "line 3, column 2"},
        {"{\n  \"rope_theta\": 1e4,\n  }", "line 3, column 3"},
        {"models/config.json", "line 1, column 1: it has to be the text of a config.json"},
        {"nets/config.json", "and not its path"},
        {"{\"rope_theta\": 1e999}", "holds a number that no double holds"},
        {"{\"rope_theta\": 01}", "line 1"},
        {"{\"rope_theta\": 1} x", "line 1, column 19"},
        {"{\"rope_theta\": \"\xff\"}", "line 1"},
        {"{\"rope_theta\"", "too early"},
        {std::string("{}\0", 3), "line 1, column 3"},
        {"[]", "must be an object"},
        {"7", "must be an object"},
        {"null", "must be an object"},
        {"\"text\"", "must be an object"},
        {"{\"a\": {\"b\": 1, \"b\": 2}}", "'b' twice"},
        {"{\"rope_theta\": 1, \"rope_theta\": 1}", "'rope_theta' twice"},
        {"{}", ""}};
    for (const auto &[text, words] : cases) {
        CAPTURE(text);
        check_outcome(read(text), refused, {words});
    }
    // Deep nesting is refused early, wherever it is and however it is closed.
    const std::size_t deep = 1000000;
    std::string objects;
    for (std::size_t i = 0; i < deep; ++i) {
        objects += "{\"a\":";
    }
    for (const auto &text : {std::string(deep, '['), std::string(deep, '[') + std::string(deep, ']'), objects,
                             "{\"rope_scaling\": " + std::string(deep, '[')}) {
        check_outcome(read(text), refused, {"64 deep"});
    }
    // A long text is no mistake.
    CHECK(read(llama().dump() + std::string(1000000, ' ')).status == HALYARD_OK);
    CHECK(read(llama("{\"a\": \"" + std::string(1000000, 'x') + "\"}").dump()).status == HALYARD_OK);
}

TEST_CASE("config: arguments are checked", "[config][errors]") {
    halyard_frequencies *out = nullptr;
    const char *text = "{}";
    CHECK(halyard_create_frequencies_from_config(nullptr, 2, nullptr, &out, nullptr) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_frequencies_from_config(text, 2, nullptr, nullptr, nullptr) == HALYARD_ERROR_NULL_POINTER);
    for (const std::int64_t n_bytes : std::initializer_list<std::int64_t>{-1, INT64_MIN, INT64_MAX}) {
        CHECK(halyard_create_frequencies_from_config(text, n_bytes, nullptr, &out, nullptr) == HALYARD_ERROR_SHAPE);
    }
    const auto good = llama().dump();
    auto options = sized<halyard_config_options>();
    for (const std::uint32_t size : {0u, 4u, static_cast<std::uint32_t>(sizeof(options)) + 8}) {
        options.size = size;
        CHECK(halyard_create_frequencies_from_config(good.data(), static_cast<std::int64_t>(good.size()), &options,
                                                     &out, nullptr) == HALYARD_ERROR_STRUCT_SIZE);
    }
    halyard_error unsized = {};
    CHECK(halyard_create_frequencies_from_config(good.data(), static_cast<std::int64_t>(good.size()), nullptr, &out,
                                                 &unsized) == HALYARD_ERROR_STRUCT_SIZE);
    CHECK(out == nullptr);
    CHECK(read(good, nullptr, -1).status == HALYARD_ERROR_SHAPE);
    CHECK(read(good, nullptr, INT64_MAX).status == HALYARD_ERROR_SHAPE);
    REQUIRE(halyard_create_frequencies_from_config(good.data(), static_cast<std::int64_t>(good.size()), nullptr, &out,
                                                   nullptr) == HALYARD_OK);
    halyard_destroy_frequencies(out);
}

TEST_CASE("config: messages show nothing that a terminal would act on", "[config]") {
    const auto outcome =
        read(R"({"rope_scaling": {"rope_type": "\u001b[31m\n\u00e9 )" + std::string(300, 'x') + R"("}})");
    check_outcome(outcome, unsupported, {});
    CHECK(outcome.message.size() < 255);
}

TEST_CASE("config: a key that holds a zero is a key like others", "[config]") {
    const auto parameters = [](const std::string &key) {
        return llama(R"({"rope_theta": null, "rope_scaling": null, "layer_types": [")" + key +
                     R"("], "rope_parameters": {")" + key + R"(": {"rope_type": "default", "rope_theta": 1e4}}})")
            .dump();
    };
    const auto outcome = read(parameters(R"(full_attention\u0000too)"));
    CHECK(outcome.status == HALYARD_OK);
    CHECK(outcome.info.base == 1e4);
    CHECK(read(parameters(R"(full_attention\u0000too)"), "full_attention").status == HALYARD_ERROR_MISMATCH);
}
