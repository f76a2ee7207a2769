// What the tool rotates: layouts, positions, pairings, and rows that are given.
#include "tool/arrays.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <filesystem>

using halyard::tool::read_npy;

TEST_CASE("tool: layouts are the same numbers in another order", "[tool]") {
    const ScratchDir dir;
    const std::size_t n_batch = 2, n_tokens = 5, n_heads = 3, head_dim = 8;
    const auto values = make_values(n_batch * n_tokens * n_heads * head_dim);
    std::vector<float> swapped(values.size());
    const auto swap = [&](const std::vector<float> &from, std::vector<float> &to) {
        for (std::size_t b = 0; b < n_batch; ++b) {
            for (std::size_t t = 0; t < n_tokens; ++t) {
                for (std::size_t h = 0; h < n_heads; ++h) {
                    std::copy_n(
                        from.begin() + static_cast<std::ptrdiff_t>(((b * n_tokens + t) * n_heads + h) * head_dim),
                        head_dim,
                        to.begin() + static_cast<std::ptrdiff_t>(((b * n_heads + h) * n_tokens + t) * head_dim));
                }
            }
        }
    };
    swap(values, swapped);
    const auto bshd = write(dir, "bshd.npy", {2, 5, 3, 8}, values);
    const auto bhsd = write(dir, "bhsd.npy", {2, 3, 5, 8}, swapped);
    const auto positions = write<std::int32_t>(dir, "p.npy", {2, 5}, {3, 1, 4, 1, 5, 9, 2, 6, 5, -3});
    const auto in_place = GENERATE(Arguments{}, Arguments{"--in-place"}, Arguments{"--threads", "3"});
    const auto options = Arguments{"--positions", positions} + in_place;
    succeed(Arguments{"rotate", bshd, "-o", dir / "y.npy"} + options);
    succeed(Arguments{"rotate", bhsd, "-o", dir / "z.npy", "--layout", "bhsd"} + options);
    std::vector<float> want(values.size());
    swap(floats_of(dir / "y.npy"), want);
    CHECK(floats_of(dir / "z.npy") == want);
    CHECK(read_npy(dir / "z.npy", {"<f4"}).shape == Shape{2, 3, 5, 8});

    // Each batch row has its own positions: alone, it gives the same.
    const auto row = write(dir, "row.npy", {5, 3, 8}, std::vector<float>(values.begin() + 120, values.end()));
    const auto row_positions = write<std::int64_t>(dir, "q.npy", {5}, {9, 2, 6, 5, -3});
    succeed({"rotate", row, "-o", dir / "w.npy", "--positions", row_positions});
    const auto whole = floats_of(dir / "y.npy");
    CHECK(floats_of(dir / "w.npy") == std::vector<float>(whole.begin() + 120, whole.end()));
}

TEST_CASE("tool: every way to say the same positions", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {4, 2, 16}, make_values(128));
    const auto rotate = [&](const Arguments &options) {
        succeed(Arguments{"rotate", x, "-o", dir / "y.npy"} + options);
        return bytes_of(dir / "y.npy");
    };
    const auto from_zero = rotate({});
    CHECK(rotate({"--positions", "0:4"}) == from_zero);
    CHECK(rotate({"--positions", write<std::int32_t>(dir, "p4.npy", {4}, {0, 1, 2, 3})}) == from_zero);
    CHECK(rotate({"--positions", write<std::int64_t>(dir, "p8.npy", {1, 4}, {0, 1, 2, 3})}) == from_zero);
    CHECK(rotate({"--max-position", "4"}) == from_zero);
    CHECK(rotate({"--threads", "4"}) == from_zero);
    CHECK(rotate({"--angles", "table", "--reference", "exact", "--base", "1e4", "--rotary-dim", "16"}) == from_zero);
    CHECK(rotate({"--positions", "0:4", "--dtype", "f32", "--out-pairing", "half", "--in-place"}) == from_zero);

    const auto negative = rotate({"--positions", "-2:2"});
    CHECK(negative != from_zero);
    CHECK(rotate({"--positions", write<std::int32_t>(dir, "n.npy", {4}, {-2, -1, 0, 1})}) == negative);
    rotate({"--positions", "2147483644:2147483648"});
    rotate({"--positions", "-2147483648:-2147483644"});
}

TEST_CASE("tool: bad positions are refused, held or not rotated", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {4, 1, 8}, make_values(32));
    const auto rotate = [&](const Arguments &options) {
        succeed(Arguments{"rotate", x, "-o", dir / "y.npy"} + options);
        return bytes_of(dir / "y.npy");
    };
    const auto bad = write<std::int64_t>(dir, "bad.npy", {4}, {-7, 5, 10, std::int64_t(1) << 40});
    const auto held = write<std::int64_t>(dir, "held.npy", {4}, {0, 5, 9, 9});
    const auto zeroed = write<std::int64_t>(dir, "zeroed.npy", {4}, {0, 5, 0, 0});
    const Arguments limit = {"--max-position", "10"};
    CHECK(rotate(Arguments{"--positions", bad, "--bad-position", "clamp"} + limit) == rotate({"--positions", held}));
    CHECK(rotate(Arguments{"--positions", bad, "--bad-position", "identity"} + limit) ==
          rotate({"--positions", zeroed}));
    const auto clamp_to_int32 = write<std::int64_t>(dir, "int32.npy", {4}, {-7, 5, 10, 2147483647});
    CHECK(rotate({"--positions", bad, "--bad-position", "clamp"}) == rotate({"--positions", clamp_to_int32}));
    CHECK(rotate({"--positions", "-2:2", "--bad-position", "clamp", "--max-position", "1"}) ==
          rotate({"--positions", write<std::int64_t>(dir, "zero.npy", {4}, {0, 0, 0, 0})}));
    rotate({"--max-position", "2147483648"});

    std::filesystem::remove(dir / "y.npy");
    check_fails(1, Arguments{"rotate", x, "-o", dir / "y.npy", "--positions", bad}, dir);
    check_fails(1, Arguments{"rotate", x, "-o", dir / "y.npy", "--positions", "7:11"} + limit, dir);
    check_fails(1, Arguments{"rotate", x, "-o", dir / "y.npy", "--positions", "-1:3"} + limit, dir);
    check_fails(1, {"rotate", x, "-o", dir / "y.npy", "--max-position", "3"}, dir);
}

TEST_CASE("tool: pairings and the inverse", "[tool]") {
    const ScratchDir dir;
    const auto values = make_values(3 * 2 * 12);
    const auto x = write(dir, "x.npy", {3, 2, 12}, values);
    // A window of 8 columns from column 3.
    const Arguments window = {"--positions", "5:8", "--rotary-dim", "8", "--rotary-offset", "3"};
    const auto rotate = [&](const std::string &from, const std::string &to, const Arguments &options) {
        succeed(Arguments{"rotate", from, "-o", dir / to} + window + options);
        return floats_of(dir / to);
    };
    const auto same = rotate(x, "same.npy", {});
    const auto crossed = rotate(x, "crossed.npy", {"--out-pairing", "interleaved"});
    for (std::size_t i = 0; i < same.size(); i += 12) {
        for (std::size_t k = 0; k < 4; ++k) {
            CHECK(crossed[i + 3 + 2 * k] == same[i + 3 + k]);
            CHECK(crossed[i + 3 + 2 * k + 1] == same[i + 3 + k + 4]);
        }
        for (const std::size_t k : {0, 1, 2, 11}) {
            CHECK(crossed[i + k] == values[i + k]);
        }
    }
    const auto back =
        rotate(dir / "crossed.npy", "back.npy", {"--inverse", "--pairing", "interleaved", "--out-pairing", "half"});
    for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(std::fabs(back[i] - values[i]) <= 4e-6f);
    }
}

TEST_CASE("tool: given cos and sin rows rotate as their positions do", "[tool]") {
    const ScratchDir dir;
    const std::size_t n_pairs = 5;
    std::vector<double> inv_freq = {1.0, 0.5, 1e-3, 0.0, 0.25};
    const auto f = write(dir, "f.npy", {5}, inv_freq);
    const auto p = write<std::int32_t>(dir, "p.npy", {3}, {7, -100, 131071});
    const Arguments frequencies = {"--inv-freq", f, "--attention-factor", "1.25"};
    CHECK(succeed(Arguments{"angles", "--positions", p, "-o", dir / "cs.npy"} + frequencies) == "");
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
    const auto x = write(dir, "x.npy", {2, 3, 4, 14}, make_values(2 * 3 * 4 * 14));
    const auto options = GENERATE(Arguments{}, Arguments{"--inverse"}, Arguments{"--in-place", "--rotary-offset", "4"});
    succeed(Arguments{"rotate", x, "-o", dir / "y.npy", "--positions", p, "--rotary-dim", "10"} + frequencies +
            options);
    succeed(Arguments{"rotate", x, "-o", dir / "z.npy", "--cos-sin", dir / "cs.npy"} + options);
    CHECK(bytes_of(dir / "y.npy") == bytes_of(dir / "z.npy"));
    succeed(Arguments{"rotate", x, "-o", dir / "z.npy", "--cos-sin", dir / "cs.npy", "--rotary-dim", "10"} + options);
}

TEST_CASE("tool: empty arrays", "[tool]") {
    const ScratchDir dir;
    const auto shape = GENERATE(Shape{0, 4, 8}, Shape{4, 0, 8}, Shape{2, 0, 3, 8}, Shape{0, 2, 3, 8}, Shape{2, 3, 0, 8},
                                Shape{0, std::int64_t(1) << 62, std::int64_t(1) << 62, 8});
    const auto x = write<float>(dir, "x.npy", shape, {});
    const auto options =
        GENERATE(Arguments{}, Arguments{"--in-place", "--threads", "2"}, Arguments{"--layout", "bshd"});
    succeed(Arguments{"rotate", x, "-o", dir / "y.npy"} + options);
    CHECK(read_npy(dir / "y.npy", {"<f4"}).shape == shape);
    CHECK(dir.read("y.npy") == dir.read("x.npy"));
    // The rest is still checked.
    check_fails(1, {"rotate", x, "-o", dir / "z.npy", "--rotary-dim", "10"}, dir);
    check_fails(1, {"rotate", x, "-o", dir / "z.npy", "--positions", "0:99"}, dir);
}
