// The facts read from one or more fixtures of each of many model families.
#include "config/read_config.h"

#include <filesystem>
#include <set>
#include <sstream>

namespace {

enum Pairings { half, interleaved, to_half };  // half and interleaved: in and out; to_half: interleaved in, half out

/// The facts of some fixtures. The resulting frequencies are tested by golden configs and by vLLM's classes.
struct Family {
    const char *fixtures;  // names, separated by spaces
    std::int64_t head_dim, rotary_dim;
    double base;
    const char *method = "default", *layer_type = nullptr;
    Pairings pairings = half;
    const char *axis_map = "null";
};

constexpr const char *full = "full_attention", *sliding = "sliding_attention";

constexpr Family families[] = {
    {"llama-2-7b qwen-7b olmo-7b deepseek-ocr", 128, 128, 10000},
    {"codellama-7b mistral-7b-v0.3 mixtral-8x7b qwen2-7b qwen3-8b starcoder2-7b", 128, 128, 1e6},
    {"vicuna-7b-16k", 128, 128, 10000, "linear"},
    {"llama-3-8b olmo-2-7b dbrx-base", 128, 128, 500000},
    {"llama-3.1-8b", 128, 128, 500000, "llama3"},
    {"llama-3.2-1b", 64, 64, 500000, "llama3"},
    {"llama-4-scout", 128, 128, 500000, "llama3", nullptr, interleaved},
    {"qwen2.5-7b-yarn", 128, 128, 1e6, "yarn"},
    {"qwen3-next-80b", 256, 64, 1e7},
    {"qwen2-vl-7b qwen2.5-vl-7b", 128, 128, 1e6, "default", nullptr, half, "['sections', 16, 24, 24]"},
    {"qwen3-vl-8b", 128, 128, 5e6, "default", nullptr, half, "['interleaved', 24, 20, 20]"},
    {"gemma-7b gemma-2-9b", 256, 256, 10000},
    {"gemma-3-4b", 256, 256, 1e6, "linear", full},
    {"gemma-3-4b gemma-4 gemma-4-12b", 256, 256, 10000, "default", sliding},
    {"gemma-4 gemma-4-12b", 512, 512, 1e6, "proportional", full},
    {"phi-1.5", 64, 32, 10000},
    {"phi-2", 80, 32, 10000},
    {"phi-3-mini-4k", 96, 96, 10000},
    {"phi-3-mini-128k phi-3.5-mini", 96, 96, 10000, "longrope"},
    {"phi-4", 128, 128, 250000},
    {"gpt-j-6b", 256, 64, 10000, "default", nullptr, interleaved},
    {"gpt-neox-20b", 96, 24, 10000},
    {"pythia-6.9b", 128, 32, 10000},
    {"falcon-7b minicpm-2b", 64, 64, 10000},
    {"deepseek-v2-lite", 64, 64, 10000, "yarn", nullptr, interleaved},
    {"deepseek-v3", 64, 64, 10000, "yarn", nullptr, to_half},
    {"kimi-k2", 64, 64, 50000, "yarn", nullptr, to_half},
    {"gpt-oss-20b", 64, 64, 150000, "yarn"},
    {"chatglm3-6b glm-4-9b-0414", 128, 64, 10000, "default", nullptr, interleaved},
    {"glm-4-9b", 128, 64, 5e6, "default", nullptr, interleaved},
    {"stablelm-3b-4e1t", 80, 20, 10000},
    {"olmo-3-7b", 128, 128, 500000, "yarn", full},
    {"olmo-3-7b", 128, 128, 500000, "default", sliding},
    {"command-r", 128, 128, 8e6, "default", nullptr, interleaved},
    {"command-r7b", 128, 128, 50000, "default", nullptr, interleaved},
    {"exaone-3.5-7.8b", 128, 128, 1e6, "llama3"},
    {"exaone-4.0-32b", 128, 128, 1e6, "llama3"},
    {"internlm2.5-7b", 128, 128, 1e6, "dynamic"},
    {"internlm3-8b", 128, 128, 5e7, "dynamic"},
    {"ernie-4.5-0.3b", 128, 128, 500000, "default", nullptr, interleaved},
    {"smollm3-3b", 128, 128, 5e6},
    {"persimmon-8b", 64, 32, 25000},
    {"minimax-m2", 128, 64, 5e6},
    {"hunyuan-7b", 128, 128, 10000, "ntk"},
    {"glm-5", 64, 64, 8e6, "default", nullptr, to_half},
    {"mimo-v2-flash", 192, 64, 5e6, "default", full},
    {"mimo-v2-flash", 192, 64, 10000, "default", sliding},
    {"step-3.5-flash", 128, 64, 5e6, "llama3", full},
    {"step-3.5-flash", 128, 128, 10000, "default", sliding},
    {"smollm2-135m", 64, 64, 100000},
    {"modernbert-base", 64, 64, 160000, "default", full},
    {"modernbert-base", 64, 64, 10000, "default", sliding},
};

}  // namespace

TEST_CASE("config: model families", "[config]") {
    std::set<std::string> names, files;
    for (const Family &family : families) {
        std::istringstream fixtures(family.fixtures);
        for (std::string fixture; fixtures >> fixture;) {
            INFO(fixture << ", " << (family.layer_type == nullptr ? "" : family.layer_type));
            names.insert(fixture);
            const auto info = read_good(read_fixture(fixture), family.layer_type).info;
            check_facts(info, {{"pairing", family.pairings == half ? "half" : "interleaved"},
                               {"out_pairing", family.pairings == interleaved ? "interleaved" : "half"},
                               {"head_dim", family.head_dim},
                               {"rotary_dim", family.rotary_dim},
                               {"base", family.base},
                               {"method", family.method},
                               {"axis_map", parse(family.axis_map)}});
            CHECK((info.q_scale_rule != HALYARD_Q_SCALE_NONE) == (fixture == "llama-4-scout"));
        }
    }
    for (const auto &file : std::filesystem::directory_iterator(places::configs())) {
        files.insert(file.path().stem().string());
    }
    CHECK(names == files);
}
