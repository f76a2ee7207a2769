// The exact bytes of special cases: records of quantised groups, written by hand from each format's description;
// non-finite elements, ties and extreme scales; norms of such numbers. test_kv_path.cpp has random calls.
#include "checks/record_oracle.h"
#include "checks/rotate.h"
#include "checks/sized.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

using Bytes = std::vector<unsigned char>;
using Bits = std::vector<std::uint32_t>;

/// Shows bytes in hexadecimal.
template <>
struct Catch::StringMaker<Bytes> {
    static std::string convert(const Bytes &bytes) {
        std::ostringstream text;
        for (const unsigned char byte : bytes) {
            text << std::hex << std::setw(3) << int{byte};
        }
        return text.str();
    }
};

namespace {

constexpr auto &preset = halyard::describe_groups;

/// The stored elements or records of heads, and their scales if those lie outside of the records.
struct Stored {
    Bytes record, scales;
    bool operator==(const Stored &) const = default;
};

/// Stores unrotated heads of head_dim elements, densely.
Stored store(halyard_kv_desc kv, const std::vector<float> &heads, std::int64_t head_dim, const char *target) {
    const std::int64_t n = std::ssize(heads) / head_dim;
    std::int64_t bytes = head_dim * oracle::element_bytes(kv.out_dtype), scales = 4, width = head_dim;
    if (kv.groups != nullptr) {
        const oracle::Record record = oracle::record_of(*kv.groups, head_dim);
        bytes = width = record.bytes;
        scales = record.scales_apart ? std::max(record.dense_scales_bytes(), kv.groups->scales_stride_head) : 0;
    }
    Stored stored = {Bytes(static_cast<std::size_t>(n * bytes), 0xa5),
                     Bytes(static_cast<std::size_t>(n * scales), 0xa5)};
    auto desc = halyard::describe_tensor(halyard::dtype::f32, head_dim);
    kv.no_rotation = 1;
    desc.kv = &kv;
    halyard::plan_desc plan(0, {desc});
    plan.target = target;
    auto stages = halyard::stages();
    stages.group_scales = kv.groups != nullptr && scales != 0 ? stored.scales.data() : nullptr;
    stages.scales_out = kv.scale != nullptr ? reinterpret_cast<float *>(stored.scales.data()) : nullptr;
    const auto kv_args = halyard::kv_args(&stages);
    halyard::run(halyard::plan(plan), halyard::angle_source(),
                 halyard::input_tensor(heads.data(), halyard::dtype::f32, {1, 1, n, head_dim}),
                 halyard::tensor(stored.record.data(), static_cast<halyard::dtype>(kv.out_dtype), {1, 1, n, width}),
                 halyard::run_options().with(kv_args));
    return stored;
}
Stored store(const halyard_groups_desc &groups, const std::vector<float> &heads, std::int64_t head_dim,
             const char *target) {
    auto kv = sized<halyard_kv_desc>();
    kv.groups = &groups;
    kv.out_dtype = HALYARD_UINT8;
    return store(kv, heads, head_dim, target);
}

/// Norms, scales and converts one head. Returns the bits of each element.
Bits convert(const halyard_norm_desc *norm, const halyard_scale_desc *scale, std::int32_t out_dtype,
             const std::vector<float> &x, const char *target, float *scale_out = nullptr) {
    auto kv = sized<halyard_kv_desc>();
    kv.out_dtype = out_dtype;
    kv.norm = norm;
    kv.scale = scale;
    const Stored stored = store(kv, x, std::ssize(x), target);
    if (scale_out != nullptr) {
        std::memcpy(scale_out, stored.scales.data(), sizeof(*scale_out));
    }
    Bits words;
    for (std::int64_t at = 0; at < std::ssize(stored.record); at += oracle::element_bytes(out_dtype)) {
        words.push_back(oracle::read_word(out_dtype, stored.record.data() + at));
    }
    return words;
}

/// A head of zeros, except for the given elements.
std::vector<float> head_of(std::size_t n, const std::vector<std::pair<std::size_t, float>> &elements) {
    std::vector<float> head(n);
    for (const auto &[at, value] : elements) {
        head[at] = value;
    }
    return head;
}

/// A record of n equal bytes, except for the given pieces.
Bytes bytes_of_record(std::size_t n, const std::vector<std::pair<std::size_t, Bytes>> &pieces,
                      unsigned char others = 0) {
    Bytes bytes(n, others);
    for (const auto &[at, piece] : pieces) {
        std::copy(piece.begin(), piece.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return bytes;
}

constexpr unsigned char minus(int n) { return static_cast<unsigned char>(256 - n); }

}  // namespace

TEST_CASE("groups: the records of ggml", "[kv][groups]") {
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        // block_q8_0: f16 d, int8 qs[32]. With 127 as the largest, d and its reciprocal are 1.
        const auto head = head_of(64, {{0, 127.0f}, {1, -127.0f}, {2, 62.5f}, {3, 63.5f}, {31, -0.75f}, {40, -254.0f}});
        const Bytes even = bytes_of_record(68, {{0, {0x00, 0x3c, 127, minus(127), 62, 64}},
                                                {33, {minus(1)}},
                                                {34, {0x00, 0x40}},
                                                {34 + 2 + 8, {minus(127)}}});
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0), head, 64, target).record == even);
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0_NEON), head, 64, target).record == even);
        Bytes away = even;
        away[2 + 2] = 63;
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0_REFERENCE), head, 64, target).record == away);
        // 12.75 / 127 = 0.1003937 is 0x2e6d in f16. 6.375 is half of the largest. Multiplied by 127 / 12.75, it is less
        // than 63.5; multiplied by 1 / (12.75 / 127), it is not.
        const auto other = head_of(32, {{5, 12.75f}, {6, 6.375f}});
        const Bytes x86 = bytes_of_record(34, {{0, {0x6d, 0x2e}}, {7, {127, 63}}});
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0), other, 32, target).record == x86);
        Bytes neon = x86;
        neon[8] = 64;
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0_NEON), other, 32, target).record == neon);
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0_REFERENCE), other, 32, target).record == neon);
        // block_q4_0: f16 d = largest / -8, with its sign; nibbles j and j + 16 share a byte; 0 is stored as 8.
        const auto fours = head_of(32, {{0, -8.0f}, {1, 7.0f}, {2, 7.9f}, {15, 0.5f}, {16, 1.0f}, {17, 8.0f}});
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q4_0), fours, 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0x3c, 0x90, 0xff, 0x8f}}, {17, {0x89}}}, 0x88));
        const auto positive = head_of(32, {{3, 4.0f}, {20, -4.0f}});  // of equal magnitudes the first counts: d = -0.5
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q4_0), positive, 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0xb8}}, {2 + 3, {0x80}}, {2 + 4, {0xf8}}}, 0x88));
    }
}

TEST_CASE("groups: the records of vLLM and OpenVINO", "[kv][groups]") {
    const Bytes one = {0x00, 0x00, 0x80, 0x3f};
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        // An f32 scale per head, outside of the records: largest / 127 or / 448, at least 1e-6 (0x358637bd).
        const std::vector<float> ints = {127.0f, -1.5f, 0.5f, 2.5f, 0.0f, 0.0f, 0.0f, -1e-5f};
        CHECK((store(preset(HALYARD_GROUPS_VLLM_INT8), ints, 4, target) ==
               Stored{{127, minus(2), 1, 3, 0, 0, 0, minus(10)}, {0x00, 0x00, 0x80, 0x3f, 0xbd, 0x37, 0x86, 0x35}}));
        // e4m3: 448 is 0x7e, 1 is 0x38, and 17 is a tie between 16 (0x58) and 18.
        const std::vector<float> floats = {448.0f, -448.0f, 1.0f, 17.0f};
        CHECK((store(preset(HALYARD_GROUPS_VLLM_FP8), floats, 4, target) == Stored{{0x7e, 0xfe, 0x38, 0x58}, one}));
        // A record is the scale (max - min) / 255 = 1, the zero point -min / 1 = 1, and the elements.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {-1.0f, 254.0f, 0.0f, 0.5f}, 4, target).record ==
               Bytes{0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x80, 0x3f, 0, 255, 1, 2}));
        // 4 bits, the first element in the high nibble: the scale is (12 + 3) / 15 = 1, the zero point 3.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U4), {-3.0f, 12.0f, 0.0f, 0.5f}, 4, target).record ==
               Bytes{0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x40, 0x40, 0x0f, 0x34}));
        // Equal elements: the scale is 1e-4 (0x38d1b717), its reciprocal exactly 10000 in f32, and the zero point
        // -10000 * 0.25.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {0.25f, 0.25f}, 2, target).record ==
               Bytes{0x17, 0xb7, 0xd1, 0x38, 0x00, 0x40, 0x1c, 0xc5, 0, 0}));
    }
}

TEST_CASE("groups: the records of DeepSeek and of OCP", "[kv][groups]") {
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        // V3.2: 512 e4m3, an f32 scale for each 128 of them, 64 bf16. A group of zeros has the scale 1e-4 / 448.
        const auto v32 =
            head_of(576, {{0, 448.0f}, {1, -1.0f}, {128, 896.0f}, {257, 0.875f}, {512, 1.0f}, {575, -2.0f}});
        Stored stored = store(preset(HALYARD_GROUPS_MLA_V32), v32, 576, target);
        const oracle::Record of_v32 = oracle::record_of(preset(HALYARD_GROUPS_MLA_V32), 576);
        Bytes floor(4);
        std::memcpy(floor.data(), &of_v32.floor, 4);
        CHECK(stored.record == bytes_of_record(656, {{0, {0x7e, 0xb8}},
                                                     {128, {0x7e}},
                                                     {257, {0x7e}},
                                                     {512, {0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0x40}},
                                                     {520, {0x00, 0x00, 0x00, 0x3b}},
                                                     {524, floor},
                                                     {528, {0x80, 0x3f}},
                                                     {654, {0x00, 0xc0}}}));
        // V4: 448 e4m3, 64 bf16; 7 power-of-two scales outside of the record, in 8 bytes of which one is unused, as in
        // V4's pages. 449 needs the scale 2^1, so 224.5 is rounded to e4m3. Groups of zeros have 2^-22, the next power
        // of two above 1e-4 / 448: V4 takes 1e-4 as the least magnitude.
        auto v4 = head_of(1024, {{0, 448.0f}, {64, 449.0f}, {448, 1.0f}, {512 + 447, -448.0f}});
        auto of_v4 = preset(HALYARD_GROUPS_MLA_V4);
        of_v4.scales_stride_head = 8;
        of_v4.scales_stride_token = of_v4.scales_stride_block = 16;
        stored = store(of_v4, v4, 512, target);
        CHECK(stored.record ==
              bytes_of_record(2 * 576, {{0, {0x7e}}, {64, {0x76}}, {448, {0x80, 0x3f}}, {576 + 447, {0xfe}}}));
        CHECK(stored.scales == Bytes{127, 128, 105, 105, 105, 105, 105, 0xa5, 105, 105, 105, 105, 105, 105, 127, 0xa5});
        // V4.1: 512 e4m3, 16 power-of-two scales.
        stored = store(preset(HALYARD_GROUPS_MLA_V41), head_of(512, {{32, 2.0f}, {511, 0.5f}}), 512, target);
        CHECK(stored.record == bytes_of_record(512, {{32, {0x78}}, {511, {0x78}}}));  // 256, scaled by 2^-7 and by 2^-9
        CHECK(stored.scales == bytes_of_record(16, {{1, {120}}, {15, {118}}}, 105));
        // MXFP8: a scale 2^(floor(log2(largest)) - 8), then 32 e4m3. So 500 has the scale 1 and saturates at 448.
        const auto mx = head_of(96, {{0, 448.0f}, {32, -500.0f}, {33, 256.0f}});
        CHECK(store(preset(HALYARD_GROUPS_MX), mx, 96, target).record ==
              bytes_of_record(99, {{0, {127, 0x7e}}, {33, {127, 0xfe, 0x78}}}));
    }
}

TEST_CASE("groups: what is not finite, zeros, and scales beyond their dtype", "[kv][groups]") {
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        const auto q8 = [&](const std::vector<std::pair<std::size_t, float>> &elements) {
            return store(preset(HALYARD_GROUPS_GGML_Q8_0), head_of(32, elements), 32, target).record;
        };
        // NaN becomes 0, infinities saturate, and finite elements alone decide the scale: 254 / 127 = 2.
        CHECK(q8({{0, NAN}, {1, INFINITY}, {2, -INFINITY}, {3, 254.0f}, {4, -NAN}}) ==
              bytes_of_record(34, {{0, {0x00, 0x40, 0, 127, 0x80, 127}}}));
        CHECK(q8({}) == Bytes(34));
        CHECK(q8({{0, NAN}, {1, INFINITY}}) == Bytes(34));  // no finite elements: zeros
        CHECK(q8({{0, 0x1p-140f}}) == Bytes(34));           // the reciprocal overflows f32
        // The scale 1e-6 / 127 is 0 in f16, but its f32 reciprocal is finite: elements are quantised as ggml does.
        CHECK(q8({{0, 1e-6f}, {1, -1e-6f}}) == bytes_of_record(34, {{2, {127, minus(127)}}}));
        // A scale that overflows f16 becomes 65504, and elements are quantised by the reciprocal of that.
        CHECK(q8({{0, 1e30f}, {1, 65504.0f}, {2, -3 * 65504.0f}}) ==
              bytes_of_record(34, {{0, {0xff, 0x7b, 127, 1, minus(3)}}}));
        const auto q4 = preset(HALYARD_GROUPS_GGML_Q4_0);
        CHECK(store(q4, std::vector<float>(32), 32, target).record == bytes_of_record(18, {{0, {0x00, 0x80}}}, 0x88));
        CHECK(store(q4, std::vector<float>(32, -0.0f), 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0x80}}}, 0x88));
        CHECK(store(q4, head_of(32, {{0, NAN}, {1, INFINITY}, {2, 8.0f}, {16, -INFINITY}}), 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0xbc, 0xf8, 0x80, 0x80}}}, 0x88));
        // Ranges of min to max: NaN becomes 0, and finite elements alone decide the range.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {2.0f, NAN, 257.0f, INFINITY, -INFINITY, 4.0f}, 6, target)
                   .record == Bytes{0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0, 0, 255, 255, 0, 2}));
        // If max - min overflows f32, the scale is the largest f32.
        const float most = std::numeric_limits<float>::max();
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {-most, most}, 2, target).record ==
               Bytes{0xff, 0xff, 0x7f, 0x7f, 0x00, 0x00, 0x80, 0x3f, 0, 2}));
        // Power-of-two scales saturate at 2^-127 and 2^127.
        CHECK(store(preset(HALYARD_GROUPS_MX), std::vector<float>(32, -0x1p-140f), 32, target).record ==
              bytes_of_record(33, {{0, {0}}}, 0x80));
        CHECK(store(preset(HALYARD_GROUPS_MX), head_of(32, {{0, most}, {1, NAN}, {2, -INFINITY}}), 32, target).record ==
              bytes_of_record(33, {{0, {127 + 119, 0x7e, 0, 0xfe}}}));
    }
}

TEST_CASE("kv path: the ends of the numbers", "[kv]") {
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        CHECK((convert(nullptr, nullptr, HALYARD_INT8, {nan, inf, -inf, 127.5f, -200.0f, 2.5f, -3.5f, -0.0f}, target) ==
               Bits{0, 127, 128, 127, 128, 2, 252, 0}));
        CHECK((convert(nullptr, nullptr, HALYARD_E4M3, {nan, inf, -1e9f, 448.0f, 0x1p-9f, 0x1p-10f, 0x1.8p-9f, -0.0f},
                       target) == Bits{0x7f, 0x7e, 0xfe, 0x7e, 0x01, 0x00, 0x02, 0x80}));
        CHECK((convert(nullptr, nullptr, HALYARD_E5M2, {inf, -1e9f, 57344.0f, 61440.0f, 0x1p-16f, 0x1p-17f}, target) ==
               Bits{0x7b, 0xfb, 0x7b, 0x7b, 0x01, 0x00}));
        CHECK((convert(nullptr, nullptr, HALYARD_F16, {65504.0f, 65520.0f, -inf, 0x1p-25f, 0x1.8p-24f, 1.0f}, target) ==
               Bits{0x7bff, 0x7c00, 0xfc00, 0x0000, 0x0002, 0x3c00}));
        // If the sum of squares overflows, r is 0.
        auto norm = sized<halyard_norm_desc>();
        CHECK((convert(&norm, nullptr, HALYARD_F32, {1e30f, -1.0f, 0.0f, 5.0f}, target) == Bits{0, 0x80000000u, 0, 0}));
        CHECK((convert(&norm, nullptr, HALYARD_F32, {0.0f, -0.0f, 0.0f, 0.0f}, target) == Bits{0, 0x80000000u, 0, 0}));
        // eps defaults to 1e-6: r = 1 / sqrt(1 + 1e-6).
        const float r = 1.0f / std::sqrt(1.0f + 1e-6f);
        CHECK((convert(&norm, nullptr, HALYARD_F32, {1.0f, -1.0f, 1.0f, 1.0f}, target)[1] ==
               std::bit_cast<std::uint32_t>(-r)));
        norm.no_eps = 1;
        CHECK((convert(&norm, nullptr, HALYARD_F32, {1.0f, -1.0f, 1.0f, 1.0f}, target)[1] == 0xbf800000u));
        for (const std::uint32_t word : convert(&norm, nullptr, HALYARD_F32, {0.0f, 0.0f}, target)) {
            CHECK(std::isnan(std::bit_cast<float>(word)));
        }
        // Dynamic scales depend on finite elements only. They are 1 if the largest is 0 or too small.
        const auto dynamic = halyard::describe_dynamic_scales();
        float scale = 0;
        CHECK((convert(nullptr, &dynamic, HALYARD_INT8, {2.0f, -254.0f, inf, nan, -inf}, target, &scale) ==
               Bits{1, 129, 127, 0, 128}));
        CHECK(scale == 2.0f);
        CHECK((convert(nullptr, &dynamic, HALYARD_INT8, {0.0f, -0.0f, nan}, target, &scale) == Bits{0, 0, 0}));
        CHECK(scale == 1.0f);
        convert(nullptr, &dynamic, HALYARD_E4M3, {0x1p-120f, 0.0f}, target, &scale);
        CHECK(scale == 1.0f);
        CHECK((convert(nullptr, &dynamic, HALYARD_E4M3, {448 * 0x1p-126f, 0.0f}, target, &scale) == Bits{0x7e, 0}));
        CHECK(scale == 0x1p-126f);
    }
}

TEST_CASE("kv path: layer norms of equal numbers, of zeros, and of too large ones", "[kv]") {
    const float most = std::numeric_limits<float>::max();
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        auto norm = sized<halyard_norm_desc>();
        norm.kind = HALYARD_NORM_LAYER;
        const auto normed = [&](const std::vector<float> &x) {
            return convert(&norm, nullptr, HALYARD_F32, x, target);
        };
        // Without a bias nothing is added: -0 stays -0.
        CHECK((normed({-0.0f, -0.0f, -0.0f}) == Bits{0x80000000u, 0x80000000u, 0x80000000u}));
        CHECK((normed({3.0f, 3.0f, 3.0f, 3.0f}) == Bits{0, 0, 0, 0}));
        CHECK((normed({7.0f}) == Bits{0}));
        const float r = 1.0f / std::sqrt(1.0f + 1e-6f);
        CHECK((normed({5.0f, 3.0f}) == Bits{std::bit_cast<std::uint32_t>(r), std::bit_cast<std::uint32_t>(-r)}));
        // If the sum of squares overflows, r is 0; if the sum overflows, results are NaN.
        CHECK((normed({1e30f, -1.0f, 0.0f, 5.0f}) == Bits{0, 0x80000000u, 0x80000000u, 0x80000000u}));
        CHECK(std::isnan(std::bit_cast<float>(normed({most, most})[0])));
        norm.no_eps = 1;
        CHECK(std::isnan(std::bit_cast<float>(normed({3.0f, 3.0f})[1])));
        CHECK((normed({5.0f, 3.0f}) == Bits{0x3f800000u, 0xbf800000u}));
    }
}
