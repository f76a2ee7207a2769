// Configs that must be refused with an error message that names the field: one row for each condition. Other
// refusals are tested elsewhere: wrong types, absurd numbers and misspelt keys in test_perturbed_configs.cpp, refused
// model types in test_model_types.cpp.
#include "call_checker.h"
#include "config/read_config.h"

namespace {

struct BadConfig {
    Text config;
    const char *words, *layer_type = nullptr;
};

constexpr auto refused = HALYARD_ERROR_CONFIG, range = HALYARD_ERROR_FREQUENCY, shape = HALYARD_ERROR_SHAPE,
               unsupported = HALYARD_ERROR_UNSUPPORTED, mismatch = HALYARD_ERROR_MISMATCH;
constexpr const char *full = "full_attention", *sliding = "sliding_attention", *vision = "vision";

template <halyard_status status = refused>
void check_refused(const std::vector<BadConfig> &rows) {
    for (const auto &bad : rows) {
        CAPTURE(bad.config.text.substr(0, 400));
        check_outcome(read(bad.config.text, bad.layer_type), status, bad.words);
    }
}

std::string ministral(const std::string &fields, const char *name = "ministral3") {
    return type(name, "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e6, 'factor': 16, "
                      "'original_max_position_embeddings': 16384" +
                          fields + "}");
}

}  // namespace

TEST_CASE("config: keys that are not known, or misplaced, are named", "[config][errors]") {
    check_refused({
        {llama("{'layers': [{'x': 1}, {'attention': {'RotaryBase': 5e5}}]}"),
         "layers[1].attention.RotaryBase is not known here"},
        {inside(llama(), "{'rope_thetas': 1}"), "rope_thetas is not known here"},
        {inside(llama("{'model_type': null}")), "text_config.model_type is missing"},
        {inside(llama("{'model_type': null}"), "{'model_type': 'other'}"), "text_config.model_type is missing"},
        {inside(llama("{'model_type': null}"), "{'model_type': 'musicflamingo'}"), "text_config.model_type is missing"},
        {gemma3("{'rope_theta': 1e6}", ", 'factor': 8"), "factor stands beside entries", full},
        {llama("{'rope_scaling': {'rope_type': {'rope_type': 'yarn'}}}"), "rope_type"},
        {qwen2_vl("'rope_theta': 5e5"), "vision_config.rope_theta is not known here", vision},
        {qwen2_vl("'rope_parameters': {'partial_rotary_factor': 0.5}"), "partial_rotary_factor is not", vision},
    });
}

TEST_CASE("config: numbers out of range are named", "[config][errors]") {
    check_refused<range>({
        {type("llama", "'rope_theta': NaN"), "rope_theta is infinite or no number"},
        {phi3_scaled("'short_mscale': 0, 'long_mscale': 1"), "short_mscale is 0"},
    });
    check_refused<shape>({
        {phi3_scaled("'long_factor': []"), "long_factor has 0"},
        {scaled("'original_max_position_embeddings': 1.5"), "embeddings is 1.5"},
        {llama("{'head_dim': 9007199254740994}"), "head_dim"},
    });
    check_refused({
        {llama("{'rotary_dim': 256}"), "rotary_dim is 256"},
        {llama("{'rotary_pct': 2}"), "rotary_pct is 2"},
        {gemma3("{'rope_type': 'proportional', 'partial_rotary_factor': 0.001}"), "leaves no pair", full},
        {type("qwen2_vl", "'vision_config': {'embed_dim': 1282, 'num_heads': 16}"), "16 heads", vision},
        {scaled("'mrope_section': []"), "mrope_section has 0 numbers"},
        {scaled("'mrope_section': [16, 16, 16, 8, 8]"), "mrope_section has 5 numbers"},
        {scaled("'mrope_section': [16, 16, 16]"), "mrope_section sums to 48"},
        {type("qwen3_vl_text", "'rope_scaling': {'rope_type': 'default', 'mrope_section': [20, 22, 22]}"),
         "mrope_section[1]"},
        {type("qwen2", "'dual_chunk_attention_config': {'chunk_size': 8192, 'local_size': 8192}"),
         "dual_chunk_attention_config.local_size is 8192"},
        {type("qwen2_vl", "'vision_config': {'embed_dim': 96, 'num_heads': 16}"),
         "which does not make 16 heads (num_heads) of a multiple of 4", vision},
    });
}

TEST_CASE("config: missing fields are named", "[config][errors]") {
    check_refused({
        {type("nobody-knows"), "rope_theta"},
        {scaled("'rope_type': null"), "rope_type, which factor needs,"},
        {llama("{'num_attention_heads': null}"), "head_dim, or num_attention_heads to find it from,"},
        {llama("{'hidden_size': null}"), "head_dim, or hidden_size to find it from,"},
        {scaled("'factor': null"), "rope_scaling.factor"},
        {yarn("'factor': null, 'original_max_position_embeddings': null"), "factor"},
        {type("llama", "'rope_scaling': {'rope_type': 'yarn', 'original_max_position_embeddings': 8192}"),
         "rope_scaling.factor"},
        {llama("{'rope_scaling': {'original_max_position_embeddings': null}, 'max_position_embeddings': null}"),
         "original_max_position_embeddings"},
        {scaled("'mrope_interleaved': true"), "mrope_section, which mrope_interleaved needs"},
        {scaled("'rope_type': 'mrope'"), "mrope_section"},
        {phi3_scaled("'long_mscale': 1"), "short_mscale"},
        {phi3_scaled("'short_mscale': 1"), "long_mscale"},
        {type("mellum", "'rope_theta': 5e5"), "rope_parameters has no entry for each kind of layers"},
        {type("gemma3_text", "'rope_parameters': {'rope_type': 'default'}"), "rope_parameters.full_attention"},
        {type("mimo_v2_flash", "'rope_scaling': {'rope_type': 'default'}"), "rope_scaling.full_attention", full},
        {type("gemma4_text", "'rope_parameters': {'full_attention': {'partial_rotary_factor': 0.25}}"),
         "rope_parameters.full_attention.rope_type is missing", full},
        {type("lfm3", "'rope_parameters': {'full_attention': {'rope_theta': 1e6, 'partial_rotary_factor': 0.25}}"),
         "rope_parameters.full_attention.rope_type is missing", full},
        {ministral(""), "llama_4_scaling_beta"},
        {type("gpt_oss"), "rope_parameters, which"},
        {type("esm"), "position_embedding_type is missing"},
        {type("musicflamingo", "'rope_theta': 1e4"), "text_config is missing"},
        {type("ministral3", "'rope_parameters': {'rope_theta': 1e4, 'llama_4_scaling_beta': 0.1}"),
         "original_max_position_embeddings, by which q is scaled, is missing"},
        {sarvam("'type': 'deepseek_yarn', 'mscale': 0.7"), "mscale_all_dim, which deepseek_yarn's mscale needs"},
        {type("gemma4_text", "'rope_scaling': {'rope_type': 'proportional'}"),
         "rope_scaling.full_attention and rope_scaling.sliding_attention are missing", full},
        {"{'model_type': 'qwen2_vl'}", "vision_config", vision},
        {type("qwen2_vl", "'vision_config': {'num_heads': 16}"), "vision_config.hidden_size is missing", vision},
        {type("qwen2_vl", "'vision_config': {'embed_dim': 1280}"), "vision_config.num_heads is missing", vision},
        {type("gemma4_text", "'per_layer_config': {'1': {'head_dim': 512}}"),
         "layer_types, which per_layer_config needs, is missing", full},
    });
}

TEST_CASE("config: fields that contradict each other are named", "[config][errors]") {
    check_refused({
        {scaled("'type': 'yarn'"), "rope_scaling.rope_type is 'llama3', but"},
        {scaled("'rope_theta': 10000"), "rope_theta is 500000, but rope_scaling.rope_theta is"},
        {llama("{'rope_parameters': {'rope_type': 'linear', 'factor': 2}}"), "are both there, but differ"},
        {llama("{'original_max_position_embeddings': 4096}"), "original_max_position_embeddings is 8192, but"},
        {llama("{'partial_rotary_factor': 0.5, 'rotary_dim': 32}"), "rotary_dim is 32"},
        {llama("{'num_attention_heads': 30}"), "hidden_size"},
        {llama("{'rotary_emb_interleaved': true}"), "rotary_emb_interleaved is true, but model_type is 'llama'"},
        {inside(llama(), "{'rope_theta': 1e4}"), "rope_theta is not what text_config.rope_theta says"},
        {inside(llama(), "{'partial_rotary_factor': 0.5}"), "partial_rotary_factor is not what text_config."},
        {inside(llama(), "{'llm_config': {'rope_theta': 1e4}}"), "text_config and llm_config are both there"},
        {inside(llama(), "{'vlm_config': {'text_config': {'rope_theta': 1e4}}}"),
         "vlm_config and text_config are both there"},
        {type("smollm3", "'num_hidden_layers': 36, 'no_rope_layers': [1, 1, 1, 0]"),
         "no_rope_layers has 4 elements, but num_hidden_layers is 36"},
        {gemma4("{'1x': {'head_dim': 512}}"), "per_layer_config.'1x' is not the number of a layer", full},
        {gemma4("{'2': {'head_dim': 512}}"), "per_layer_config.'2' is not the number of a layer", full},
        {gemma4("{'99999999999999999999': {'head_dim': 512}}"), "is not the number of a layer", full},
        {gemma4("{'1': {'head_dim': 512}, '01': {'head_dim': 256}}"), "per_layer_config.'1' is not the", full},
    });
    check_refused<unsupported>({
        {type("gemma4_text", "'layer_types': ['full_attention', 'full_attention'], 'per_layer_config': {'1': "
                             "{'head_dim': 512}}"),
         "per_layer_config gives layers of type 'full_attention' heads of different widths", full},
    });
}

TEST_CASE("config: methods and models that are not known, or have no RoPE, are named", "[config][errors]") {
    check_refused<unsupported>({
        {yarn("'attn_factor': 2"), "attn_factor"},
        {qwen2_vl("'rope_parameters': {'rope_type': 'linear'}"), "rope_parameters.rope_type is", vision},
        {type("mpt", "'attn_config': {'rope': true, 'rope_theta': 1e4}"), "attn_config.rope is true, but which"},
        {type("xlm-roberta", "'position_embedding_type': 'rotary', 'rotary_emb_base': 2e4"),
         "position_embedding_type is 'rotary', but which RoPE"},
        {type("nanochat", "'max_position_embeddings': 2048, 'rope_scaling': {'type': 'dynamic', 'factor': 2}"),
         "-position"},
        {type("deepseek_v3", "'use_mla': false"), "use_mla is false"},
        {type("vjepa2", "'use_rope': true"), "turns one pair by two angles"},
        {type("other"), "whose image encoder is not supported", vision},
        {llama("{'rope_scaling_layers': [0, 1]}"), "rope_scaling_layers leaves layers"},
        {type("unheard_of", "'rope_theta': 1e4, 'attn_temperature_tuning': true"), "attn_temperature_tuning"},
        {type("llama", "'llama_4_scaling': {'beta': 0.1}"), "llama_4_scaling"},
        {ministral(", 'llama_4_scaling_beta': 0.1", "qwen2"), "llama_4_scaling_beta"},
        {read_fixture("llama-2-7b"), "", vision},
    });
    check_refused({
        {"{'model_type': 'other', 'text_config': {'model_type': 'opt'}}", "'opt'"},
        {type("falcon", "'alibi': true"), "alibi"},
        {type("mpt", "'attn_config': {'rope': false}"), "model_type is 'mpt', which has ALiBi and no RoPE"},
        {type("xlm-roberta", "'position_embedding_type': 'absolute'"), "which has learned or sinusoidal positions"},
        {type("esm", "'position_embedding_type': 'absolute'"), "position_embedding_type"},
        {type("qwen2_vl", "'rope_scaling': {'type': 'mrope', 'mrope_interleaved': true}"), "mrope_interleaved is true"},
        {type("smollm3", "'no_rope_layers': [0, 0]"), "no_rope_layers leaves no layer with RoPE"},
    });
    check_outcome(read(read_fixture("qwen-7b"), nullptr, 8193), unsupported, "use_dynamic_ntk");
}

TEST_CASE("config: kinds of layers that there are not, or that have no RoPE, are named", "[config][errors]") {
    const auto kinds = [](const std::string &types, const std::string &parameters) {
        return "{'model_type': 'other', 'head_dim': 64, 'layer_types': [" + types + "], 'rope_parameters': {" +
               parameters + "}}";
    };
    const std::string a_and_b = "'a': {'rope_theta': 100}, 'b': {'rope_theta': 100}, 'c': null";
    check_refused<mismatch>({
        {read_fixture("gemma-4"), sliding},
        {read_fixture("modernbert-base"), sliding},
        {read_fixture("gemma-3-4b"), "chunked_attention", "chunked_attention"},
        {read_fixture("olmo-3-7b"), "''", ""},
        {llama("{'layer_types': ['full_attention', 'mamba']}"), "no RoPE", "mamba"},
        {llama("{'layer_types': ['full_attention', 'linear_attention']}"), "no RoPE", "linear_attention"},
        {llama("{'layer_types': ['full_attention', 'conv']}"), "no RoPE", "conv"},
        {read_fixture("exaone-4.0-32b"), "no RoPE", full},
        {llama(), "the config has no layer_types", "mamba"},
        {kinds("'a', 'b', 'c'", a_and_b), "'a', 'b'", "d"},
        {kinds("'a', 'b', 'e'", a_and_b), "no RoPE", "e"},
        {kinds("'a', 'b'", a_and_b + ", 'full_attention': null"), "no RoPE", full},
        {llama("{'layer_types': ['full_attention'], 'per_layer_config': {'0': {'head_dim': 64}}}"),
         "there is a per_layer_config, so layer_type is needed"},
        // A key may contain a NUL character.
        {kinds("'full_attention\\u0000too'", "'full_attention\\u0000too': {'rope_theta': 1e4}"), "", full},
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
        {"7", "the config is of type number, but it must be an object"},
        {"{\"rope_scaling\": 7}", "rope_scaling is of type number, but it must be an object"},
        {"{\"a\": {\"b\": 1, \"b\": 2}}", "'b' twice"},
        {"{}", ""}};
    for (const auto &[text, words] : cases) {
        CAPTURE(text);
        check_outcome(read(text), refused, words);
    }
    // Deep nesting is refused early, wherever it is and whether or not it is closed. A long text is accepted.
    const std::string deep(1000000, '['), closed = deep + std::string(1000000, ']');
    for (const auto &text : {deep, closed, "{\"rope_scaling\": " + deep, "{\"a\":{\"a\": " + closed}) {
        check_outcome(read(text), refused, "64 deep");
    }
    CHECK(read(llama().dump() + std::string(1000000, ' ')).status == HALYARD_OK);
    CHECK(read(llama("{\"a\": \"" + std::string(1000000, 'x') + "\"}").dump()).status == HALYARD_OK);
    // Error messages escape control characters and are cut off when they get too long.
    check_outcome(read(with_double_quotes("{'rope_scaling': {'rope_type': '\\u001b[31m\\n\\u00e9 " +
                                          std::string(300, 'x') + "'}}")),
                  unsupported, "");
}

TEST_CASE("config: arguments that are wrong are named", "[config][errors]") {
    const std::string good = llama().dump();
    const std::int64_t negative = -1;
    auto options = sized<halyard_config_options>();
    std::int64_t n_bytes = std::ssize(good);
    const CallChecker calls([&](halyard_status status, const Words &words) {
        halyard_frequencies *out = nullptr;
        ::check_refused(status, words, [&](auto *error) {
            return halyard_create_frequencies_from_config(good.data(), n_bytes, &options, &out, error);
        });
        CHECK(out == nullptr);
    });
    calls.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_config_options>(), {{"options.size", options.size}});
    calls.refuse_each(shape, {-1, INT64_MIN, INT64_MAX}, {n_bytes});
    calls.refuse_each(shape, {-1, INT64_MAX}, {options.seq_len});
    calls.refuse(shape, {"options.layer is -1"}, {{options.layer, &negative}});
}
