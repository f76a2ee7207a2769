// What a config asks of q beside its angles, and whether some of the model's layers turn nothing: told, or refused.
#include "config/read_config.h"

#include <catch2/catch_test_macros.hpp>

namespace {

struct Asked {
    std::string config;
    const char *layer_type = nullptr;
    bool has_unrotated = false;
    std::int32_t rule = HALYARD_Q_SCALE_NONE, layers = HALYARD_LAYERS_NONE;
    double scale = 0;
    std::int64_t length = 0;
    std::int32_t shift = 0;
};

std::string type(const std::string &name, const std::string &fields = "") {
    return R"({"model_type": ")" + name + R"(", "head_dim": 64, "rope_theta": 1e4)" + fields + "}";
}
std::string scaled(const std::string &name, const std::string &fields) {
    return R"({"model_type": ")" + name + R"(", "head_dim": 64, "qk_rope_head_dim": 64, "rope_parameters":
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0)" +
           fields + "}}";
}
std::string beam(const std::string &full) {
    return R"({"model_type": "beam", "head_dim": 64, "rope_parameters": {"full_attention": )" + full +
           R"(, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}})";
}

const std::string kinds = R"(, "layer_types": ["sliding_attention", "full_attention"])",
                  sliding = R"(, "layer_types": ["sliding_attention", "sliding_attention"])";
constexpr auto log_rule = HALYARD_Q_SCALE_LOG;
constexpr auto unrotated = HALYARD_LAYERS_UNROTATED;

const Asked asked[] = {
    {type("llama")},
    {type("gemma2", kinds)},
    // Llama 4: in layers without RoPE, which are each fourth one where the config lists none.
    {type("llama4_text"), nullptr, true, log_rule, unrotated, 0.1, 8192, 1},
    {type("llama4_text", R"(, "attn_scale": 0.25, "floor_scale": 100)"), nullptr, true, log_rule, unrotated, 0.25, 100,
     1},
    {type("llama4_text", R"(, "attn_temperature_tuning": 4)"), nullptr, true, log_rule, unrotated, 0.1, 8192, 1},
    {type("llama4_text", R"(, "attn_temperature_tuning": null)"), nullptr, true, log_rule, unrotated, 0.1, 8192, 1},
    {type("llama4_text", R"(, "attn_temperature_tuning": false)"), nullptr, true},
    {type("llama4_text", R"(, "attn_temperature_tuning": 0)"), nullptr, true},
    {type("llama4_text", R"(, "num_hidden_layers": 3)")},
    {type("llama4_text", R"(, "num_hidden_layers": 3, "no_rope_layer_interval": 3)"), nullptr, true, log_rule,
     unrotated, 0.1, 8192, 1},
    {type("llama4_text", R"(, "no_rope_layers": [1, 1])")},
    {type("llama4_text", R"(, "no_rope_layers": [1, 0])"), nullptr, true, log_rule, unrotated, 0.1, 8192, 1},
    {type("llama4_text", R"(, "no_rope_layers": [])"), nullptr, true, log_rule, unrotated, 0.1, 8192, 1},
    {read_fixture("llama-4-scout"), nullptr, true, log_rule, unrotated, 0.1, 8192, 1},
    // Ministral 3 and Mistral 4: in all layers.
    {scaled("ministral3", R"(, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16384)"), nullptr,
     false, log_rule, HALYARD_LAYERS_ALL, 0.1, 16384, 0},
    {scaled("mistral4", R"(, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 8192)"), nullptr, false,
     log_rule, HALYARD_LAYERS_ALL, 0.5, 8192, 0},
    // Beam, whose code has these numbers.
    {beam("null"), "sliding_attention", true, HALYARD_Q_SCALE_POWER, unrotated, 0.1, 2048, 1},
    {beam(R"({"rope_type": "default", "rope_theta": 1e6})"), "sliding_attention"},
    // Models that turn nothing in some layers, and do no more to q.
    {type("smollm3"), nullptr, true},
    {type("smollm3", R"(, "no_rope_layers": [1, 1])")},
    {read_fixture("smollm3-3b"), nullptr, true},
    {type("cohere2", kinds), nullptr, true},
    {type("cohere2"), nullptr, true},
    {type("cohere2", sliding)},
    {type("exaone4", kinds + R"(, "sliding_window": 4096)"), nullptr, true},
    {type("exaone4", kinds), nullptr, true},
    {type("exaone4", kinds + R"(, "sliding_window": null)")},
    {type("exaone4", sliding + R"(, "sliding_window": 4096)")},
    {type("granite_swa", R"(, "layer_rope_theta": [1e4, 0, 1e4])"), nullptr, true},
    {type("granite_swa", R"(, "layer_rope_theta": [1e4, 1e4])")},
    {type("llama", R"(, "llama_4_scaling_beta": 0.1)")},  // at the top, where nobody reads it
    // null is an entry of layers where it stands for layers of attention that there are.
    {type("llama", R"(, "rope_parameters": {"rope_theta": 1e4, "factor": null})")},
    {type("llama", R"(, "layer_types": ["full_attention"], "rope_parameters":
        {"full_attention": {"rope_theta": 1e4}, "sliding_attention": null})"),
     "full_attention"},
};

}  // namespace

TEST_CASE("config: what is asked of q", "[config]") {
    for (const Asked &each : asked) {
        CAPTURE(each.config);
        const auto info = read_good(each.config, each.layer_type).info;
        CHECK((info.has_unrotated_layers != 0) == each.has_unrotated);
        CHECK(info.q_scale_rule == each.rule);
        CHECK(info.q_scale_layers == each.layers);
        CHECK(info.q_scale == each.scale);
        CHECK(info.q_scale_length == each.length);
        CHECK(info.q_scale_shift == each.shift);
        const auto again = read_good(each.config, each.layer_type).frequencies.for_length(100).info();
        CHECK(again.q_scale_rule == each.rule);
        CHECK((again.has_unrotated_layers != 0) == each.has_unrotated);
    }
    const auto base = halyard::frequencies::from_base(1e4, 64).info();
    CHECK(base.q_scale_rule == HALYARD_Q_SCALE_NONE);
    CHECK(base.has_unrotated_layers == 0);
}

TEST_CASE("config: scales of q that are refused", "[config]") {
    const std::string length = R"(, "original_max_position_embeddings": 16384)";
    const struct {
        std::string config;
        halyard_status status;
        std::vector<const char *> words;
    } refused[] = {
        {scaled("ministral3", length), HALYARD_ERROR_CONFIG, {"llama_4_scaling_beta", "missing"}},
        {scaled("ministral3", length + R"(, "llama_4_scaling_beta": "0.1")"),
         HALYARD_ERROR_CONFIG,
         {"llama_4_scaling_beta"}},
        {scaled("ministral3", length + R"(, "llama_4_scaling_beta": Infinity)"),
         HALYARD_ERROR_FREQUENCY,
         {"llama_4_scaling_beta"}},
        {scaled("ministral3", length + R"(, "llama_4_scaling_beta": 1e9)"),
         HALYARD_ERROR_FREQUENCY,
         {"llama_4_scaling_beta is 1000000000", "2^20"}},
        {scaled("mistral4", R"(, "llama_4_scaling_beta": 0.1)"),
         HALYARD_ERROR_CONFIG,
         {"original_max_position_embeddings"}},
        {type("ministral3", R"(, "rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": 0.1})"),
         HALYARD_ERROR_CONFIG,
         {"original_max_position_embeddings, by which q is scaled, is missing"}},
        {scaled("qwen2", length + R"(, "llama_4_scaling_beta": 0.1)"),
         HALYARD_ERROR_UNSUPPORTED,
         {"llama_4_scaling_beta", "'qwen2'"}},
        {scaled("llama4_text", length + R"(, "llama_4_scaling_beta": 0.1)"),
         HALYARD_ERROR_UNSUPPORTED,
         {"llama_4_scaling_beta", "'llama4_text'"}},
        {type("llama4_text", R"(, "attn_scale": "much")"), HALYARD_ERROR_CONFIG, {"attn_scale"}},
        {type("llama4_text", R"(, "attn_scale": 1e7)"), HALYARD_ERROR_FREQUENCY, {"attn_scale is 10000000"}},
        {type("llama4_text", R"(, "floor_scale": 0)"), HALYARD_ERROR_SHAPE, {"floor_scale"}},
        {type("llama4_text", R"(, "floor_scale": 0.5)"), HALYARD_ERROR_SHAPE, {"floor_scale"}},
        {type("llama4_text", R"(, "attn_temperature_tuning": "on")"),
         HALYARD_ERROR_CONFIG,
         {"attn_temperature_tuning"}},
        {type("llama", R"(, "llama_4_scaling": {"beta": 0.1})"), HALYARD_ERROR_UNSUPPORTED, {"llama_4_scaling"}},
        {type("unheard_of", R"(, "attn_temperature_tuning": true)"),
         HALYARD_ERROR_UNSUPPORTED,
         {"attn_temperature_tuning", "'unheard_of'"}},
        {type("unheard_of", R"(, "use_logn_attn": true)"), HALYARD_ERROR_UNSUPPORTED, {"use_logn_attn"}},
    };
    for (const auto &each : refused) {
        CAPTURE(each.config);
        check_outcome(read(each.config), each.status, each.words);
    }
    // What is off, or not there, is not refused.
    CHECK(read(type("unheard_of", R"(, "attn_temperature_tuning": false, "use_logn_attn": false)")).status ==
          HALYARD_OK);
    CHECK(read(scaled("qwen2", length + R"(, "llama_4_scaling_beta": 0)")).status == HALYARD_OK);
}
