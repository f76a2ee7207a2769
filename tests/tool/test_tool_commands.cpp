// The other commands of the tool: angles, frequencies, list and explain; and models' configs.
#include "tool/arrays.h"

#include <nlohmann/json.hpp>

#include <cmath>

using halyard::tool::read_npy;

namespace {

nlohmann::json parse(const ToolFolder &dir, const std::string &line) {
    return nlohmann::json::parse(dir.succeed(line));
}

}  // namespace

TEST_CASE("tool: angles from a base and a range", "[tool]") {
    const ToolFolder dir;
    dir.succeed("angles --positions -1:3 --rotary-dim 4 --base 100 -o cs.npy");
    const auto rows = read_npy(dir / "cs.npy", {"<f4"});
    REQUIRE(rows.shape == Shape{4, 2, 2});
    const auto at = rows.elements<float>();
    CHECK(at[0] == static_cast<float>(std::cos(-1.0)));
    CHECK(at[2] == static_cast<float>(std::sin(-1.0)));
    CHECK(at[12] == static_cast<float>(std::cos(2.0)));
    CHECK(at[15] == static_cast<float>(std::sin(0.2)));

    dir.succeed("angles --positions 5:5 --rotary-dim 4 -o empty.npy");
    CHECK(read_npy(dir / "empty.npy", {"<f4"}).shape == Shape{0, 2, 2});
}

TEST_CASE("tool: frequencies", "[tool]") {
    const ToolFolder dir;
    auto json = parse(dir, "frequencies --rotary-dim 8 --base 100");
    CHECK(json.size() == 6);
    CHECK(json.at("base") == 100.0);
    CHECK(json.at("method") == "default");
    CHECK(json.at("rotary_dim") == 8);
    CHECK(json.at("attention_factor") == 1.0);
    CHECK(json.at("pairing").is_null());
    const auto inv_freq = json.at("inv_freq").get<std::vector<double>>();
    REQUIRE(inv_freq.size() == 4);
    CHECK(inv_freq[0] == 1.0);
    CHECK(inv_freq[2] == 0.1);

    // A list comes back as it was, to the last bit.
    const std::vector<double> list = {1.0 / 3.0, 0.1 + 0.2, 5e-324, -1.0};
    write(dir, "f.npy", {4}, list);
    json = parse(dir, "frequencies --inv-freq f.npy --attention-factor 1.1");
    CHECK(json.at("method") == "list");
    CHECK(json.at("rotary_dim") == 8);
    CHECK(json.at("attention_factor") == 1.1);
    CHECK(json.at("inv_freq").get<std::vector<double>>() == list);
    write<float>(dir, "f4.npy", {1}, {0.1f});
    CHECK(parse(dir, "frequencies --inv-freq f4.npy").at("inv_freq").at(0) == static_cast<double>(0.1f));
}

TEST_CASE("tool: frequencies say what a config asks of q", "[tool]") {
    const ToolFolder dir;
    dir.write("llama4.json", R"({"model_type": "llama4_text", "head_dim": 16, "attn_scale": 0.25})");
    auto json = parse(dir, "frequencies --config llama4.json");
    CHECK(json.at("has_unrotated_layers") == true);
    CHECK(
        json.at("q_scale") ==
        nlohmann::json::parse(R"({"rule": "log", "scale": 0.25, "length": 8192, "shift": 1, "layers": "unrotated"})"));
    dir.write("smollm3.json", R"({"model_type": "smollm3", "head_dim": 16})");
    json = parse(dir, "frequencies --config smollm3.json");
    CHECK(json.at("has_unrotated_layers") == true);
    CHECK(!json.contains("q_scale"));
    dir.write("llama.json", R"({"model_type": "llama", "head_dim": 16})");
    CHECK(!parse(dir, "frequencies --config llama.json").contains("has_unrotated_layers"));
}

TEST_CASE("tool: the frequencies of a reference are those that it turns by", "[tool]") {
    const ToolFolder dir;
    const std::vector<double> list = {1.0 / 3.0, 0.1, 1e-40, -1.0};
    write(dir, "f.npy", {4}, list);
    const std::string options = " --inv-freq f.npy --attention-factor 1.1";
    CHECK(dir.succeed("frequencies --reference exact" + options) == dir.succeed("frequencies" + options));
    const auto json = parse(dir, "frequencies --reference hf_f32" + options);
    CHECK(json.at("reference") == "hf_f32");
    CHECK(json.at("attention_factor").get<double>() == static_cast<double>(1.1f));
    const auto inv_freq = json.at("inv_freq").get<std::vector<double>>();
    REQUIRE(inv_freq.size() == 4);
    for (std::size_t k = 0; k < 4; ++k) {
        CHECK(inv_freq[k] == static_cast<double>(static_cast<float>(list[k])));
    }
    // Given back as a list they are the same rows.
    write(dir, "g.npy", {4}, inv_freq);
    const std::string angles = "angles --positions 1000:1100 --reference hf_f32 --attention-factor 1.1";
    dir.succeed(angles + " --inv-freq f.npy -o a.npy");
    dir.succeed(angles + " --inv-freq g.npy -o b.npy");
    CHECK(bytes_of(dir / "a.npy") == bytes_of(dir / "b.npy"));
}

TEST_CASE("tool: a config comes by the standard input too", "[tool]") {
    const ToolFolder dir;
    const std::string config = places::configs() + "/llama-2-7b.json";
    CHECK(dir.succeed("frequencies --config -", {config}) == dir.succeed(Arguments{"frequencies", "--config", config}));
    const auto endless = dir.run("frequencies --config -", {"/dev/zero"});
    CHECK(endless.status == 1);
    CHECK(endless.errors.starts_with("halyard: can't read the standard input: it is longer than the"));
    CHECK(dir.run("frequencies --config -", {"."}).errors ==
          "halyard: can't read the standard input: Is a directory\n");
}

namespace {

/// A folder with the configs that tests name.
struct ConfigFolder : ToolFolder {
    ConfigFolder() {
        for (const std::string name : {"llama-2-7b", "gpt-j-6b", "deepseek-v3", "gemma-3-4b", "phi-3-mini-128k",
                                       "qwen3-vl-8b", "qwen2-vl-7b", "step-3.5-flash"}) {
            std::filesystem::create_symlink(places::configs() + "/" + name + ".json", *this / (name + ".json"));
        }
    }
};

}  // namespace

TEST_CASE("tool: the frequencies of a model's config", "[tool]") {
    const ConfigFolder dir;
    const auto of = [&](const std::string &options) { return parse(dir, "frequencies --config " + options); };
    auto json = of("gpt-j-6b.json");
    CHECK(json.at("rotary_dim") == 64);
    CHECK(json.at("pairing") == "interleaved");
    CHECK(json.at("method") == "default");
    CHECK(json.at("head_dim") == 256);
    CHECK(!json.contains("axis_map"));
    json = of("deepseek-v3.json --rotary-dim 64");
    CHECK(json.at("method") == "yarn");
    CHECK(json.at("attention_factor") == 1.0);
    CHECK(json.at("out_pairing") == "half");
    CHECK(of("qwen3-vl-8b.json").at("axis_map") == "interleaved:24,20,20");
    CHECK(of("qwen2-vl-7b.json --layer-type vision").at("axis_map") == "sections:20,20");
    CHECK(of("gemma-3-4b.json --layer-type sliding_attention").at("method") == "default");
    CHECK(of("step-3.5-flash.json --layer 4").at("rotary_dim") == 64);
    CHECK(of("step-3.5-flash.json --layer 5").at("rotary_dim") == 128);
    json = of("phi-3-mini-128k.json --seq-len 4096");
    CHECK(json.at("seq_len") == 4096);
    CHECK(json.at("inv_freq") != of("phi-3-mini-128k.json --seq-len 4097").at("inv_freq"));
    const auto plain = of("phi-3-mini-128k.json");
    CHECK(json.at("inv_freq") == plain.at("inv_freq"));
    CHECK(!plain.contains("seq_len"));
    CHECK(plain.at("base") == 10000.0);
    CHECK(plain.at("original_max_position") == 4096);
    CHECK(plain.at("max_position") == 131072);
}

TEST_CASE("tool: width and pairing are those of a model's config, unless said otherwise", "[tool]") {
    const ConfigFolder dir;
    write(dir, "x.npy", {3, 2, 80}, make_values(480));
    dir.write("other.json", R"({"head_dim": 64, "rope_theta": 10000})");
    dir.succeed("angles --config gpt-j-6b.json --positions 0:3 -o cs.npy");
    CHECK(read_npy(dir / "cs.npy", {"<f4"}).shape == Shape{3, 2, 32});
    const auto rotate = [&](const std::string &options) {
        dir.succeed("rotate x.npy -o y.npy " + options);
        return bytes_of(dir / "y.npy");
    };
    const std::string of_gptj = "--config gpt-j-6b.json", of_deepseek = "--config deepseek-v3.json";
    const auto gptj = rotate(of_gptj), plain = rotate("--rotary-dim 64");
    CHECK(gptj == rotate("--rotary-dim 64 --pairing interleaved"));
    CHECK(gptj == rotate("--cos-sin cs.npy --pairing interleaved"));
    CHECK(rotate(of_gptj + " --pairing half --rotary-dim 64") == plain);
    CHECK(rotate(of_gptj + " --out-pairing half") ==
          rotate("--rotary-dim 64 --pairing interleaved --out-pairing half"));
    dir.succeed("frequencies " + of_deepseek);
    CHECK(rotate(of_deepseek) == rotate(of_deepseek + " --pairing interleaved --out-pairing half"));
    CHECK(rotate(of_deepseek + " --pairing interleaved") == rotate(of_deepseek + " --out-pairing interleaved"));
    CHECK(rotate("--config other.json") == plain);
}

TEST_CASE("tool: configs that can't be had", "[tool]") {
    const ConfigFolder dir;
    write(dir, "x.npy", {3, 2, 80}, make_values(480));
    std::filesystem::create_directory(dir / "folder");
    std::filesystem::resize_file(dir.write("big.json", "{}"), (std::uintmax_t{1} << 26) + 1);
    dir.write("empty.json", "");
    dir.write("text.json", "rope_theta: 1");
    dir.write("deep.json", std::string(100000, '['));
    dir.write("bert.json", R"({"model_type": "bert", "hidden_size": 64})");
    dir.write("base.json", R"({"head_dim": 64, "rope_theta": -1})");
    dir.fail_each(1, "rotate x.npy -o y.npy --config",
                  {"gpt-j-6b.json --rotary-dim 32", "llama-2-7b.json", "gemma-3-4b.json",
                   "gemma-3-4b.json --layer-type global", "gpt-j-6b.json --layer-type full_attention",
                   "deepseek-v3.json --in-place", "missing.json", "folder", "/dev/zero", "big.json", "x.npy",
                   "empty.json", "text.json", "deep.json", "bert.json", "base.json"});
    dir.fail(1, "frequencies --config gpt-j-6b.json --rotary-dim 32");
    dir.fail(1, "angles --config gemma-3-4b.json --positions 0:3 -o y.npy");
    dir.fail(2, "frequencies --rotary-dim 8 --seq-len 8");
    dir.fail(2, "frequencies --config gpt-j-6b.json --base 10000");
}

TEST_CASE("tool: list and explain", "[tool]") {
    const ToolFolder dir;
    const auto targets = parse(dir, "list --json");
    REQUIRE(targets.is_array());
    int n_active = 0;
    std::vector<std::string> names;
    const auto table = dir.succeed("list");
    for (const auto &target : targets) {
        const std::string name = target.at("name"), reason = target.at("reason");
        CAPTURE(name);
        names.push_back(name);
        CHECK(!target.at("isa").get<std::string>().empty());
        const bool active = target.at("active").get<bool>();
        n_active += active ? 1 : 0;
        CHECK(reason.empty() == active);
        CHECK((!active || (target.at("built").get<bool>() && target.at("supported").get<bool>())));
        CHECK(table.find(name) != table.npos);
        CHECK(table.find(reason) != table.npos);
        const std::string kernel = "_" + name + ": ";
        const bool rotates = target.at("built") && name != "cuda_sm89";  // which has kernels of the KV path alone
        CHECK((!rotates || dir.succeed("explain --target " + name).find(kernel) != std::string::npos));
    }
    CHECK(n_active == 1);
    REQUIRE(!names.empty());
    CHECK(names.back() == "reference");
    CHECK(std::find(names.begin(), names.end(), "cuda_sm80") != names.end());
    CHECK(!dir.succeed("explain").empty());
    CHECK(dir.succeed("explain --dtype f16 --pairing interleaved --out-pairing half --head-dim 96 --rotary-dim 32 "
                      "--rotary-offset 64 --inverse --target reference")
              .find("reference") != std::string::npos);
}

TEST_CASE("tool: help and version", "[tool]") {
    const ToolFolder dir;
    CHECK(dir.succeed("--help").find("rotate") != std::string::npos);
    CHECK(dir.succeed("--version").starts_with("halyard "));
    for (const std::string command : {"list", "explain", "rotate", "angles", "frequencies"}) {
        CHECK(dir.succeed(command + " --help").find(command) != std::string::npos);
    }
}
