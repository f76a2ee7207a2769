// Options of `halyard rotate`: different options for the same rotation must give the same result.
#include "checks/make_sources.h"
#include "tool/run_tool.h"

namespace {

/// Rotates x.npy into y.npy, and returns the contents of y.npy.
std::string rotated(const ToolFolder &dir, const std::string &options) {
    dir.succeed("rotate x.npy -o y.npy " + options);
    return dir.read("y.npy");
}

}  // namespace

TEST_CASE("tool: options that say the same rotate in the same way", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {4, 2, 80}, make_values(640));
    write<std::int32_t>(dir, "p4.npy", {4}, {0, 1, 2, 3});
    write<std::int64_t>(dir, "p8.npy", {1, 4}, {0, 1, 2, 3});
    write<std::int32_t>(dir, "negative.npy", {4}, {-2, -1, 0, 1});
    write<std::int64_t>(dir, "bad.npy", {4}, {-7, 5, 10, std::int64_t{1} << 40});
    write<std::int32_t>(dir, "held.npy", {4}, {0, 5, 9, 9});
    write<std::int32_t>(dir, "zeroed.npy", {4}, {0, 5, 0, 0});
    write<std::int32_t>(dir, "int32.npy", {4}, {-7, 5, 10, INT32_MAX});
    write<std::int32_t>(dir, "axes.npy", {3, 4}, {0, 1, 2, 3, 0, 5, 5, 6, 0, 7, 8, 7});
    dir.write("qwen.json", R"({"model_type": "qwen2_vl", "head_dim": 16, "rope_theta": 1e4,
                               "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})");
    dir.write("other.json", R"({"head_dim": 64, "rope_theta": 10000})");
    dir.add_config("gpt-j-6b");
    dir.add_config("deepseek-v3");
    dir.succeed("angles --positions 7:11 --rotary-dim 10 -o cs.npy");
    const auto plain = rotated(dir, "");
    const std::vector<std::string> rows[] = {
        {"", "--positions 0:4", "--positions p4.npy", "--positions p8.npy", "--max-position 4", "--threads 4",
         "--angles table --reference exact --base 1e4 --rotary-dim 80", "--max-position 2147483648",
         "--positions 0:4 --dtype f32 --out-pairing half --in-place"},
        {"--positions -2:2", "--positions negative.npy"},
        {"--rotary-dim 10 --positions 7:11", "--cos-sin cs.npy"},
        {"--bad-position clamp --max-position 10 --positions bad.npy", "--positions held.npy"},
        {"--bad-position identity --max-position 10 --positions bad.npy", "--positions zeroed.npy"},
        {"--bad-position clamp --positions bad.npy", "--positions int32.npy"},
        // A config sets the axis map, rotary_dim and pairing, unless options do.
        {"--config qwen.json --positions axes.npy", "--rotary-dim 16 --axis-map sections:2,3,3 --positions axes.npy"},
        {"--rotary-dim 16", "--rotary-dim 16 --axis-map sections:2,3,3", "--config qwen.json"},
        {"--config gpt-j-6b.json", "--rotary-dim 64 --pairing interleaved"},
        {"--config gpt-j-6b.json --pairing half --rotary-dim 64", "--rotary-dim 64", "--config other.json"},
        {"--config gpt-j-6b.json --out-pairing half", "--rotary-dim 64 --pairing interleaved --out-pairing half"},
        {"--config deepseek-v3.json", "--config deepseek-v3.json --pairing interleaved --out-pairing half"},
        {"--config deepseek-v3.json --pairing interleaved", "--config deepseek-v3.json --out-pairing interleaved"}};
    for (const auto &row : rows) {
        const auto first = rotated(dir, row[0]);
        CHECK((first == plain) == row[0].empty());
        for (const auto &options : row) {
            CAPTURE(options);
            CHECK(rotated(dir, options) == first);
        }
    }
    for (const char *range : {"2147483644:2147483648", "-2147483648:-2147483644"}) {
        CHECK(rotated(dir, std::string("--positions ") + range) != plain);
    }
}

TEST_CASE("tool: a reference's angles are the library's, and it rotates by them", "[tool]") {
    const ToolFolder dir;
    const std::vector<std::int32_t> positions = {0, 1, 7, 65, 4095, 131071};
    write(dir, "p.npy", {6}, positions);
    write<float>(dir, "f.npy", {4}, {1.0f, 0.3f, 1e-3f, 0.25f});
    std::vector<float> x;  // pairs (1, 0), which rotate to (cos, sin)
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
        dir.succeed("rotate x.npy -o y.npy" + options);
        for (const auto &[name, shape] : {std::pair("cs.npy", Shape{6, 2, 4}), {"y.npy", {6, 1, 8}}}) {
            const auto array = halyard::tool::read_npy(dir / name, {"<f4"});
            CHECK(array.shape == shape);
            CHECK(std::ranges::equal(array.elements<float>(), rows));
        }
    }
}

TEST_CASE("tool: empty arrays stay", "[tool]") {
    const ToolFolder dir;
    for (const auto &shape : {Shape{0, 4, 8}, Shape{4, 0, 8}, Shape{2, 0, 3, 8}, Shape{0, 2, 3, 8}, Shape{2, 3, 0, 8},
                              Shape{0, std::int64_t(1) << 62, std::int64_t(1) << 62, 8}}) {
        write<float>(dir, "x.npy", shape, {});
        for (const char *options : {"", "--in-place --threads 2", "--layout bshd"}) {
            CHECK(rotated(dir, options) == dir.read("x.npy"));
        }
        dir.fail(1, "rotate x.npy -o y.npy --rotary-dim 10");  // other arguments are still checked
        dir.fail(1, "rotate x.npy -o y.npy --positions 0:99");
    }
    dir.succeed("angles --positions 5:5 --rotary-dim 4 -o cs.npy");
    CHECK(halyard::tool::read_npy(dir / "cs.npy", {"<f4"}).shape == Shape{0, 2, 2});
}
