// Records of groups, as a user of a quantised cache meets them: the bytes of each preset, typed from the description of
// its format; elements that are not finite, ties and the ends of scales; and hard groups against the oracle.
// Caches of records are among the scenes of roads and moves (test_road.cpp).
#include "checks/record_oracle.h"
#include "checks/rotate.h"
#include "checks/sized.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

using Bytes = std::vector<unsigned char>;

/// In hexadecimal.
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

/// A head's record, and its scales where they lie apart.
struct Stored {
    Bytes record, scales;
    bool operator==(const Stored &) const = default;
};

/// Takes heads from x to y by a tensor that is not rotated.
void pass(halyard_tensor_desc desc, halyard_kv_desc kv, const halyard_stages &stages, const halyard_tensor &x,
          const halyard_tensor &y, const char *target) {
    kv.no_rotation = 1;
    desc.kv = &kv;
    halyard::plan_desc plan(0, {desc});
    plan.target = target;
    const auto brought = halyard::kv_args(&stages);
    halyard::run(halyard::plan(plan), halyard::angle_source(), x, y, halyard::run_options().with(brought));
}

/// Stores heads of so many elements, that are neither rotated nor anything else, one behind the other.
Stored store(const halyard_groups_desc &groups, const std::vector<float> &heads, std::int64_t head_dim,
             const char *target = nullptr) {
    const oracle::Record record = oracle::record_of(groups, head_dim);
    const std::int64_t n = static_cast<std::int64_t>(heads.size()) / head_dim;
    const std::int64_t head_scales = std::max(record.dense_scales(), record.scale_strides[2]);
    Stored stored = {Bytes(static_cast<std::size_t>(n * record.bytes), 0xa5),
                     Bytes(static_cast<std::size_t>(record.scales_apart ? n * head_scales : 0), 0xa5)};
    const auto desc = halyard::describe_tensor(halyard::dtype::f32, head_dim);
    auto kv = sized<halyard_kv_desc>();
    kv.groups = &groups;
    auto stages = halyard::stages();
    stages.group_scales = record.scales_apart ? stored.scales.data() : nullptr;
    pass(desc, kv, stages, halyard::input_tensor(heads.data(), halyard::dtype::f32, {1, 1, n, head_dim}),
         halyard::tensor(stored.record.data(), halyard::dtype::uint8, {1, 1, n, record.bytes}), target);
    return stored;
}

/// Loads what was stored.
std::vector<float> load(const halyard_groups_desc &groups, const Stored &stored, std::int64_t head_dim,
                        const char *target = nullptr) {
    const oracle::Record record = oracle::record_of(groups, head_dim);
    const std::int64_t n = static_cast<std::int64_t>(stored.record.size()) / record.bytes;
    std::vector<float> heads(static_cast<std::size_t>(n * head_dim));
    const auto desc = halyard::describe_tensor(halyard::dtype::uint8, head_dim);
    auto kv = sized<halyard_kv_desc>();
    kv.out_dtype = HALYARD_F32;
    kv.from_groups = &groups;
    auto stages = halyard::stages();
    stages.from_group_scales = record.scales_apart ? stored.scales.data() : nullptr;
    pass(desc, kv, stages, halyard::input_tensor(stored.record.data(), halyard::dtype::uint8, {1, 1, n, record.bytes}),
         halyard::tensor(heads.data(), halyard::dtype::f32, {1, 1, n, head_dim}), target);
    return heads;
}

/// A head of zeros but for some elements.
std::vector<float> head_of(std::size_t n, const std::vector<std::pair<std::size_t, float>> &elements) {
    std::vector<float> head(n);
    for (const auto &[at, value] : elements) {
        head[at] = value;
    }
    return head;
}

/// Bytes that are all the same but for some.
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

TEST_CASE("groups: the records of ggml", "[road][groups]") {
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
        // 12.75 / 127 = 0.1003937 is 0x2e6d in f16. 6.375 is half of the largest: by 127 / 12.75 it is less than 63.5,
        // by 1 / (12.75 / 127) it is not.
        const auto other = head_of(32, {{5, 12.75f}, {6, 6.375f}});
        const Bytes x86 = bytes_of_record(34, {{0, {0x6d, 0x2e}}, {7, {127, 63}}});
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0), other, 32, target).record == x86);
        Bytes neon = x86;
        neon[8] = 64;
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0_NEON), other, 32, target).record == neon);
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q8_0_REFERENCE), other, 32, target).record == neon);
        // block_q4_0: f16 d = max / -8, with the sign of the largest; nibble j beside j + 16. 0 is 8.
        const auto fours = head_of(32, {{0, -8.0f}, {1, 7.0f}, {2, 7.9f}, {15, 0.5f}, {16, 1.0f}, {17, 8.0f}});
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q4_0), fours, 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0x3c, 0x90, 0xff, 0x8f}}, {17, {0x89}}}, 0x88));
        const auto positive = head_of(32, {{3, 4.0f}, {20, -4.0f}});  // the first of equals: d = -0.5
        CHECK(store(preset(HALYARD_GROUPS_GGML_Q4_0), positive, 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0xb8}}, {2 + 3, {0x80}}, {2 + 4, {0xf8}}}, 0x88));
    }
}

TEST_CASE("groups: the records of vLLM and OpenVINO", "[road][groups]") {
    const Bytes one = {0x00, 0x00, 0x80, 0x3f};
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        // A f32 scale for each head, apart: the largest / 127 or 448, at least 1e-6, which is 0x358637bd.
        const std::vector<float> ints = {127.0f, -1.5f, 0.5f, 2.5f, 0.0f, 0.0f, 0.0f, -1e-5f};
        CHECK((store(preset(HALYARD_GROUPS_VLLM_INT8), ints, 4, target) ==
               Stored{{127, minus(2), 1, 3, 0, 0, 0, minus(10)}, {0x00, 0x00, 0x80, 0x3f, 0xbd, 0x37, 0x86, 0x35}}));
        // e4m3: 448 is 0x7e, 1 0x38, and 17 lies between 16, 0x58, and 18.
        const std::vector<float> floats = {448.0f, -448.0f, 1.0f, 17.0f};
        CHECK((store(preset(HALYARD_GROUPS_VLLM_FP8), floats, 4, target) == Stored{{0x7e, 0xfe, 0x38, 0x58}, one}));
        // Scale, zero point, elements: (max - min) / 255 = 1, and -min / 1 = 1.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {-1.0f, 254.0f, 0.0f, 0.5f}, 4, target).record ==
               Bytes{0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x80, 0x3f, 0, 255, 1, 2}));
        // 4 bits, the first in the high nibble: (12 + 3) / 15 = 1, and the zero point is 3.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U4), {-3.0f, 12.0f, 0.0f, 0.5f}, 4, target).record ==
               Bytes{0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x40, 0x40, 0x0f, 0x34}));
        // Equal numbers: the scale is 1e-4, 0x38d1b717, and its reciprocal 10000 to the last place; the zero point is
        // -10000 times 0.25.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {0.25f, 0.25f}, 2, target).record ==
               Bytes{0x17, 0xb7, 0xd1, 0x38, 0x00, 0x40, 0x1c, 0xc5, 0, 0}));
    }
}

TEST_CASE("groups: the records of DeepSeek and of OCP", "[road][groups]") {
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        // V3.2: 512 e4m3, the f32 scales of each 128, 64 bf16. A group of zeros has 1e-4 / 448.
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
        // V4: 448 e4m3, 64 bf16; 7 powers of two apart, here in the 8 bytes that V4's pages have for them.
        // 449 takes the next power, 2^1, by which it is 224.5; zeros take 2^-22, the next from 1e-4 / 448 on.
        auto v4 = head_of(1024, {{0, 448.0f}, {64, 449.0f}, {448, 1.0f}, {512 + 447, -448.0f}});
        auto of_v4 = preset(HALYARD_GROUPS_MLA_V4);
        of_v4.scales_stride_head = 8;
        of_v4.scales_stride_token = of_v4.scales_stride_block = 16;
        stored = store(of_v4, v4, 512, target);
        CHECK(stored.record ==
              bytes_of_record(2 * 576, {{0, {0x7e}}, {64, {0x76}}, {448, {0x80, 0x3f}}, {576 + 447, {0xfe}}}));
        CHECK(stored.scales == Bytes{127, 128, 105, 105, 105, 105, 105, 0xa5, 105, 105, 105, 105, 105, 105, 127, 0xa5});
        // V4.1: 512 e4m3, 16 powers of two.
        stored = store(preset(HALYARD_GROUPS_MLA_V41), head_of(512, {{32, 2.0f}, {511, 0.5f}}), 512, target);
        CHECK(stored.record == bytes_of_record(512, {{32, {0x78}}, {511, {0x78}}}));  // 256, by 2^-7 and by 2^-9
        CHECK(stored.scales == bytes_of_record(16, {{1, {120}}, {15, {118}}}, 105));
        // MXFP8: 2^(floor(log2(largest)) - 8), then 32 e4m3, which 500 does not fit into.
        const auto mx = head_of(96, {{0, 448.0f}, {32, -500.0f}, {33, 256.0f}});
        CHECK(store(preset(HALYARD_GROUPS_MX), mx, 96, target).record ==
              bytes_of_record(99, {{0, {127, 0x7e}}, {33, {127, 0xfe, 0x78}}}));
    }
}

TEST_CASE("groups: what is not finite, zeros, and scales beyond their dtype", "[road][groups]") {
    for (const char *target : stage_targets_here()) {
        CAPTURE(target);
        const auto q8 = [&](const std::vector<std::pair<std::size_t, float>> &elements) {
            return store(preset(HALYARD_GROUPS_GGML_Q8_0), head_of(32, elements), 32, target).record;
        };
        // NaN counts as 0, infinities become the nearest, and the others decide: 254 / 127 = 2.
        CHECK(q8({{0, NAN}, {1, INFINITY}, {2, -INFINITY}, {3, 254.0f}, {4, -NAN}}) ==
              bytes_of_record(34, {{0, {0x00, 0x40, 0, 127, 0x80, 127}}}));
        CHECK(q8({}) == Bytes(34));
        CHECK(q8({{0, NAN}, {1, INFINITY}}) == Bytes(34));  // no others: zeros
        CHECK(q8({{0, 0x1p-140f}}) == Bytes(34));           // a reciprocal beyond f32
        // s = 1e-6 / 127 is 0 in f16, but its reciprocal is finite: the elements are ggml's.
        CHECK(q8({{0, 1e-6f}, {1, -1e-6f}}) == bytes_of_record(34, {{2, {127, minus(127)}}}));
        // Beyond f16: 65504, and elements by the reciprocal of that.
        CHECK(q8({{0, 1e30f}, {1, 65504.0f}, {2, -3 * 65504.0f}}) ==
              bytes_of_record(34, {{0, {0xff, 0x7b, 127, 1, minus(3)}}}));
        const auto q4 = preset(HALYARD_GROUPS_GGML_Q4_0);
        CHECK(store(q4, std::vector<float>(32), 32, target).record == bytes_of_record(18, {{0, {0x00, 0x80}}}, 0x88));
        CHECK(store(q4, std::vector<float>(32, -0.0f), 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0x80}}}, 0x88));
        CHECK(store(q4, head_of(32, {{0, NAN}, {1, INFINITY}, {2, 8.0f}, {16, -INFINITY}}), 32, target).record ==
              bytes_of_record(18, {{0, {0x00, 0xbc, 0xf8, 0x80, 0x80}}}, 0x88));
        // Ranges: NaN counts as 0, but the others say what the range is.
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {2.0f, NAN, 257.0f, INFINITY, -INFINITY, 4.0f}, 6, target)
                   .record == Bytes{0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0, 0, 255, 255, 0, 2}));
        // A range beyond f32 takes the largest scale.
        const float most = std::numeric_limits<float>::max();
        CHECK((store(preset(HALYARD_GROUPS_OPENVINO_U8), {-most, most}, 2, target).record ==
               Bytes{0xff, 0xff, 0x7f, 0x7f, 0x00, 0x00, 0x80, 0x3f, 0, 2}));
        // Powers of two end at 2^-127 and 2^127.
        CHECK(store(preset(HALYARD_GROUPS_MX), std::vector<float>(32, -0x1p-140f), 32, target).record ==
              bytes_of_record(33, {{0, {0}}}, 0x80));
        CHECK(store(preset(HALYARD_GROUPS_MX), head_of(32, {{0, most}, {1, NAN}, {2, -INFINITY}}), 32, target).record ==
              bytes_of_record(33, {{0, {127 + 119, 0x7e, 0, 0xfe}}}));
    }
}

// ---- Against the oracle --------------------------------------------------------------------------------------------

namespace {

/// A group of the hard kinds: zeros, one element, subnormal numbers, ties, ends, what is not finite, any bits.
void fill_hard(oracle::Random &random, float *group, std::int64_t n) {
    static constexpr float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-149f, -0x1p-126f, 65504.0f * 127};
    const std::int64_t kind = random.in(0, 9);
    const int exponent = static_cast<int>(kind < 5 ? 0 : random.in(-150, 127));
    for (std::int64_t i = 0; i < n; i++) {
        const double unit = random.unit();
        const double value = kind == 0   ? 0.0
                             : kind == 1 ? std::nearbyint(254 * unit) / 2  // ties, where the largest is 127
                             : kind == 2 ? std::nearbyint(32 * unit) / 4
                                         : std::ldexp(unit, exponent);
        group[i] = static_cast<float>(value);
        if (kind == 9 || (kind == 8 && random.one_in(6))) {
            group[i] = kind == 8 ? random.one_of(specials)
                                 : oracle::widen(HALYARD_F32, static_cast<std::uint32_t>(random.bits()));
        }
    }
    const auto at = static_cast<std::size_t>(random.in(0, n - 1));
    group[at] = kind == 0 && random.one_in(2) ? static_cast<float>(random.unit()) : kind == 1 ? 127.0f : group[at];
}

}  // namespace

TEST_CASE("groups: hard groups of every preset, on every target", "[road][groups]") {
    static constexpr std::int64_t n_heads = 80, head_dims[] = {96, 96, 96, 96, 96, 96, 96, 96, 576, 512, 512, 96};
    oracle::Random random(Catch::getSeed());
    for (int i = 0; i < 12 * 8; i++) {
        const auto groups = preset(HALYARD_GROUPS_GGML_Q8_0 + i % 12);
        const std::int64_t head_dim = head_dims[i % 12];
        const oracle::Record record = oracle::record_of(groups, head_dim);
        CAPTURE(groups.preset);
        std::vector<float> heads(n_heads * head_dim);
        for (std::int64_t at = 0; at < n_heads * head_dim; at++) {
            if (at % head_dim >= record.n_grouped) {
                heads[static_cast<std::size_t>(at)] = static_cast<float>(random.unit());
            } else if (at % head_dim % record.group == 0) {
                fill_hard(random, &heads[static_cast<std::size_t>(at)], record.group);
            }
        }
        for (const char *target : stage_targets_here()) {
            CAPTURE(target);
            const Stored stored = store(groups, heads, head_dim, target);
            Stored expected = {Bytes(stored.record.size(), 0xa5), Bytes(stored.scales.size(), 0xa5)};
            for (std::int64_t head = 0; head < n_heads; head++) {
                oracle::encode(record, heads.data() + head * head_dim, expected.record.data() + head * record.bytes,
                               expected.scales.data() + head * record.dense_scales());
            }
            const auto wrong = std::mismatch(stored.record.begin(), stored.record.end(), expected.record.begin());
            const auto place = wrong.first - stored.record.begin();
            CAPTURE(place / record.bytes, place % record.bytes);
            REQUIRE((stored.record == expected.record));
            REQUIRE((stored.scales == expected.scales));
            const std::vector<float> loaded = load(groups, stored, head_dim, target);
            for (std::int64_t head = 0; head < n_heads; head++) {
                const auto values = oracle::decode(record, stored.record.data() + head * record.bytes,
                                                   stored.scales.data() + head * record.dense_scales());
                for (std::size_t d = 0; d < values.size(); d++) {
                    const float is = loaded[static_cast<std::size_t>(head * head_dim) + d];
                    REQUIRE((std::bit_cast<std::uint32_t>(is) == std::bit_cast<std::uint32_t>(values[d]) ||
                             (std::isnan(is) && std::isnan(values[d]))));
                }
            }
        }
    }
}
