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

std::string gemma3_with(const std::string &full) {
    return R"({"model_type": "gemma3_text", "hidden_size": 2304, "num_attention_heads": 8, "rope_parameters":
        {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": )" +
           full + "}}";
}

}  // namespace

TEST_CASE("config: broken configs are refused under the field's name", "[config]") {
    const std::vector<Broken> cases = {
        // Keys that nothing here knows.
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
        // An object where none belongs, and layers that differ.
        {llama_scaled(R"("factor": {"value": 8})").dump(), "rope_scaling.factor"},
        {llama(R"({"rope_scaling": {"rope_type": {"rope_type": "yarn"}}})").dump(), "rope_type"},
        {llama(R"({"layer_rope_theta": [500000, 0, 10000]})").dump(), "layer_rope_theta gives a layer a base of 10000"},
        {llama(R"({"rope_scaling_layers": [0, 1], "num_hidden_layers": 4})").dump(),
         "rope_scaling_layers leaves layers"},
        {llama(R"({"no_rope_layers": [0, 0, 0]})").dump(), "no_rope_layers leaves no layer with RoPE"},
        // Numbers without end, and out of all range.
        {llama_with("500000.0", "Infinity"), "rope_theta is infinite or no number"},
        {llama_with("500000.0", "NaN"), "rope_theta is infinite or no number"},
        {llama_with("500000.0", "-Infinity"), "rope_theta is infinite or no number"},
        {llama_with(":8192", ":Infinity"), "rope_scaling.original_max_position_embeddings is infinite"},
        {llama_with(":4096", ":NaN"), "hidden_size is infinite or no number"},
        {llama(R"({"rope_theta": 0})").dump(), "rope_theta is 0"},
        {llama_with("500000.0", "1e999"), "holds a number that no double holds"},
        {llama_scaled(R"("factor": 1e308)").dump(), "rope_scaling.factor"},
        {llama(R"({"max_position_embeddings": 1e300})").dump(), "max_position_embeddings"},
        // Contradictions.
        {llama(R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})").dump(), "are both there, but differ"},
        {llama_scaled(R"("rope_theta": 10000.0)").dump(), "rope_scaling.rope_theta"},
        // Types that need what is missing.
        {R"({"model_type": "mellum", "hidden_size": 2304, "num_attention_heads": 32, "rope_theta": 500000})",
         "rope_parameters has no entry for each kind of layers"},
        {R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64})", "rope_parameters, which"},
    };
    for (const auto &broken : cases) {
        CAPTURE(broken.text);
        const auto outcome =
            read(broken.text, broken.text.find("full_attention") == std::string::npos ? nullptr : "full_attention");
        CAPTURE(outcome.message);
        CHECK(outcome.status != HALYARD_OK);
        CHECK(outcome.message.find(broken.words) != std::string::npos);
    }
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
    // null is the same as not there, whatever the key.
    CHECK(is_same(read_good(llama(R"({"rope_fancy": null})").dump()), plain));
}
