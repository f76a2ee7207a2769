// The command-line tool as its users meet it: exit status, what it prints, and the files that it leaves.
#include "checks/scratch_dir.h"
#include "data/golden.h"
#include "run_tool.h"
#include "tool/files/npy.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using halyard::tool::NpyArray;
using halyard::tool::read_npy;
using halyard::tool::write_npy;
using Shape = std::vector<std::int64_t>;

template <typename Element>
std::string descr_of() {
    if constexpr (std::is_same_v<Element, float>) {
        return "<f4";
    } else if constexpr (std::is_same_v<Element, double>) {
        return "<f8";
    } else if constexpr (std::is_same_v<Element, std::int32_t>) {
        return "<i4";
    } else {
        static_assert(std::is_same_v<Element, std::int64_t>);
        return "<i8";
    }
}

template <typename Element>
std::string write(const ScratchDir &dir, const std::string &name, const Shape &shape,
                  const std::vector<Element> &values, const std::string &descr = descr_of<Element>()) {
    write_npy(dir / name, descr, shape, values.data(), values.size() * sizeof(Element));
    return dir / name;
}

/// Numbers without a pattern, the same in every run.
std::vector<float> make_values(std::size_t n) {
    std::vector<float> values(n);
    std::uint32_t state = 12345;
    for (auto &value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30f;
    }
    return values;
}

std::string bytes_of(const NpyArray &array) {
    return {reinterpret_cast<const char *>(array.data.get()), array.n_bytes};
}

std::string bytes_of(const std::string &path) { return bytes_of(read_npy(path, {"<f4", "<f2", "<u2"})); }

std::vector<float> floats_of(const std::string &path) {
    const auto array = read_npy(path, {"<f4"});
    const auto elements = array.elements<float>();
    return {elements.begin(), elements.end()};
}

Arguments operator+(Arguments left, const Arguments &right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

bool is_device(const std::string &target) { return target == "cuda_sm80" || target == "opencl"; }

/// The CPU's targets that this machine can run, or its devices.
std::vector<std::string> supported_targets(bool devices) {
    std::vector<std::string> names;
    for (const auto &target : nlohmann::json::parse(succeed({"list", "--json"}))) {
        const std::string name = target.at("name");
        if (is_device(name) == devices && target.at("built").get<bool>() && target.at("supported").get<bool>()) {
            names.push_back(name);
        }
    }
    return names;
}

// ---- Storage types, in double -----------------------------------------------------------------------------

struct Storage {
    const char *name;
    const char *descr;
    std::size_t n_bytes;
};
constexpr Storage storages[] = {{"f32", "<f4", 4}, {"f16", "<f2", 2}, {"bf16", "<u2", 2}};

double decode(const Storage &storage, const std::byte *data, std::size_t i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + i * storage.n_bytes, storage.n_bytes);
    if (storage.n_bytes == 4 || storage.name[0] == 'b') {
        return std::bit_cast<float>(storage.n_bytes == 4 ? bits : bits << 16);
    }
    const auto exponent = static_cast<int>(bits >> 10 & 31);
    const auto mantissa = static_cast<double>(bits & 1023);
    const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (bits >> 15) != 0 ? -size : size;
}

/// The distance between neighbours of the type around a value; 0 for f32, whose rounding the bound includes.
double spacing(const Storage &storage, double value) {
    if (storage.n_bytes == 4) {
        return 0;
    }
    const int n_bits = storage.name[0] == 'b' ? 8 : 11;
    const int least = storage.name[0] == 'b' ? -133 : -24;
    return std::ldexp(1.0, std::max(value == 0 ? least : std::ilogb(value) + 1 - n_bits, least));
}

}  // namespace

namespace {

/// Every golden case of every dtype, in place and out of place.
void check_golden_cases(const std::vector<std::string> &targets) {
    const golden::Section section("apply");
    const ScratchDir dir;
    for (const auto &test : section.cases()) {
        const std::string name = test.at("name");
        CAPTURE(name);
        const std::int64_t n_tokens = test.at("tokens"), n_heads = test.at("heads"), head_dim = test.at("head_dim");
        const std::int64_t rotary_dim = test.at("rotary_dim"), offset = test.at("offset");
        const double base = test.at("base"), factor = test.at("attention_factor");
        const auto positions = section.array<std::int64_t>(test.at("positions"));
        Arguments options = {"--positions",     write(dir, "p.npy", positions.shape, positions.values),
                             "--rotary-dim",    std::to_string(rotary_dim),
                             "--rotary-offset", std::to_string(offset),
                             "--pairing",       test.at("pairing")};
        if (factor == 1.0) {
            options = options + Arguments{"--base", nlohmann::json(base).dump()};
        } else {
            std::vector<double> inv_freq;
            for (std::int64_t k = 0; k < rotary_dim / 2; ++k) {
                inv_freq.push_back(std::pow(base, -2.0 * static_cast<double>(k) / static_cast<double>(rotary_dim)));
            }
            options = options + Arguments{"--inv-freq", write(dir, "f.npy", {rotary_dim / 2}, inv_freq),
                                          "--attention-factor", nlohmann::json(factor).dump()};
        }
        if (test.at("inverse").get<bool>()) {
            options.push_back("--inverse");
        }
        const bool half = test.at("pairing") == "half";
        for (const auto &storage : storages) {
            CAPTURE(storage.name);
            const std::string key = storage.name;
            const Shape shape = {n_tokens, n_heads, head_dim};
            std::vector<std::byte> want;
            std::string x_path;
            const auto load = [&](const auto &x, const auto &y) {
                want.resize(y.values.size() * storage.n_bytes);
                std::memcpy(want.data(), y.values.data(), want.size());
                x_path = write(dir, "x.npy", shape, x.values, storage.descr);
            };
            if (storage.n_bytes == 4) {
                load(section.array<float>(test.at("x_" + key)), section.array<float>(test.at("y_" + key)));
            } else {
                load(section.array<std::uint16_t>(test.at("x_" + key)),
                     section.array<std::uint16_t>(test.at("y_" + key)));
            }
            const auto x = read_npy(x_path, {storage.descr});
            for (const auto &target : targets) {
                CAPTURE(target);
                const auto rotate = Arguments{"rotate", x_path, "--dtype", key, "--target", target} + options;
                CHECK(succeed(rotate + Arguments{"-o", dir / "y.npy"}) == "");
                succeed(rotate + Arguments{"-o", dir / "in_place.npy", "--in-place"});
                const auto y = read_npy(dir / "y.npy", {storage.descr});
                REQUIRE(y.shape == shape);
                CHECK(bytes_of(y) == bytes_of(dir / "in_place.npy"));
                double worst = 0;  // in units of the bound
                for (std::size_t row = 0; row < static_cast<std::size_t>(n_tokens * n_heads); ++row) {
                    for (std::size_t column = 0; column < static_cast<std::size_t>(head_dim); ++column) {
                        const auto at = row * static_cast<std::size_t>(head_dim) + column;
                        const auto in_window = static_cast<std::int64_t>(column) - offset;
                        if (in_window < 0 || in_window >= rotary_dim) {
                            REQUIRE(std::memcmp(y.data.get() + at * storage.n_bytes,
                                                x.data.get() + at * storage.n_bytes, storage.n_bytes) == 0);
                            continue;
                        }
                        const auto n_pairs = static_cast<std::size_t>(rotary_dim / 2);
                        const auto start = at - static_cast<std::size_t>(in_window);
                        const auto within = static_cast<std::size_t>(in_window);
                        const auto first = start + (half ? within % n_pairs : within / 2 * 2);
                        const double size = std::hypot(decode(storage, x.data.get(), first),
                                                       decode(storage, x.data.get(), first + (half ? n_pairs : 1)));
                        const double exact = decode(storage, want.data(), at);
                        // Both answers were rounded to the type: half a spacing each.
                        const double bound = 0x1p-22 * size * factor + 0x1p-149 + spacing(storage, exact);
                        worst = std::max(worst, std::fabs(decode(storage, y.data.get(), at) - exact) / bound);
                    }
                }
                CHECK(worst <= 1.0);
            }
        }
    }
}

}  // namespace

TEST_CASE("tool: golden cases on every target, in place and out of place", "[tool]") {
    auto targets = supported_targets(false);
    if (!std::string_view(HALYARD_TOOL_LAUNCHER).empty()) {
        std::erase(targets, "reference");  // an emulated process takes a hundred times as long to start
    }
    REQUIRE(!targets.empty());
    check_golden_cases(targets);
}

TEST_CASE("tool: golden cases on devices, in place and out of place", "[tool][gpu]") {
    const auto targets = supported_targets(true);
    if (targets.empty()) {
        SKIP("no CUDA or OpenCL device is to be had");
    }
    check_golden_cases(targets);
}

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
    CHECK(json.size() == 5);
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
    const auto short_context = succeed({"frequencies", "--config", phi3, "--seq-len", "4096"});
    CHECK(short_context == succeed({"frequencies", "--config", phi3}));
    CHECK(short_context != succeed({"frequencies", "--config", phi3, "--seq-len", "4097"}));

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
    const std::vector<Arguments> all_options = {
        Arguments{"--config", gptj, "--rotary-dim", "32"},
        Arguments{"--config", folder + "/llama-2-7b.json"},
        Arguments{"--config", gemma},
        Arguments{"--config", gemma, "--layer-type", "global"},
        Arguments{"--config", gptj, "--layer-type", "full_attention"},
        Arguments{"--config", deepseek, "--in-place"},
        Arguments{"--config", dir / "missing.json"},
        Arguments{"--config", dir / "folder"},
        Arguments{"--config", "/dev/zero"},
        Arguments{"--config", big},
        Arguments{"--config", x},
        Arguments{"--config", dir.write("empty.json", "")},
        Arguments{"--config", dir.write("text.json", "rope_theta: 1")},
        Arguments{"--config", dir.write("deep.json", std::string(100000, '['))},
        Arguments{"--config", dir.write("bert.json", R"({"model_type": "bert", "hidden_size": 64})")},
        Arguments{"--config", dir.write("base.json", R"({"head_dim": 64, "rope_theta": -1})")}};
    for (const auto &options : all_options) {
        check_fails(1, Arguments{"rotate", x, "-o", y} + options, dir);
    }
    check_fails(1, {"frequencies", "--config", gptj, "--rotary-dim", "32"}, dir);
    check_fails(1, {"angles", "--config", gemma, "--positions", "0:3", "-o", y}, dir);
    check_fails(2, {"frequencies", "--rotary-dim", "8", "--seq-len", "8"}, dir);
    check_fails(2, {"frequencies", "--config", gptj, "--base", "10000"}, dir);
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
    for (const auto *command : {"list", "explain", "rotate", "angles", "frequencies", "plot"}) {
        CHECK(succeed({command, "--help"}).find(command) != std::string::npos);
    }
}

TEST_CASE("tool: wrong usage has exit status 2", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    const auto f = write<double>(dir, "f.npy", {4}, {1, 2, 3, 4});
    const auto cs = write(dir, "cs.npy", {3, 2, 4}, make_values(24));
    const auto p = write<std::int32_t>(dir, "p.npy", {3}, {1, 2, 3});

    check_fails(2, {}, dir);
    check_fails(2, {"spin"}, dir);
    check_fails(2, {"--spin"}, dir);
    check_fails(2, {"list", "--yaml"}, dir);
    check_fails(2, {"list", "more"}, dir);
    check_fails(2, {"list", "explain"}, dir);
    check_fails(2, {"rotate"}, dir);
    check_fails(2, {"rotate", x}, dir);
    check_fails(2, {"rotate", "-o", dir / "y.npy"}, dir);
    check_fails(2, {"angles", "--rotary-dim", "8", "-o", dir / "y.npy"}, dir);
    check_fails(2, {"angles", "--rotary-dim", "8", "--positions", "0:3"}, dir);
    check_fails(2, {"angles", "--positions", "0:3", "-o", dir / "y.npy"}, dir);
    check_fails(2, {"frequencies"}, dir);
    check_fails(2, {"frequencies", "--base", "100"}, dir);
    check_fails(2, {"explain", "--head-dim", "big"}, dir);
    check_fails(2, {"explain", "--dtype", "f64"}, dir);

    const std::vector<Arguments> all_options = {Arguments{"--spin"},
                                                Arguments{"extra.npy"},
                                                Arguments{"--base"},
                                                Arguments{"--base", "ten"},
                                                Arguments{"--base", "1e4x"},
                                                Arguments{"--base", "nan"},
                                                Arguments{"--base", "inf"},
                                                Arguments{"--base", "1e999"},
                                                Arguments{"--base", ""},
                                                Arguments{"--base", "100", "--base", "100"},
                                                Arguments{"--base", "100", "--inv-freq", f},
                                                Arguments{"--base", "100", "--config", "config.json"},
                                                Arguments{"--inv-freq", f, "--config", "config.json"},
                                                Arguments{"--inv-freq", ""},
                                                Arguments{"--attention-factor", "1.5"},
                                                Arguments{"--inv-freq", f, "--attention-factor", "much"},
                                                Arguments{"--rotary-dim", "8.0"},
                                                Arguments{"--rotary-dim", "99999999999999999999"},
                                                Arguments{"--rotary-dim", "0x8"},
                                                Arguments{"--rotary-offset", "one"},
                                                Arguments{"--pairing", "Half"},
                                                Arguments{"--pairing", "neox"},
                                                Arguments{"--out-pairing", ""},
                                                Arguments{"--in-place", "--out-pairing", "interleaved"},
                                                Arguments{"--dtype", "f64"},
                                                Arguments{"--layout", "sbhd"},
                                                Arguments{"--threads", "0"},
                                                Arguments{"--threads", "1025"},
                                                Arguments{"--threads", "-1"},
                                                Arguments{"--threads", "two"},
                                                Arguments{"--bad-position", "wrap"},
                                                Arguments{"--max-position", "0"},
                                                Arguments{"--max-position", "2147483649"},
                                                Arguments{"--max-position", "x"},
                                                Arguments{"--angles", "exact"},
                                                Arguments{"--reference", "torch"},
                                                Arguments{"--axis-map", "16,24,24"},
                                                Arguments{"--axis-map", "sections:"},
                                                Arguments{"--axis-map", "sections:1,,2"},
                                                Arguments{"--seq-len", "long"},
                                                Arguments{"--seq-len", "4096"},
                                                Arguments{"--layer-type", "full_attention"},
                                                Arguments{"--config", "config.json", "--seq-len", "0"},
                                                Arguments{"--config", "config.json", "--layer-type", ""},
                                                Arguments{"--config", "config.json", "--attention-factor", "1"},
                                                Arguments{"--config", ""},
                                                Arguments{"--cos-sin", cs, "--config", "config.json"},
                                                Arguments{"--target", ""},
                                                Arguments{"--positions", ":"},
                                                Arguments{"--positions", "0:"},
                                                Arguments{"--positions", ":3"},
                                                Arguments{"--positions", "0:3:1"},
                                                Arguments{"--positions", "0:x"},
                                                Arguments{"--positions", "0.0:3.0"},
                                                Arguments{"--positions", "3:0"},
                                                Arguments{"--positions", ""},
                                                Arguments{"--positions", "0: 3"},
                                                Arguments{"--positions", "2147483646:2147483649"},
                                                Arguments{"--positions", "-2147483649:-2147483646"},
                                                Arguments{"--positions", "99999999999999999999:3"},
                                                Arguments{"--cos-sin", cs, "--positions", p},
                                                Arguments{"--cos-sin", cs, "--base", "100"},
                                                Arguments{"--cos-sin", cs, "--inv-freq", f},
                                                Arguments{"--cos-sin", cs, "--max-position", "5"},
                                                Arguments{"--cos-sin", cs, "--angles", "table"}};
    for (const auto &options : all_options) {
        check_fails(2, Arguments{"rotate", x, "-o", dir / "y.npy"} + options, dir);
    }
}

TEST_CASE("tool: what can't be carried out has exit status 1", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    const auto p = write<std::int32_t>(dir, "p.npy", {3}, {1, 2, 3});
    const auto f = write<double>(dir, "f.npy", {4}, {1, 2, 3, 4});
    const Arguments frequencies = {"--rotary-dim", "8"};

    SECTION("the file") {
        const auto bytes = dir.read("x.npy");
        const std::vector<std::string> inputs = {
            dir / "missing.npy",
            dir / "",
            "/dev/null",
            dir.write("empty.npy", ""),
            dir.write("text.npy", "hello"),
            dir.write("short.npy", bytes.substr(0, bytes.size() - 1)),
            dir.write("long.npy", bytes + "x"),
            write<double>(dir, "f8.npy", {3, 2, 8}, std::vector<double>(48)),
            write<float>(dir, "big_endian.npy", {3, 2, 8}, make_values(48), ">f4"),
            write<float>(dir, "two.npy", {6, 8}, make_values(48)),
            write<float>(dir, "five.npy", {1, 1, 3, 2, 8}, make_values(48)),
            write<float>(dir, "odd.npy", {3, 2, 7}, make_values(42)),
            write<float>(dir, "no_columns.npy", {3, 2, 0}, {}),
            write<float>(dir, "untyped.npy", {3, 4, 8}, make_values(48), "<u2"),
            dir / "line\nbreak\x1b.npy",
            dir.write("fortran.npy", std::string(bytes).replace(bytes.find("False"), 5, "True "))};
        for (const auto &input : inputs) {
            check_fails(1, {"rotate", input, "-o", dir / "y.npy"}, dir);
        }
    }

    SECTION("the options with it") {
        const auto f2 = write<float>(dir, "f2.npy", {3, 4, 8}, make_values(48), "<f2");
        check_fails(1, {"rotate", f2, "-o", dir / "y.npy", "--dtype", "f32"}, dir);
        check_fails(1, {"rotate", f2, "-o", dir / "y.npy", "--dtype", "bf16"}, dir);
        const auto long_list = write<double>(dir, "long.npy", {5}, {1, 2, 3, 4, 5});
        const std::vector<Arguments> all_options = {
            Arguments{"--dtype", "f16"},
            Arguments{"--layout", "bhsd"},
            Arguments{"--rotary-dim", "7"},
            Arguments{"--rotary-dim", "0"},
            Arguments{"--rotary-dim", "-2"},
            Arguments{"--rotary-dim", "10"},
            Arguments{"--rotary-offset", "2"},
            Arguments{"--rotary-offset", "-2", "--rotary-dim", "4"},
            Arguments{"--rotary-offset", "9223372036854775807", "--rotary-dim", "4"},
            Arguments{"--base", "0"},
            Arguments{"--base", "-1"},
            Arguments{"--inv-freq", "missing.npy"},
            Arguments{"--inv-freq", long_list},
            Arguments{"--inv-freq", long_list, "--rotary-dim", "8"},
            Arguments{"--inv-freq", write<double>(dir, "nan.npy", {4}, {1, 2, std::nan(""), 3})},
            Arguments{"--inv-freq", write<double>(dir, "square.npy", {2, 2}, {1, 2, 3, 4})},
            Arguments{"--inv-freq", p},
            Arguments{"--inv-freq", f, "--attention-factor", "0"},
            Arguments{"--positions", "missing.npy"},
            Arguments{"--positions", "0:4"},
            Arguments{"--positions", "0:2"},
            Arguments{"--positions", x},
            Arguments{"--positions", write<std::int32_t>(dir, "p2.npy", {2}, {1, 2})},
            Arguments{"--positions", write<std::int32_t>(dir, "p0.npy", {}, {1})},
            Arguments{"--positions", write<std::int32_t>(dir, "rows.npy", {2, 3}, {1, 2, 3, 4, 5, 6})},
            Arguments{"--positions", write<std::int32_t>(dir, "axes.npy", {1, 1, 3}, {1, 2, 3})},
            Arguments{"--cos-sin", "missing.npy"},
            Arguments{"--cos-sin", p},
            Arguments{"--cos-sin", write(dir, "cs2.npy", {2, 2, 4}, make_values(16))},
            Arguments{"--cos-sin", write(dir, "cs3.npy", {3, 3, 4}, make_values(36))},
            Arguments{"--cos-sin", write(dir, "cs5.npy", {3, 2, 5}, make_values(30))},
            Arguments{"--cos-sin", write<float>(dir, "cs0.npy", {3, 2, 0}, {})},
            Arguments{"--cos-sin", write(dir, "cs4.npy", {3, 2, 4}, make_values(24)), "--rotary-dim", "6"},
            Arguments{"--target", "x86_nothing"},
            Arguments{"--target", "cuda_sm80"}};
        for (const auto &options : all_options) {
            check_fails(1, Arguments{"rotate", x, "-o", dir / "y.npy"} + options, dir);
        }
    }

    SECTION("the output") {
        std::filesystem::create_directory(dir / "folder");
        const std::vector<std::string> outputs = {
            dir / "folder",      dir / "folder/",     dir / "missing/y.npy",      "/dev/null",
            dir / "x.npy/y.npy", "/proc/halyard.npy", dir / std::string(300, 'y')};
        for (const auto &output : outputs) {
            check_fails(1, {"rotate", x, "-o", output}, dir);
            CHECK(std::filesystem::is_empty(dir / "folder"));
            check_fails(1, Arguments{"angles", "--positions", p, "-o", output} + frequencies, dir);
        }
    }

    SECTION("angles and frequencies") {
        const auto rows = write<std::int32_t>(dir, "rows.npy", {1, 3}, {1, 2, 3});
        const auto beyond = write<std::int64_t>(dir, "beyond.npy", {1}, {std::int64_t(1) << 31});
        check_fails(1, Arguments{"angles", "--positions", rows, "-o", dir / "y.npy"} + frequencies, dir);
        check_fails(1, Arguments{"angles", "--positions", beyond, "-o", dir / "y.npy"} + frequencies, dir);
        check_fails(1, {"angles", "--positions", p, "-o", dir / "y.npy", "--rotary-dim", "7"}, dir);
        check_fails(1, {"frequencies", "--rotary-dim", "7"}, dir);
        check_fails(1, {"frequencies", "--rotary-dim", "6", "--inv-freq", f}, dir);
        check_fails(1, {"frequencies", "--inv-freq", dir / "missing.npy"}, dir);
        check_fails(1, {"explain", "--rotary-dim", "256"}, dir);
    }

    SECTION("axes, sources and references") {
        const auto axes = write<std::int32_t>(dir, "axes.npy", {3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
        const std::vector<Arguments> all_options = {Arguments{"--axis-map", "sections:2,1,2", "--positions", axes},
                                                    Arguments{"--axis-map", "sections:2,1,-1", "--positions", axes},
                                                    Arguments{"--axis-map", "sections:2,2", "--positions", axes},
                                                    Arguments{"--axis-map", "sections:0,0,0,2,2", "--positions", axes},
                                                    Arguments{"--axis-map", "interleaved:0,4,0", "--positions", axes},
                                                    Arguments{"--axis-map", "sections:2,1,1", "--positions", p},
                                                    Arguments{"--axis-map", "sections:2,1,1", "--positions", "0:3"},
                                                    Arguments{"--positions", axes},
                                                    Arguments{"--angles", "phase", "--reference", "hf_f32"},
                                                    Arguments{"--angles", "factored", "--reference", "hf_f32"}};
        for (const auto &options : all_options) {
            check_fails(1, Arguments{"rotate", x, "-o", dir / "y.npy"} + options, dir);
        }
    }
}

/// The largest error of y over the golden exact result, in 2^-23 of the pair's length, for heads that are rotated
/// whole.
double worst_error(const std::vector<float> &y, const std::vector<float> &exact, const std::vector<float> &x,
                   std::size_t head_dim, bool half, bool half_out) {
    const std::size_t n_pairs = head_dim / 2;
    const auto member = [&](bool is_half, std::size_t pair, std::size_t which) {
        return is_half ? pair + which * n_pairs : 2 * pair + which;
    };
    double worst = 0.0;
    for (std::size_t head = 0; head < x.size(); head += head_dim) {
        for (std::size_t pair = 0; pair < n_pairs; ++pair) {
            const double length = std::hypot(static_cast<double>(x[head + member(half, pair, 0)]),
                                             static_cast<double>(x[head + member(half, pair, 1)]));
            for (std::size_t which = 0; which < 2; ++which) {
                const auto at = head + member(half_out, pair, which);
                worst = std::max(worst, std::fabs(static_cast<double>(y[at]) - exact[at]) / (length * 0x1p-23));
            }
        }
    }
    return worst;
}

TEST_CASE("tool: golden positions with several axes, from every source of angles", "[tool][golden]") {
    const golden::Section section("mrope");
    const ScratchDir dir;
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const auto x = section.array<float>(test.at("x")), exact = section.array<float>(test.at("y_exact"));
        const auto positions = section.array<std::int64_t>(test.at("positions"));
        const std::size_t head_dim = test.at("head_dim");
        std::string map = test.at("kind") == "interleaved_axes" ? "interleaved" : "sections";
        char separator = ':';
        for (const auto &count : test.at("section")) {
            map += separator;
            map += count.dump();
            separator = ',';
        }
        std::vector<double> inv_freq;
        const double base = test.at("base"), freq_dim = test.at("freq_dim");
        for (const double index : test.at("inv_freq_index")) {
            inv_freq.push_back(std::pow(base, -2.0 * index / freq_dim));
        }
        const auto rotate = Arguments{"rotate",      write(dir, "x.npy", x.shape, x.values),
                                      "-o",          dir / "y.npy",
                                      "--positions", write(dir, "p.npy", positions.shape, positions.values)};
        const auto listed = Arguments{"--inv-freq", write(dir, "f.npy", {std::ssize(inv_freq)}, inv_freq)};
        for (const auto &target : supported_targets(true)) {
            for (const char *angles : {"table", "phase"}) {
                CAPTURE(target, angles);
                succeed(rotate + listed + Arguments{"--axis-map", map, "--angles", angles, "--target", target});
                CHECK(worst_error(floats_of(dir / "y.npy"), exact.values, x.values, head_dim, true, true) <= 2.0);
            }
        }
        for (const char *angles : {"auto", "table", "phase", "factored"}) {
            CAPTURE(angles);
            succeed(rotate + listed + Arguments{"--axis-map", map, "--angles", angles});
            const double bound = std::string(angles) == "factored" ? 4.0 : 2.0;
            CHECK(worst_error(floats_of(dir / "y.npy"), exact.values, x.values, head_dim, true, true) <= bound);
        }
        for (const char *form : {"config_old", "config_new"}) {
            if (test.at(form).is_string()) {  // the config brings the axis map too
                succeed(rotate + Arguments{"--config", std::string(HALYARD_GOLDEN_DIR) + "/mrope/" +
                                                           test.at(form).get<std::string>()});
                CHECK(worst_error(floats_of(dir / "y.npy"), exact.values, x.values, head_dim, true, true) <= 2.0);
            }
        }
    }
}

TEST_CASE("tool: golden hf_apply on the best target and on devices", "[tool][golden]") {
    const golden::Section section("hf_apply"), frequencies("frequencies");
    const ScratchDir dir;
    auto targets = supported_targets(true);
    targets.push_back(supported_targets(false).front());
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const auto model = std::find_if(frequencies.cases().begin(), frequencies.cases().end(),
                                        [&](const auto &c) { return c.at("name") == test.at("frequencies_case"); });
        REQUIRE(model != frequencies.cases().end());
        const auto &evaluation = model->at("evaluations").at(0);
        const auto inv_freq = frequencies.array<double>(evaluation.at("inv_freq_exact_f64"));
        const double factor = evaluation.at("attention_factor_exact_f64");
        const auto positions = section.array<std::int64_t>(test.at("positions"));
        const std::size_t head_dim = test.at("head_dim"), rotary_dim = test.at("rotary_dim"),
                          offset = test.at("offset");
        const Arguments options = {"--positions",        write(dir, "p.npy", positions.shape, positions.values),
                                   "--inv-freq",         write(dir, "f.npy", inv_freq.shape, inv_freq.values),
                                   "--attention-factor", nlohmann::json(factor).dump(),
                                   "--rotary-dim",       std::to_string(rotary_dim),
                                   "--rotary-offset",    std::to_string(offset),
                                   "--pairing",          test.at("pairing"),
                                   "--out-pairing",      test.at("out_layout")};
        // Of each head, the columns from first on.
        const auto columns = [&](const std::vector<float> &values, std::size_t first, std::size_t n) {
            std::vector<float> picked;
            for (std::size_t head = 0; head < values.size(); head += head_dim) {
                const auto at = values.begin() + static_cast<std::ptrdiff_t>(head + first);
                picked.insert(picked.end(), at, at + static_cast<std::ptrdiff_t>(n));
            }
            return picked;
        };
        for (const std::string name : {"q", "k"}) {
            const auto x = section.array<float>(test.at(name)), exact = section.array<float>(test.at(name + "_exact"));
            for (const auto &target : targets) {
                CAPTURE(name, target);
                succeed(Arguments{"rotate", write(dir, "x.npy", x.shape, x.values), "-o", dir / "y.npy", "--target",
                                  target} +
                        options);
                const auto y = floats_of(dir / "y.npy");
                const double worst =
                    worst_error(columns(y, offset, rotary_dim), columns(exact.values, offset, rotary_dim),
                                columns(x.values, offset, rotary_dim), rotary_dim, test.at("pairing") == "half",
                                test.at("out_layout") == "half");
                CHECK(worst <= 2.0 * factor);
                const std::size_t after = offset + rotary_dim;
                CHECK(columns(y, 0, offset) == columns(x.values, 0, offset));
                CHECK(columns(y, after, head_dim - after) == columns(x.values, after, head_dim - after));
            }
        }
    }
}

TEST_CASE("tool: hf_f32 gives Hugging Face's own cos and sin", "[tool][golden]") {
    const golden::Section section("hf_apply"), frequencies("frequencies");
    const ScratchDir dir;
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const auto cos = section.array<float>(test.at("cos")), sin = section.array<float>(test.at("sin"));
        const auto positions = section.array<std::int64_t>(test.at("positions"));
        const auto model = std::find_if(frequencies.cases().begin(), frequencies.cases().end(),
                                        [&](const auto &c) { return c.at("name") == test.at("frequencies_case"); });
        REQUIRE(model != frequencies.cases().end());
        const auto inv_freq = frequencies.array<float>(model->at("evaluations").at(0).at("inv_freq_hf_f32"));
        const double factor = test.at("attention_factor");
        succeed({"angles", "-o", dir / "cs.npy", "--reference", "hf_f32", "--attention-factor",
                 nlohmann::json(factor).dump(), "--inv-freq", write(dir, "f.npy", inv_freq.shape, inv_freq.values),
                 "--positions", write(dir, "p.npy", positions.shape, positions.values)});
        const auto rows = floats_of(dir / "cs.npy");
        const std::size_t n_pairs = inv_freq.values.size(), width = cos.values.size() / positions.values.size();
        std::int64_t worst = 0;
        for (std::size_t t = 0; t < positions.values.size(); ++t) {
            for (std::size_t k = 0; k < n_pairs; ++k) {
                const auto ulps = [](float a, float b) {
                    return std::abs(std::int64_t{std::bit_cast<std::int32_t>(a)} - std::bit_cast<std::int32_t>(b));
                };
                worst = std::max({worst, ulps(rows[2 * t * n_pairs + k], cos.values[t * width + k]),
                                  ulps(rows[(2 * t + 1) * n_pairs + k], sin.values[t * width + k])});
            }
        }
        CHECK(worst <= 1);
    }
}

TEST_CASE("tool: a failure leaves an existing output alone", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {3, 2, 8}, make_values(48));
    dir.write("y.npy", "precious");
    check_fails(1, {"rotate", x, "-o", dir / "y.npy", "--rotary-dim", "10"}, dir);
    check_fails(1, {"rotate", x, "-o", dir / "y.npy", "--max-position", "1"}, dir);
    CHECK(dir.read("y.npy") == "precious");
    succeed({"rotate", x, "-o", dir / "y.npy"});
    const auto y = bytes_of(dir / "y.npy");
    // The output may be the input.
    succeed({"rotate", x, "-o", x});
    CHECK(bytes_of(x) == y);
    CHECK(dir.count_entries() == 2);
}

TEST_CASE("tool: killed at any moment, it leaves a whole output, the old one or the new one", "[tool]") {
    const ScratchDir dir;
    const auto x = write(dir, "x.npy", {2048, 8, 128}, make_values(2048 * 8 * 128));
    const Arguments rotate = {"rotate", x, "-o", dir / "y.npy"};
    const Arguments kinds[] = {rotate, rotate + Arguments{"--inverse"}};
    std::string whole[2];
    std::chrono::nanoseconds usual{0};
    for (int kind = 0; kind < 2; kind++) {
        const auto start = std::chrono::steady_clock::now();
        succeed(kinds[kind]);
        usual = std::chrono::steady_clock::now() - start;
        whole[kind] = dir.read("y.npy");
    }
    int n_killed = 0;
    for (int i = 0; i < 24; i++) {
        const bool was_there = std::filesystem::exists(dir / "y.npy");
        n_killed += run_tool(kinds[i % 2], "", usual * i / 24).status == 128 + SIGKILL ? 1 : 0;
        CAPTURE(i, n_killed);
        if (was_there || std::filesystem::exists(dir / "y.npy")) {
            const auto y = dir.read("y.npy");
            CHECK((y == whole[0] || y == whole[1]));
        }
        if (i % 3 == 0) {
            std::filesystem::remove(dir / "y.npy");
        }
    }
    CHECK(n_killed > 0);
}

TEST_CASE("tool: a broken standard output is an error", "[tool]") {
    if (!std::filesystem::exists("/dev/full")) {
        SKIP("there is no /dev/full here");
    }
    const auto arguments = GENERATE(Arguments{"list"}, Arguments{"list", "--json"}, Arguments{"explain"},
                                    Arguments{"frequencies", "--rotary-dim", "8"}, Arguments{"--help"});
    const auto result = run_tool(arguments, "/dev/full");
    CHECK(result.status == 1);
    CHECK(result.errors.starts_with("halyard: "));
}
