// Reading config.json: golden cases, a fixture for each of many model families, and what must be refused.
// The fixtures in tests/data/configs hold what the published config.json of a model says about its RoPE, and nothing
// else.
#include "data/golden.h"

#include "halyard/halyard.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

constexpr std::int32_t half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED;

template <typename Struct>
Struct sized() {
    Struct value = {};
    value.size = sizeof(value);
    return value;
}

struct Destroy {
    void operator()(halyard_frequencies *frequencies) const { halyard_destroy_frequencies(frequencies); }
};
using Frequencies = std::unique_ptr<halyard_frequencies, Destroy>;

std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string read_fixture(const std::string &name) { return read_file(HALYARD_CONFIG_DIR "/" + name + ".json"); }

/// What came of reading a config.
struct Outcome {
    halyard_status status = HALYARD_OK;
    std::string message;
    Frequencies frequencies;
    halyard_frequencies_info info = {};
};

Outcome read(const std::string &text, const char *layer_type = nullptr, std::int64_t seq_len = 0) {
    auto options = sized<halyard_config_options>();
    options.layer_type = layer_type;
    options.seq_len = seq_len;
    Outcome outcome;
    const auto untouched = reinterpret_cast<halyard_frequencies *>(0x1234);
    halyard_frequencies *out = untouched;
    auto error = sized<halyard_error>();
    // A copy that ends where the text ends: a sanitizer then sees every byte read beyond it.
    const std::vector<char> bytes(text.begin(), text.end());
    const char nothing = 0;
    outcome.status = halyard_create_frequencies_from_config(
        bytes.empty() ? &nothing : bytes.data(), static_cast<std::int64_t>(bytes.size()), &options, &out, &error);
    outcome.message = error.message;
    if (outcome.status == HALYARD_OK) {
        outcome.frequencies.reset(out);
        outcome.info = sized<halyard_frequencies_info>();
        REQUIRE(halyard_get_frequencies_info(out, &outcome.info, nullptr) == HALYARD_OK);
    } else {
        REQUIRE(out == untouched);
        REQUIRE(error.code == outcome.status);
        REQUIRE(!outcome.message.empty());
    }
    return outcome;
}

Outcome read_good(const std::string &text, const char *layer_type = nullptr, std::int64_t seq_len = 0) {
    auto outcome = read(text, layer_type, seq_len);
    INFO(outcome.message);
    REQUIRE(outcome.status == HALYARD_OK);
    return outcome;
}

const char *name_of_pairing(std::int32_t pairing) {
    return pairing == half ? "half" : pairing == interleaved ? "interleaved" : "unknown";
}

const char *or_null(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }

}  // namespace

// ---- What a config tells ------------------------------------------------------------------------------------------

TEST_CASE("config: what the frequencies were made from", "[config]") {
    const struct {
        const char *name, *layer_type;
        double base;
        std::int64_t original_max_position, max_position;
    } cases[] = {{"llama-2-7b", nullptr, 1e4, 0, 4096},
                 {"vicuna-7b-16k", nullptr, 1e4, 0, 4096},
                 {"llama-3.1-8b", nullptr, 5e5, 8192, 131072},
                 {"phi-3.5-mini", nullptr, 1e4, 4096, 131072},
                 {"internlm2.5-7b", nullptr, 1e6, 32768, 32768},
                 {"gpt-oss-20b", nullptr, 1.5e5, 4096, 131072},
                 {"qwen2.5-7b-yarn", nullptr, 1e6, 32768, 131072},  // states max_position_embeddings 32768, factor 4
                 {"gemma-4", "full_attention", 1e6, 0, 131072},
                 {"qwen2-vl-7b", "vision", 1e4, 0, 0}};
    for (const auto &each : cases) {
        INFO(each.name);
        const auto info = read_good(read_fixture(each.name), each.layer_type).info;
        CHECK(info.base == each.base);
        CHECK(info.original_max_position == each.original_max_position);
        CHECK(info.max_position == each.max_position);
    }
}

// ---- Golden cases ------------------------------------------------------------------------------------------------

TEST_CASE("config: golden frequencies, old and new form", "[config][golden]") {
    const golden::Section section("frequencies");
    REQUIRE(section.cases().size() >= 17);
    for (const json &entry : section.cases()) {
        for (const char *form : {"config_old", "config_new"}) {
            if (entry.at(form).is_null()) {
                continue;
            }
            const auto text = read_file(HALYARD_GOLDEN_DIR "/frequencies/" + entry.at(form).get<std::string>());
            for (const json &evaluation : entry.at("evaluations")) {
                const auto layer_type = evaluation.at("layer_type").is_null()
                                            ? std::string()
                                            : evaluation.at("layer_type").get<std::string>();
                const auto seq_len = evaluation.at("seq_len").is_null() ? 0 : evaluation.at("seq_len").get<int>();
                INFO(entry.at("name").get<std::string>() << ", " << form << ", " << layer_type << ", " << seq_len);
                const auto outcome = read_good(text, or_null(layer_type), seq_len);
                const auto &info = outcome.info;
                CHECK(info.rotary_dim == evaluation.at("rotary_dim").get<std::int64_t>());
                CHECK(info.head_dim == evaluation.at("head_dim").get<std::int64_t>());
                CHECK(info.method == evaluation.at("rope_type").get<std::string>());
                CHECK(name_of_pairing(info.pairing) == entry.at("pairing").get<std::string>());
                CHECK(info.axis_map == HALYARD_AXIS_MAP_NONE);
                const double factor = evaluation.at("attention_factor_exact_f64");
                CHECK(std::fabs(info.attention_factor / factor - 1) <= 1e-14);
                CHECK(std::fabs(info.attention_factor / evaluation.at("attention_factor").get<double>() - 1) <= 1e-14);
                const auto theirs = section.array<float>(evaluation.at("inv_freq_hf_f32")).values;
                const auto exact = section.array<double>(evaluation.at("inv_freq_exact_f64")).values;
                REQUIRE(static_cast<std::int64_t>(exact.size()) == info.rotary_dim / 2);
                double worst = 0, worst_theirs = 0;
                for (std::size_t k = 0; k < exact.size(); ++k) {
                    if (exact[k] == 0.0) {
                        CHECK(info.inv_freq[k] == 0.0);
                        continue;
                    }
                    worst = std::max(worst, std::fabs(info.inv_freq[k] / exact[k] - 1));
                    worst_theirs = std::max(worst_theirs, std::fabs(info.inv_freq[k] / theirs[k] - 1));
                }
                CHECK(worst <= 1e-14);
                CHECK(worst_theirs <= 1e-6);
            }
        }
    }
}

TEST_CASE("config: golden hf_apply, pairings read and written", "[config][golden]") {
    const golden::Section section("hf_apply"), frequencies("frequencies");
    for (const json &entry : section.cases()) {
        for (const json &other : frequencies.cases()) {
            if (other.at("name") != entry.at("frequencies_case")) {
                continue;
            }
            INFO(entry.at("name").get<std::string>());
            const auto &form = other.at(other.at("config_new").is_null() ? "config_old" : "config_new");
            const auto layer_type = other.at("evaluations").at(0).at("layer_type");
            const auto outcome =
                read_good(read_file(HALYARD_GOLDEN_DIR "/frequencies/" + form.get<std::string>()),
                          layer_type.is_null() ? nullptr : layer_type.get_ref<const std::string &>().c_str());
            CHECK(name_of_pairing(outcome.info.pairing) == entry.at("pairing").get<std::string>());
            CHECK(name_of_pairing(outcome.info.out_pairing) == entry.at("out_layout").get<std::string>());
            CHECK(outcome.info.rotary_dim == entry.at("rotary_dim").get<std::int64_t>());
        }
    }
}

namespace {

/// The axis of each pair, by the definition in halyard.h.
std::vector<std::int64_t> axes_of_pairs(const halyard_frequencies_info &info) {
    std::vector<std::int64_t> axes(static_cast<std::size_t>(info.rotary_dim / 2), 0);
    std::size_t next = 0;
    for (std::int64_t axis = 0; axis < info.n_axes; ++axis) {
        const auto count = static_cast<std::size_t>(info.axis_counts[axis]);
        if (info.axis_map == HALYARD_AXIS_MAP_SECTIONS) {
            std::fill_n(axes.begin() + static_cast<std::ptrdiff_t>(next), count, axis);
            next += count;
        } else if (axis > 0) {
            for (std::size_t i = 0; i < count; ++i) {
                axes.at(i * static_cast<std::size_t>(info.n_axes) + static_cast<std::size_t>(axis)) = axis;
            }
        }
    }
    return axes;
}

void check_axes(const halyard_frequencies_info &info, const json &entry) {
    CHECK(info.rotary_dim == entry.at("rotary_dim").get<std::int64_t>());
    CHECK(info.head_dim == entry.at("head_dim").get<std::int64_t>());
    CHECK(name_of_pairing(info.pairing) == entry.at("pairing").get<std::string>());
    CHECK(axes_of_pairs(info) == entry.at("axis_of_pair").get<std::vector<std::int64_t>>());
    double worst = 0;
    for (std::size_t k = 0; k < entry.at("inv_freq_index").size(); ++k) {
        const long double exact =
            std::pow(static_cast<long double>(entry.at("base").get<double>()),
                     -2.0L * entry.at("inv_freq_index")[k].get<int>() / entry.at("freq_dim").get<int>());
        worst = std::max(worst, std::fabs(static_cast<double>(info.inv_freq[k] / exact - 1)));
    }
    CHECK(worst <= 1e-14);
}

}  // namespace

TEST_CASE("config: golden mrope", "[config][golden]") {
    const golden::Section section("mrope");
    for (const json &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        if (entry.at("kind") == "vision") {
            check_axes(read_good(read_fixture("qwen2-vl-7b"), "vision").info, entry);
            continue;
        }
        for (const char *form : {"config_old", "config_new"}) {
            const auto text = read_file(HALYARD_GOLDEN_DIR "/mrope/" + entry.at(form).get<std::string>());
            const auto outcome = read_good(text);
            check_axes(outcome.info, entry);
            CHECK(std::string(outcome.info.method) == "default");
        }
    }
}

// ---- Model families ----------------------------------------------------------------------------------------------

namespace {

/// What a fixture must come to. The scaling's lists are the fixture's own.
struct Family {
    const char *name;
    const char *fixture;
    const char *layer_type;  // NULL: none is needed
    std::int32_t pairing, out_pairing;
    std::int64_t head_dim;
    halyard_scaling scaling;
    std::vector<std::int64_t> interleaved_axes = {};
    std::vector<std::int64_t> sections = {};
};

halyard_scaling plain(double base, std::int64_t rotary_dim) {
    auto scaling = sized<halyard_scaling>();
    scaling.base = base;
    scaling.rotary_dim = rotary_dim;
    return scaling;
}

halyard_scaling scaled(std::int32_t method, double base, std::int64_t rotary_dim, double factor,
                       std::int64_t original_max_position = 0) {
    auto scaling = plain(base, rotary_dim);
    scaling.method = method;
    scaling.factor = factor;
    scaling.original_max_position = original_max_position;
    return scaling;
}

halyard_scaling llama3(double base, std::int64_t rotary_dim, double factor, double high_freq_factor = 4.0) {
    auto scaling = scaled(HALYARD_SCALING_LLAMA3, base, rotary_dim, factor, 8192);
    scaling.low_freq_factor = 1.0;
    scaling.high_freq_factor = high_freq_factor;
    return scaling;
}

halyard_scaling deepseek(double base, double factor, double mscale, double beta_fast = 32.0) {
    auto scaling = scaled(HALYARD_SCALING_YARN, base, 64, factor, 4096);
    scaling.mscale = scaling.mscale_all_dim = mscale;
    scaling.beta_fast = beta_fast;
    return scaling;
}

halyard_scaling gpt_oss() {
    auto scaling = scaled(HALYARD_SCALING_YARN, 150000, 64, 32, 4096);
    scaling.no_truncate = 1;
    return scaling;
}

halyard_scaling olmo3() {
    auto scaling = scaled(HALYARD_SCALING_YARN, 500000, 128, 8, 8192);
    scaling.attention_factor = 1.2079441541679836;
    return scaling;
}

halyard_scaling gemma4() {
    auto scaling = scaled(HALYARD_SCALING_PROPORTIONAL, 1e6, 512, 1);
    scaling.rotated_dim = 128;
    return scaling;
}

const std::vector<Family> &families() {
    const char *const full = "full_attention", *const sliding = "sliding_attention";
    static const std::vector<Family> list = {
        {"Llama 2", "llama-2-7b", nullptr, half, half, 128, plain(10000, 128)},
        {"Code Llama", "codellama-7b", nullptr, half, half, 128, plain(1e6, 128)},
        {"Vicuna (16k)", "vicuna-7b-16k", nullptr, half, half, 128, scaled(HALYARD_SCALING_LINEAR, 10000, 128, 4)},
        {"Llama 3", "llama-3-8b", nullptr, half, half, 128, plain(500000, 128)},
        {"Llama 3.1", "llama-3.1-8b", nullptr, half, half, 128, llama3(500000, 128, 8)},
        {"Llama 3.2", "llama-3.2-1b", nullptr, half, half, 64, llama3(500000, 64, 32)},
        {"Llama 4 (RoPE layers)", "llama-4-scout", nullptr, interleaved, interleaved, 128,
         llama3(500000, 128, 16, 1.0)},
        {"Mistral", "mistral-7b-v0.3", nullptr, half, half, 128, plain(1e6, 128)},
        {"Mixtral", "mixtral-8x7b", nullptr, half, half, 128, plain(1e6, 128)},
        {"Qwen", "qwen-7b", nullptr, half, half, 128, plain(10000, 128)},
        {"Qwen2", "qwen2-7b", nullptr, half, half, 128, plain(1e6, 128)},
        {"Qwen2.5 with YaRN", "qwen2.5-7b-yarn", nullptr, half, half, 128,
         scaled(HALYARD_SCALING_YARN, 1e6, 128, 4, 32768)},
        {"Qwen3", "qwen3-8b", nullptr, half, half, 128, plain(1e6, 128)},
        {"Qwen3-Next", "qwen3-next-80b", nullptr, half, half, 256, plain(1e7, 64)},
        {"Qwen2-VL", "qwen2-vl-7b", nullptr, half, half, 128, plain(1e6, 128), {}, {16, 24, 24}},
        {"Qwen2.5-VL", "qwen2.5-vl-7b", nullptr, half, half, 128, plain(1e6, 128), {}, {16, 24, 24}},
        {"Qwen3-VL", "qwen3-vl-8b", nullptr, half, half, 128, plain(5e6, 128), {24, 20, 20}},
        {"Gemma", "gemma-7b", nullptr, half, half, 256, plain(10000, 256)},
        {"Gemma 2", "gemma-2-9b", nullptr, half, half, 256, plain(10000, 256)},
        {"Gemma 3", "gemma-3-4b", full, half, half, 256, scaled(HALYARD_SCALING_LINEAR, 1e6, 256, 8)},
        {"Gemma 3", "gemma-3-4b", sliding, half, half, 256, plain(10000, 256)},
        {"Gemma 4", "gemma-4", full, half, half, 512, gemma4()},
        {"Gemma 4", "gemma-4", sliding, half, half, 256, plain(10000, 256)},
        {"Phi-1.5", "phi-1.5", nullptr, half, half, 64, plain(10000, 32)},
        {"Phi-2", "phi-2", nullptr, half, half, 80, plain(10000, 32)},
        {"Phi-3", "phi-3-mini-4k", nullptr, half, half, 96, plain(10000, 96)},
        {"Phi-3 (128k)", "phi-3-mini-128k", nullptr, half, half, 96,
         scaled(HALYARD_SCALING_LONGROPE, 10000, 96, 32, 4096)},
        {"Phi-3.5", "phi-3.5-mini", nullptr, half, half, 96, scaled(HALYARD_SCALING_LONGROPE, 10000, 96, 32, 4096)},
        {"Phi-4", "phi-4", nullptr, half, half, 128, plain(250000, 128)},
        {"GPT-J", "gpt-j-6b", nullptr, interleaved, interleaved, 256, plain(10000, 64)},
        {"GPT-NeoX", "gpt-neox-20b", nullptr, half, half, 96, plain(10000, 24)},
        {"Pythia", "pythia-6.9b", nullptr, half, half, 128, plain(10000, 32)},
        {"Falcon", "falcon-7b", nullptr, half, half, 64, plain(10000, 64)},
        {"DeepSeek-V2", "deepseek-v2-lite", nullptr, interleaved, interleaved, 64, deepseek(10000, 40, 0.707)},
        {"DeepSeek-V3", "deepseek-v3", nullptr, interleaved, half, 64, deepseek(10000, 40, 1)},
        {"Kimi K2", "kimi-k2", nullptr, interleaved, half, 64, deepseek(50000, 32, 1, 1)},
        {"gpt-oss", "gpt-oss-20b", nullptr, half, half, 64, gpt_oss()},
        {"ChatGLM3", "chatglm3-6b", nullptr, interleaved, interleaved, 128, plain(10000, 64)},
        {"GLM-4 (first release)", "glm-4-9b", nullptr, interleaved, interleaved, 128, plain(5e6, 64)},
        {"GLM-4 (0414)", "glm-4-9b-0414", nullptr, interleaved, interleaved, 128, plain(10000, 64)},
        {"StableLM", "stablelm-3b-4e1t", nullptr, half, half, 80, plain(10000, 20)},
        {"OLMo", "olmo-7b", nullptr, half, half, 128, plain(10000, 128)},
        {"OLMo 2", "olmo-2-7b", nullptr, half, half, 128, plain(500000, 128)},
        {"OLMo 3", "olmo-3-7b", full, half, half, 128, olmo3()},
        {"OLMo 3", "olmo-3-7b", sliding, half, half, 128, plain(500000, 128)},
        {"Cohere Command R", "command-r", nullptr, interleaved, interleaved, 128, plain(8e6, 128)},
        {"Cohere Command R7B (sliding layers)", "command-r7b", nullptr, interleaved, interleaved, 128,
         plain(50000, 128)},
        {"EXAONE 3.5", "exaone-3.5-7.8b", nullptr, half, half, 128, llama3(1e6, 128, 8)},
        {"EXAONE 4.0 (sliding layers)", "exaone-4.0-32b", nullptr, half, half, 128, llama3(1e6, 128, 16)},
        {"InternLM2.5", "internlm2.5-7b", nullptr, half, half, 128,
         scaled(HALYARD_SCALING_DYNAMIC_NTK, 1e6, 128, 2, 32768)},
        {"InternLM3", "internlm3-8b", nullptr, half, half, 128,
         scaled(HALYARD_SCALING_DYNAMIC_NTK, 5e7, 128, 6, 32768)},
        {"ERNIE 4.5", "ernie-4.5-0.3b", nullptr, interleaved, interleaved, 128, plain(500000, 128)},
        {"SmolLM3 (RoPE layers)", "smollm3-3b", nullptr, half, half, 128, plain(5e6, 128)},
        {"Persimmon", "persimmon-8b", nullptr, half, half, 64, plain(25000, 32)},
        {"MiniCPM", "minicpm-2b", nullptr, half, half, 64, plain(10000, 64)},
        {"MiniMax-M2", "minimax-m2", nullptr, half, half, 128, plain(5e6, 64)},
        {"StarCoder2", "starcoder2-7b", nullptr, half, half, 128, plain(1e6, 128)},
        {"Hunyuan", "hunyuan-7b", nullptr, half, half, 128, scaled(HALYARD_SCALING_NTK, 10000, 128, 1000)},
        {"ModernBERT", "modernbert-base", full, half, half, 64, plain(160000, 64)},
        {"ModernBERT", "modernbert-base", sliding, half, half, 64, plain(10000, 64)},
    };
    return list;
}

std::string format(double value) {
    std::ostringstream text;
    text.precision(17);
    text << value;
    std::ostringstream shorter;
    shorter.precision(10);
    shorter << value;
    return std::stod(shorter.str()) == value ? shorter.str() : text.str();
}

std::string describe(const halyard_scaling &s) {
    const auto of = [&] { return " of " + std::to_string(s.original_max_position); };
    const auto times = "\xc3\x97" + format(s.factor);
    switch (s.method) {
    case HALYARD_SCALING_LINEAR: return "linear " + times;
    case HALYARD_SCALING_NTK: return "NTK-aware " + times;
    case HALYARD_SCALING_DYNAMIC_NTK: return "dynamic NTK " + times + of();
    case HALYARD_SCALING_YARN: return "YaRN " + times + of() + (s.no_truncate != 0 ? ", no truncation" : "");
    case HALYARD_SCALING_LLAMA3: return "Llama 3 " + times + of();
    case HALYARD_SCALING_LONGROPE: return "LongRoPE " + times + of();
    case HALYARD_SCALING_PROPORTIONAL:
        return "p-RoPE, " + std::to_string(s.rotated_dim / 2) + " of " + std::to_string(s.rotary_dim / 2) + " pairs";
    default: return "none";
    }
}

std::string describe(const char *kind, const std::vector<std::int64_t> &counts) {
    std::string text;
    for (const auto count : counts) {
        text += (text.empty() ? std::string(", axes ") + kind + ":" : ",") + std::to_string(count);
    }
    return text;
}

/// The table of runtime/models.md.
std::string make_table() {
    std::string text = "| Family | Fixture | model_type | Pairing | head_dim | rotary_dim | Base | Scaling |\n"
                       "|---|---|---|---|---|---|---|---|\n";
    for (const Family &family : families()) {
        const auto config = json::parse(read_fixture(family.fixture));
        const std::string pairing = name_of_pairing(family.pairing);
        const std::vector<std::string> cells = {
            family.name + std::string(family.layer_type == nullptr ? "" : ", ") +
                (family.layer_type == nullptr ? "" : family.layer_type),
            std::string("[") + family.fixture + "](../tests/data/configs/" + family.fixture + ".json)",
            config.at("model_type").get<std::string>(),
            family.pairing == family.out_pairing ? pairing
                                                 : pairing + ", writes " + name_of_pairing(family.out_pairing),
            std::to_string(family.head_dim),
            std::to_string(family.scaling.rotary_dim),
            format(family.scaling.base),
            describe(family.scaling) + describe("interleaved", family.interleaved_axes) +
                describe("sections", family.sections)};
        for (const auto &cell : cells) {
            text += "| " + cell + " ";
        }
        text += "|\n";
    }
    return text;
}

}  // namespace

TEST_CASE("config: model families", "[config]") {
    std::set<std::string> names;
    for (const Family &family : families()) {
        INFO(family.fixture << ", " << (family.layer_type == nullptr ? "" : family.layer_type));
        names.insert(family.fixture);
        const auto text = read_fixture(family.fixture);
        const auto outcome = read_good(text, family.layer_type);
        const auto &info = outcome.info;
        CHECK(info.pairing == family.pairing);
        CHECK(info.out_pairing == family.out_pairing);
        CHECK(info.head_dim == family.head_dim);
        const auto &counts = family.sections.empty() ? family.interleaved_axes : family.sections;
        CHECK(info.axis_map == (!family.sections.empty()           ? HALYARD_AXIS_MAP_SECTIONS
                                : !family.interleaved_axes.empty() ? HALYARD_AXIS_MAP_INTERLEAVED
                                                                   : HALYARD_AXIS_MAP_NONE));
        CHECK(std::vector<std::int64_t>(info.axis_counts, info.axis_counts + info.n_axes) == counts);

        auto scaling = family.scaling;
        std::vector<double> short_factor, long_factor;
        if (scaling.method == HALYARD_SCALING_LONGROPE) {
            const auto lists = json::parse(text).at("rope_scaling");
            short_factor = lists.at("short_factor").get<std::vector<double>>();
            long_factor = lists.at("long_factor").get<std::vector<double>>();
            scaling.short_factor = short_factor.data();
            scaling.long_factor = long_factor.data();
            scaling.n_factors = static_cast<std::int64_t>(short_factor.size());
        }
        for (const std::int64_t seq_len : {std::int64_t{0}, scaling.original_max_position, std::int64_t{100000}}) {
            if (seq_len > 8192 && std::string(family.fixture) == "qwen-7b") {
                continue;  // a rule of its own, refused
            }
            CAPTURE(seq_len);
            scaling.seq_len = seq_len;
            halyard_frequencies *out = nullptr;
            auto error = sized<halyard_error>();
            REQUIRE(halyard_create_frequencies_from_scaling(&scaling, &out, &error) == HALYARD_OK);
            const Frequencies expected(out);
            auto expected_info = sized<halyard_frequencies_info>();
            REQUIRE(halyard_get_frequencies_info(out, &expected_info, nullptr) == HALYARD_OK);
            const auto again = read_good(text, family.layer_type, seq_len);
            REQUIRE(again.info.rotary_dim == expected_info.rotary_dim);
            CHECK(std::string(again.info.method) == expected_info.method);
            CHECK(again.info.attention_factor == expected_info.attention_factor);
            CHECK(std::memcmp(again.info.inv_freq, expected_info.inv_freq,
                              static_cast<std::size_t>(info.rotary_dim / 2) * sizeof(double)) == 0);
        }
    }
    std::set<std::string> files;
    for (const auto &file : std::filesystem::directory_iterator(HALYARD_CONFIG_DIR)) {
        files.insert(file.path().stem().string());
    }
    CHECK(names == files);
}

TEST_CASE("config: runtime/models.md lists the families as they are tested", "[config]") {
    auto page = read_file(HALYARD_MODELS_PAGE);
    const auto table = make_table();
    const auto begin = page.find("| Family ");
    REQUIRE(begin != std::string::npos);
    auto end = page.find("\n\n", begin);
    end = end == std::string::npos ? page.size() : end + 1;
    if (std::getenv("HALYARD_WRITE_MODELS") != nullptr) {
        std::ofstream(HALYARD_MODELS_PAGE, std::ios::binary) << page.replace(begin, end - begin, table);
        SKIP("wrote the table");
    }
    INFO("HALYARD_WRITE_MODELS=1 and this test alone bring the page up to date");
    CHECK(page.substr(begin, end - begin) == table);
}

// ---- What else is understood ---------------------------------------------------------------------------------------

namespace {

/// Llama 3.1 8B, with some fields replaced; null removes one (RFC 7396).
json llama(const char *patch = "{}") {
    auto config = json::parse(R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})");
    config.merge_patch(json::parse(patch));
    return config;
}

const char *const yarn = R"({"rope_scaling": {"rope_type": "yarn", "low_freq_factor": null, "high_freq_factor": null)";

json llama_yarn(const std::string &more = "") { return llama((yarn + more + "}}").c_str()); }

json phi3(const std::string &patch = "{}") {
    auto config = json::parse(read_fixture("phi-3-mini-128k"));
    config.merge_patch(json::parse(patch));
    return config;
}

bool is_same(const Outcome &a, const Outcome &b) {
    return a.info.rotary_dim == b.info.rotary_dim && a.info.attention_factor == b.info.attention_factor &&
           std::memcmp(a.info.inv_freq, b.info.inv_freq,
                       static_cast<std::size_t>(a.info.rotary_dim / 2) * sizeof(double)) == 0;
}

}  // namespace

TEST_CASE("config: other ways to say the same", "[config]") {
    const auto usual = read_good(llama().dump());
    const auto same = [&](const json &config) { return is_same(usual, read_good(config.dump())); };
    CHECK(same(llama(R"({"rope_scaling": {"rope_type": null, "type": "llama3"}})")));
    CHECK(same(llama(R"({"rope_scaling": {"type": "llama3"}})")));
    CHECK(same(llama(R"({"rope_theta": null, "rope_scaling": {"rope_theta": 500000}})")));
    CHECK(same(llama(R"({"head_dim": 128, "hidden_size": null, "num_attention_heads": null})")));
    CHECK(same(llama(R"({"max_position_embeddings": 131072.0})")));
    CHECK(same(llama(R"({"partial_rotary_factor": 1, "unknown": [{"rope_theta": 3}]})")));
    CHECK(same(llama(R"({"original_max_position_embeddings": 8192,
        "rope_scaling": {"original_max_position_embeddings": null}})")));
    CHECK(same(llama(R"({"model_type": "some-other-model"})")));
    CHECK(read_good(llama(R"({"model_type": "some-other-model"})").dump()).info.pairing == -1);
    auto v5 = llama();
    v5["rope_parameters"] = v5["rope_scaling"];
    CHECK(same(v5));
    v5.erase("rope_scaling");
    CHECK(same(v5));
    CHECK(same(json{{"model_type", "llava"}, {"text_config", llama()}}));
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

    // Weights in half order.
    auto deepseek = json::parse(read_fixture("deepseek-v3"));
    deepseek["rope_interleave"] = false;
    CHECK(read_good(deepseek.dump()).info.pairing == half);
    CHECK(read_good(deepseek.dump()).info.out_pairing == half);
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
    mismatch(llama(R"({"layer_types": ["full_attention", "linear_attention"]})").dump(), "linear_attention", "no RoPE");
    CHECK(read_good(llama(R"({"layer_types": ["full_attention"]})").dump(), "full_attention").info.rotary_dim == 128);
    mismatch(llama(R"({"layer_types": ["full_attention"]})").dump(), "sliding_attention", "sliding_attention");
    mismatch(llama().dump(), "full_attention", "layer_types");
    CHECK(is_same(read_good(read_fixture("smollm3-3b")), read_good(read_fixture("smollm3-3b"), "full_attention")));

    const auto per_layer = json::parse(R"({"model_type": "other", "head_dim": 64, "rope_theta": 7, "layer_types":
        ["a", "b", "c"], "rope_parameters": {"a": {"rope_theta": 100}, "b": {"rope_theta": 100}, "c": null}})");
    CHECK(is_same(read_good(per_layer.dump()), read_good(per_layer.dump(), "b")));  // all that rotate are alike
    mismatch(per_layer.dump(), "c", "no RoPE");
    mismatch(per_layer.dump(), "d", "'a', 'b'");
    auto wider = per_layer;
    wider["per_layer_config"] = json::parse(R"({"1": {"head_dim": 128}})");
    CHECK(read_good(wider.dump(), "a").info.head_dim == 64);
    CHECK(read_good(wider.dump(), "b").info.head_dim == 128);
    mismatch(wider.dump(), nullptr, "'a', 'b'");

    // Gemma 4 says all of it by its model type.
    const std::string gemma4 = R"({"model_type": "gemma4_text"})";
    CHECK(is_same(read_good(gemma4, "full_attention"), read_good(read_fixture("gemma-4"), "full_attention")));
    CHECK(is_same(read_good(gemma4, "sliding_attention"), read_good(read_fixture("gemma-4"), "sliding_attention")));
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

// ---- What is refused -----------------------------------------------------------------------------------------------

TEST_CASE("config: text that is no config", "[config]") {
    struct Bad {
        std::string text;
        const char *words;
    };
    const std::vector<Bad> cases = {{"", "line 1, column 1"},
                                    {" \n\n ", "line 3, column 2"},
                                    {"{\n  \"rope_theta\": 1e4,\n  }", "line 3, column 3"},
                                    {"{\n  \"rope_theta\": NaN\n}", "line 2, column 17"},
                                    {"{\"rope_theta\": Infinity}", "line 1, column 16"},
                                    {"{\"rope_theta\": 1e999}", "no double"},
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
                                    {"{}", "rope_theta"}};
    for (const Bad &bad : cases) {
        CAPTURE(bad.text);
        const auto outcome = read(bad.text);
        CAPTURE(outcome.message);
        CHECK(outcome.status == HALYARD_ERROR_CONFIG);
        if (bad.text != "{}") {
            CHECK(outcome.message.find(bad.words) != std::string::npos);
        }
    }
    // Deep nesting ends early, wherever it is and however it is closed.
    const std::size_t deep = 1000000;
    std::string objects;
    for (std::size_t i = 0; i < deep; ++i) {
        objects += "{\"a\":";
    }
    for (const auto &text : {std::string(deep, '['), std::string(deep, '[') + std::string(deep, ']'), objects,
                             "{\"rope_scaling\": " + std::string(deep, '[')}) {
        const auto outcome = read(text);
        CHECK(outcome.status == HALYARD_ERROR_CONFIG);
        CHECK(outcome.message.find("64 deep") != std::string::npos);
    }
    // Length alone is no mistake.
    CHECK(read(llama().dump() + std::string(1000000, ' ')).status == HALYARD_OK);
    CHECK(read(llama(("{\"a\": \"" + std::string(1000000, 'x') + "\"}").c_str()).dump()).status == HALYARD_OK);

    halyard_frequencies *out = nullptr;
    const char *text = "{}";
    CHECK(halyard_create_frequencies_from_config(nullptr, 2, nullptr, &out, nullptr) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_frequencies_from_config(text, 2, nullptr, nullptr, nullptr) == HALYARD_ERROR_NULL_POINTER);
    for (const std::int64_t n_bytes : {std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
        CHECK(halyard_create_frequencies_from_config(text, n_bytes, nullptr, &out, nullptr) == HALYARD_ERROR_SHAPE);
    }
    const auto good = llama().dump();
    auto options = sized<halyard_config_options>();
    for (const std::uint32_t size : {0u, 4u, static_cast<std::uint32_t>(sizeof(options)) + 8}) {
        options.size = size;
        CHECK(halyard_create_frequencies_from_config(good.data(), static_cast<std::int64_t>(good.size()), &options,
                                                     &out, nullptr) == HALYARD_ERROR_STRUCT_SIZE);
    }
    CHECK(out == nullptr);
    CHECK(read(good, nullptr, -1).status == HALYARD_ERROR_SHAPE);
    CHECK(read(good, nullptr, INT64_MAX).status == HALYARD_ERROR_SHAPE);
    REQUIRE(halyard_create_frequencies_from_config(good.data(), static_cast<std::int64_t>(good.size()), nullptr, &out,
                                                   nullptr) == HALYARD_OK);
    halyard_destroy_frequencies(out);
}

TEST_CASE("config: bad fields are named", "[config]") {
    struct Bad {
        json config;
        halyard_status status;
        std::vector<const char *> words;
    };
    const auto refused = HALYARD_ERROR_CONFIG, range = HALYARD_ERROR_FREQUENCY, shape = HALYARD_ERROR_SHAPE,
               unsupported = HALYARD_ERROR_UNSUPPORTED, width = HALYARD_ERROR_ROTARY_DIM;
    const auto type = [](const char *name, const std::string &more = "") {
        return json::parse(R"({"model_type": ")" + std::string(name) + R"(", "hidden_size": 4096,
            "num_attention_heads": 32)" +
                           more + "}");
    };
    std::vector<Bad> cases = {
        // Wrong types.
        {llama(R"({"rope_theta": "10000"})"), refused, {"rope_theta", "string"}},
        {llama(R"({"rope_theta": true})"), refused, {"rope_theta", "boolean"}},
        {llama(R"({"rope_theta": [1, 2]})"), refused, {"rope_theta", "array"}},
        {llama(R"({"rope_scaling": 4})"), refused, {"rope_scaling", "object"}},
        {llama(R"({"rope_scaling": [1]})"), refused, {"rope_scaling", "object"}},
        {llama(R"({"rope_scaling": {"rope_type": 3}})"), refused, {"rope_scaling.rope_type", "string"}},
        {llama(R"({"rope_scaling": {"factor": "8"}})"), refused, {"rope_scaling.factor"}},
        {llama(R"({"model_type": 7})"), refused, {"model_type"}},
        {llama(R"({"hidden_size": "4096"})"), refused, {"hidden_size"}},
        {llama(R"({"layer_types": "full_attention"})"), refused, {"layer_types"}},
        {llama(R"({"layer_types": [1]})"), refused, {"layer_types[0]"}},
        {llama(R"({"text_config": 1})"), refused, {"text_config"}},
        {llama_yarn(R"(, "truncate": 1)"), refused, {"truncate"}},
        {phi3(R"({"rope_scaling": {"short_factor": 1}})"), refused, {"short_factor"}},
        {phi3(R"({"rope_scaling": {"short_factor": ["1"]}})"), refused, {"short_factor[0]"}},
        // Absurd values.
        {llama(R"({"rope_theta": 0})"), range, {"rope_theta", "0"}},
        {llama(R"({"rope_theta": -10000})"), range, {"rope_theta", "-10000"}},
        {llama(R"({"rope_theta": 1e-300})"), range, {"rope_theta"}},
        {llama(R"({"rope_scaling": {"factor": 0}})"), range, {"factor"}},
        {llama(R"({"rope_scaling": {"factor": 0.5}})"), range, {"rope_scaling.factor is 0.5"}},
        {llama(R"({"rope_scaling": {"factor": -8}})"), range, {"factor", "-8"}},
        {llama(R"({"rope_scaling": {"factor": 1e300}})"), range, {"factor"}},
        {llama(R"({"rope_scaling": {"rope_type": "linear", "factor": 0.99}})"), range, {"factor"}},
        {llama(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 0.99}})"), range, {"factor"}},
        {llama(R"({"rope_scaling": {"low_freq_factor": 0}})"), range, {"low_freq_factor"}},
        {llama(R"({"rope_scaling": {"low_freq_factor": -1}})"), range, {"low_freq_factor"}},
        {llama(R"({"rope_scaling": {"high_freq_factor": 0.5}})"), range, {"high_freq_factor"}},
        {llama(R"({"rope_scaling": {"original_max_position_embeddings": 0}})"),
         shape,
         {"original_max_position_embeddings"}},
        {llama(R"({"rope_scaling": {"original_max_position_embeddings": 1.5}})"),
         shape,
         {"original_max_position_embeddings"}},
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
        {llama(R"({"rope_scaling": {"rope_type": "dynamic", "alpha": 0}})"), range, {"rope_scaling.alpha is 0"}},
        {llama(R"({"rope_scaling": {"rope_type": "dynamic", "alpha": 0.5}})"), range, {"rope_scaling.alpha is 0.5"}},
        {json{{"model_type", "other"}, {"text_config", llama(R"({"rope_theta": 0})")}},
         range,
         {"text_config.rope_theta is 0"}},
        {llama_yarn(R"(, "beta_fast": -1)"), range, {"beta_fast"}},
        {llama_yarn(R"(, "beta_fast": 1, "beta_slow": 2)"), range, {"beta_fast", "beta_slow"}},
        {llama_yarn(R"(, "attention_factor": 0)"), range, {"attention_factor"}},
        {llama_yarn(R"(, "attention_factor": -1)"), range, {"attention_factor"}},
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
        // Missing.
        {type("nobody-knows"), refused, {"rope_theta"}},
        {json::parse(R"({"hidden_size": 4096, "num_attention_heads": 32})"), refused, {"rope_theta"}},
        {json::parse(R"({"model_type": "llama"})"), refused, {"hidden_size"}},
        {llama(R"({"num_attention_heads": null})"), refused, {"num_attention_heads"}},
        {llama(R"({"hidden_size": null})"), refused, {"hidden_size"}},
        {llama(R"({"rope_scaling": {"rope_type": null}})"), refused, {"rope_type"}},
        {llama(R"({"rope_scaling": {"factor": null}})"), refused, {"rope_scaling.factor"}},
        {llama(R"({"rope_scaling": {"low_freq_factor": null}})"), refused, {"low_freq_factor"}},
        {llama(R"({"rope_scaling": {"high_freq_factor": null}})"), refused, {"high_freq_factor"}},
        {llama(R"({"rope_scaling": {"original_max_position_embeddings": null}, "max_position_embeddings": null})"),
         refused,
         {"original_max_position_embeddings"}},
        {llama(R"({"rope_scaling": {"rope_type": "dynamic"}, "max_position_embeddings": null})"),
         refused,
         {"max_position_embeddings"}},
        {llama(R"({"rope_scaling": {"rope_type": "linear", "factor": null}})"), refused, {"factor"}},
        {llama_yarn(R"(, "factor": null, "original_max_position_embeddings": null)"), refused, {"factor"}},
        {phi3(R"({"rope_scaling": {"long_factor": null}})"), refused, {"long_factor"}},
        {phi3(R"({"rope_scaling": {"short_factor": null}})"), refused, {"short_factor"}},
        {phi3(R"({"rope_scaling": {"long_mscale": 1}})"), refused, {"short_mscale"}},
        {llama(R"({"rope_scaling": {"rope_type": "mrope"}})"), refused, {"mrope_section"}},
        // Contradictory.
        {llama(R"({"rope_scaling": {"type": "yarn"}})"), refused, {"rope_type", "type"}},
        {llama(R"({"rope_scaling": {"rope_theta": 10000}})"), refused, {"rope_theta", "10000", "500000"}},
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
        // Axes.
        {llama(R"({"rope_scaling": {"mrope_section": [16, 24, 23]}})"), refused, {"mrope_section", "63", "64"}},
        {llama(R"({"rope_scaling": {"mrope_section": [64]}})"), refused, {"mrope_section"}},
        {llama(R"({"rope_scaling": {"mrope_section": [16, 16, 16, 8, 8]}})"), refused, {"mrope_section"}},
        {llama(R"({"rope_scaling": {"mrope_section": [0, 32, 32]}})"), shape, {"mrope_section[0]"}},
        {llama(R"({"rope_scaling": {"mrope_section": [-16, 40, 40]}})"), shape, {"mrope_section[0]"}},
        {llama(R"({"rope_scaling": {"mrope_section": "16,24,24"}})"), refused, {"mrope_section"}},
        {llama(R"({"rope_scaling": {"mrope_section": [9007199254740992, 9007199254740992]}})"),
         refused,
         {"mrope_section"}},
        {llama(R"({"rope_scaling": {"mrope_section": [20, 22, 22], "mrope_interleaved": true}})"),
         refused,
         {"mrope_section"}},
        {llama(R"({"rope_scaling": {"mrope_section": [16, 24, 24], "mrope_interleaved": 1}})"),
         refused,
         {"mrope_interleaved"}},
        {type("qwen3_vl_text", R"(, "rope_scaling": {"rope_type": "default", "mrope_interleaved": false})"),
         refused,
         {"mrope_interleaved"}},
        {type("qwen2_vl", R"(, "head_dim": 64)"), refused, {"mrope_section"}},
        // Methods and models that are not known, or have no RoPE.
        {llama(R"({"rope_scaling": {"rope_type": "ntk"}})"), unsupported, {"rope_type", "ntk"}},
        {llama(R"({"rope_scaling": {"rope_type": ""}})"), unsupported, {"rope_type"}},
        {llama(R"({"rope_scaling": {"rope_type": "axial"}})"), unsupported, {"rope_type", "axial"}},
        {llama(R"({"rope_scaling": {"rope_type": null, "type": "LINEAR"}})"), unsupported, {"type", "LINEAR"}},
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
        {type("smollm3", R"(, "no_rope_layers": [0, 0])"), refused, {"no_rope_layers"}}};
    auto zero_factor = phi3();
    zero_factor["rope_scaling"]["long_factor"][47] = 0;
    cases.push_back({zero_factor, range, {"long_factor[47]"}});
    for (const Bad &bad : cases) {
        const auto text = bad.config.dump();
        CAPTURE(text.substr(0, 400));
        const auto outcome = read(text);
        CAPTURE(outcome.message);
        CHECK(outcome.status == bad.status);
        for (const char *word : bad.words) {
            CAPTURE(word);
            CHECK(outcome.message.find(word) != std::string::npos);
        }
        for (const char c : outcome.message) {
            CHECK((c >= ' ' && c <= '~'));
        }
    }
    const auto vision = json::parse(R"({"model_type": "qwen2_vl", "vision_config": {"embed_dim": 1280, "num_heads": 16,
        "rope_parameters": {"rope_theta": -1}}})");
    const auto encoder = read(vision.dump(), "vision");
    CHECK(encoder.status == range);
    CHECK(encoder.message.find("vision_config.rope_parameters.rope_theta is -1") != std::string::npos);
    const auto qwen = read(read_fixture("qwen-7b"), nullptr, 8193);
    CHECK(qwen.status == unsupported);
    CHECK(qwen.message.find("use_dynamic_ntk") != std::string::npos);
}

TEST_CASE("config: messages show nothing that a terminal would act on", "[config]") {
    const auto outcome =
        read(R"({"rope_scaling": {"rope_type": "\u001b[31m\n\u00e9 )" + std::string(300, 'x') + R"("}})");
    CHECK(outcome.status == HALYARD_ERROR_UNSUPPORTED);
    CHECK(outcome.message.size() < 255);
    for (const char c : outcome.message) {
        CHECK((c >= ' ' && c <= '~'));
    }
}

// ---- Fuzz ----------------------------------------------------------------------------------------------------------

TEST_CASE("config: mutated configs are read or refused", "[config]") {
    std::vector<std::string> texts;
    for (const auto &file : std::filesystem::directory_iterator(HALYARD_CONFIG_DIR)) {
        texts.push_back(json::parse(read_file(file.path().string())).dump());
    }
    std::sort(texts.begin(), texts.end());  // a directory has no order
    texts.erase(std::remove_if(texts.begin(), texts.end(), [](const auto &text) { return text.size() > 1000; }),
                texts.end());
    REQUIRE(texts.size() >= 25);
    const char *const pieces[] = {"null", "0",        "-1",           "1e308", "1e-308", "0.5",
                                  "true", "\"yarn\"", "\"longrope\"", "[]",    "{}",     "[[",
                                  "}",    "\"",       "\\u0000",      ",",     ":",      "9007199254740993"};
    const char *const layer_types[] = {nullptr, nullptr, "full_attention", "sliding_attention", "vision"};
    CAPTURE(Catch::getSeed());
    std::mt19937 random(static_cast<std::mt19937::result_type>(Catch::getSeed()));
    const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    int n_read = 0;
    for (int i = 0; i < 20000; ++i) {
        auto text = texts[pick(texts.size())];
        for (std::size_t n = 1 + pick(3); n > 0 && !text.empty(); --n) {
            const auto at = pick(text.size());
            switch (pick(6)) {
            case 0: text[at] = static_cast<char>(random()); break;
            case 1: text.erase(at, 1 + pick(8)); break;
            case 2: text.insert(at, pieces[pick(std::size(pieces))]); break;
            case 3: text.insert(at, text.substr(pick(text.size()), pick(40))); break;
            case 4: {  // another value in the place of one
                const auto colon = text.find(':', at);
                if (colon != text.npos) {
                    const auto end = std::min(text.find_first_of(",}", colon), text.size());
                    text.replace(colon + 1, end - colon - 1, pieces[pick(std::size(pieces))]);
                }
                break;
            }
            default: {  // one field less
                const auto comma = text.find(',', at);
                if (comma != text.npos) {
                    text.erase(comma, std::min(text.find_first_of(",}", comma + 1), text.size()) - comma);
                }
                break;
            }
            }
        }
        const auto outcome = read(text, layer_types[pick(std::size(layer_types))],
                                  pick(4) == 0 ? static_cast<std::int64_t>(pick(1 << 20)) : 0);
        if (outcome.status != HALYARD_OK) {
            continue;
        }
        ++n_read;
        const auto &info = outcome.info;
        bool is_sound = info.rotary_dim >= 2 && info.rotary_dim <= info.head_dim && info.attention_factor > 0 &&
                        info.pairing >= -1 && info.pairing <= 1;
        for (std::int64_t k = 0; k < info.rotary_dim / 2; ++k) {
            is_sound &= info.inv_freq[k] >= 0 && info.inv_freq[k] <= 0x1p20;
        }
        CAPTURE(text);
        REQUIRE(is_sound);
    }
    CHECK(n_read > 1000);
    CHECK(n_read < 19000);
}
