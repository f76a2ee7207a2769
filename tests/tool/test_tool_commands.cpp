// The tool's commands beside `rotate`: angles, frequencies, list and explain; and how they read models' configs.
#include "tool/run_tool.h"

namespace {

nlohmann::json parse(const ToolFolder &dir, const std::string &line) {
    return nlohmann::json::parse(dir.succeed(line));
}

}  // namespace

TEST_CASE("tool: frequencies", "[tool]") {
    const ToolFolder dir;
    auto json = parse(dir, "frequencies --rotary-dim 8 --base 100");
    const auto inv_freq = json.at("inv_freq").get<std::vector<double>>();
    REQUIRE(inv_freq.size() == 4);
    CHECK((inv_freq[0] == 1.0 && inv_freq[2] == 0.1));
    json.erase("inv_freq");
    CHECK(json == nlohmann::json::parse(R"({"base": 100.0, "method": "default", "rotary_dim": 8,
                                            "attention_factor": 1.0, "pairing": null})"));

    // A list of frequencies is printed to the last bit. With --reference, those of the reference are printed.
    const std::vector<double> list = {1.0 / 3.0, 0.1 + 0.2, 5e-324, -1.0};
    write(dir, "f.npy", {4}, list);
    const std::string options = " --inv-freq f.npy --attention-factor 1.1";
    json = parse(dir, "frequencies" + options);
    CHECK((json.at("method") == "list" && json.at("rotary_dim") == 8 && json.at("attention_factor") == 1.1));
    CHECK(json.at("inv_freq").get<std::vector<double>>() == list);
    CHECK(parse(dir, "frequencies --reference exact" + options) == json);
    json = parse(dir, "frequencies --reference hf_f32" + options);
    CHECK((json.at("reference") == "hf_f32" && json.at("attention_factor").get<float>() == 1.1f));
    for (std::size_t k = 0; k < 4; ++k) {
        CHECK(json.at("inv_freq").at(k) == static_cast<double>(static_cast<float>(list[k])));
    }
}

TEST_CASE("tool: the frequencies of a model's config", "[tool]") {
    const ToolFolder dir;
    dir.write("llama4.json", R"({"model_type": "llama4_text", "head_dim": 16, "attn_scale": 0.25})");
    dir.write("smollm3.json", R"({"model_type": "smollm3", "head_dim": 16})");
    dir.write("ministral3.json", R"({"model_type": "ministral3", "head_dim": 16, "rope_parameters": {"rope_type": "yarn",
        "rope_theta": 1e6, "factor": 16, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 16384}})");
    dir.write("beam.json", R"({"model_type": "beam", "head_dim": 16, "rope_parameters":
        {"sliding_attention": {"rope_theta": 1e4}, "full_attention": null}})");
    dir.write("llama.json", R"({"model_type": "llama", "head_dim": 16})");
    for (const char *name :
         {"gpt-j-6b", "deepseek-v3", "gemma-3-4b", "phi-3-mini-128k", "qwen3-vl-8b", "qwen2-vl-7b", "step-3.5-flash"}) {
        dir.add_config(name);
    }
    // For each config, what `frequencies` must print. A key that stands here with null must be null or missing.
    const std::pair<const char *, const char *> rows[] = {
        {"llama4.json", R"({"has_unrotated_layers": true, "q_scale":
            {"rule": "log", "scale": 0.25, "length": 8192, "shift": 1, "layers": "unrotated"}})"},
        {"smollm3.json", R"({"has_unrotated_layers": true, "q_scale": null})"},
        {"ministral3.json", R"({"q_scale": {"rule": "log", "scale": 0.5, "length": 16384, "shift": 0, "layers": "all"}})"},
        {"beam.json --layer-type sliding_attention", R"({"q_scale":
            {"rule": "power", "scale": 0.1, "length": 2048, "shift": 1, "layers": "unrotated"}})"},
        {"llama.json", R"({"has_unrotated_layers": null, "seq_len": null})"},
        {"gpt-j-6b.json", R"({"rotary_dim": 64, "pairing": "interleaved", "method": "default", "head_dim": 256,
            "axis_map": null})"},
        {"deepseek-v3.json --rotary-dim 64", R"({"method": "yarn", "attention_factor": 1.0, "out_pairing": "half"})"},
        {"qwen3-vl-8b.json", R"({"axis_map": "interleaved:24,20,20"})"},
        {"qwen2-vl-7b.json --layer-type vision", R"({"axis_map": "sections:20,20"})"},
        {"gemma-3-4b.json --layer-type sliding_attention", R"({"method": "default"})"},
        {"step-3.5-flash.json --layer 4", R"({"rotary_dim": 64})"},
        {"step-3.5-flash.json --layer 5", R"({"rotary_dim": 128})"},
        {"phi-3-mini-128k.json --seq-len 4096", R"({"seq_len": 4096, "base": 1e4, "original_max_position": 4096,
            "max_position": 131072})"}};
    for (const auto &[options, facts] : rows) {
        const auto json = parse(dir, std::string("frequencies --config ") + options);
        const auto expected = nlohmann::json::parse(facts);
        for (const auto &[name, value] : expected.items()) {
            CAPTURE(options, name);
            CHECK(json.value(name, nlohmann::json()) == value);
        }
    }
    const auto of_phi3 = [&](const std::string &options) {
        return parse(dir, "frequencies --config phi-3-mini-128k.json" + options).at("inv_freq");
    };
    CHECK(of_phi3(" --seq-len 4096") == of_phi3(""));
    CHECK(of_phi3(" --seq-len 4097") != of_phi3(""));

    // A config may also be read from standard input.
    CHECK(dir.succeed("frequencies --config -", dir / "llama.json") == dir.succeed("frequencies --config llama.json"));
    const auto endless = dir.run("frequencies --config -", "/dev/zero");
    CHECK(endless.status == 1);
    CHECK(endless.errors.starts_with("halyard: can't read the standard input: it is longer than the"));
    CHECK(dir.run("frequencies --config -", ".").errors ==
          "halyard: can't read the standard input: Is a directory\n");
}

TEST_CASE("tool: list and explain", "[tool]") {
    const ToolFolder dir;
    const auto targets = parse(dir, "list --json");
    REQUIRE(targets.is_array());
    int n_active = 0;
    std::string names;
    const auto table = dir.succeed("list");
    for (const auto &target : targets) {
        const std::string name = target.at("name"), reason = target.at("reason");
        CAPTURE(name);
        names += name + " ";
        CHECK(target.at("isa") != "");
        const bool active = target.at("active");
        n_active += active ? 1 : 0;
        CHECK(reason.empty() == active);
        CHECK((!active || (target.at("built") && target.at("supported"))));
        CHECK((table.find(name) != table.npos && table.find(reason) != table.npos));
        const auto at = table.find(reason, table.find("\n" + name + " "));
        CHECK((active || at - table.rfind('\n', at) - 1 == table.find("reason")));  // columns are aligned
        const bool rotates = target.at("built") && name != "cuda_sm89";  // cuda_sm89 has KV kernels only
        CHECK((!rotates || dir.succeed("explain --target " + name).find("_" + name + ": ") != std::string::npos));
    }
    CHECK(n_active == 1);
    CHECK((names.ends_with(" reference ") && names.find("cuda_sm80 ") != names.npos));
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
