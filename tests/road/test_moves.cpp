// Re-rotation: cached keys that move to other positions, to the bits of one rotation; and what many moves add up to.
// Scenes of roads and records move keys of every dtype and layout, against the oracle (test_road.cpp).
#include "checks/make_sources.h"
#include "checks/record_oracle.h"
#include "checks/rotate.h"
#include "checks/scene/ways.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>

TEST_CASE("moves: the bits of phases at the difference", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    // The longer heads have more pairs than rows are made at once.
    for (const auto &[n, head_dim] : {std::array<std::int64_t, 2>{300, 128}, {5, 10000}}) {
        const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
        const auto angles = halyard::angle_source::table(frequencies, 0, 1);
        const auto phases = halyard::angle_source::phase(frequencies);
        for (const char *target : stage_targets_here()) {
            for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
                CAPTURE(head_dim, target, dtype);
                std::vector<std::int32_t> from, to, difference;
                for (std::int64_t i = 0; i < n; i++) {
                    if (i > 0 && random.one_in(3)) {  // as far as the one before
                        const std::int32_t before = std::min(from.back(), to.back()) / 2;
                        from.push_back(from.back() - before);
                        to.push_back(to.back() - before);
                    } else {
                        from.push_back(static_cast<std::int32_t>(random.bits() >> 33));
                        to.push_back(static_cast<std::int32_t>(random.bits() >> 33));
                    }
                    difference.push_back(to.back() - from.back());
                }
                const auto to_view = positions_of(to), from_view = positions_of(from), at = positions_of(difference);
                Rotation rotation;
                rotation.dtype = dtype;
                rotation.rotary_dim = rotation.head_dim = head_dim;
                rotation.target = target;
                const Elements keys = Elements::random(dtype, {1, n, 2, head_dim}, random);
                Elements moved = keys;
                halyard::plan_desc desc(head_dim, {halyard::describe_tensor(static_cast<halyard::dtype>(dtype),
                                                                            head_dim, halyard::pairing::half)});
                desc.rerotates = true;
                desc.target = target;
                const auto kv = halyard::moved_from(from_view);
                halyard::run(halyard::plan(desc), angles, moved.tensor(), moved.tensor(),
                             halyard::run_options().at(to_view).with(kv));
                CHECK((moved == rotate(rotation, phases, &at, keys)));
            }
        }
    }
}

// ---- Many tokens, and long heads -----------------------------------------------------------------------------------

// Of few tokens, with stages and in caches they are among the scenes of moves (test_road.cpp). The longest heads have
// more pairs than rows are made at once.
TEST_CASE("moves: from one source to another, of many tokens and of long heads", "[road][moves][sources][axes]") {
    using namespace scenes;
    oracle::Random random(Catch::getSeed());
    for (const auto &[n_batch, n_tokens, head_dim] :
         std::vector<std::array<std::int64_t, 3>>{{1, 300, 29}, {40, 11, 29}, {3, 7, 29}, {1, 5, 10000}}) {
        for (const int dtype : {0, 2}) {  // f32, bf16
            for (int round = 0; round < 3; round++) {
                Choice choice = Choice::of_rotations();
                choice.moves = true;
                choice.level[of_from] = Angles::other;
                choice.level[of_dtype] = dtype;
                choice.shape = {n_batch, n_tokens, 2};
                choice.head_dim = head_dim;
                choice.rotary_dim = head_dim == 29 ? 24 : head_dim;
                choice.n_tensors = head_dim == 29 ? 0 : 1;  // others could have too long heads for their dtype
                Draw draw(random);
                Scene scene(draw, choice);
                REQUIRE(fault_of_ways(scene) == "");
            }
        }
    }
}

// ---- Many moves ----------------------------------------------------------------------------------------------------

namespace {

/// How a cache holds keys.
struct Format {
    const char *name;
    halyard::dtype dtype;  // uint8: in records of groups
    std::int32_t preset, hadamard;
    double rounding;  // as a part of a pair's length, or of a group's greatest element
    std::vector<int> n_moves;

    bool has_records() const { return preset != 0; }
    bool has_scales() const { return dtype == halyard::dtype::e4m3 || dtype == halyard::dtype::int8; }
};

/// Keys of one head of 128 in pages of a cache, with dynamic scales where they are of 8 bits.
class CachedKeys {
public:
    static constexpr std::int64_t n = 64, head_dim = 128;

    CachedKeys(const Format &format, const halyard::angle_source &angles)
        : format_(format), angles_(angles), groups_(halyard::describe_groups(format.preset)),
          record_(format.has_records() ? oracle::record_of(groups_, head_dim) : oracle::Record()),
          width_(format.has_records() ? record_.bytes : head_dim),
          bytes_(static_cast<std::size_t>(n * width_ * oracle::element_bytes(static_cast<std::int32_t>(format.dtype)))),
          group_scales_(static_cast<std::size_t>(format.has_records() ? n * record_.dense_scales() : 0)),
          scales_(n, 1.0f), scratch_(n / 8) {}

    /// Stores f32 keys, rotated for positions first, first + 1, ….
    void store(const Elements &keys, std::int64_t first) {
        auto desc = describe();
        desc.dtype = HALYARD_F32;
        run(halyard::plan_desc(head_dim, {desc}),
            halyard::input_tensor(keys.bytes.data(), halyard::dtype::f32, keys.shape),
            halyard::consecutive_positions(&first, 1));
    }

    void move(std::int64_t from, std::int64_t to) {
        halyard::plan_desc desc(head_dim, {describe()});
        desc.rerotates = true;
        run(desc, halyard::tensor(nullptr, format_.dtype, {1, n, 1, width_}), halyard::consecutive_positions(&to, 1),
            halyard::consecutive_positions(&from, 1));
    }

    /// A token's elements as they are read, transformed back.
    std::vector<float> values(std::int64_t token) const {
        std::vector<float> head;
        if (format_.has_records()) {
            head = oracle::decode(record_, &bytes_[static_cast<std::size_t>(token * width_)],
                                  group_scales_.data() + token * record_.dense_scales());
        }
        const auto dtype = static_cast<std::int32_t>(format_.dtype);
        const auto scale = static_cast<long double>(scales_[static_cast<std::size_t>(token)]);
        for (std::int64_t i = token * head_dim; !format_.has_records() && i < (token + 1) * head_dim; i++) {
            std::uint32_t word = 0;
            const auto n_bytes = static_cast<std::size_t>(oracle::element_bytes(dtype));
            std::memcpy(&word, &bytes_[static_cast<std::size_t>(i) * n_bytes], n_bytes);
            head.push_back(static_cast<float>(oracle::decode(dtype, word) * scale));
        }
        for (std::size_t distance = 1; distance < static_cast<std::size_t>(format_.hadamard); distance *= 2) {
            for (std::size_t k = 0; k < head.size(); k++) {
                if ((k & distance) == 0) {
                    const float u = head[k], v = head[k + distance];
                    head[k] = (u + v) / std::sqrt(2.0f);
                    head[k + distance] = (u - v) / std::sqrt(2.0f);
                }
            }
        }
        return head;
    }

private:
    const Format &format_;
    const halyard::angle_source &angles_;
    halyard_groups_desc groups_;
    oracle::Record record_;
    std::int64_t width_;
    std::vector<unsigned char> bytes_, group_scales_;
    std::vector<float> scales_;
    std::vector<unsigned char> scratch_;
    halyard_cache_desc cache_ = halyard::describe_hnd_cache(4, 16, 1, width_);
    halyard_scale_desc dynamic_ = halyard::describe_dynamic_scales();

    halyard_kv_desc kv_ = sized<halyard_kv_desc>();

    halyard_tensor_desc describe() {
        auto desc = halyard::describe_tensor(format_.dtype, head_dim, halyard::pairing::half);
        kv_.out_dtype = desc.dtype;
        kv_.cache = &cache_;
        kv_.scale = format_.has_scales() ? &dynamic_ : nullptr;
        kv_.groups = format_.has_records() ? &groups_ : nullptr;
        kv_.hadamard = format_.hadamard;
        desc.kv = &kv_;
        return desc;
    }

    void run(const halyard::plan_desc &desc, const halyard_tensor &x, const halyard_positions &to,
             std::optional<halyard_positions> from = std::nullopt) {
        auto stages = halyard::stages_into(bytes_.data());
        stages.group_scales = format_.has_records() && record_.scales_apart ? group_scales_.data() : nullptr;
        if (format_.has_scales()) {
            stages.scales_out = scales_.data();
            stages.stride_scales[1] = 1;
        }
        const std::int64_t first_slot = 0;
        auto slots = halyard::slots(&first_slot, {1, 1}, scratch_.data(), n / 8);
        slots.consecutive = 1;
        auto kv = halyard::kv_args(&stages, &slots);
        kv.from_positions = from ? &*from : nullptr;
        halyard::run(halyard::plan(desc), angles_, x, x, halyard::run_options().at(to).with(kv));
    }
};

/// Stores keys for `first`, moves them so many times, and returns how far they are off then: the root of the mean
/// square of errors, as a part of that of exact values. Each rounding may add its own.
double error_of_moves(const Format &format, const Elements &keys, const halyard::angle_source &angles, int n_moves,
                      int distance) {
    constexpr std::int64_t first = 20'000;
    CachedKeys cache(format, angles);
    cache.store(keys, first);
    for (int i = 0; i < n_moves; i++) {
        cache.move(first - i * distance, first - (i + 1) * distance);
    }
    Rotation rotation;
    rotation.rotary_dim = rotation.head_dim = CachedKeys::head_dim;
    const std::int64_t at = first - n_moves * distance;
    const auto positions = halyard::consecutive_positions(&at, 1);
    const Elements expected = rotate(rotation, angles, &positions, keys);
    double sum = 0, of = 0, largest = 0;
    for (std::int64_t token = 0, i = 0; token < CachedKeys::n; token++) {
        for (const double value : cache.values(token)) {
            const double exact = expected[i++];
            sum += std::pow(value - exact, 2);
            of += std::pow(exact, 2);
            largest = std::max(largest, std::fabs(exact));
        }
    }
    // Of the largest of all keys, that a transform may make longer by its root of 128 elements' share.
    const double mean = std::sqrt(of / static_cast<double>(expected.count())), error = std::sqrt(sum / of);
    const double peak = !format.has_records() ? 1 : format.hadamard != 0 ? 6 : largest / mean;
    const double step = format.rounding * peak + (format.has_records() ? 0 : 2 * 0x1p-23);
    CAPTURE(format.name, n_moves, distance, error, peak);
    CHECK(error <= std::pow(1 + step, n_moves + 1) - 1 + (format.has_records() ? 1e-5 : 0));
    return error;
}

}  // namespace

// Moves add up what each rounds: in f32 that stays within the sum of the bounds. Elements of few bits lose most where
// they move least: a slow pair's step of one position is less than half an ulp, and is lost each time. In records a
// move adds at most half a step of a group to each element, which a transform spreads over the head.
TEST_CASE("moves: many by one position, and one as far", "[road][moves][groups]") {
    using halyard::dtype;
    oracle::Random random(Catch::getSeed());
    const auto angles = halyard::angle_source::phase(halyard::frequencies::from_base(10000.0, CachedKeys::head_dim));
    const Elements keys = Elements::random(HALYARD_F32, {1, CachedKeys::n, 1, CachedKeys::head_dim}, random);
    const std::vector<int> some = {0, 1, 10, 100};
    const Format formats[] = {
        {"f32", dtype::f32, 0, 0, 0.0, {10'000}},
        {"f16", dtype::f16, 0, 0, 0x1p-11, {100}},
        {"bf16", dtype::bf16, 0, 0, 0x1p-8, {100, 10'000}},
        {"e4m3", dtype::e4m3, 0, 0, 0x1p-4, {10}},
        {"int8", dtype::int8, 0, 0, 2 * 0.5 / 127, {10}},
        {"ggml_q8_0", dtype::uint8, HALYARD_GROUPS_GGML_Q8_0, 0, 0.5 / 127, some},
        {"ggml_q8_0, Hadamard", dtype::uint8, HALYARD_GROUPS_GGML_Q8_0, 128, 0.5 / 127, some},
        {"ggml_q4_0", dtype::uint8, HALYARD_GROUPS_GGML_Q4_0, 0, 1.0 / 8, some},
        {"ggml_q4_0, Hadamard", dtype::uint8, HALYARD_GROUPS_GGML_Q4_0, 128, 1.0 / 8, some},
        {"vllm_int8", dtype::uint8, HALYARD_GROUPS_VLLM_INT8, 0, 0.5 / 127, some},
        {"vllm_fp8", dtype::uint8, HALYARD_GROUPS_VLLM_FP8, 0, 0x1p-4, some},
        {"openvino_u4, Hadamard", dtype::uint8, HALYARD_GROUPS_OPENVINO_U4, 128, 1.0 / 15, some},
        {"mx", dtype::uint8, HALYARD_GROUPS_MX, 0, 0x1p-3, some},
    };
    std::ostringstream table;
    table << "stored as             moves by one     off by   one as far (roots of mean squares)"
          << std::setprecision(3);
    for (const Format &format : formats) {
        for (const int n_moves : format.n_moves) {
            table << '\n'
                  << std::left << std::setw(22) << format.name << std::right << std::setw(12) << n_moves
                  << std::setw(11) << error_of_moves(format, keys, angles, n_moves, 1) << std::setw(11)
                  << error_of_moves(format, keys, angles, 1, n_moves);
        }
    }
    WARN(table.str());
}
