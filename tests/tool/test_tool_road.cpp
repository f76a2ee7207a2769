// The tool's norm, scale, conversion and caches against the oracle, from files to files.
#include "checks/oracle.h"
#include "tool/road_arrays.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>

namespace {

constexpr std::int64_t n_tokens = 5, n_heads = 3, head_dim = 20;
constexpr std::size_t n_row = n_heads * head_dim, n_all = n_tokens * n_row;
const Shape shape = {n_tokens, n_heads, head_dim};

oracle::Road rotation(std::int32_t dtype) {
    oracle::Road road;
    road.dtype = dtype;
    road.n_heads = n_heads;
    road.head_dim = head_dim;
    road.rotary_dim = head_dim;
    return road;
}

/// Writes words to x.npy, and returns the command that makes another file of it.
std::string rotate(const ToolFolder &dir, std::int32_t dtype, const Words &x, const Shape &sizes = shape,
                   const std::string &y = "y.npy") {
    return "rotate " + write_words(dir, "x.npy", dtype, sizes, x) + " -o " + y + " --dtype " + word_of(dtype);
}

using ScaleOf = std::function<std::optional<long double>(std::size_t)>;

/// How many words can't be what is stored of the values.
std::size_t count_wrong(
    std::int32_t dtype, const Words &words, const oracle::RoadValues &want,
    const ScaleOf &scale = [](std::size_t) { return std::nullopt; }) {
    REQUIRE(words.size() == want.value.size());
    std::size_t n_wrong = 0;
    for (std::size_t i = 0; i < words.size(); i++) {
        n_wrong += oracle::may_be_stored(dtype, words[i], want.value[i], want.bound[i], scale(i)) ? 0 : 1;
    }
    return n_wrong;
}

}  // namespace

TEST_CASE("tool: norms of every form", "[tool][road]") {
    const ToolFolder dir;
    const auto dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16);
    const auto x = make_words(dtype, n_all);
    const auto values = decode(dtype, x);
    const auto command = rotate(dir, dtype, x) + " --norm rms";
    const bool row = GENERATE(false, true), after = GENERATE(false, true);
    for (const int variant : {0, 1, 2, 3, 4}) {
        auto road = rotation(dtype);
        auto &norm = road.norm.emplace();
        norm.row = row;
        norm.after = after;
        norm.size = head_dim;
        norm.eps = 1e-6f;
        std::string options =
            std::string(" --norm-width ") + (row ? "row" : "head") + " --norm-order " + (after ? "after" : "before");
        if (variant < 3) {
            const std::int32_t weight_dtype = variant == 0 ? HALYARD_F32 : variant == 1 ? HALYARD_F16 : HALYARD_BF16;
            const std::int64_t n = row ? n_heads * head_dim : head_dim;
            const auto weight = make_words(weight_dtype, static_cast<std::size_t>(n), 7);
            norm.weight = decode(weight_dtype, weight);
            options += " --norm-weight " + write_words(dir, "w.npy", weight_dtype, {n}, weight);
        }
        if (variant == 1 || variant == 2) {
            options += " --norm-unit-offset";
            for (auto &w : norm.weight) {
                w = 1.0f + w;
            }
        }
        if (variant == 2 || variant == 3) {
            options += " --norm-round";
            norm.rounds_before = true;
        }
        if (variant == 0 || variant == 3) {
            options += " --norm-eps 0.25 --in-place";
            norm.eps = 0.25L;
        }
        if (variant == 4) {
            options += " --norm-eps 0 --no-rotation";
            norm.eps = 0;
            road.rotary_dim = 0;
        }
        CAPTURE(dtype, row, after, variant);
        dir.succeed(command + options);
        CHECK(count_wrong(dtype, read_words(dir / "y.npy", dtype, shape), roads_of(road, values, n_tokens)) == 0);
    }
    // What is not said is the default; and each of these says something.
    dir.succeed(command);
    const auto plain = dir.read("y.npy");
    dir.succeed(command + " --norm-width head --norm-order before --norm-eps 1e-6");
    CHECK(dir.read("y.npy") == plain);
    for (const std::string &options : Arguments{"--norm-width row", "--norm-eps 1", "--norm-round", "--no-rotation"}) {
        dir.succeed(command + " " + options);
        CHECK((dir.read("y.npy") == plain) == (options == "--norm-round" && dtype == HALYARD_F32));
    }
}

TEST_CASE("tool: scales by position", "[tool][road]") {
    const ToolFolder dir;
    const auto dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16);
    const bool is_batch = GENERATE(false, true);
    const std::size_t n_sets = is_batch ? 2 : 1;
    const Shape sizes = is_batch ? Shape{2, n_tokens, n_heads, head_dim} : shape;
    const auto x = make_words(dtype, n_sets * n_all);
    const auto command = rotate(dir, dtype, x, sizes);
    std::vector<Shape> shapes = {
        {n_tokens}, Shape(sizes.begin(), sizes.end() - 2), Shape(sizes.begin(), sizes.end() - 1)};
    for (const Shape &each : shapes) {
        std::int64_t n = 1;
        for (const auto size : each) {
            n *= size;
        }
        const auto given = decode(HALYARD_F32, make_words(HALYARD_F32, static_cast<std::size_t>(n), 5));
        std::vector<float> scales;
        for (std::size_t i = 0; i < n_sets * n_tokens * n_heads; i++) {
            scales.push_back(given[(given.size() == n_sets * n_tokens * n_heads ? i : i / n_heads) % given.size()]);
        }
        const auto want = roads_of(rotation(dtype), decode(dtype, x), n_tokens, scales);
        const std::string option = " --position-scales " + write(dir, "p.npy", each, given);
        CAPTURE(dtype, each);
        dir.succeed(command + option);
        CHECK(count_wrong(dtype, read_words(dir / "y.npy", dtype, sizes), want) == 0);
        dir.succeed(command + option + " --out-dtype e4m3 --scale 0.5 --threads 2");
        CHECK(count_wrong(HALYARD_E4M3, read_words(dir / "y.npy", HALYARD_E4M3, sizes), want,
                          [](std::size_t) { return 0.5L; }) == 0);
    }
    // Heads before tokens in X, but not in the scales.
    if (is_batch) {
        const auto scales = decode(HALYARD_F32, make_words(HALYARD_F32, 2 * n_heads * n_tokens, 5));
        write(dir, "p.npy", {2, n_heads, n_tokens}, scales);
        dir.succeed(command + " --no-rotation --layout bhsd --position-scales p.npy");
        std::size_t n_wrong = 0;
        const auto words = read_words(dir / "y.npy", dtype, sizes);
        for (std::size_t i = 0; i < words.size(); i++) {  // [2, heads 5, tokens 3, head_dim]
            const std::size_t head = i / head_dim / n_heads % n_tokens, token = i / head_dim % n_heads;
            const float s = scales[(i / n_all * n_heads + token) * n_tokens + head];
            const float v = oracle::widen(dtype, x[i]) * s;
            n_wrong += words[i] == oracle::narrow(dtype, v) ? 0 : 1;
        }
        CHECK(n_wrong == 0);
    }
}

TEST_CASE("tool: norms of layers, and weights of each head", "[tool][road]") {
    const ToolFolder dir;
    const auto dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16);
    const auto weight_dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_BF16);
    const auto x = make_words(dtype, n_all);
    const auto values = decode(dtype, x);
    const auto command = rotate(dir, dtype, x) + " --norm-eps 1e-5 --norm ";
    enum { shared, per_head, of_row };
    for (const int weights : {shared, per_head, of_row}) {
        for (const std::string kind : {"rms", "layer", "layer with bias"}) {
            auto road = rotation(dtype);
            auto &norm = road.norm.emplace();
            norm.layer = kind != "rms";
            norm.row = weights == of_row;
            norm.per_head = weights == per_head;
            norm.size = head_dim;
            norm.eps = 1e-5f;
            const std::int64_t n = weights == shared ? head_dim : n_heads * head_dim;
            const Shape sizes = norm.per_head ? Shape{n_heads, head_dim} : Shape{n};
            const auto add = [&](const std::string &what, std::vector<float> &to, std::uint64_t seed) {
                const auto words = make_words(weight_dtype, static_cast<std::size_t>(n), seed);
                to = decode(weight_dtype, words);
                return " --norm-" + what + " " + write_words(dir, what + ".npy", weight_dtype, sizes, words);
            };
            std::string options = kind.substr(0, kind.find(' ')) + add("weight", norm.weight, 7);
            options += kind == "layer with bias" ? add("bias", norm.bias, 8) : "";
            options += norm.row ? " --norm-width row" : "";
            CAPTURE(dtype, weights, kind);
            dir.succeed(command + options);
            CHECK(count_wrong(dtype, read_words(dir / "y.npy", dtype, shape), roads_of(road, values, n_tokens)) == 0);
        }
    }
}

TEST_CASE("tool: a norm's eps is what keeps a head of zeros from NaN", "[tool][road]") {
    const ToolFolder dir;
    write(dir, "x.npy", {1, 2, 8}, std::vector<float>(16));
    for (const auto &[eps, is_nan] : {std::pair("", false), {" --norm-eps 1e-30", false}, {" --norm-eps 0", true}}) {
        dir.succeed(std::string("rotate x.npy -o y.npy --norm rms") + eps);
        CHECK(std::isnan(floats_of(dir / "y.npy")[0]) == is_nan);
    }
}

TEST_CASE("tool: Hadamard transforms before scales, and undone by themselves", "[tool][road]") {
    const ToolFolder dir;
    const auto dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16);
    const auto x = make_words(dtype, n_all);
    const auto command = rotate(dir, dtype, x);
    auto road = rotation(dtype);
    for (const std::int64_t n : {2, 4}) {
        road.hadamard = n;
        const auto want = roads_of(road, decode(dtype, x), n_tokens);
        dir.succeed(command + " --hadamard " + std::to_string(n) + " --out-dtype f32 --scale 0.5");
        CHECK(count_wrong(HALYARD_F32, read_words(dir / "y.npy", HALYARD_F32, shape), want,
                          [](std::size_t) { return 0.5f; }) == 0);
    }
    write(dir, "four.npy", {1, 1, 4}, std::vector<float>{1, 2, 3, 4});
    dir.succeed("rotate four.npy -o y.npy --no-rotation --hadamard 4");
    CHECK(floats_of(dir / "y.npy") == std::vector<float>{5, -1, -2, 0});
    dir.succeed("rotate y.npy -o z.npy --no-rotation --hadamard 4");
    CHECK(floats_of(dir / "z.npy") == std::vector<float>{1, 2, 3, 4});
    dir.fail_each(2, "rotate four.npy -o y.npy --no-rotation", {"--hadamard 1", "--hadamard -4", "--hadamard x"});
    dir.fail_each(1, "rotate four.npy -o y.npy --no-rotation", {"--hadamard 3", "--hadamard 8"});
}

TEST_CASE("tool: every dtype to every other, with scales", "[tool][road]") {
    const ToolFolder dir;
    const auto dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16);
    const auto out =
        GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_F16, HALYARD_BF16, HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8);
    const auto x = make_words(dtype, n_all);
    const auto want = roads_of(rotation(dtype), decode(dtype, x), n_tokens);
    const auto command = rotate(dir, dtype, x) + " --out-dtype " + word_of(out);
    const auto check = [&](const std::string &options, const ScaleOf &scale) {
        INFO(options);
        dir.succeed(command + options);
        CHECK(count_wrong(out, read_words(dir / "y.npy", out, shape), want, scale) == 0);
    };
    check("", [](std::size_t) { return std::nullopt; });
    check(" --scale 0.03", [](std::size_t) { return 0.03f; });
    // Where e4m3 and int8 are full.
    check(" --scale 1e-3", [](std::size_t) { return 1e-3f; });
    const auto write_scales = [&](const Shape &sizes, std::vector<float> &values) {
        values = decode(HALYARD_F32, make_words(HALYARD_F32, values.size(), 9));
        std::transform(values.begin(), values.end(), values.begin(), [](float v) { return std::fabs(v) * 0.02f; });
        return " --scale " + write(dir, "s.npy", sizes, values);
    };
    std::vector<float> one(1), heads(n_heads), columns(head_dim), both(n_row);
    check(write_scales({}, one), [&](std::size_t) { return one[0]; });
    check(write_scales({n_heads}, heads), [&](std::size_t i) { return heads[i / head_dim % n_heads]; });
    check(write_scales({head_dim}, columns), [&](std::size_t i) { return columns[i % head_dim]; });
    check(write_scales({n_heads, head_dim}, both), [&](std::size_t i) { return both[i % n_row]; });
}

namespace {

/// Tokens that are not rotated, [tokens, heads, head_dim] or two of these, and the scales that they need.
struct DynamicScales : ToolFolder {
    std::int32_t out;
    std::size_t n_sets;
    Shape sizes;
    std::string command;
    oracle::RoadValues want;
    std::vector<float> scales;

    DynamicScales(std::int32_t out_dtype, bool is_batch)
        : out(out_dtype), n_sets(is_batch ? 2 : 1), sizes(is_batch ? Shape{2, n_tokens, n_heads, head_dim} : shape) {
        auto x = make_words(HALYARD_BF16, n_sets * n_all);
        std::fill_n(x.begin() + head_dim, head_dim, 0x8000u);  // a head of zeros
        const auto values = decode(HALYARD_BF16, x);
        command = rotate(*this, HALYARD_BF16, x, sizes) + " --out-dtype " + word_of(out) +
                  " --scale-dynamic s.npy --no-rotation";
        auto road = rotation(HALYARD_BF16);
        road.rotary_dim = 0;
        want = roads_of(road, values, n_tokens);
        for (std::size_t head = 0; head < values.size(); head += head_dim) {
            long double most = 0;
            for (std::size_t d = 0; d < head_dim; d++) {
                most = std::max(most, std::fabs(static_cast<long double>(values[head + d])));
            }
            scales.push_back(most == 0 ? 1.0f : static_cast<float>(most / oracle::greatest(out)));
        }
    }

    bool is_right(std::uint32_t word, std::size_t i) const {
        return oracle::may_be_stored(out, word, want.value[i], want.bound[i], scales[i / head_dim]);
    }
};

}  // namespace

TEST_CASE("tool: scales that it makes, of an array", "[tool][road]") {
    const DynamicScales dir(GENERATE(as<std::int32_t>{}, HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8),
                            GENERATE(false, true));
    dir.succeed(dir.command);
    CHECK(floats_of(dir / "s.npy") == dir.scales);
    CHECK(halyard::tool::read_npy(dir / "s.npy", {"<f4"}).shape == Shape(dir.sizes.begin(), dir.sizes.end() - 1));
    const auto words = read_words(dir / "y.npy", dir.out, dir.sizes);
    std::size_t n_wrong = 0;
    for (std::size_t i = 0; i < words.size(); i++) {
        n_wrong += dir.is_right(words[i], i) ? 0 : 1;
    }
    CHECK(n_wrong == 0);
    // What is there already does not matter.
    dir.write("s.npy", "precious");
    dir.succeed(dir.command);
    CHECK(floats_of(dir / "s.npy") == dir.scales);
}

TEST_CASE("tool: scales that it makes, of a cache", "[tool][road]") {
    const DynamicScales dir(GENERATE(as<std::int32_t>{}, HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8),
                            GENERATE(false, true));
    constexpr std::int64_t n_slots = 12;
    std::vector<std::int64_t> slots;
    for (std::size_t i = 0; i < dir.n_sets * n_tokens; i++) {
        slots.push_back(i == 2 ? -1 : static_cast<std::int64_t>(i * 5 % n_slots));
    }
    const Shape cache_shape = {n_slots / 4, 4, n_heads, head_dim};
    const auto before = make_words(dir.out, n_slots * n_row, 3);
    write_words(dir, "c.npy", dir.out, cache_shape, before);
    write(dir, "slots.npy", Shape(dir.sizes.begin(), dir.sizes.end() - 2), slots);
    const auto store = dir.command + " --slots slots.npy --cache c.npy --cache-layout nhd";
    const auto scales_among = [&](float others) {
        std::vector<float> all(n_slots * n_heads, others);
        for (std::size_t i = 0; i < slots.size(); i++) {
            if (slots[i] >= 0) {
                std::copy_n(dir.scales.begin() + static_cast<std::ptrdiff_t>(i * n_heads), n_heads,
                            all.begin() + slots[i] * n_heads);
            }
        }
        return all;
    };
    dir.succeed(store);
    CHECK(floats_of(dir / "s.npy") == scales_among(1.0f));
    const auto after = read_words(dir / "y.npy", dir.out, cache_shape);
    std::size_t n_wrong = 0, n_kept = 0;
    for (std::size_t i = 0; i < after.size(); i++) {
        const auto found = std::find(slots.begin(), slots.end(), static_cast<std::int64_t>(i / n_row));
        const auto from = static_cast<std::size_t>(found - slots.begin()) * n_row + i % n_row;
        n_wrong += found != slots.end() ? !dir.is_right(after[i], from) : after[i] != before[i];
        n_kept += found != slots.end() ? 0 : 1;
    }
    CHECK(n_wrong == 0);
    CHECK(n_kept == (n_slots - slots.size() + 1) * n_row);
    // The scales that others have stay.
    write(dir, "s.npy", {n_slots, n_heads}, std::vector<float>(n_slots * n_heads, 0.75f));
    dir.succeed(store);
    CHECK(floats_of(dir / "s.npy") == scales_among(0.75f));
    // Nothing was read from a file of another shape, and nothing written.
    write(dir, "s.npy", {n_heads, n_slots}, scales_among(0.75f));
    std::filesystem::remove(dir / "y.npy");
    dir.fail(1, store);
}

namespace {

constexpr std::int64_t bs = 8, n_pages = 2, n_slots = bs * n_pages;

/// Where a cache's layout has element d of a head in a slot.
struct CacheLayout {
    std::string option;
    Shape shape;
    std::function<std::int64_t(std::int64_t slot, std::int64_t head, std::int64_t d)> index;
};

std::int64_t in_block(std::int64_t slot, std::int64_t head, std::int64_t at) {
    return (slot / bs * n_heads + head) * bs * head_dim + at;
}

const Shape tiles = {n_pages, n_heads, bs *head_dim};

const CacheLayout layouts[] = {
    {"rows",
     {n_slots, n_heads, head_dim},
     [](auto slot, auto head, auto d) { return (slot * n_heads + head) * head_dim + d; }},
    {"nhd",
     {n_pages, bs, n_heads, head_dim},
     [](auto slot, auto head, auto d) { return ((slot / bs * bs + slot % bs) * n_heads + head) * head_dim + d; }},
    {"hnd",
     {n_pages, n_heads, bs, head_dim},
     [](auto slot, auto head, auto d) { return in_block(slot, head, slot % bs * head_dim + d); }},
    {"tile:8,8,0,20,20,0,1", tiles,
     [](auto slot, auto head, auto d) { return in_block(slot, head, slot % bs * head_dim + d); }},
    // Tiles of tokens that follow each other, the last one cut off.
    {"tile:8,3,60,20,20,0,1", tiles,
     [](auto slot, auto head, auto d) { return in_block(slot, head, slot % bs * head_dim + d); }},
    // Transposed blocks.
    {"tile:8,8,0,1,1,8,0", tiles,
     [](auto slot, auto head, auto d) { return in_block(slot, head, d * bs + slot % bs); }},
    // x-split, x = 4.
    {"tile:8,8,0,4,4,32,1", tiles,
     [](auto slot, auto head, auto d) { return in_block(slot, head, d / 4 * 4 * bs + slot % bs * 4 + d % 4); }},
    // Pairs of columns: K as AMX reads it.
    {"tile:8,4,80,2,2,8,1", tiles,
     [](auto slot, auto head, auto d) {
         const auto t = slot % bs;
         return in_block(slot, head, t / 4 * 4 * head_dim + d / 2 * 8 + t % 4 * 2 + d % 2);
     }},
    // Pairs of tokens: V as AMX reads it.
    {"tile:8,2,40,1,1,2,0", tiles,
     [](auto slot, auto head, auto d) {
         const auto t = slot % bs;
         return in_block(slot, head, t / 2 * 2 * head_dim + d * 2 + t % 2);
     }},
};

}  // namespace

TEST_CASE("tool: caches of every layout", "[tool][road]") {
    const ToolFolder dir;
    const auto dtype = GENERATE(as<std::int32_t>{}, HALYARD_F32, HALYARD_BF16);
    const auto out = GENERATE(as<std::int32_t>{}, 0, HALYARD_E4M3, HALYARD_F16);  // 0: X's
    const auto stored = out == 0 ? dtype : out;
    const auto x = make_words(dtype, n_all);
    auto road = rotation(dtype);
    auto &norm = road.norm.emplace();
    norm.size = head_dim;
    norm.eps = 1e-6f;
    const auto want = roads_of(road, decode(dtype, x), n_tokens);
    const auto options = " --norm rms --threads 3" + (out == 0 ? "" : " --out-dtype " + word_of(out));
    const std::vector<std::int32_t> slots = {9, -1, 0, 15, -1};
    write(dir, "i4.npy", {5}, slots);
    write(dir, "i8.npy", {5}, std::vector<std::int64_t>(slots.begin(), slots.end()));
    for (const auto &layout : layouts) {
        CAPTURE(dtype, stored, layout.option);
        auto expected = make_words(stored, n_slots * n_row, 5);
        write_words(dir, "c.npy", stored, layout.shape, expected);
        const auto store = options + " --cache c.npy --cache-layout " + layout.option;
        dir.succeed(rotate(dir, dtype, x) + store + " --slots i4.npy");
        const auto y = read_words(dir / "y.npy", stored, layout.shape);
        std::size_t n_wrong = 0;
        for (std::size_t token = 0; token < n_tokens; token++) {
            for (std::int64_t head = 0; head < n_heads && slots[token] >= 0; head++) {
                for (std::int64_t d = 0; d < head_dim; d++) {
                    const auto at = static_cast<std::size_t>(layout.index(slots[token], head, d));
                    const auto from = token * n_row + static_cast<std::size_t>(head * head_dim + d);
                    n_wrong += !oracle::may_be_stored(stored, y[at], want.value[from], want.bound[from], std::nullopt);
                    expected[at] = y[at];
                }
            }
        }
        CHECK(n_wrong == 0);
        CHECK(y == expected);  // the other slots too
        // The output may be the cache, and slots may have 64 bits.
        dir.succeed(rotate(dir, dtype, x, shape, "c.npy") + store + " --slots i8.npy");
        CHECK(dir.read("c.npy") == dir.read("y.npy"));
    }
}

TEST_CASE("tool: a batch into a cache", "[tool][road]") {
    const ToolFolder dir;
    const auto x = make_words(HALYARD_F32, 2 * n_all);
    write_words(dir, "rows.npy", HALYARD_F32, {2 * n_tokens, n_heads, head_dim}, x);
    write_words(dir, "bshd.npy", HALYARD_F32, {2, n_tokens, n_heads, head_dim}, x);
    Words swapped(x.size());
    for (std::size_t i = 0; i < x.size(); i++) {
        const auto d = i % head_dim, h = i / head_dim % n_heads, t = i / n_row % n_tokens, b = i / n_all;
        swapped[((b * n_heads + h) * n_tokens + t) * head_dim + d] = x[i];
    }
    write_words(dir, "bhsd.npy", HALYARD_F32, {2, n_heads, n_tokens, head_dim}, swapped);
    const std::vector<std::int64_t> slots = {3, 1, 4, -1, 5, 9, 2, 6, 0, -1};
    write(dir, "one.npy", {10}, slots);
    write(dir, "two.npy", {2, 5}, slots);
    write_words(dir, "c.npy", HALYARD_F32, {10, n_heads, head_dim}, make_words(HALYARD_F32, 600));
    write<std::int32_t>(dir, "p.npy", {10}, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
    const std::string store = " -o y.npy --cache c.npy --cache-layout rows --slots ";
    const auto run = [&](const std::string &from, const std::string &options) {
        dir.succeed("rotate " + from + store + options);
        return dir.read("y.npy");
    };
    const auto want = run("rows.npy", "one.npy --positions p.npy");
    CHECK(run("bshd.npy", "two.npy") == want);
    CHECK(run("bhsd.npy", "two.npy --layout bhsd --threads 2") == want);
    CHECK(run("bshd.npy", "two.npy --no-rotation") != want);
    dir.fail(1, "rotate bshd.npy" + store + "one.npy");
    CHECK(dir.read("y.npy") != want);
}

TEST_CASE("tool: without a rotation nothing is asked that says how to rotate", "[tool][road]") {
    const ToolFolder dir;
    write_words(dir, "x.npy", HALYARD_F16, {2, 3, 7}, make_words(HALYARD_F16, 2 * 3 * 7));  // odd heads
    for (const std::string &options :
         Arguments{"", "--in-place", "--positions missing.npy", "--positions 0:99", "--config missing.json",
                   "--cos-sin missing.npy", "--rotary-dim 64", "--rotary-offset 9", "--inverse --base 0"}) {
        dir.succeed("rotate x.npy -o y.npy --no-rotation " + options);
        CHECK(dir.read("y.npy") == dir.read("x.npy"));
    }
}

TEST_CASE("tool: empty arrays take the road too", "[tool][road]") {
    const ToolFolder dir;
    const auto sizes = GENERATE(Shape{0, 4, 8}, Shape{4, 0, 8}, Shape{2, 0, 3, 8}, Shape{0, 2, 3, 8});
    write<float>(dir, "x.npy", sizes, {});
    const std::string rotate = "rotate x.npy -o y.npy --out-dtype int8 ";
    const std::string options = GENERATE("--norm rms --scale 2", "--no-rotation");
    dir.succeed(rotate + options);
    CHECK(read_words(dir / "y.npy", HALYARD_INT8, sizes).empty());
    dir.succeed(rotate + "--scale-dynamic s.npy");
    CHECK(halyard::tool::read_npy(dir / "s.npy", {"<f4"}).shape == Shape(sizes.begin(), sizes.end() - 1));
    const auto heads = sizes[sizes.size() - 2];
    if (heads != 0) {
        write_words(dir, "c.npy", HALYARD_INT8, {2, heads, 8},
                    make_words(HALYARD_INT8, static_cast<std::size_t>(16 * heads)));
        write<std::int32_t>(dir, "slots.npy", Shape(sizes.begin(), sizes.end() - 2), {});
        dir.succeed(rotate + options + " --slots slots.npy --cache c.npy --cache-layout rows");
        CHECK(dir.read("y.npy") == dir.read("c.npy"));
    }
}
