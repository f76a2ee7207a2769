// What a config asks of q beside its angles, and whether some of the model's layers turn nothing.
#include "config/read_config.h"

namespace {

struct Scale {
    std::int32_t rule = HALYARD_Q_SCALE_NONE, layers = HALYARD_LAYERS_NONE;
    double scale = 0;
    std::int64_t length = 0;
    std::int32_t shift = 0;

    bool operator==(const Scale &) const = default;
};

struct Asked {
    Text config;
    bool has_unrotated = false;
    Scale scale = {};
    const char *layer_type = nullptr;
};

std::string ministral(const std::string &name, const std::string &fields) {
    return type(name, "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e6, 'factor': 16.0, " + fields + "}");
}
std::string beam(const std::string &full) {
    return type("beam",
                "'rope_parameters': {'sliding_attention': {'rope_theta': 1e4}, 'full_attention': " + full + "}");
}

const std::string both = "'layer_types': ['sliding_attention', 'full_attention']",
                  sliding = "'layer_types': ['sliding_attention', 'sliding_attention']";
constexpr auto all_layers = HALYARD_LAYERS_ALL, unrotated = HALYARD_LAYERS_UNROTATED;
constexpr Scale llama4 = {HALYARD_Q_SCALE_LOG, unrotated, 0.1, 8192, 1};

const Asked asked[] = {
    {type("llama")},
    {type("gemma2", both)},
    // Llama 4: in layers without RoPE, which are each fourth one where the config lists none.
    {type("llama4_text"), true, llama4},
    {type("llama4_text", "'attn_scale': 0.25, 'floor_scale': 100"),
     true,
     {HALYARD_Q_SCALE_LOG, unrotated, 0.25, 100, 1}},
    {type("llama4_text", "'attn_temperature_tuning': 4"), true, llama4},
    {type("llama4_text", "'attn_temperature_tuning': null"), true, llama4},
    {type("llama4_text", "'attn_temperature_tuning': false"), true},
    {type("llama4_text", "'attn_temperature_tuning': 0"), true},
    {type("llama4_text", "'num_hidden_layers': 3")},
    {type("llama4_text", "'num_hidden_layers': 3, 'no_rope_layer_interval': 3"), true, llama4},
    {type("llama4_text", "'no_rope_layers': [1, 1]")},
    {type("llama4_text", "'no_rope_layers': [1, 0]"), true, llama4},
    {type("llama4_text", "'no_rope_layers': []"), true, llama4},
    {read_fixture("llama-4-scout"), true, llama4},
    // Ministral 3 and Mistral 4: in all layers.
    {ministral("ministral3", "'llama_4_scaling_beta': 0.1, 'original_max_position_embeddings': 16384"),
     false,
     {HALYARD_Q_SCALE_LOG, all_layers, 0.1, 16384, 0}},
    {ministral("mistral4", "'llama_4_scaling_beta': 0.5, 'original_max_position_embeddings': 8192"),
     false,
     {HALYARD_Q_SCALE_LOG, all_layers, 0.5, 8192, 0}},
    // Beam, whose code has these numbers.
    {beam("null"), true, {HALYARD_Q_SCALE_POWER, unrotated, 0.1, 2048, 1}, "sliding_attention"},
    {beam("{'rope_type': 'default', 'rope_theta': 1e6}"), false, {}, "sliding_attention"},
    // Models that turn nothing in some layers, and do no more to q.
    {type("smollm3"), true},
    {type("smollm3", "'no_rope_layers': [1, 1]")},
    {read_fixture("smollm3-3b"), true},
    {type("cohere2", both), true},
    {type("cohere2"), true},
    {type("cohere2", sliding)},
    {type("exaone4", both + ", 'sliding_window': 4096"), true},
    {type("exaone4", both), true},
    {type("exaone4", both + ", 'sliding_window': null")},
    {type("exaone4", sliding + ", 'sliding_window': 4096")},
    {type("granite_swa", "'layer_rope_theta': [1e4, 0, 1e4]"), true},
    {type("granite_swa", "'layer_rope_theta': [1e4, 1e4]")},
    // What is off, or stands where nobody reads it.
    {type("llama", "'llama_4_scaling_beta': 0.1")},
    {ministral("qwen2", "'llama_4_scaling_beta': 0, 'original_max_position_embeddings': 8192")},
    {type("unheard_of", "'rope_theta': 1e4, 'attn_temperature_tuning': false, 'use_logn_attn': false")},
    // null is an entry of layers where it stands for layers of attention that there are.
    {type("llama", "'rope_parameters': {'rope_theta': 1e4, 'factor': null}")},
    {type("llama", "'layer_types': ['full_attention'], 'rope_parameters': {'full_attention': {'rope_theta': 1e4}, "
                   "'sliding_attention': null}"),
     false,
     {},
     "full_attention"},
};

}  // namespace

TEST_CASE("config: what is asked of q", "[config]") {
    for (const Asked &each : asked) {
        CAPTURE(each.config.text);
        const auto frequencies = read_good(each.config.text, each.layer_type).frequencies;
        for (const auto &one : {frequencies.for_length(100), frequencies.for_length(0)}) {
            const auto info = one.info();
            CHECK((info.has_unrotated_layers != 0) == each.has_unrotated);
            CHECK(Scale{info.q_scale_rule, info.q_scale_layers, info.q_scale, info.q_scale_length,
                        info.q_scale_shift} == each.scale);
        }
    }
    const auto base = halyard::frequencies::from_base(1e4, 64).info();
    CHECK((base.q_scale_rule == HALYARD_Q_SCALE_NONE && base.has_unrotated_layers == 0));
}
