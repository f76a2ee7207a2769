// Re-rotation: cached keys that move to other positions, in every dtype and layout, against the oracle; and what many
// moves add up to.
#include "checks/make_sources.h"
#include "checks/road_oracle.h"
#include "checks/rotate.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <optional>

namespace {

/// Keys [tokens, heads, head_dim] of f32, f16 or bf16 that lie in half pairing, and move in place.
void move(Elements &keys, const halyard::angle_source &angles, const std::vector<std::int32_t> &from,
          const std::vector<std::int32_t> &to, const char *target = nullptr) {
    halyard::plan_desc desc(
        angles.info().rotary_dim,
        {halyard::describe_tensor(static_cast<halyard::dtype>(keys.dtype), keys.shape[3], halyard::pairing::half)});
    desc.rerotates = true;
    desc.target = target;
    const auto to_view = positions_of(to), from_view = positions_of(from);
    halyard::run(halyard::plan(desc), angles, keys.tensor(), keys.tensor(),
                 halyard::run_options().at(to_view).moved_from(from_view));
}

std::vector<std::int32_t> random_positions(oracle::Random &random, std::int64_t n) {
    std::vector<std::int32_t> positions;
    for (std::int64_t i = 0; i < n; i++) {
        positions.push_back(static_cast<std::int32_t>(random.bits()));
    }
    return positions;
}

/// The greatest distance of two keys' elements, as a part of the pair's length in `of`.
double greatest_error(const Elements &keys, const Elements &expected, const Elements &of) {
    double most = 0;
    const std::int64_t head_dim = keys.shape[3], n_pairs = head_dim / 2;
    for (std::int64_t i = 0; i < keys.count(); i++) {
        const std::int64_t first = i - i % head_dim + i % n_pairs;
        const double length = std::hypot(of[first], of[first + n_pairs]);
        most = std::max(most, std::fabs(double(keys[i]) - double(expected[i])) / length);
    }
    return most;
}

}  // namespace

TEST_CASE("moves: the bits of phases at the difference", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    const auto frequencies = halyard::frequencies::from_base(10000.0, 128);
    for (const char *target : targets_here()) {
        for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
            const Elements keys = Elements::random(dtype, {1, 300, 2, 128}, random);
            std::vector<std::int32_t> from, to, difference;
            for (int i = 0; i < 300; i++) {
                from.push_back(static_cast<std::int32_t>(random.bits() >> 33));
                to.push_back(static_cast<std::int32_t>(random.bits() >> 33));
                difference.push_back(to.back() - from.back());
            }
            Elements moved = keys;
            move(moved, halyard::angle_source::table(frequencies, 0, 0), from, to, target);
            Rotation rotation;
            rotation.dtype = dtype;
            rotation.rotary_dim = rotation.head_dim = 128;
            rotation.target = target;
            const auto at = positions_of(difference);
            CHECK((moved == rotate(rotation, halyard::angle_source::phase(frequencies), &at, keys)));
        }
    }
}

TEST_CASE("moves: what was rotated, and what moves twice", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    const auto frequencies = halyard::frequencies::from_base(10000.0, 128);
    const auto angles = halyard::angle_source::phase(frequencies);
    const std::int64_t n = 200;
    for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
        Rotation rotation;
        rotation.dtype = dtype;
        rotation.rotary_dim = rotation.head_dim = 128;
        const Elements x = Elements::random(dtype, {1, n, 2, 128}, random);
        const auto from = random_positions(random, n), half = random_positions(random, n),
                   to = random_positions(random, n);
        const auto from_view = positions_of(from), to_view = positions_of(to);
        const Elements rotated = rotate(rotation, angles, &from_view, x),
                       expected = rotate(rotation, angles, &to_view, x);
        Elements once = rotated, twice = rotated, back = rotated;
        move(once, angles, from, to);
        move(twice, angles, from, half);
        move(twice, angles, half, to);
        move(back, angles, from, to);
        move(back, angles, to, from);
        // A rotation adds 2 eps of the pair's length, and a rounding of both members half an ulp each.
        const double step = 2 * 0x1p-23 + (dtype == HALYARD_F32 ? 0 : dtype == HALYARD_F16 ? 0x1p-11 : 0x1p-8) * 1.01;
        const double turned = std::sqrt(2.0) * step;  // of both members together
        CHECK(greatest_error(once, expected, x) <= turned + 2 * step);
        CHECK(greatest_error(twice, expected, x) <= 2 * turned + 2 * step);
        CHECK(greatest_error(back, rotated, x) <= turned + step);
    }
}

TEST_CASE("moves: heads of more pairs than rows are made at once", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    const std::int64_t head_dim = 10000;
    const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
    const auto angles = halyard::angle_source::table(frequencies, 0, 0);
    const Elements keys = Elements::random(HALYARD_F32, {1, 3, 2, head_dim}, random);
    Elements moved = keys, expected = keys;
    move(moved, angles, {5, 6, 7}, {105, 106, 207});
    Rotation rotation;
    rotation.rotary_dim = rotation.head_dim = head_dim;
    const std::vector<std::int32_t> difference = {100, 100, 200};
    const auto at = positions_of(difference);
    expected = rotate(rotation, halyard::angle_source::phase(frequencies), &at, keys);
    CHECK((moved == expected));
}

namespace {

/// Keys of one head of 128 and any dtype in pages of a cache, with dynamic scales where they have 8 bits.
class CachedKeys {
public:
    static constexpr std::int64_t n = 64, head_dim = 128;

    CachedKeys(halyard::dtype type, const halyard::frequencies &frequencies)
        : type_(type), angles_(halyard::angle_source::phase(frequencies)),
          bytes_(static_cast<std::size_t>(n * head_dim * oracle::element_bytes(static_cast<std::int32_t>(type)))),
          scales_(n, 1.0f), scratch_(n / 8) {}

    /// Stores f32 keys, rotated for positions first, first + 1, ….
    void store(const Elements &keys, std::int64_t first) {
        auto desc = describe();
        desc.dtype = HALYARD_F32;
        run(halyard::plan_desc(head_dim, {desc}), halyard::input_tensor(keys.bytes.data(), halyard::dtype::f32, shape_),
            halyard::consecutive_positions(&first, 1));
    }

    void move(std::int64_t from, std::int64_t to) {
        halyard::plan_desc desc(head_dim, {describe()});
        desc.rerotates = true;
        run(desc, halyard::tensor(nullptr, type_, shape_), halyard::consecutive_positions(&to, 1),
            halyard::consecutive_positions(&from, 1));
    }

    Elements values() const {
        Elements result(HALYARD_F32, {1, n, 1, head_dim});
        const auto type = static_cast<std::int32_t>(type_);
        const std::int64_t bytes = oracle::element_bytes(type);
        for (std::int64_t i = 0; i < n * head_dim; i++) {
            std::uint32_t word = 0;
            std::memcpy(&word, bytes_.data() + i * bytes, static_cast<std::size_t>(bytes));
            const auto scale = static_cast<long double>(scales_[static_cast<std::size_t>(i / head_dim)]);
            result.set_word(i, oracle::narrow(HALYARD_F32, static_cast<float>(oracle::decode(type, word) * scale)));
        }
        return result;
    }

private:
    halyard::dtype type_;
    halyard::angle_source angles_;
    std::vector<char> bytes_;
    std::vector<float> scales_;
    std::vector<unsigned char> scratch_;
    halyard_cache_desc cache_ = halyard::describe_hnd_cache(4, 16, 1, head_dim);
    halyard_scale_desc scale_ = halyard::describe_dynamic_scales();
    const std::array<std::int64_t, 4> shape_ = {1, n, 1, head_dim};

    halyard_tensor_desc describe() const {
        auto desc = halyard::describe_tensor(type_, head_dim, halyard::pairing::half);
        desc.out_dtype = desc.dtype;
        desc.cache = &cache_;
        desc.scale = type_ >= halyard::dtype::e4m3 ? &scale_ : nullptr;
        return desc;
    }

    void run(const halyard::plan_desc &desc, const halyard_tensor &x, const halyard_positions &to,
             std::optional<halyard_positions> from = std::nullopt) {
        auto stages = halyard::stages_into(bytes_.data());
        if (desc.tensors[0].scale != nullptr) {
            stages.scales_out = scales_.data();
            stages.stride_scales[1] = 1;
        }
        const std::int64_t first_slot = 0;
        const auto slots = halyard::consecutive_slots(&first_slot, 1, scratch_.data(), n / 8);
        halyard::run_options options;
        options.at(to).into(slots, stages).from_positions = from;
        halyard::run(halyard::plan(desc), angles_, x, x, options);
    }
};

/// The root of the mean square of errors, as a part of that of values.
double mean_error(const Elements &keys, const Elements &expected) {
    double sum = 0, of = 0;
    for (std::int64_t i = 0; i < keys.count(); i++) {
        sum += std::pow(double(keys[i]) - double(expected[i]), 2);
        of += std::pow(double(expected[i]), 2);
    }
    return std::sqrt(sum / of);
}

}  // namespace

// Moves add up what each rounds: in f32 that stays within the sum of the bounds. Elements of few bits lose most where
// they move least: a slow pair's step of one position is less than half an ulp, and is lost each time.
TEST_CASE("moves: many by one position, and one as far", "[road][moves]") {
    oracle::Random random(Catch::getSeed());
    const auto frequencies = halyard::frequencies::from_base(10000.0, 128);
    struct Case {
        halyard::dtype type;
        int n_moves;
        double rounding;  // of a pair, as a part of its length; of INT8 as a part of the greatest element's
    };
    for (const Case &each :
         {Case{halyard::dtype::f32, 10'000, 0.0}, Case{halyard::dtype::f16, 100, 0x1p-11},
          Case{halyard::dtype::bf16, 100, 0x1p-8}, Case{halyard::dtype::e4m3, 10, 0x1p-4},
          Case{halyard::dtype::int8, 10, 2 * 0.5 / 127}, Case{halyard::dtype::bf16, 10'000, INFINITY},
          Case{halyard::dtype::e4m3, 10'000, INFINITY}}) {
        const Elements x = Elements::random(HALYARD_F32, {1, CachedKeys::n, 1, 128}, random);
        CachedKeys keys(each.type, frequencies), at_once(each.type, frequencies), fresh(each.type, frequencies);
        keys.store(x, 20'000);
        at_once.store(x, 20'000);
        fresh.store(x, 20'000 - each.n_moves);
        for (int i = 0; i < each.n_moves; i++) {
            keys.move(20'000 - i, 20'000 - i - 1);
        }
        at_once.move(20'000, 20'000 - each.n_moves);
        const Elements expected = fresh.values();
        const double error = mean_error(keys.values(), expected), of_one = mean_error(at_once.values(), expected);
        WARN(halyard::name_of(static_cast<halyard::Dtype>(each.type))
             << ", " << each.n_moves << " moves by one: off by " << error
             << " (root of mean squares); one move: " << of_one);
        // What is stored and the fresh keys are rounded too.
        const double step = each.rounding + 2 * 0x1p-23;
        CHECK(error <= std::pow(1 + step, each.n_moves) - 1 + 2 * step);
        CHECK(of_one <= 3 * std::min(step, 0x1p-4));
    }
}
