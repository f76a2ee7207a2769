// Other ways to say the same, and what is special: positions, rows that are given, empty arrays.
#include "checks/make_sources.h"
#include "tool/arrays.h"

#include <catch2/generators/catch_generators.hpp>

#include <cmath>

using halyard::tool::read_npy;

namespace {

/// Rotates x.npy into y.npy, and returns what is written there.
std::string rotated(const ToolFolder &dir, const std::string &options) {
    dir.succeed("rotate x.npy -o y.npy " + options);
    return bytes_of(dir / "y.npy");
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
    dir.fail_each(
        1, "rotate x.npy -o y.npy",
        {bad, "--positions 7:11 --max-position 10", "--positions -1:3 --max-position 10", "--max-position 3"});
}

TEST_CASE("tool: a config brings its map of axes", "[tool]") {
    const ToolFolder dir;
    write(dir, "x.npy", {4, 2, 16}, make_values(128));
    write<std::int32_t>(dir, "axes.npy", {3, 4}, {0, 1, 2, 3, 0, 5, 5, 6, 0, 7, 8, 7});
    dir.write("qwen.json", R"({"model_type": "qwen2_vl", "head_dim": 16, "rope_theta": 1e4,
                               "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})");
    CHECK(rotated(dir, "--config qwen.json --positions axes.npy") ==
          rotated(dir, "--base 1e4 --axis-map sections:2,3,3 --positions axes.npy"));
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
    const auto rows =
        table_rows_at(make_frequencies({1.0f, 0.3f, 1e-3f, 0.25f}, 1.25), positions, HALYARD_REFERENCE_HF_F32);
    const std::string options = " --positions p.npy --reference hf_f32 --inv-freq f.npy --attention-factor 1.25";
    dir.succeed("angles -o cs.npy" + options);
    CHECK(floats_of(dir / "cs.npy") == rows);
    dir.succeed("rotate x.npy -o y.npy" + options);
    CHECK(floats_of(dir / "y.npy") == rows);
}

TEST_CASE("tool: given cos and sin rows rotate as their positions do", "[tool]") {
    const ToolFolder dir;
    const std::size_t n_pairs = 5;
    const std::vector<double> inv_freq = {1.0, 0.5, 1e-3, 0.0, 0.25};
    write(dir, "f.npy", {5}, inv_freq);
    write<std::int32_t>(dir, "p.npy", {3}, {7, -100, 131071});
    const std::string angles = " --positions p.npy --inv-freq f.npy --attention-factor 1.25";
    CHECK(dir.succeed("angles -o cs.npy" + angles) == "");
    const auto rows = read_npy(dir / "cs.npy", {"<f4"});
    REQUIRE(rows.shape == Shape{3, 2, 5});
    const double positions[] = {7, -100, 131071};
    for (std::size_t t = 0; t < 3; ++t) {
        for (std::size_t k = 0; k < n_pairs; ++k) {
            const double angle = positions[t] * inv_freq[k];
            const auto at = rows.elements<float>().subspan(t * 2 * n_pairs);
            CHECK(std::fabs(at[k] - 1.25 * std::cos(angle)) <= 1.2e-7 * 1.25);
            CHECK(std::fabs(at[n_pairs + k] - 1.25 * std::sin(angle)) <= 1.2e-7 * 1.25);
        }
    }
    // With more columns than the rows rotate, and for every batch row.
    write(dir, "x.npy", {2, 3, 4, 14}, make_values(2 * 3 * 4 * 14));
    const std::string options = GENERATE("", " --inverse", " --in-place --rotary-offset 4");
    const auto y = rotated(dir, "--rotary-dim 10" + angles + options);
    CHECK(rotated(dir, "--cos-sin cs.npy" + options) == y);
    CHECK(rotated(dir, "--cos-sin cs.npy --rotary-dim 10" + options) == y);
}

TEST_CASE("tool: empty arrays", "[tool]") {
    const ToolFolder dir;
    const auto shape = GENERATE(Shape{0, 4, 8}, Shape{4, 0, 8}, Shape{2, 0, 3, 8}, Shape{0, 2, 3, 8}, Shape{2, 3, 0, 8},
                                Shape{0, std::int64_t(1) << 62, std::int64_t(1) << 62, 8});
    write<float>(dir, "x.npy", shape, {});
    for (const char *options : {"", "--in-place --threads 2", "--layout bshd"}) {
        dir.succeed(std::string("rotate x.npy -o y.npy ") + options);
        CHECK(dir.read("y.npy") == dir.read("x.npy"));
    }
    // The rest is still checked.
    dir.fail_each(1, "rotate x.npy -o z.npy", {"--rotary-dim 10", "--positions 0:99"});
}
