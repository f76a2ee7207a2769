// A fixture for each of many model families.
#include "config/read_config.h"

#include <filesystem>
#include <set>
#include <sstream>

namespace {

using nlohmann::json;

enum Pairings { half, interleaved, to_half };  // in and out alike, or interleaved in and half out

/// What fixtures must come to. The lists of a scaling are read from the fixture.
struct Family {
    const char *fixtures;  // apart by spaces
    std::int64_t head_dim;
    halyard_scaling scaling;
    const char *layer_type = nullptr;
    Pairings pairings = half;
    const char *axis_map = "null";
};

halyard_scaling scaled(std::int32_t method, double base, std::int64_t rotary_dim, double factor,
                       std::int64_t original_max_position = 0) {
    auto scaling = sized<halyard_scaling>();
    scaling.method = method;
    scaling.base = base;
    scaling.rotary_dim = rotary_dim;
    scaling.factor = factor;
    scaling.original_max_position = original_max_position;
    return scaling;
}

halyard_scaling plain(double base, std::int64_t rotary_dim) {
    return scaled(HALYARD_SCALING_DEFAULT, base, rotary_dim, 0);
}

halyard_scaling llama3(double base, std::int64_t rotary_dim, double factor, double high_freq_factor = 4.0,
                       std::int64_t original_max_position = 8192) {
    auto scaling = scaled(HALYARD_SCALING_LLAMA3, base, rotary_dim, factor, original_max_position);
    scaling.low_freq_factor = 1.0;
    scaling.high_freq_factor = high_freq_factor;
    return scaling;
}

/// With some fields changed.
halyard_scaling with(halyard_scaling scaling, void (*change)(halyard_scaling &)) {
    change(scaling);
    return scaling;
}

halyard_scaling deepseek(double base, double factor, double mscale, double beta_fast = 32.0) {
    auto scaling = scaled(HALYARD_SCALING_YARN, base, 64, factor, 4096);
    scaling.mscale = scaling.mscale_all_dim = mscale;
    scaling.beta_fast = beta_fast;
    return scaling;
}

const auto gpt_oss = with(scaled(HALYARD_SCALING_YARN, 150000, 64, 32, 4096), [](auto &s) { s.no_truncate = 1; });
const auto olmo3 =
    with(scaled(HALYARD_SCALING_YARN, 500000, 128, 8, 8192), [](auto &s) { s.attention_factor = 1.2079441541679836; });
const auto gemma4 = with(scaled(HALYARD_SCALING_PROPORTIONAL, 1e6, 512, 1), [](auto &s) { s.rotated_dim = 128; });

constexpr const char *full = "full_attention", *sliding = "sliding_attention";

const Family families[] = {
    {"llama-2-7b qwen-7b olmo-7b deepseek-ocr", 128, plain(10000, 128)},
    {"codellama-7b mistral-7b-v0.3 mixtral-8x7b qwen2-7b qwen3-8b starcoder2-7b", 128, plain(1e6, 128)},
    {"vicuna-7b-16k", 128, scaled(HALYARD_SCALING_LINEAR, 10000, 128, 4)},
    {"llama-3-8b olmo-2-7b dbrx-base", 128, plain(500000, 128)},
    {"llama-3.1-8b", 128, llama3(500000, 128, 8)},
    {"llama-3.2-1b", 64, llama3(500000, 64, 32)},
    {"llama-4-scout", 128, llama3(500000, 128, 16, 1.0), nullptr, interleaved},
    {"qwen2.5-7b-yarn", 128, scaled(HALYARD_SCALING_YARN, 1e6, 128, 4, 32768)},
    {"qwen3-next-80b", 256, plain(1e7, 64)},
    {"qwen2-vl-7b qwen2.5-vl-7b", 128, plain(1e6, 128), nullptr, half, "['sections', 16, 24, 24]"},
    {"qwen3-vl-8b", 128, plain(5e6, 128), nullptr, half, "['interleaved', 24, 20, 20]"},
    {"gemma-7b gemma-2-9b", 256, plain(10000, 256)},
    {"gemma-3-4b", 256, scaled(HALYARD_SCALING_LINEAR, 1e6, 256, 8), full},
    {"gemma-3-4b gemma-4 gemma-4-12b", 256, plain(10000, 256), sliding},
    {"gemma-4 gemma-4-12b", 512, gemma4, full},
    {"phi-1.5", 64, plain(10000, 32)},
    {"phi-2", 80, plain(10000, 32)},
    {"phi-3-mini-4k", 96, plain(10000, 96)},
    {"phi-3-mini-128k phi-3.5-mini", 96, scaled(HALYARD_SCALING_LONGROPE, 10000, 96, 32, 4096)},
    {"phi-4", 128, plain(250000, 128)},
    {"gpt-j-6b", 256, plain(10000, 64), nullptr, interleaved},
    {"gpt-neox-20b", 96, plain(10000, 24)},
    {"pythia-6.9b", 128, plain(10000, 32)},
    {"falcon-7b minicpm-2b", 64, plain(10000, 64)},
    {"deepseek-v2-lite", 64, deepseek(10000, 40, 0.707), nullptr, interleaved},
    {"deepseek-v3", 64, deepseek(10000, 40, 1), nullptr, to_half},
    {"kimi-k2", 64, deepseek(50000, 32, 1, 1), nullptr, to_half},
    {"gpt-oss-20b", 64, gpt_oss},
    {"chatglm3-6b glm-4-9b-0414", 128, plain(10000, 64), nullptr, interleaved},
    {"glm-4-9b", 128, plain(5e6, 64), nullptr, interleaved},
    {"stablelm-3b-4e1t", 80, plain(10000, 20)},
    {"olmo-3-7b", 128, olmo3, full},
    {"olmo-3-7b", 128, plain(500000, 128), sliding},
    {"command-r", 128, plain(8e6, 128), nullptr, interleaved},
    {"command-r7b", 128, plain(50000, 128), nullptr, interleaved},
    {"exaone-3.5-7.8b", 128, llama3(1e6, 128, 8)},
    {"exaone-4.0-32b", 128, llama3(1e6, 128, 16)},
    {"internlm2.5-7b", 128, scaled(HALYARD_SCALING_DYNAMIC_NTK, 1e6, 128, 2, 32768)},
    {"internlm3-8b", 128, scaled(HALYARD_SCALING_DYNAMIC_NTK, 5e7, 128, 6, 32768)},
    {"ernie-4.5-0.3b", 128, plain(500000, 128), nullptr, interleaved},
    {"smollm3-3b", 128, plain(5e6, 128)},
    {"persimmon-8b", 64, plain(25000, 32)},
    {"minimax-m2", 128, plain(5e6, 64)},
    {"hunyuan-7b", 128, scaled(HALYARD_SCALING_NTK, 10000, 128, 1000)},
    {"glm-5", 64, plain(8e6, 64), nullptr, to_half},
    {"mimo-v2-flash", 192, plain(5e6, 64), full},
    {"mimo-v2-flash", 192, plain(10000, 64), sliding},
    {"step-3.5-flash", 128, llama3(5e6, 64, 2, 32.0, 131072), full},
    {"step-3.5-flash", 128, plain(10000, 128), sliding},
    {"smollm2-135m", 64, plain(100000, 64)},
    {"modernbert-base", 64, plain(160000, 64), full},
    {"modernbert-base", 64, plain(10000, 64), sliding},
};

void check_fixture(const std::string &fixture, const Family &family) {
    INFO(fixture << ", " << (family.layer_type == nullptr ? "" : family.layer_type));
    const auto text = read_fixture(fixture);
    const auto outcome = read_good(text, family.layer_type);
    check_facts(outcome.info, {{"pairing", family.pairings == half ? "half" : "interleaved"},
                               {"out_pairing", family.pairings == interleaved ? "interleaved" : "half"},
                               {"head_dim", family.head_dim},
                               {"axis_map", parse(family.axis_map)}});
    CHECK((outcome.info.q_scale_rule != HALYARD_Q_SCALE_NONE) == (fixture == "llama-4-scout"));

    auto scaling = family.scaling;
    std::vector<double> lists[2];
    if (scaling.method == HALYARD_SCALING_LONGROPE) {
        json::parse(text).at("rope_scaling").at("short_factor").get_to(lists[0]);
        json::parse(text).at("rope_scaling").at("long_factor").get_to(lists[1]);
        scaling.short_factor = lists[0].data();
        scaling.long_factor = lists[1].data();
        scaling.n_factors = std::ssize(lists[0]);
    }
    for (const std::int64_t seq_len : {std::int64_t{0}, scaling.original_max_position, std::int64_t{100000}}) {
        if (seq_len > 8192 && fixture == "qwen-7b") {
            continue;  // Qwen has another rule for this, which is refused
        }
        CAPTURE(seq_len);
        scaling.seq_len = seq_len;
        const auto expected = halyard::frequencies::from_scaling(scaling);
        const auto again = read_good(text, family.layer_type, seq_len);
        CHECK(std::string(again.info.method) == expected.info().method);
        CHECK(is_same(again.info, expected.info()));
    }
}

}  // namespace

TEST_CASE("config: model families", "[config]") {
    std::set<std::string> names, files;
    for (const Family &family : families) {
        std::istringstream fixtures(family.fixtures);
        for (std::string fixture; fixtures >> fixture;) {
            names.insert(fixture);
            check_fixture(fixture, family);
        }
    }
    for (const auto &file : std::filesystem::directory_iterator(places::configs())) {
        files.insert(file.path().stem().string());
    }
    CHECK(names == files);
}
