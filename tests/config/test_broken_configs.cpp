// Configs broken by hand: misspelt, contradicting, nested wrongly, without end. Each is refused under the field's name.
#include "config/read_config.h"

using nlohmann::json;

namespace {

struct Broken {
    std::string text;
    const char *words;
};

/// Llama 3.1's config with one text put in the place of another.
std::string llama_with(const std::string &what, const std::string &instead) {
    auto text = llama().dump();
    const auto place = text.find(what);
    REQUIRE(place != std::string::npos);
    return text.replace(place, what.size(), instead);
}

/// Puts a text in the place of the question mark.
std::string fill(std::string text, const std::string &value) { return text.replace(text.find('?'), 1, value); }

std::string gemma3_with(const std::string &full) {
    return fill(R"({"model_type": "gemma3_text", "hidden_size": 2304, "num_attention_heads": 8, "rope_parameters":
        {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": ?}})",
                full);
}

std::string gemma4_with(const std::string &layers) {
    return fill(R"({"model_type": "gemma4_text", "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": {}, "full_attention": {"rope_type": "proportional"}},
        "per_layer_config": ?})",
                layers);
}

std::string whole_with(const std::string &beside) {
    auto config = json::parse(beside);
    config["model_type"] = "llava";
    config["text_config"] = llama();
    return config.dump();
}

std::string vision_with(const std::string &fields) {
    return fill(R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "num_heads": 16, ?}})", fields);
}

void check_broken(const std::vector<Broken> &cases) {
    for (const auto &broken : cases) {
        CAPTURE(broken.text);
        const auto has = [&](const char *word) { return broken.text.find(word) != std::string::npos; };
        const auto outcome = read(broken.text, has("vision_config") ? "vision"
                                               : has("gemma")       ? "full_attention"
                                                                    : nullptr);
        CAPTURE(outcome.message);
        CHECK(outcome.status != HALYARD_OK);
        CHECK(outcome.message.find(broken.words) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("config: broken configs are refused by name, keys that are not known", "[config]") {
    // Keys that nothing here knows.
    check_broken({
        {llama_yarn(R"(, "beta_fsat": 32)").dump(), "rope_scaling.beta_fsat is not known here"},
        {llama_scaled(R"("rope_typ": "yarn")").dump(), "rope_scaling.rope_typ is not known here"},
        {llama(R"({"layer_rope_thetas": [1, 2]})").dump(), "layer_rope_thetas is not known here"},
        {llama(R"({"fope_num_inv_freq": 8})").dump(), "fope_num_inv_freq is not known here"},
        {llama(R"({"rope_teta": 10000})").dump(), "rope_teta is not known here"},
        {llama(R"({"mrope_sections": [16, 24, 24]})").dump(), "mrope_sections is not known here"},
        {llama(R"({"rotary_emb_scale_base": 512})").dump(), "rotary_emb_scale_base is not known here"},
        {llama(R"({"rope_local_base_freq": 10000})").dump(), "rope_local_base_freq is not known here"},
        {json{{"model_type", "other"}, {"text_config", llama(R"({"rope_thetas": 1})")}}.dump(),
         "text_config.rope_thetas is not known here"},
        {json{{"rope_thetas", 1}, {"text_config", llama()}}.dump(), "rope_thetas is not known here"},
        {gemma3_with(R"({"rope_type": "linear", "rope_theta": 1e6, "factro": 8})"),
         "rope_parameters.full_attention.factro is not known here"},
        // Inside other objects and lists.
        {llama(R"({"attention": {"rope_theta": 500000.0}})").dump(), "attention.rope_theta is not known here"},
        {llama(R"({"layers": [{"x": 1}, {"attention": {"RotaryBase": 5e5}}]})").dump(),
         "layers[1].attention.RotaryBase is not known here"},
        {llama(R"({"attn_config": {"model_type": "", "rope_theta": 1e4}})").dump(),
         "attn_config.rope_theta is not known"},
        {llama(R"({"a": {"b": [[{"mrope_section": [1]}]]}})").dump(), "a.b[0][0].mrope_section is not known here"},
        {llama(R"({"base_theta": 5})").dump(), "base_theta is not known here"},
        {json{{"model_type", "llava"}, {"extra", {{"rope_theta", 1}}}, {"text_config", llama()}}.dump(),
         "extra.rope_theta is not known here"},
        {json{{"model_type", "llava"}, {"text_config", llama(R"({"model_type": null})")}}.dump(),
         "text_config.model_type is missing"},
        {R"({"model_type": "dbrx", "d_model": 64, "n_heads": 1, "attn_config": {"rope_theta": 5, "rope_type": "x"}})",
         "attn_config.rope_type is not known here"},
        {R"({"model_type": "dbrx", "d_model": 64, "n_heads": 1, "rope_theta": 4, "attn_config": {"rope_theta": 5}})",
         "attn_config.rope_theta is 5, but rope_theta is 4"},
        {vision_with(R"("x": {"rope_theta": 5})"), "vision_config.x.rope_theta is not known here"},
        {llama(R"({"rotary": {"bas": 1e4}})").dump(), "rotary.bas is not known here"},
        {R"({"model_type": "llama", "head_dim": 64, "use_rotary_pos_emb": false})", "use_rotary_pos_emb is false"},
        {R"({"model_type": "esm", "head_dim": 64})", "position_embedding_type is missing"},
        {R"({"model_type": "musicflamingo", "head_dim": 64, "rope_theta": 1e4})", "text_config is missing"},
        // Types without RoPE in transformers, of which others' code has it.
        {R"({"model_type": "mpt", "d_model": 64, "n_heads": 1, "attn_config": {"rope": true, "rope_theta": 1e4}})",
         "attn_config.rope is true, but which RoPE"},
        {R"({"model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 2e4})",
         "position_embedding_type is 'rotary', but which RoPE"},
    });
    // Other parts of a model have frequencies of their own.
    for (const char *part : {"vision_config", "audio_config", "protein_encoder_config"}) {
        CHECK(is_same(
            read_good(json{{"model_type", "llava"}, {"text_config", llama()}, {part, {{"rope_theta", 5}}}}.dump()),
            read_good(llama().dump())));
    }
    CHECK(is_same(read_good(llama(R"({"drafter": {"model_type": "x", "rope_theta": 5}})").dump()),
                  read_good(llama().dump())));
}

TEST_CASE("config: broken configs are refused by name, objects and layers in the wrong place", "[config]") {
    // An object where none belongs, and layers that differ.
    check_broken({
        {llama_scaled(R"("factor": {"value": 8})").dump(), "rope_scaling.factor"},
        {llama(R"({"rope_scaling": {"rope_type": {"rope_type": "yarn"}}})").dump(), "rope_type"},
        {llama(R"({"layer_rope_theta": [500000, 0, 10000]})").dump(), "layer_rope_theta is not known here"},
        {llama(R"({"rope_scaling_layers": [0, 1], "num_hidden_layers": 4})").dump(),
         "rope_scaling_layers leaves layers"},
        {llama(R"({"no_rope_layers": [0, 0, 0]})").dump(), "no_rope_layers leaves no layer with RoPE"},
    });
}

TEST_CASE("config: broken configs are refused by name, numbers out of all range", "[config]") {
    // Numbers without end, and out of all range.
    check_broken({
        {llama_with("500000.0", "Infinity"), "rope_theta is infinite or no number"},
        {llama_with("500000.0", "NaN"), "rope_theta is infinite or no number"},
        {llama_with("500000.0", "-Infinity"), "rope_theta is infinite or no number"},
        {llama_with(":8192", ":Infinity"), "rope_scaling.original_max_position_embeddings is infinite"},
        {llama_with(":4096", ":NaN"), "hidden_size is infinite or no number"},
        {llama_scaled(R"("factor": 1e308)").dump(), "rope_scaling.factor"},
        {llama(R"({"max_position_embeddings": 1e300})").dump(), "max_position_embeddings"},
    });
}

TEST_CASE("config: broken configs are refused by name, contradictions", "[config]") {
    check_broken({
        {llama(R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})").dump(), "are both there, but differ"},
        {whole_with(R"({"rope_theta": 10000.0})"), "rope_theta is not what text_config.rope_theta says"},
        {whole_with(R"({"partial_rotary_factor": 0.5})"), "partial_rotary_factor is not what text_config."},
        {whole_with(R"({"llm_config": {"rope_theta": 1e4}})"), "text_config and llm_config are both there"},
        {whole_with(R"({"vlm_config": {"text_config": {"rope_theta": 1e4}}})"),
         "vlm_config and text_config are both there"},
        {llama_scaled(R"("max_position_embeddings": 4096)").dump(),
         "rope_scaling.max_position_embeddings is 4096, but max_position_embeddings is 131072"},
        {llama(R"({"head_dim": 128, "kv_channels": 64})").dump(), "kv_channels is 64, but head_dim is 128"},
        {llama(R"({"head_dim": 128, "attention_head_dim": 64})").dump(), "head_dim is 128, but attention_head_dim is"},
        {llama(R"({"n_embd": 2048})").dump(), "n_embd is 2048, but hidden_size is 4096"},
        {llama(R"({"n_head": 16})").dump(), "n_head is 16, but num_attention_heads is 32"},
        {llama(R"({"rope_interleave": true})").dump(), "rope_interleave is true, but model_type is 'llama'"},
        {R"({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_emb_interleaved": false})",
         "rotary_emb_interleaved is false, but model_type is 'gptj'"},
        {llama(R"({"use_mem_rope": true})").dump(), "use_mem_rope is not known here"},
    });
}

TEST_CASE("config: broken configs are refused by name, lists by layers", "[config]") {
    // Lists by layers that leave layers out, or name layers that there are not.
    check_broken({
        {llama(R"({"num_hidden_layers": 3, "layer_types": ["full_attention"]})").dump(),
         "layer_types has 1 elements, but num_hidden_layers is 3"},
        {R"({"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 36,
            "no_rope_layers": [1, 1, 1, 0]})",
         "no_rope_layers has 4 elements"},
        {R"({"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 3, "layer_rope_theta": [1, 1]})",
         "layer_rope_theta has 2 elements"},
        {gemma4_with(R"({"2": {"head_dim": 512}})"), "per_layer_config.'2' is not the number of a layer"},
        {gemma4_with(R"({"one": {"head_dim": 512}})"), "per_layer_config.'one' is not the number of a layer"},
        {gemma4_with(R"({"": {"head_dim": 512}})"), "per_layer_config.'' is not the number of a layer"},
        {gemma4_with(R"({"1x": {"head_dim": 512}})"), "per_layer_config.'1x' is not the number of a layer"},
        {gemma4_with(R"({"99999999999999999999": {"head_dim": 512}})"), "is not the number of a layer"},
        {llama(R"({"num_hidden_layers": 3, "rope_scaling_layers": 3})").dump(),
         "rope_scaling_layers is of type number"},
        {llama(R"({"rope_scaling_layers": [0, 1]})").dump(), "rope_scaling_layers leaves layers"},
        {gemma4_with(R"({"1": {"head_dim": 512}, "01": {"head_dim": 256}})"), "per_layer_config.'1' is not the number"},
        {gemma4_with(R"({"1": {"head_dim": 512, "rope_theta": 5}})"), "per_layer_config.1.rope_theta is not known"},
        {gemma4_with(R"({"1": {"head_dim": "512"}})"), "per_layer_config.'1'.head_dim is of type string"},
        {gemma4_with(R"({"1": 512})"), "per_layer_config"},
        {R"({"model_type": "gemma4_text", "layer_types": ["full_attention", "full_attention"],
            "per_layer_config": {"1": {"head_dim": 512}}})",
         "per_layer_config gives layers of type 'full_attention' heads of different widths"},
        {R"({"model_type": "gemma4_text", "per_layer_config": {"1": {"head_dim": 512}}})",
         "layer_types, which per_layer_config needs, is missing"},
        {llama(R"({"layer_types": ["full_attention"], "per_layer_config": {"0": {"head_dim": 64}}})").dump(),
         "there is a per_layer_config, so layer_type is needed"},
    });
}

TEST_CASE("config: broken configs are refused by name, entries for kinds of layers", "[config]") {
    // What stands beside entries for kinds of layers, or is none.
    check_broken({
        {gemma3_with(R"({"rope_theta": 1e6}, "factor": 8)"), "rope_parameters.factor stands beside entries"},
        {gemma3_with(R"({}, "rope_theta": 5e5)"), "rope_parameters.rope_theta stands beside entries"},
        {gemma3_with(R"({}, "chunked_atention": {"rope_theta": 1e4})"),
         "rope_parameters.chunked_atention is not known"},
        {gemma3_with(R"({"rope_theta": 1e6, "sliding_attention": {"factor": 2}})"),
         "rope_parameters.full_attention.sliding_attention is not known"},
        {gemma3_with("[1]"), "rope_parameters.full_attention is of type array"},
        {R"({"model_type": "gemma4_text", "rope_scaling": {"rope_type": "proportional"}})",
         "rope_scaling.full_attention and rope_scaling.sliding_attention are missing"},
        {R"({"model_type": "gemma4_text", "rope_parameters": {"sliding_attention": {}, "full_attention":
            {"rope_type": "proportional", "partial_rotary_factor": 0.001}}})",
         "rope_parameters.full_attention.partial_rotary_factor is 0.001, which leaves no pair"},
    });
}

TEST_CASE("config: broken configs are refused by name, an image encoder's part", "[config]") {
    // An image encoder's part, which reads little.
    check_broken({
        {R"({"model_type": "qwen2_vl", "vision_config": {"num_heads": 16}})", "vision_config.hidden_size is missing"},
        {R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280}})", "vision_config.num_heads is missing"},
        {vision_with(R"("rope_parameters": {"rope_type": "linear"})"), "vision_config.rope_parameters.rope_type is"},
        {vision_with(R"("rope_theta": 5e5)"), "vision_config.rope_theta is not known here"},
        {R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 96, "num_heads": 16}})",
         "which does not make 16 heads (num_heads) of a multiple of 4"},
        {vision_with(R"("rope_scaling": {"type": "linear", "factor": 2})"), "vision_config.rope_scaling is not known"},
        {vision_with(R"("rope_parameters": {"partial_rotary_factor": 0.5})"),
         "vision_config.rope_parameters.partial_rotary_factor is not known"},
        {vision_with(R"("rope_parameters": {"rope_theta": "1e4"})"), "vision_config.rope_parameters.rope_theta is of"},
        {vision_with(R"("rope_parameters": {"rope_theta": 0})"), "vision_config.rope_parameters.rope_theta is 0"},
    });
}

TEST_CASE("config: Infinity is read where it does not matter", "[config]") {
    const auto plain = read_good(llama().dump());
    for (const char *value : {"Infinity", "-Infinity", "NaN", "[0.0, Infinity]", "{\"a\": [NaN, -Infinity]}"}) {
        auto text = llama().dump();
        text.insert(1, "\"time_step_limit\": " + std::string(value) + ", ");
        CHECK(is_same(read_good(text), plain));
    }
    // Within strings they are letters, and lines and columns stay.
    CHECK(is_same(read_good(llama(R"({"a": "NaN \" Infinity \\"})").dump()), plain));
    CHECK(read("{\"a\": NaN,\n \"b\": -Infinity, x}").message.find("line 2, column 18") != std::string::npos);
    CHECK(read("{\"a\": NaNs}").status == HALYARD_ERROR_CONFIG);
}

TEST_CASE("config: null is the same as not there, whatever the key", "[config]") {
    for (const char *place : {"{", "\"rope_scaling\":{"}) {
        const auto text = llama_with(place, std::string(place) + "\"rope_fancy\": null, ");
        CHECK(is_same(read_good(text), read_good(llama().dump())));
    }
    const auto same = [](const std::string &text, const std::string &plain, const char *layer_type) {
        CAPTURE(text);
        return is_same(read_good(text, layer_type), read_good(plain, layer_type));
    };
    const std::string gemma3 = gemma3_with(R"({"rope_theta": 1e6})");
    CHECK(same(gemma3_with(R"({"rope_theta": 1e6}, "factro": null, "factor": null)"), gemma3, "full_attention"));
    CHECK(same(gemma3_with(R"({"rope_theta": 1e6}, "type": "default", "truncate": true)"), gemma3, "full_attention"));
    CHECK(same(gemma4_with(R"({"1": {"head_dim": 512, "rope_theta": null}})"),
               gemma4_with(R"({"1": {"head_dim": 512}})"), "full_attention"));
    const std::string whole = json{{"model_type", "llava"}, {"text_config", llama()}}.dump();
    CHECK(same(whole.substr(0, whole.size() - 1) + R"(, "rope_theta": null})", whole, nullptr));
    CHECK(same(vision_with(R"("rope_fancy": null)"), vision_with(R"("depth": 1)"), "vision"));
    CHECK(same(vision_with(R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "rope_fancy": null})"),
               vision_with(R"("depth": 1)"), "vision"));
}
