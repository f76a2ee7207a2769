// Other ways to say the same, and what is special: positions, rows that are given, empty arrays.
#include "checks/make_sources.h"
#include "tool/run_tool.h"

namespace {

/// Rotates x.npy into y.npy, and returns what is written there.
std::string rotated(const ToolFolder &dir, const std::string &options) {
    dir.succeed("rotate x.npy -o y.npy " + options);
    return dir.read("y.npy");
}

}  // namespace

TEST_CASE("tool: every way to say the same positions", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {4, 2, 16}, make_values(128));
    write<std::int32_t>(dir, "p4.npy", {4}, {0, 1, 2, 3});
    write<std::int64_t>(dir, "p8.npy", {1, 4}, {0, 1, 2, 3});
    write<std::int32_t>(dir, "n.npy", {4}, {-2, -1, 0, 1});
    const auto from_zero = rotated(dir, "");
    for (const char *options : {"--positions 0:4", "--positions p4.npy", "--positions p8.npy", "--max-position 4",
                                "--threads 4", "--angles table --reference exact --base 1e4 --rotary-dim 16",
                                "--positions 0:4 --dtype f32 --out-pairing half --in-place"}) {
        CAPTURE(options);
        CHECK(rotated(dir, options) == from_zero);
    }
    const auto negative = rotated(dir, "--positions -2:2");
    CHECK(negative != from_zero);
    CHECK(rotated(dir, "--positions n.npy") == negative);
    rotated(dir, "--positions 2147483644:2147483648");
    rotated(dir, "--positions -2147483648:-2147483644");
}

TEST_CASE("tool: bad positions are refused, held or not rotated", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {4, 1, 8}, make_values(32));
    const auto of = [&](const std::string &name, const std::vector<std::int64_t> &positions) {
        return "--positions " + write(dir, name, {4}, positions);
    };
    const auto bad = of("bad.npy", {-7, 5, 10, std::int64_t(1) << 40});
    CHECK(rotated(dir, bad + " --bad-position clamp --max-position 10") == rotated(dir, of("held.npy", {0, 5, 9, 9})));
    CHECK(rotated(dir, bad + " --bad-position identity --max-position 10") ==
          rotated(dir, of("zeroed.npy", {0, 5, 0, 0})));
    CHECK(rotated(dir, bad + " --bad-position clamp") == rotated(dir, of("int32.npy", {-7, 5, 10, 2147483647})));
    CHECK(rotated(dir, "--positions -2:2 --bad-position clamp --max-position 1") ==
          rotated(dir, of("zero.npy", {0, 0, 0, 0})));
    rotated(dir, "--max-position 2147483648");
    std::filesystem::remove(dir / "y.npy");
    for (const auto &options :
         {bad, std::string("--positions 7:11 --max-position 10"), std::string("--positions -1:3 --max-position 10")}) {
        dir.fail(1, "rotate x.npy -o y.npy " + options);
    }
}

TEST_CASE("tool: a config brings its map of axes, its width and its pairing, unless said otherwise", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {4, 2, 80}, make_values(640));
    write<std::int32_t>(dir, "axes.npy", {3, 4}, {0, 1, 2, 3, 0, 5, 5, 6, 0, 7, 8, 7});
    dir.write("qwen.json", R"({"model_type": "qwen2_vl", "head_dim": 16, "rope_theta": 1e4,
                               "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})");
    dir.write("other.json", R"({"head_dim": 64, "rope_theta": 10000})");
    for (const char *name : {"gpt-j-6b", "deepseek-v3"}) {
        std::filesystem::create_symlink(places::configs() + "/" + name + ".json", dir / (name + std::string(".json")));
    }
    const std::pair<const char *, const char *> same[] = {
        {"--config qwen.json --positions axes.npy", "--rotary-dim 16 --axis-map sections:2,3,3 --positions axes.npy"},
        {"--config gpt-j-6b.json", "--rotary-dim 64 --pairing interleaved"},
        {"--config gpt-j-6b.json --pairing half --rotary-dim 64", "--rotary-dim 64"},
        {"--config gpt-j-6b.json --out-pairing half", "--rotary-dim 64 --pairing interleaved --out-pairing half"},
        {"--config deepseek-v3.json", "--config deepseek-v3.json --pairing interleaved --out-pairing half"},
        {"--config deepseek-v3.json --pairing interleaved", "--config deepseek-v3.json --out-pairing interleaved"},
        {"--config other.json", "--rotary-dim 64"}};
    for (const auto &[config, options] : same) {
        CAPTURE(config);
        CHECK(rotated(dir, config) == rotated(dir, options));
    }
}

TEST_CASE("tool: a reference's angles are the library's, and it rotates by them", "[tool]") {
    const ToolFolder dir;
    const std::vector<std::int32_t> positions = {0, 1, 7, 65, 4095, 131071};
    write(dir, "p.npy", {6}, positions);
    write<float>(dir, "f.npy", {4}, {1.0f, 0.3f, 1e-3f, 0.25f});
    std::vector<float> x;  // (1, 0) in each pair shows cos and sin
    for (int i = 0; i < 6 * 8; ++i) {
        x.push_back(i % 8 < 4 ? 1.0f : 0.0f);
    }
    write(dir, "x.npy", {6, 1, 8}, x);
    for (const auto &[word, reference] :
         {std::pair("exact", HALYARD_REFERENCE_EXACT), {"hf_f32", HALYARD_REFERENCE_HF_F32}}) {
        const auto rows = table_rows_at(make_frequencies({1.0f, 0.3f, 1e-3f, 0.25f}, 1.25), positions, reference);
        const auto options =
            std::string(" --inv-freq f.npy --attention-factor 1.25 --positions p.npy --reference ") + word;
        dir.succeed("angles -o cs.npy" + options);
        CHECK(floats_of(dir / "cs.npy") == rows);
        dir.succeed("rotate x.npy -o y.npy" + options);
        CHECK(floats_of(dir / "y.npy") == rows);
    }
}

TEST_CASE("tool: given rows serve every batch row, and empty arrays stay", "[tool]") {
    const ToolFolder dir;
    write(dir, "b.npy", {2, 3, 4, 14}, make_values(2 * 3 * 4 * 14));
    dir.succeed("angles --positions 7:10 --rotary-dim 10 -o cs.npy");
    for (const std::string options : {"", " --inverse", " --in-place --rotary-offset 4"}) {
        dir.succeed("rotate b.npy -o y.npy --rotary-dim 10 --positions 7:10" + options);
        dir.succeed("rotate b.npy -o z.npy --cos-sin cs.npy" + options);
        CHECK(dir.read("y.npy") == dir.read("z.npy"));
    }
    for (const auto &shape : {Shape{0, 4, 8}, Shape{4, 0, 8}, Shape{2, 0, 3, 8}, Shape{0, 2, 3, 8}, Shape{2, 3, 0, 8},
                              Shape{0, std::int64_t(1) << 62, std::int64_t(1) << 62, 8}}) {
        write<float>(dir, "x.npy", shape, {});
        for (const char *options : {"", "--in-place --threads 2", "--layout bshd"}) {
            CHECK(rotated(dir, options) == dir.read("x.npy"));
        }
        dir.fail(1, "rotate x.npy -o y.npy --rotary-dim 10");  // the rest is still checked
        dir.fail(1, "rotate x.npy -o y.npy --positions 0:99");
    }
}
