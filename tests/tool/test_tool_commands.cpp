// The other commands of the tool: angles, frequencies, list and explain; and models' configs.
#include "tool/arrays.h"

#include <catch2/catch_test_macros.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>

using halyard::tool::read_npy;

TEST_CASE("tool: angles from a base and a range", "[tool]") {
    const ScratchDir dir;
    succeed({"angles", "--positions", "-1:3", "--rotary-dim", "4", "--base", "100", "--angles", "table", "-o",
             dir / "cs.npy"});
    const auto rows = read_npy(dir / "cs.npy", {"<f4"});
    REQUIRE(rows.shape == Shape{4, 2, 2});
    const auto at = rows.elements<float>();
    CHECK(at[0] == static_cast<float>(std::cos(-1.0)));
    CHECK(at[2] == static_cast<float>(std::sin(-1.0)));
    CHECK(at[12] == static_cast<float>(std::cos(2.0)));
    CHECK(at[15] == static_cast<float>(std::sin(0.2)));

    succeed({"angles", "--positions", "5:5", "--rotary-dim", "4", "-o", dir / "empty.npy"});
    CHECK(read_npy(dir / "empty.npy", {"<f4"}).shape == Shape{0, 2, 2});
}

TEST_CASE("tool: frequencies", "[tool]") {
    const ScratchDir dir;
    auto json = nlohmann::json::parse(succeed({"frequencies", "--rotary-dim", "8", "--base", "100"}));
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
    const auto f = write(dir, "f.npy", {4}, list);
    json = nlohmann::json::parse(succeed({"frequencies", "--inv-freq", f, "--attention-factor", "1.1"}));
    CHECK(json.at("method") == "list");
    CHECK(json.at("rotary_dim") == 8);
    CHECK(json.at("attention_factor") == 1.1);
    CHECK(json.at("inv_freq").get<std::vector<double>>() == list);
    json = nlohmann::json::parse(succeed({"frequencies", "--inv-freq", write<float>(dir, "f4.npy", {1}, {0.1f})}));
    CHECK(json.at("inv_freq").at(0) == static_cast<double>(0.1f));
}

TEST_CASE("tool: the frequencies of a reference are those that it turns by", "[tool]") {
    const ScratchDir dir;
    const std::vector<double> list = {1.0 / 3.0, 0.1, 1e-40, -1.0};
    const Arguments options = {"--inv-freq", write(dir, "f.npy", {4}, list), "--attention-factor", "1.1"};
    const Arguments hf = {"--reference", "hf_f32"};
    const auto exact = succeed(Arguments{"frequencies", "--reference", "exact"} + options);
    CHECK(exact == succeed(Arguments{"frequencies"} + options));
    const auto json = nlohmann::json::parse(succeed(Arguments{"frequencies"} + options + hf));
    CHECK(json.at("reference") == "hf_f32");
    CHECK(json.at("attention_factor").get<double>() == static_cast<double>(1.1f));
    const auto inv_freq = json.at("inv_freq").get<std::vector<double>>();
    REQUIRE(inv_freq.size() == 4);
    for (std::size_t k = 0; k < 4; ++k) {
        CHECK(inv_freq[k] == static_cast<double>(static_cast<float>(list[k])));
    }
    // Given back as a list they are the same rows.
    const auto f = write(dir, "g.npy", {4}, inv_freq);
    const Arguments angles = {"angles", "--positions", "1000:1100"};
    succeed(angles + options + hf + Arguments{"-o", dir / "a.npy"});
    succeed(angles + Arguments{"--inv-freq", f, "--attention-factor", "1.1", "-o", dir / "b.npy"} + hf);
    CHECK(bytes_of(dir / "a.npy") == bytes_of(dir / "b.npy"));
}

TEST_CASE("tool: - is the standard input and the standard output", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    const auto p = write<std::int32_t>(dir, "p.npy", {3}, {7, -2, 100});
    const auto f = write<double>(dir, "f.npy", {4}, {1, 0.5, 0.25, 0.125});
    const std::string config = HALYARD_CONFIG_DIR "/llama-2-7b.json";
    const auto run = [&](const Arguments &arguments, const std::string &input) {
        const auto result = run_tool(arguments, "", std::nullopt, input);
        INFO(join(arguments));
        CHECK(result.errors == "");
        CHECK(result.status == 0);
        return result.output;
    };
    const Arguments options = {"--positions", p, "--inv-freq", f};
    succeed(Arguments{"rotate", x, "-o", dir / "y.npy"} + options);
    const auto y = dir.read("y.npy");
    // Nothing but the array goes there.
    CHECK(run(Arguments{"rotate", "-", "-o", "-"} + options, x) == y);
    CHECK(run({"rotate", x, "-o", "-", "--positions", "-", "--inv-freq", f}, p) == y);
    CHECK(run({"rotate", x, "-o", "-", "--positions", p, "--inv-freq", "-"}, f) == y);
    run(Arguments{"rotate", "-", "-o", dir / "z.npy"} + options, x);
    CHECK(dir.read("z.npy") == y);
    const auto rows = run(Arguments{"angles", "-o", "-"} + options, "/dev/null");
    CHECK(run({"rotate", x, "-o", "-", "--cos-sin", "-"}, dir.write("cs.npy", rows)) == y);
    CHECK(run({"frequencies", "--config", "-"}, config) == succeed({"frequencies", "--config", config}));

    // What comes in is read as strictly as a file.
    const auto refuse = [&](const Arguments &arguments, const std::string &input, const std::string &why) {
        const auto result = run_tool(arguments, "", std::nullopt, input);
        CAPTURE(result.errors);
        CHECK(result.status == 1);
        CHECK(result.output == "");
        CHECK(result.errors.starts_with("halyard: can't read the standard input: " + why));
    };
    const Arguments rotate = {"rotate", "-", "-o", "-"};
    const auto bytes = dir.read("x.npy");
    refuse(rotate, "/dev/null", "it is empty");
    refuse(rotate, dir.write("bad", "hello"), "it is not a .npy file");
    refuse(rotate, dir.write("bad", bytes.substr(0, 100)), "it is truncated");
    refuse(rotate, dir.write("bad", bytes.substr(0, bytes.size() - 1)), "it is truncated");
    refuse(rotate, dir.write("bad", bytes + "x"), "it has more bytes than the 192 of the array");
    refuse({"rotate", "-", "-o", "-", "--inv-freq", f}, p, "its type is '<i4'");
    // What never ends is given up.
    refuse(rotate, "/dev/zero", "it is not a .npy file");
    refuse({"frequencies", "--config", "-"}, "/dev/zero", "it is longer than the");
    if (std::filesystem::exists("/dev/full")) {
        const auto full = run_tool(Arguments{"rotate", x, "-o", "-"}, "/dev/full");
        CHECK(full.status == 1);
        CHECK(full.errors.starts_with("halyard: can't write to the standard output: "));
    }
}

TEST_CASE("tool: a model's config", "[tool]") {
    const ScratchDir dir;
    const std::string folder = HALYARD_CONFIG_DIR;
    const auto gptj = folder + "/gpt-j-6b.json", deepseek = folder + "/deepseek-v3.json";
    const auto gemma = folder + "/gemma-3-4b.json", phi3 = folder + "/phi-3-mini-128k.json";

    auto json = nlohmann::json::parse(succeed({"frequencies", "--config", gptj}));
    CHECK(json.at("rotary_dim") == 64);
    CHECK(json.at("pairing") == "interleaved");
    CHECK(json.at("method") == "default");
    CHECK(json.at("head_dim") == 256);
    CHECK(!json.contains("axis_map"));
    json = nlohmann::json::parse(succeed({"frequencies", "--config", deepseek, "--rotary-dim", "64"}));
    CHECK(json.at("method") == "yarn");
    CHECK(json.at("attention_factor") == 1.0);
    CHECK(json.at("out_pairing") == "half");
    json = nlohmann::json::parse(succeed({"frequencies", "--config", folder + "/qwen3-vl-8b.json"}));
    CHECK(json.at("axis_map") == "interleaved:24,20,20");
    json = nlohmann::json::parse(
        succeed({"frequencies", "--config", folder + "/qwen2-vl-7b.json", "--layer-type", "vision"}));
    CHECK(json.at("axis_map") == "sections:20,20");
    json = nlohmann::json::parse(succeed({"frequencies", "--config", gemma, "--layer-type", "sliding_attention"}));
    CHECK(json.at("method") == "default");
    const auto inv_freq_for = [&](const Arguments &length) {
        json = nlohmann::json::parse(succeed(Arguments{"frequencies", "--config", phi3} + length));
        return json.at("inv_freq");
    };
    const auto short_context = inv_freq_for({"--seq-len", "4096"});
    CHECK(json.at("seq_len") == 4096);
    CHECK(short_context != inv_freq_for({"--seq-len", "4097"}));
    CHECK(short_context == inv_freq_for({}));
    CHECK(!json.contains("seq_len"));
    CHECK(json.at("base") == 10000.0);
    CHECK(json.at("original_max_position") == 4096);
    CHECK(json.at("max_position") == 131072);

    // Width and pairing are the model's, unless said otherwise.
    const auto x = write(dir, "x.npy", {3, 2, 80}, make_values(480));
    const auto rotate = [&](const Arguments &options) {
        succeed(Arguments{"rotate", x, "-o", dir / "y.npy"} + options);
        return bytes_of(dir / "y.npy");
    };
    const Arguments plain = {"--rotary-dim", "64"};
    CHECK(rotate({"--config", gptj}) == rotate(plain + Arguments{"--pairing", "interleaved"}));
    CHECK(rotate({"--config", gptj, "--pairing", "half", "--rotary-dim", "64"}) == rotate(plain));
    CHECK(rotate({"--config", gptj, "--out-pairing", "half"}) ==
          rotate(plain + Arguments{"--pairing", "interleaved", "--out-pairing", "half"}));
    succeed({"frequencies", "--config", deepseek});
    CHECK(rotate({"--config", deepseek}) ==
          rotate({"--config", deepseek, "--pairing", "interleaved", "--out-pairing", "half"}));
    CHECK(rotate({"--config", deepseek, "--pairing", "interleaved"}) ==
          rotate({"--config", deepseek, "--out-pairing", "interleaved"}));
    const auto other = dir.write("other.json", R"({"head_dim": 64, "rope_theta": 10000})");
    CHECK(rotate({"--config", other}) == rotate(plain));
    succeed({"angles", "--config", gptj, "--positions", "0:3", "-o", dir / "cs.npy"});
    CHECK(read_npy(dir / "cs.npy", {"<f4"}).shape == Shape{3, 2, 32});
    CHECK(rotate({"--cos-sin", dir / "cs.npy", "--pairing", "interleaved"}) == rotate({"--config", gptj}));

    std::filesystem::remove(dir / "y.npy");
    std::filesystem::create_directory(dir / "folder");
    const auto y = dir / "y.npy";
    const auto big = dir.write("big.json", "{}");
    std::filesystem::resize_file(big, (std::uintmax_t{1} << 26) + 1);
    for (const std::string &config :
         Arguments{gptj + " --rotary-dim 32", folder + "/llama-2-7b.json", gemma, gemma + " --layer-type global",
                   gptj + " --layer-type full_attention", deepseek + " --in-place", dir / "missing.json",
                   dir / "folder", "/dev/zero", big, x, dir.write("empty.json", ""),
                   dir.write("text.json", "rope_theta: 1"), dir.write("deep.json", std::string(100000, '[')),
                   dir.write("bert.json", R"({"model_type": "bert", "hidden_size": 64})"),
                   dir.write("base.json", R"({"head_dim": 64, "rope_theta": -1})")}) {
        check_fails(1, Arguments{"rotate", x, "-o", y, "--config"} + split(config), dir);
    }
    check_fails(1, {"frequencies", "--config", gptj, "--rotary-dim", "32"}, dir);
    check_fails(1, {"angles", "--config", gemma, "--positions", "0:3", "-o", y}, dir);
    check_fails(2, {"frequencies", "--rotary-dim", "8", "--seq-len", "8"}, dir);
    check_fails(2, {"frequencies", "--config", gptj, "--base", "10000"}, dir);
}

TEST_CASE("tool: list and explain", "[tool]") {
    const auto targets = nlohmann::json::parse(succeed({"list", "--json"}));
    REQUIRE(targets.is_array());
    int n_active = 0;
    std::vector<std::string> names;
    const auto table = succeed({"list"});
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
    }
    CHECK(n_active == 1);
    REQUIRE(!names.empty());
    CHECK(names.back() == "reference");
    for (const auto *name : {"cuda", "opencl"}) {
        CHECK(std::any_of(names.begin(), names.end(), [&](const auto &each) { return each.starts_with(name); }));
    }

    CHECK(!succeed({"explain"}).empty());
    const auto text =
        succeed({"explain", "--dtype", "f16", "--pairing", "interleaved", "--out-pairing", "half", "--head-dim", "96",
                 "--rotary-dim", "32", "--rotary-offset", "64", "--inverse", "--target", "reference"});
    CHECK(text.find("reference") != text.npos);
    succeed({"explain", "--in-place"});
}

TEST_CASE("tool: help and version", "[tool]") {
    CHECK(succeed({"--help"}).find("rotate") != std::string::npos);
    CHECK(succeed({"--version"}).starts_with("halyard "));
    for (const auto *command : {"list", "explain", "rotate", "angles", "frequencies"}) {
        CHECK(succeed({command, "--help"}).find(command) != std::string::npos);
    }
}
