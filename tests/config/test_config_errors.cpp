// Configs that are refused with a sentence that names the field. That each field of RoPE is refused by name where its
// type is wrong, its number absurd or its key misspelt, is for test_perturbed_configs.cpp: here is what else can be
// wrong.
#include "config/read_config.h"

using nlohmann::json;

namespace {

struct Bad {
    Text config;
    halyard_status status;
    const char *words;
    const char *layer_type = nullptr;
};

constexpr auto refused = HALYARD_ERROR_CONFIG, range = HALYARD_ERROR_FREQUENCY, shape = HALYARD_ERROR_SHAPE,
               unsupported = HALYARD_ERROR_UNSUPPORTED, width = HALYARD_ERROR_ROTARY_DIM,
               mismatch = HALYARD_ERROR_MISMATCH;
constexpr const char *full = "full_attention", *sliding = "sliding_attention", *vision = "vision";

std::string chunks(const std::string &size, const std::string &local) {
    return type("qwen2", "'rope_theta': 1e7, 'dual_chunk_attention_config': {'chunk_size': " + size +
                             ", 'local_size': " + local + "}");
}
std::string ministral(const std::string &fields, const char *name = "ministral3") {
    return type(name, "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e6, 'factor': 16" + fields + "}");
}

const std::string length = ", 'original_max_position_embeddings': 16384", a_beta = ", 'llama_4_scaling_beta': 0.1";

void check_refused(const std::vector<Bad> &rows) {
    for (const auto &bad : rows) {
        CAPTURE(bad.config.text.substr(0, 400));
        check_outcome(read(bad.config.text, bad.layer_type), bad.status, bad.words);
    }
}

}  // namespace

TEST_CASE("config: keys that are not known, or misplaced, are named", "[config][errors]") {
    check_refused({
        {llama("{'layer_rope_theta': [500000, 0, 10000]}"), refused, "layer_rope_theta is not known here"},
        {llama("{'rotary_emb_scale_base': 512}"), refused, "rotary_emb_scale_base is not known here"},
        {llama("{'use_mem_rope': true}"), refused, "use_mem_rope is not known here"},
        {llama("{'layers': [{'x': 1}, {'attention': {'RotaryBase': 5e5}}]}"), refused,
         "layers[1].attention.RotaryBase is not known here"},
        {llama("{'attn_config': {'model_type': '', 'rope_theta': 1e4}}"), refused, "attn_config.rope_theta is not"},
        {llama("{'a': {'b': [[{'mrope_section': [1]}]]}}"), refused, "a.b[0][0].mrope_section is not known here"},
        {inside(llama(), "{'rope_thetas': 1}"), refused, "rope_thetas is not known here"},
        {inside(llama(), "{'extra': {'rope_theta': 1}}"), refused, "extra.rope_theta is not known here"},
        {inside(llama("{'model_type': null}")), refused, "text_config.model_type is missing"},
        {type("dbrx", "'attn_config': {'rope_theta': 5, 'rope_type': 'x'}"), refused, "attn_config.rope_type is not"},
        {llama("{'rope_scaling': {'rope_type': {'rope_type': 'yarn'}}}"), refused, "rope_type"},
        {llama("{'text_config': 'llama'}"), refused, "text_config is of type string"},
        {scaled("'long_factor': [1, null]"), refused, "long_factor[1] is of type null"},
        {llama("{'num_hidden_layers': 3, 'rope_scaling_layers': 3}"), refused, "rope_scaling_layers is of type number"},
        {gemma3("{'rope_theta': 1e6}", ", 'factor': 8"), refused, "factor stands beside entries", full},
        {gemma3("{}", ", 'rope_theta': 5e5"), refused, "rope_theta stands beside entries", full},
        {gemma3("{}", ", 'chunked_atention': {'rope_theta': 1e4}"), refused, "chunked_atention is not known", full},
        {gemma3("{'sliding_attention': {'factor': 2}}"), refused, "full_attention.sliding_attention is not", full},
        {gemma4("{'1': {'head_dim': 512, 'rope_theta': 5}}"), refused, "per_layer_config.1.rope_theta is not", full},
        {qwen2_vl("'x': {'rope_theta': 5}"), refused, "vision_config.x.rope_theta is not known here", vision},
        {qwen2_vl("'rope_theta': 5e5"), refused, "vision_config.rope_theta is not known here", vision},
        {qwen2_vl("'rope_parameters': {'partial_rotary_factor': 0.5}"), refused, "partial_rotary_factor is not",
         vision},
    });
}

TEST_CASE("config: numbers out of range are named", "[config][errors]") {
    check_refused({
        {llama("{'rope_theta': 0}"), range, "rope_theta is 0"},
        {type("llama", "'rope_theta': NaN"), range, "rope_theta is infinite or no number"},
        {inside(llama("{'rope_theta': 0}")), range, "text_config.rope_theta is 0"},
        {scaled("'factor': 0.5"), range, "rope_scaling.factor is 0.5"},
        {scaled("'high_freq_factor': 0.5"), range, "high_freq_factor"},
        {scaled("'rope_type': 'dynamic', 'alpha': 0"), range, "rope_scaling.alpha is 0"},
        {yarn("'beta_fast': 1, 'beta_slow': 2"), range, "beta_fast"},
        {yarn("'attention_factor': 0"), range, "attention_factor is 0"},
        {yarn("'attention_factor': 1e-40"), range, "in 2^-60 to 2^60"},
        {yarn("'mscale': -20, 'mscale_all_dim': 1"), range, "mscale"},
        {yarn("'attn_factor': 2"), unsupported, "attn_factor"},
        {yarn("'extrapolation_factor': 2"), unsupported, "extrapolation_factor"},
        {phi3_scaled("'long_factor': []"), shape, "long_factor has 0"},
        {phi3_scaled("'short_factor': [1], 'long_factor': [1]"), shape, "the length of rope_scaling.short_factor is 1"},
        {phi3_scaled("'short_mscale': -1.5, 'long_mscale': 1"), range, "rope_scaling.short_mscale is -1.5"},
        {phi3_scaled("'short_mscale': 0, 'long_mscale': 1"), range, "short_mscale is 0"},
        {phi3("{'original_max_position_embeddings': 1}"), shape, "original_max_position_embeddings is 1"},
        {llama("{'max_position_embeddings': 1e30}"), shape, "max_position_embeddings is 1"},
        {scaled("'original_max_position_embeddings': 1.5"), shape, "embeddings is 1.5"},
        {llama("{'hidden_size': 0}"), shape, "hidden_size is 0"},
        {llama("{'num_attention_heads': -32}"), shape, "num_attention_heads is -32"},
        {llama("{'head_dim': 127}"), width, "head_dim is 127"},
        {llama("{'head_dim': 9007199254740992}"), width, "head_dim"},
        {llama("{'head_dim': 9007199254740994}"), shape, "head_dim"},
        {llama("{'partial_rotary_factor': 0.001}"), width, "partial_rotary_factor"},
        {llama("{'partial_rotary_factor': 0.4}"), width, "51"},
        {llama("{'rotary_pct': 2}"), refused, "rotary_pct is 2"},
        {llama("{'rotary_dim': 256}"), refused, "rotary_dim is 256"},
        {llama("{'rotary_dim': 0}"), shape, "rotary_dim is 0"},
        {llama("{'qk_rope_head_dim': 63}"), width, "qk_rope_head_dim is 63"},
        {type("deepseek_v2", "'qk_rope_head_dim': 0"), shape, "qk_rope_head_dim is 0"},
        {scaled("'mrope_section': [0, 32, 32]"), shape, "mrope_section[0] is 0"},
        {scaled("'mrope_section': [16.5, 24, 23.5]"), shape, "mrope_section[0] is 16.5"},
        {scaled("'mrope_section': []"), refused, "mrope_section has 0 numbers"},
        {scaled("'mrope_section': [16, 16, 16, 8, 8]"), refused, "mrope_section has 5 numbers"},
        {scaled("'mrope_section': [9007199254740992, 9007199254740992]"), refused, "mrope_section"},
        {type("qwen3_vl_text", "'rope_scaling': {'rope_type': 'default', 'mrope_section': [20, 22, 22]}"), refused,
         "mrope_section[1]"},
        {qwen2_vl("'rope_parameters': {'rope_theta': -1}"), range, "vision_config.rope_parameters.rope_theta is -1",
         vision},
        {type("qwen2_vl", "'vision_config': {'embed_dim': 1282, 'num_heads': 16}"), refused, "16 heads", vision},
        {type("qwen2_vl", "'vision_config': {'embed_dim': 96, 'num_heads': 16}"), refused,
         "which does not make 16 heads (num_heads) of a multiple of 4", vision},
        {gemma3("{'rope_type': 'proportional', 'partial_rotary_factor': 0.001}"), refused, "which leaves no pair",
         full},
        {chunks("8192", "8192"), refused, "dual_chunk_attention_config.local_size is 8192"},
        {chunks("8192", "null"), refused, "dual_chunk_attention_config.local_size is missing"},
        {chunks("1.5", "1"), shape, "dual_chunk_attention_config.chunk_size is 1.5"},
        {ministral(length + ", 'llama_4_scaling_beta': 1e9"), range, "llama_4_scaling_beta is 1000000000"},
        {type("llama4_text", "'attn_scale': 'much'"), refused, "attn_scale"},
        {type("llama4_text", "'attn_scale': 1e7"), range, "attn_scale is 10000000"},
        {type("llama4_text", "'floor_scale': 0"), shape, "floor_scale"},
        {type("llama4_text", "'attn_temperature_tuning': 'on'"), refused, "attn_temperature_tuning"},
    });
    auto zero_factor = phi3();
    zero_factor["rope_scaling"]["long_factor"][47] = 0;
    check_refused({{zero_factor, range, "long_factor[47]"}});
}

TEST_CASE("config: missing fields are named", "[config][errors]") {
    check_refused({
        {type("nobody-knows"), refused, "rope_theta"},
        {"{'model_type': 'llama'}", refused, "hidden_size"},
        {llama("{'num_attention_heads': null}"), refused, "head_dim, or num_attention_heads to find it from,"},
        {llama("{'hidden_size': null}"), refused, "head_dim, or hidden_size to find it from,"},
        {scaled("'rope_type': null"), refused, "rope_type, which factor needs,"},
        {scaled("'factor': null"), refused, "rope_scaling.factor"},
        {llama("{'rope_scaling': {'original_max_position_embeddings': null}, 'max_position_embeddings': null}"),
         refused, "original_max_position_embeddings"},
        {llama("{'rope_scaling': {'rope_type': 'dynamic'}, 'max_position_embeddings': null}"), refused,
         "max_position_embeddings"},
        {yarn("'factor': null, 'original_max_position_embeddings': null"), refused, "factor"},
        {type("llama", "'rope_scaling': {'rope_type': 'yarn', 'original_max_position_embeddings': 8192}"), refused,
         "rope_scaling.factor"},
        {phi3_scaled("'long_mscale': 1"), refused, "short_mscale"},
        {scaled("'rope_type': 'mrope'"), refused, "mrope_section"},
        {scaled("'mrope_interleaved': true"), refused, "mrope_section, which mrope_interleaved needs"},
        {type("mellum", "'rope_theta': 5e5"), refused, "rope_parameters has no entry for each kind of layers"},
        {type("gpt_oss"), refused, "rope_parameters, which"},
        {type("esm"), refused, "position_embedding_type is missing"},
        {type("musicflamingo", "'rope_theta': 1e4"), refused, "text_config is missing"},
        {type("gemma3_text", "'rope_parameters': {'rope_type': 'default'}"), refused, "rope_parameters.full_attention"},
        {type("gemma4_text", "'rope_scaling': {'rope_type': 'proportional'}"), refused,
         "rope_scaling.full_attention and rope_scaling.sliding_attention are missing", full},
        {type("gemma4_text", "'per_layer_config': {'1': {'head_dim': 512}}"), refused,
         "layer_types, which per_layer_config needs, is missing", full},
        {type("qwen2_vl", "'vision_config': {'num_heads': 16}"), refused, "vision_config.hidden_size is missing",
         vision},
        {type("qwen2_vl", "'vision_config': {'embed_dim': 1280}"), refused, "vision_config.num_heads is missing",
         vision},
        {ministral(length), refused, "llama_4_scaling_beta"},
        {ministral(a_beta, "mistral4"), refused, "original_max_position_embeddings"},
        {type("ministral3", "'rope_parameters': {'rope_theta': 1e4, 'llama_4_scaling_beta': 0.1}"), refused,
         "original_max_position_embeddings, by which q is scaled, is missing"},
        {sarvam("'type': 'deepseek_yarn', 'mscale': 0.7"), refused,
         "mscale_all_dim, which deepseek_yarn's mscale needs"},
    });
}

TEST_CASE("config: fields that contradict each other are named", "[config][errors]") {
    check_refused({
        {scaled("'type': 'yarn'"), refused, "rope_scaling.rope_type is 'llama3', but"},
        {scaled("'rope_theta': 10000"), refused, "rope_theta is 500000, but rope_scaling.rope_theta is"},
        {llama("{'rope_parameters': {'rope_type': 'linear', 'factor': 2}}"), refused, "are both there, but differ"},
        {llama("{'original_max_position_embeddings': 4096}"), refused, "original_max_position_embeddings is 8192, but"},
        {scaled("'max_position_embeddings': 4096"), refused,
         "rope_scaling.max_position_embeddings is 4096, but max_position_embeddings is 131072"},
        {llama("{'partial_rotary_factor': 0.5, 'rotary_dim': 32}"), refused, "rotary_dim is 32"},
        {llama("{'num_attention_heads': 30}"), refused, "hidden_size"},
        {llama("{'head_dim': 128, 'kv_channels': 64}"), refused, "kv_channels is 64, but head_dim is 128"},
        {llama("{'n_embd': 2048}"), refused, "n_embd is 2048, but hidden_size is 4096"},
        {llama("{'rope_interleave': true}"), refused, "rope_interleave is true, but model_type is 'llama'"},
        {yarn("'factor': null, 'original_max_position_embeddings': 262144"), shape, "max_position_embeddings"},
        {type("dbrx", "'rope_theta': 4, 'attn_config': {'rope_theta': 5}"), refused,
         "rope_theta is 5, but rope_theta is 4"},
        {inside(llama(), "{'rope_theta': 1e4}"), refused, "rope_theta is not what text_config.rope_theta says"},
        {inside(llama(), "{'partial_rotary_factor': 0.5}"), refused, "partial_rotary_factor is not what text_config."},
        {inside(llama(), "{'llm_config': {'rope_theta': 1e4}}"), refused, "text_config and llm_config are both there"},
        {inside(llama(), "{'vlm_config': {'text_config': {'rope_theta': 1e4}}}"), refused,
         "vlm_config and text_config are both there"},
        {type("smollm3", "'num_hidden_layers': 36, 'no_rope_layers': [1, 1, 1, 0]"), refused,
         "no_rope_layers has 4 elements, but num_hidden_layers is 36"},
        {gemma4("{'2': {'head_dim': 512}}"), refused, "per_layer_config.'2' is not the number of a layer", full},
        {gemma4("{'': {'head_dim': 512}}"), refused, "per_layer_config.'' is not the number of a layer", full},
        {gemma4("{'1x': {'head_dim': 512}}"), refused, "per_layer_config.'1x' is not the number of a layer", full},
        {gemma4("{'99999999999999999999': {'head_dim': 512}}"), refused, "is not the number of a layer", full},
        {gemma4("{'1': {'head_dim': 512}, '01': {'head_dim': 256}}"), refused, "per_layer_config.'1' is not the", full},
        {gemma4("{'1': {'head_dim': '512'}}"), refused, "per_layer_config.'1'.head_dim is of type string", full},
        {type("gemma4_text",
              "'layer_types': ['full_attention', 'full_attention'], 'per_layer_config': {'1': {'head_dim': 512}}"),
         unsupported, "per_layer_config gives layers of type 'full_attention' heads of different widths", full},
    });
}

TEST_CASE("config: methods and models that are not known, or have no RoPE, are named", "[config][errors]") {
    check_refused({
        {scaled("'rope_type': 'ntk'"), unsupported, "rope_scaling.rope_type is 'ntk'"},
        {scaled("'rope_type': null, 'type': 'LINEAR'"), unsupported, "rope_scaling.type is 'LINEAR'"},
        {qwen2_vl("'rope_parameters': {'rope_type': 'linear'}"), unsupported, "rope_parameters.rope_type is", vision},
        {type("ernie4_5_vl_moe"), unsupported, "model_type"},
        {type("bert"), refused, "no RoPE"},
        {type("bloom"), refused, "ALiBi"},
        {"{'model_type': 'other', 'text_config': {'model_type': 'opt'}}", refused, "'opt'"},
        {type("mpt", "'attn_config': {'rope': true, 'rope_theta': 1e4}"), unsupported,
         "attn_config.rope is true, but which"},
        {type("xlm-roberta", "'position_embedding_type': 'rotary', 'rotary_emb_base': 2e4"), unsupported,
         "position_embedding_type is 'rotary', but which RoPE"},
        {type("falcon", "'alibi': true"), refused, "alibi"},
        {type("chatglm", "'position_encoding_2d': true"), refused, "position_encoding_2d"},
        {type("gptj", "'rotary': false"), refused, "rotary"},
        {type("llama", "'use_rotary_pos_emb': false"), refused, "use_rotary_pos_emb is false"},
        {type("esm", "'position_embedding_type': 'absolute'"), refused, "position_embedding_type"},
        {type("smollm3", "'no_rope_layers': [0, 0]"), refused, "no_rope_layers leaves no layer with RoPE"},
        {type("granitemoehybrid"), refused, "position_embedding_type"},
        {type("nanochat", "'max_position_embeddings': 2048, 'rope_scaling': {'type': 'dynamic', 'factor': 2}"),
         unsupported, "-position"},
        {type("deepseek_v3", "'use_mla': false"), unsupported, "use_mla is false"},
        {llama("{'rope_scaling_layers': [0, 1]}"), unsupported, "rope_scaling_layers leaves layers"},
        {scaled("'mrope_section': [16, 24, 24]"), unsupported, "'llama'"},
        {type("qwen2_vl", "'rope_scaling': {'type': 'mrope', 'mrope_interleaved': true}"), refused,
         "mrope_interleaved is true"},
        {type("qwen3_vl_text", "'rope_scaling': {'rope_type': 'default', 'interleaved': false}"), refused,
         "rope_scaling.interleaved is false"},
        {ministral(length + a_beta, "qwen2"), unsupported, "llama_4_scaling_beta"},
        {ministral(length + a_beta, "llama4_text"), unsupported, "llama_4_scaling_beta"},
        {type("llama", "'llama_4_scaling': {'beta': 0.1}"), unsupported, "llama_4_scaling"},
        {type("unheard_of", "'rope_theta': 1e4, 'attn_temperature_tuning': true"), unsupported,
         "attn_temperature_tuning"},
        {type("unheard_of", "'rope_theta': 1e4, 'use_logn_attn': true"), unsupported, "use_logn_attn"},
        {read_fixture("llama-2-7b"), unsupported, "", vision},
        {"{'model_type': 'qwen2_vl'}", refused, "vision_config", vision},
    });
    check_outcome(read(read_fixture("qwen-7b"), nullptr, 8193), unsupported, "use_dynamic_ntk");
}

TEST_CASE("config: kinds of layers that there are not, or that have no RoPE, are named", "[config][errors]") {
    const auto kinds = [](const std::string &types, const std::string &parameters) {
        return "{'model_type': 'other', 'head_dim': 64, 'layer_types': [" + types + "], 'rope_parameters': {" +
               parameters + "}}";
    };
    const std::string a_and_b = "'a': {'rope_theta': 100}, 'b': {'rope_theta': 100}, 'c': null";
    check_refused({
        {read_fixture("gemma-4"), mismatch, sliding},
        {read_fixture("olmo-3-7b"), mismatch, sliding},
        {read_fixture("modernbert-base"), mismatch, sliding},
        {read_fixture("gemma-3-4b"), mismatch, sliding},
        {read_fixture("gemma-3-4b"), mismatch, "chunked_attention", "chunked_attention"},
        {read_fixture("olmo-3-7b"), mismatch, "''", ""},
        {read_fixture("llama-4-scout"), mismatch, "no RoPE", full},
        {read_fixture("command-r7b"), mismatch, "no RoPE", full},
        {read_fixture("exaone-4.0-32b"), mismatch, "no RoPE", full},
        {llama("{'layer_types': ['full_attention', 'mamba']}"), mismatch, "no RoPE", "mamba"},
        {llama("{'layer_types': ['full_attention', 'linear_attention']}"), mismatch, "no RoPE", "linear_attention"},
        {llama("{'layer_types': ['full_attention', 'conv']}"), mismatch, "no RoPE", "conv"},
        {llama(), mismatch, "the config has no layer_types", "mamba"},
        {llama(), mismatch, "layer_types", full},
        {llama("{'layer_types': ['full_attention']}"), mismatch, sliding, sliding},
        {kinds("'a', 'b', 'c'", a_and_b), mismatch, "no RoPE", "c"},
        {kinds("'a', 'b', 'c'", a_and_b), mismatch, "'a', 'b'", "d"},
        {kinds("'a', 'b', 'e'", a_and_b), mismatch, "no RoPE", "e"},
        {kinds("'a', 'b'", a_and_b + ", 'full_attention': null"), mismatch, "no RoPE", full},
        {llama("{'layer_types': ['full_attention'], 'per_layer_config': {'0': {'head_dim': 64}}}"), mismatch,
         "there is a per_layer_config, so layer_type is needed"},
        // A key that holds a zero is a key like others.
        {kinds("'full_attention\\u0000too'", "'full_attention\\u0000too': {'rope_theta': 1e4}"), mismatch, "", full},
    });
}

TEST_CASE("config: text that is no config, and where it ends, is named", "[config]") {
    const std::pair<std::string, const char *> cases[] = {
        {"", "line 1, column 1"},
        {"{\n  \"rope_theta\": 1e4,\n  }", "line 3, column 3"},
        {"{\"a\": NaN,\n \"b\": -Infinity, x}", "line 2, column 18"},
        {"{\"a\": NaNs}", "line 1"},
        {"models/config.json", "line 1, column 1: it has to be the text of a config.json"},
        {"nets/config.json", "and not its path"},
        {"{\"rope_theta\": 1e999}", "holds a number that no double holds"},
        {"{\"rope_theta\": 1} x", "line 1, column 19"},
        {"{\"rope_theta\": \"\xff\"}", "line 1"},
        {"{\"rope_theta\"", "too early"},
        {std::string("{}\0", 3), "line 1, column 3"},
        {"[]", "must be an object"},
        {"7", "must be an object"},
        {"{\"a\": {\"b\": 1, \"b\": 2}}", "'b' twice"},
        {"{}", ""}};
    for (const auto &[text, words] : cases) {
        CAPTURE(text);
        check_outcome(read(text), refused, words);
    }
    // Deep nesting is refused early, wherever it is and however it is closed.
    const std::size_t deep = 1000000;
    std::string objects;
    for (std::size_t i = 0; i < deep; ++i) {
        objects += "{\"a\":";
    }
    for (const auto &text : {std::string(deep, '['), std::string(deep, '[') + std::string(deep, ']'), objects,
                             "{\"rope_scaling\": " + std::string(deep, '[')}) {
        check_outcome(read(text), refused, "64 deep");
    }
    // A long text is no mistake.
    CHECK(read(llama().dump() + std::string(1000000, ' ')).status == HALYARD_OK);
    CHECK(read(llama("{\"a\": \"" + std::string(1000000, 'x') + "\"}").dump()).status == HALYARD_OK);
    // Messages show nothing that a terminal would act on.
    const auto outcome =
        read(quoted("{'rope_scaling': {'rope_type': '\\u001b[31m\\n\\u00e9 " + std::string(300, 'x') + "'}}"));
    check_outcome(outcome, unsupported, "");
    CHECK(outcome.message.size() < 255);
}

TEST_CASE("config: arguments that are wrong are named", "[config][errors]") {
    const auto good = llama().dump();
    auto options = sized<halyard_config_options>();
    halyard_frequencies *out = nullptr;
    halyard_error unsized = {};
    const auto create = [&](const char *text, std::int64_t n_bytes, halyard_frequencies **to,
                            halyard_error *error = nullptr) {
        return halyard_create_frequencies_from_config(text, n_bytes, &options, to, error);
    };
    CHECK(create(nullptr, 2, &out) == HALYARD_ERROR_NULL_POINTER);
    CHECK(create("{}", 2, nullptr) == HALYARD_ERROR_NULL_POINTER);
    CHECK(create("{}", 2, &out, &unsized) == HALYARD_ERROR_STRUCT_SIZE);
    for (const std::int64_t n_bytes : std::initializer_list<std::int64_t>{-1, INT64_MIN, INT64_MAX}) {
        CHECK(create("{}", n_bytes, &out) == shape);
    }
    for (const std::int64_t seq_len : std::initializer_list<std::int64_t>{-1, INT64_MAX}) {
        CHECK(read(good, nullptr, seq_len).status == shape);
    }
    const std::int64_t negative = -1;
    check_outcome(read(good, nullptr, 0, &negative), shape, "options.layer is -1");
    for (const std::uint32_t size : {0u, 4u, static_cast<std::uint32_t>(sizeof(options)) + 8}) {
        options.size = size;
        CHECK(create(good.data(), std::ssize(good), &out) == HALYARD_ERROR_STRUCT_SIZE);
    }
    CHECK(out == nullptr);
}
