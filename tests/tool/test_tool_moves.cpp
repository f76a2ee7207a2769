// The tool moves keys from positions to positions: in arrays and in caches, in every dtype, against the oracle.
#include "tool/road_arrays.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace {

constexpr std::int64_t n_tokens = 5, n_heads = 3, head_dim = 20, n_slots = 8;

/// Tokens of 100 + 0, 1, … go to 7 times their number, as the tool is told.
const std::string moved = "--from-positions 100:105 --positions to.npy";

struct Files : ToolFolder {
    Files() { ::write<std::int64_t>(*this, "to.npy", {n_tokens}, {0, 7, 14, 21, 28}); }
};

/// A scale for each of n heads, which is exact.
std::vector<float> make_scales(int n) {
    std::vector<float> scales;
    for (int i = 0; i < n; i++) {
        scales.push_back(0.25f + 0.125f * static_cast<float>(i));
    }
    return scales;
}

/// How many words of keys [tokens, heads, head_dim] are not those of keys that moved so.
std::size_t count_wrong(std::int32_t dtype, const Words &before, const Words &after,
                        const std::vector<float> &scales_before = {}, const std::vector<float> &scales_after = {}) {
    std::size_t n_wrong = 0;
    for (std::size_t row = 0; row < before.size() / head_dim; row++) {
        const auto token = static_cast<std::int64_t>(row) / n_heads;
        const long double scale = scales_before.empty() ? 1.0L : scales_before[row];
        for (std::int64_t k = 0; k < head_dim / 2; k++) {
            const std::size_t i0 = row * head_dim + static_cast<std::size_t>(k), i1 = i0 + head_dim / 2;
            const long double inv_freq = std::pow(10000.0L, -2.0L * k / head_dim);
            const long double theta = inv_freq * static_cast<long double>(7 * token - (100 + token));
            const long double x0 = oracle::decode(dtype, before[i0]) * scale;
            const long double x1 = oracle::decode(dtype, before[i1]) * scale;
            const long double bound = 2 * 0x1p-23L * std::hypot(x0, x1);
            const auto is_right = [&](std::size_t i, long double value) {
                return oracle::may_be_stored(dtype, after[i], value, bound,
                                             scales_after.empty() ? std::nullopt
                                                                  : std::optional<long double>(scales_after[row]));
            };
            n_wrong += is_right(i0, x0 * std::cos(theta) - x1 * std::sin(theta)) ? 0 : 1;
            n_wrong += is_right(i1, x1 * std::cos(theta) + x0 * std::sin(theta)) ? 0 : 1;
        }
    }
    return n_wrong;
}

/// Words, none of which is NaN or an infinity.
Words make_keys(std::int32_t dtype, std::size_t n) {
    Words words = make_words(dtype, n);
    for (auto &word : words) {
        word = std::isfinite(oracle::decode(dtype, word)) ? word : 1;
    }
    return words;
}

}  // namespace

TEST_CASE("tool: keys move in arrays of every dtype", "[tool][road][moves]") {
    const Files dir;
    const auto dtype =
        GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16, HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8);
    const Shape shape = {n_tokens, n_heads, head_dim};
    const auto keys = make_keys(dtype, n_tokens * n_heads * head_dim);
    write_words(dir, "x.npy", dtype, shape, keys);
    const auto move = [&](const std::string &options) {
        dir.succeed("rotate x.npy -o y.npy --dtype " + word_of(dtype) + " " + moved + options);
        return read_words(dir / "y.npy", dtype, shape);
    };
    const auto alone = move("");
    CHECK(count_wrong(dtype, keys, alone) == 0);
    CHECK(move(" --in-place --threads 3") == alone);
    if (dtype < HALYARD_E4M3) {
        return;
    }
    const auto scales = make_scales(n_tokens * n_heads);
    write(dir, "scales.npy", {n_tokens, n_heads}, scales);
    const auto before = dir.read("scales.npy");
    const auto scaled = move(" --cache-scales scales.npy --scale-dynamic new.npy");
    CHECK(dir.read("scales.npy") == before);
    CHECK(count_wrong(dtype, keys, scaled, scales, floats_of(dir / "new.npy")) == 0);
    move(" --cache-scales scales.npy");  // new ones take the place of the old
    CHECK(dir.read("scales.npy") == dir.read("new.npy"));
}

TEST_CASE("tool: keys move in caches of every layout", "[tool][road][moves]") {
    const Files dir;
    const std::int32_t dtype = HALYARD_E4M3;
    struct CacheLayout {
        const char *name;
        Shape shape;
    };
    const CacheLayout layout = GENERATE(
        CacheLayout{"rows", {n_slots, n_heads, head_dim}}, CacheLayout{"nhd", {2, 4, n_heads, head_dim}},
        CacheLayout{"hnd", {2, n_heads, 4, head_dim}}, CacheLayout{"tile:4,4,0,1,4,16,4", {2, n_heads, 4 * head_dim}});
    CAPTURE(layout.name);
    const std::vector<std::int64_t> slots = {5, 0, -1, 7, 2};
    const auto place = [&](std::int64_t slot, std::int64_t head, std::int64_t d) {
        const std::int64_t page = slot / 4, t = slot % 4;
        const std::int64_t at = layout.name[0] == 'h'   ? ((page * n_heads + head) * 4 + t) * head_dim + d
                                : layout.name[0] == 't' ? (page * n_heads + head) * 4 * head_dim + t + 4 * d
                                                        : (slot * n_heads + head) * head_dim + d;
        return static_cast<std::size_t>(at);
    };
    const auto cache = make_keys(dtype, n_slots * n_heads * head_dim);
    const auto scales = make_scales(n_slots * n_heads);
    write_words(dir, "cache.npy", dtype, layout.shape, cache);
    write(dir, "slots.npy", {n_tokens}, slots);
    write(dir, "scales.npy", {n_slots, n_heads}, scales);
    dir.succeed(std::string("rotate cache.npy -o y.npy --dtype e4m3 --slots slots.npy --cache-layout ") + layout.name +
                " --cache-scales scales.npy --scale-dynamic new.npy " + moved);
    const auto after = read_words(dir / "y.npy", dtype, layout.shape);
    const auto new_scales = floats_of(dir / "new.npy");
    Words keys, moved, rest = after;
    std::vector<float> scales_before, scales_after;
    for (std::size_t token = 0; token < slots.size(); token++) {
        for (std::int64_t head = 0; head < n_heads; head++) {
            const std::int64_t slot = slots[token];
            const auto of_scale = static_cast<std::size_t>(slot < 0 ? 0 : slot * n_heads + head);
            scales_before.push_back(slot < 0 ? 1.0f : scales[of_scale]);
            scales_after.push_back(slot < 0 ? 1.0f : new_scales[of_scale]);
            for (std::int64_t d = 0; d < head_dim; d++) {
                keys.push_back(slot < 0 ? 0 : cache[place(slot, head, d)]);
                moved.push_back(slot < 0 ? 0 : after[place(slot, head, d)]);
                if (slot >= 0) {
                    rest[place(slot, head, d)] = cache[place(slot, head, d)];
                }
            }
        }
    }
    CHECK(count_wrong(dtype, keys, moved, scales_before, scales_after) == 0);
    CHECK((rest == cache));
    CHECK(new_scales[1 * n_heads] == scales[1 * n_heads]);  // of a slot that no token has
}

TEST_CASE("tool: what contradicts keys that move", "[tool][road][moves]") {
    const ToolFolder dir;
    write_words(dir, "keys.npy", HALYARD_INT8, {2, 2, 4}, make_words(HALYARD_INT8, 16));
    write(dir, "x.npy", {2, 2, 4}, std::vector<float>(16));
    write(dir, "slots.npy", {2}, std::vector<std::int64_t>{0, 1});
    write(dir, "zeros.npy", {2, 2}, std::vector<float>(4));
    const std::string rotate = "rotate x.npy -o y.npy", move = rotate + " --from-positions 0:2";
    for (const std::string options :
         {"--out-pairing interleaved --pairing half", "--no-rotation", "--norm rms", "--position-scales p.npy",
          "--reference hf_f32", "--bad-position clamp", "--max-position 9", "--cos-sin x.npy"}) {
        dir.fail_saying(2, move, {{options, "--from-positions"}, {options, split(options)[0]}});
    }
    dir.fail_saying(2, move,
                    {{"--scale-dynamic s.npy", "--scale-dynamic requires --cache-scales"},
                     {"--slots slots.npy", "--slots requires --cache-layout"},
                     {"--slots slots.npy --cache-layout rows --cache x.npy", "--cache"}});
    dir.fail_saying(1, move,
                    {{"--slots slots.npy --cache-layout hnd", "[2, 2, 4]"},
                     {"--slots slots.npy --cache-layout hnd", "[pages, heads, bs, head_dim]"},
                     {"--cache-scales x.npy", "--cache-scales is for e4m3, e5m2 and int8"},
                     {"--out-dtype f16", "--out-dtype is f16, but X holds f32, and keys keep their type"}});
    dir.succeed(move + " --out-dtype f32 --out-pairing half --pairing half");
    dir.fail_saying(2, rotate,
                    {{"--cache-scales x.npy", "--cache-scales requires --from-positions"},
                     {"--slots slots.npy --cache-layout rows", "--slots requires --cache"},
                     {"--dtype int8", "--dtype"},
                     {"--dtype int8", "int8 is for keys that move"}});
    dir.fail(1, rotate + " --from-positions 0:3", "--from-positions 0:3 has positions for 3 tokens");
    dir.fail(1, "rotate keys.npy -o y.npy --from-positions 0:2 --cache-scales zeros.npy",
             "in --cache-scales, [token 0, head 0] is 0");
}
