// Angle sources of every kind: runs compared with exact rotation, rows, positions out of range, and Hugging Face's
// float32 angles. test_source_errors.cpp has the bad descriptions, test_row_kernels.cpp the kernels that make rows.
#include "angles/count_wrong.h"
#include "checks/make_sources.h"
#include "data/golden.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <fstream>
#include <iterator>
#include <string>

namespace {

using oracle::Random;

/// A source together with the exact cos and sin that it stands for.
struct Source {
    const char *name;
    std::int32_t kind;
    std::int32_t rows_dtype = HALYARD_F32;  // where kind is GIVEN
    bool reaches_far = false;               // whether its range is at the end of int32 rather than around 0
};
constexpr Source sources[] = {
    {"table", HALYARD_ANGLES_TABLE},
    {"table far out", HALYARD_ANGLES_TABLE, HALYARD_F32, true},
    {"factored", HALYARD_ANGLES_FACTORED},
    {"factored far out", HALYARD_ANGLES_FACTORED, HALYARD_F32, true},
    {"phase", HALYARD_ANGLES_PHASE, HALYARD_F32, true},
    {"given f32, fused", HALYARD_ANGLES_GIVEN},
    {"given f16", HALYARD_ANGLES_GIVEN, HALYARD_F16},
    {"given bf16", HALYARD_ANGLES_GIVEN, HALYARD_BF16},
};

class Angles {
public:
    Angles(const Source &which, std::int64_t rotary_dim, Random &random)
        : Angles(which, rotary_dim, random, random.one_of(attention_factors)) {}
    Angles(const Source &which, std::int64_t rotary_dim, Random &random, double factor)
        : which_(which), n_pairs_(rotary_dim / 2) {
        if (which.kind == HALYARD_ANGLES_GIVEN) {
            make_given(random);
            return;
        }
        factor_ = factor;
        for (const long double exact : oracle::inv_freq_of(500000, rotary_dim)) {
            inv_freq_.push_back(static_cast<double>(exact));
        }
        const auto frequencies = halyard::frequencies::from_list(inv_freq_.data(), n_pairs_, factor_);
        const bool is_table = which.kind == HALYARD_ANGLES_TABLE;
        first_ = which.kind == HALYARD_ANGLES_PHASE ? least_position
                 : which.reaches_far                ? greatest_position - (is_table ? 60 : 5000)
                                                    : (is_table ? -20 : -2500);
        last_ = which.reaches_far ? greatest_position : (is_table ? 40 : 2500);
        source_ = make_source(frequencies, which.kind, first_, last_);
    }

    const halyard::angle_source &source() const { return source_; }
    double factor() const { return factor_; }
    bool is_given() const { return which_.kind == HALYARD_ANGLES_GIVEN; }
    std::int32_t random_position(Random &random) const {
        return static_cast<std::int32_t>(random.one_in(8) ? (random.one_in(2) ? first_ : last_)
                                                          : random.in(first_, last_));
    }

    /// With attention_factor.
    ExactCosSin exact(std::int64_t position, std::int64_t k) const {
        if (is_given()) {
            const char *const cos = first_row() + (position * stride_row() + k) * bytes();
            return {oracle::widen(which_.rows_dtype, oracle::read_word(which_.rows_dtype, cos)),
                    oracle::widen(which_.rows_dtype, oracle::read_word(which_.rows_dtype, cos + n_pairs_ * bytes()))};
        }
        const ExactCosSin one = exact_cos_sin(inv_freq_[static_cast<std::size_t>(k)], position);
        return {factor_ * one.cos, factor_ * one.sin};
    }

    /// How far off halyard.h lets an output be.
    long double bound(std::int32_t dtype, oracle::Pair<long double> x, const ExactCosSin &at, long double exact) const {
        if (is_given()) {
            return oracle::kernel_bound(dtype, std::fabs(x.x0 * at.cos) + std::fabs(x.x1 * at.sin), exact);
        }
        const long double two_eps = oracle::promised_bound(dtype, x, factor_, exact);
        return which_.kind == HALYARD_ANGLES_FACTORED ? two_eps + 2 * 0x1p-23L * std::hypot(x.x0, x.x1) * factor_
                                                      : two_eps;
    }

private:
    std::int64_t stride_row() const { return 2 * n_pairs_ + 3; }
    std::int64_t bytes() const { return oracle::element_bytes(which_.rows_dtype); }
    const char *first_row() const { return rows_.data() + 1; }
    char *first_row() { return rows_.data() + 1; }

    /// Makes a fused cache at an odd address, with gaps between its rows.
    void make_given(Random &random) {
        constexpr std::int64_t n_rows = 40;
        last_ = n_rows - 1;
        rows_.resize(static_cast<std::size_t>(n_rows * stride_row() * bytes() + 1));
        for (std::int64_t i = 0; i < n_rows * stride_row(); i++) {
            oracle::write_word(which_.rows_dtype, first_row() + i * bytes(),
                               oracle::narrow(which_.rows_dtype, static_cast<float>(random.unit())));
        }
        source_ = halyard::angle_source(halyard::frequencies(),
                                        describe_given(first_row(), first_row() + n_pairs_ * bytes(), n_rows,
                                                       stride_row(), 2 * n_pairs_, which_.rows_dtype));
    }

    const Source &which_;
    std::int64_t n_pairs_;
    double factor_ = 1;
    std::int32_t first_ = 0, last_ = 0;
    std::vector<double> inv_freq_;
    std::vector<char> rows_;
    halyard::angle_source source_;
};

std::int64_t count_wrong(const Rotation &rotation, const Angles &angles, const std::vector<std::int64_t> &positions,
                         const Elements &x, const Elements &y) {
    return count_wrong(
        rotation, x, y,
        [&](std::int64_t token, std::int64_t k) { return angles.exact(positions[static_cast<std::size_t>(token)], k); },
        [&](oracle::Pair<long double> pair, const ExactCosSin &at, long double exact) {
            return angles.bound(x.dtype, pair, at, exact);
        });
}

bool is_fused(const std::string &target) { return target != "x86_sse41"; }

}  // namespace

// ---- Runs ----------------------------------------------------------------------------------------------------------

namespace {

/// A random rotation of this width; odd numbers of pairs too, where words of two elements cannot be read.
Rotation random_rotation(std::int64_t rotary_dim, Random &random) {
    constexpr std::int64_t margins[] = {0, 0, 2, 3, 8};
    Rotation rotation;
    rotation.rotary_dim = rotary_dim;
    rotation.inverse = random.one_in(3);
    rotation.offset = random.one_of(margins);
    rotation.head_dim = rotary_dim + rotation.offset + random.one_of(margins);
    return rotation;
}

void check_run(Rotation rotation, const Angles &angles, std::int64_t n_tokens, Random &random) {
    const bool in_batches = random.one_in(3) && n_tokens % 3 == 0;
    const std::array<std::int64_t, 4> shape = {in_batches ? 3 : 1, in_batches ? n_tokens / 3 : n_tokens,
                                               random.in(1, 2), rotation.head_dim};
    std::vector<std::int64_t> positions;
    for (std::int64_t t = 0; t < n_tokens; t++) {
        positions.push_back(angles.random_position(random));
    }
    const auto at = halyard::positions(positions.data(), {shape[0], shape[1]});
    const Elements x = Elements::random(rotation.dtype, shape, random);
    CAPTURE(rotation.pairing, rotation.out_pairing, rotation.dtype, n_tokens, shape[0], rotation.offset,
            rotation.head_dim);
    rotation.target = "reference";
    const Elements want = rotate(rotation, angles.source(), &at, x);
    CHECK(count_wrong(rotation, angles, positions, x, want) == 0);
    for (const char *target : targets_here()) {
        INFO(target);
        rotation.target = target;
        const Elements y = rotate(rotation, angles.source(), &at, x);
        if (is_fused(target)) {
            CHECK(y == want);
        } else {
            CHECK(count_wrong(rotation, angles, positions, x, y) == 0);
        }
        if (rotation.pairing == rotation.out_pairing) {
            CHECK(rotate(rotation, angles.source(), &at, x, true) == y);
        }
    }
}

}  // namespace

TEST_CASE("sources: runs are within the promise, and the same bits on every target", "[sources]") {
    Random random(Catch::getSeed());
    int round = 0;
    for (const std::int64_t rotary_dim : {2, 6, 128, 576, 4096, 4100, 8192, 10000}) {
        const std::int64_t block = halyard::row_block(rotary_dim).n_tokens;
        const std::int64_t token_counts[] = {1, block, block + 1, 2 * block + 1, std::max<std::int64_t>(1, block - 1)};
        for (const Source &which : sources) {
            INFO(which.name << ", rotary_dim " << rotary_dim);
            const Angles angles(which, rotary_dim, random);
            for (const int pairings : {0, 1, 2, 3}) {
                for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16, HALYARD_BF16}) {
                    Rotation rotation = random_rotation(rotary_dim, random);
                    rotation.pairing = HALYARD_PAIRING_HALF + (pairings >> 1);
                    rotation.out_pairing = HALYARD_PAIRING_HALF + (pairings & 1);
                    rotation.dtype = dtype;
                    check_run(rotation, angles, token_counts[static_cast<std::size_t>(round++) % 5], random);
                }
            }
        }
    }
}

TEST_CASE("sources: pairs may be as long, and attention_factor as small, as halyard.h says", "[sources]") {
    Random random(Catch::getSeed());
    constexpr std::int64_t rotary_dim = 64, n_tokens = 40;
    const Rotation half = {.rotary_dim = rotary_dim};
    for (const Source &which : sources) {
        for (const double factor : {0x1p-60, 0.9, 1.0, 1.5, 1000.0, 0x1p60}) {
            const Angles angles(which, rotary_dim, random, factor);
            if (angles.is_given()) {
                continue;
            }
            std::vector<std::int64_t> positions;
            for (std::int64_t t = 0; t < n_tokens; t++) {
                positions.push_back(angles.random_position(random));
            }
            const auto at = positions_of(positions);
            for (const auto &[dtype, greatest] :
                 {std::pair(HALYARD_F32, 0x1.fffffep127), {HALYARD_F16, 65504.0}, {HALYARD_BF16, 0x1.fep127}}) {
                INFO(which.name << ", attention_factor " << factor << ", dtype " << dtype);
                const double longest = 0.999999 * greatest / factor;
                // Every result is f times the length of its pair, or a part of that.
                Elements x(dtype, {1, n_tokens, 1, rotary_dim});
                for (std::int64_t i = 0; i < n_tokens * rotary_dim / 2; i++) {
                    const std::int64_t first = i / (rotary_dim / 2) * rotary_dim + i % (rotary_dim / 2);
                    const std::int64_t second = first + rotary_dim / 2;
                    const ExactCosSin turn =
                        angles.exact(positions[static_cast<std::size_t>(first / rotary_dim)], first % rotary_dim);
                    const double length = std::min(longest, greatest) / factor;
                    const double part = random.one_in(2) ? random.unit() : 0;  // of y1
                    const auto y0 = static_cast<long double>(length * std::sqrt(1 - part * part));
                    const auto y1 = static_cast<long double>(length * part);
                    const auto back = oracle::rotate_exactly({y0, y1}, turn.cos, -turn.sin);
                    x.set_word(first, oracle::narrow(dtype, static_cast<float>(back.x0)));
                    x.set_word(second, oracle::narrow(dtype, static_cast<float>(back.x1)));
                    while (!(std::hypot(double{x[first]}, double{x[second]}) <= longest)) {
                        const std::int64_t longer = std::fabs(x[first]) > std::fabs(x[second]) ? first : second;
                        x.set_word(longer, x.word(longer) - 1);  // towards zero
                    }
                }
                Rotation rotation = half;
                rotation.dtype = dtype;
                for (const char *target : targets_here()) {
                    INFO(target);
                    rotation.target = target;
                    CHECK(count_wrong(rotation, angles, positions, x, rotate(rotation, angles.source(), &at, x)) == 0);
                }
            }
        }
    }
}

TEST_CASE("sources: splits over threads change no bit", "[sources][threads]") {
    Random random(Catch::getSeed());
    struct Shape {
        std::int64_t rotary_dim, batch, tokens, heads;
    };
    // Threads share tokens, across batch rows and in the middle of blocks; where tokens are few, they share heads.
    constexpr Shape shapes[] = {{128, 3, 71, 8}, {64, 5, 1, 700}, {576, 2, 9, 16}, {10000, 1, 3, 13}, {4096, 2, 11, 3}};
    for (const Shape &shape : shapes) {
        for (const Source &which : sources) {
            const Angles angles(which, shape.rotary_dim, random);
            Rotation rotation;
            rotation.rotary_dim = shape.rotary_dim;
            rotation.head_dim = shape.rotary_dim + 6;
            rotation.offset = 4;
            rotation.pairing = random.one_in(2) ? HALYARD_PAIRING_HALF : HALYARD_PAIRING_INTERLEAVED;
            std::vector<std::int32_t> positions;
            for (std::int64_t t = 0; t < shape.batch * shape.tokens; t++) {
                positions.push_back(angles.random_position(random));
            }
            const auto at = halyard::positions(positions.data(), {shape.batch, shape.tokens});
            const Elements x =
                Elements::random(HALYARD_F32, {shape.batch, shape.tokens, shape.heads, rotation.head_dim}, random);
            for (const char *target : targets_here()) {
                rotation.target = target;
                const Elements want = rotate(rotation, angles.source(), &at, x);
                for (const int n_threads : {2, 3, 5}) {
                    INFO(which.name << ", rotary_dim " << shape.rotary_dim << ", " << target << ", " << n_threads);
                    const halyard::pool pool(n_threads);
                    CHECK(rotate(rotation, angles.source(), &at, x, n_threads == 3, pool.executor()) == want);
                }
            }
        }
    }
}

TEST_CASE("sources: rows of halyard_make_rows, given, rotate to the same bits", "[sources]") {
    Random random(Catch::getSeed());
    for (const std::int64_t rotary_dim : {2, 90, 128, 4096, 10000}) {
        for (const Source &which : sources) {
            INFO(which.name << ", rotary_dim " << rotary_dim);
            const Angles angles(which, rotary_dim, random);
            const std::int64_t n_batch = 2, n_tokens = rotary_dim > 1000 ? 3 : 41;
            std::vector<std::int32_t> positions;
            for (std::int64_t t = 0; t < n_batch * n_tokens; t++) {
                positions.push_back(angles.random_position(random));
            }
            const auto at = halyard::positions(positions.data(), {n_batch, n_tokens});
            const auto rows = rows_of(angles.source(), &at, n_batch, n_tokens);
            const auto given = halyard::angle_source::given_by_token(rows.data(), n_batch * n_tokens, rotary_dim);
            Rotation rotation;
            rotation.rotary_dim = rotary_dim;
            const Elements x = Elements::random(HALYARD_F32, {n_batch, n_tokens, 2, rotary_dim}, random);
            CHECK(rotate(rotation, given, nullptr, x) == rotate(rotation, angles.source(), &at, x));
        }
    }
}

TEST_CASE("sources: tokens without stated positions, and from a start on", "[sources]") {
    Random random(Catch::getSeed());
    const std::int64_t rotary_dim = 128, n_batch = 2, n_tokens = 70;  // more than two blocks of rows
    Rotation rotation;
    rotation.rotary_dim = rotary_dim;
    const Elements x = Elements::random(HALYARD_BF16, {n_batch, n_tokens, 2, rotary_dim}, random);
    rotation.dtype = HALYARD_BF16;
    const auto frequencies = halyard::frequencies::from_base(10000, rotary_dim);
    for (const std::int32_t kind : {HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
        INFO(kind);
        const auto source = make_source(frequencies, kind, -5000, 5000);
        const std::int64_t starts[] = {-4000, 4930};
        std::vector<std::int64_t> counted, started;
        for (std::int64_t t = 0; t < n_batch * n_tokens; t++) {
            counted.push_back(t % n_tokens);
            started.push_back(starts[t / n_tokens] + t % n_tokens);
        }
        const auto of_count = halyard::positions(counted.data(), {n_batch, n_tokens});
        CHECK(rotate(rotation, source, nullptr, x) == rotate(rotation, source, &of_count, x));
        const auto from_start = halyard::consecutive_positions(starts, 2);
        const auto of_start = halyard::positions(started.data(), {n_batch, n_tokens});
        CHECK(rotate(rotation, source, &from_start, x) == rotate(rotation, source, &of_start, x));
    }
}

// ---- Positions that are not covered --------------------------------------------------------------------------------

namespace {

/// One position of a source that covers a range, by each policy.
void check_policies(const halyard::angle_source &source, double factor, std::int64_t position) {
    INFO("position " << position);
    const auto info = source.info();
    const auto at = halyard::positions(&position, {1, 1});
    const std::int64_t nearest = std::clamp<std::int64_t>(position, info.first, info.last);
    const auto of_nearest = halyard::positions(&nearest, {1, 1});
    const bool is_covered = position == nearest;
    const auto want = rows_of(source, &of_nearest, 1, 1);
    CHECK(rows_of(source, &at, 1, 1, halyard::bad_position::clamp) == want);

    // Without a rotation not even the last bit may differ.
    std::vector<float> no_rotation(want.size(), 0.0f);
    std::fill_n(no_rotation.begin(), want.size() / 2, static_cast<float>(factor));
    CHECK(rows_of(source, &at, 1, 1, halyard::bad_position::identity) == (is_covered ? want : no_rotation));

    const Rotation rotation = {.rotary_dim = info.rotary_dim};
    Elements x(HALYARD_F32, {1, 1, 1, info.rotary_dim}, std::vector<float>(want.size(), 0.75f));
    Elements y(HALYARD_F32, x.shape);
    const Elements before = y;
    halyard::run_options options;
    options.positions = at;
    std::string message;
    try {
        halyard::run(rotation.plan(), source, x.tensor(), y.tensor(), options);
    } catch (const halyard::error &error) {
        CHECK(error.status() == HALYARD_ERROR_POSITION);
        message = error.what();
    }
    CHECK(message == (is_covered ? ""
                                 : "positions[batch 0, token 0] is " + std::to_string(position) +
                                       ", but the angle source covers " + std::to_string(info.first) + " to " +
                                       std::to_string(info.last)));
    CHECK((y == before) == !is_covered);
    options.policy = halyard::bad_position::clamp;
    halyard::run(rotation.plan(), source, x.tensor(), y.tensor(), options);
    CHECK(y == rotate(rotation, source, &of_nearest, x));
}

}  // namespace

TEST_CASE("sources: positions out of range, by policy", "[sources]") {
    const double factor = 1.3;
    std::vector<double> list;
    for (int k = 0; k < 12; k++) {
        list.push_back(std::pow(10000.0, -static_cast<double>(k) / 12));
    }
    const auto frequencies = make_frequencies(list, factor);
    using Limits = std::numeric_limits<std::int64_t>;
    for (const std::int32_t kind : {HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
        for (const auto &[first, last] :
             std::initializer_list<std::pair<std::int32_t, std::int32_t>>{{0, 99},
                                                                          {0, 0},
                                                                          {100, 199},
                                                                          {-500, -400},
                                                                          {-5, 5},
                                                                          {7, 7},
                                                                          {least_position, least_position + 3},
                                                                          {greatest_position - 3, greatest_position},
                                                                          {least_position, greatest_position}}) {
            INFO((kind == HALYARD_ANGLES_PHASE ? "phase " : "factored ") << first << " to " << last);
            const auto source = make_source(frequencies, kind, first, last);
            CHECK((source.info().first == first && source.info().last == last));
            const std::int64_t below = first, above = last, two_31 = std::int64_t{1} << 31;
            for (const std::int64_t position : {below, above, below - 1, above + 1, std::int64_t{0}, two_31,
                                                -two_31 - 1, 2 * two_31, two_31 << 31, Limits::min(), Limits::max()}) {
                check_policies(source, factor, position);
            }
        }
    }
}

TEST_CASE("sources: what AUTO stands for", "[sources]") {
    const auto kind_of = [](const halyard::frequencies &frequencies, std::int32_t first, std::int32_t last) {
        const auto info = make_source(frequencies, HALYARD_ANGLES_AUTO, first, last).info();
        CHECK(info.first == first);
        CHECK(info.last == last);
        return info.kind;
    };
    // A table may have 64 MiB, or 2^24 floats: 16 rows of 2^20, or 2^17 rows of 128.
    const auto wide = halyard::frequencies::from_base(10000, 1 << 20);
    CHECK(kind_of(wide, -8, 7) == HALYARD_ANGLES_TABLE);
    CHECK(kind_of(wide, -8, 8) == HALYARD_ANGLES_PHASE);
    CHECK(kind_of(wide, least_position, greatest_position) == HALYARD_ANGLES_PHASE);
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    CHECK(kind_of(frequencies, 0, (1 << 17) - 1) == HALYARD_ANGLES_TABLE);
    CHECK(kind_of(frequencies, 0, 1 << 17) == HALYARD_ANGLES_PHASE);
    CHECK(kind_of(halyard::frequencies::from_base(10000, 2), least_position, greatest_position) ==
          HALYARD_ANGLES_PHASE);

    // Only a table serves these.
    auto desc = describe_source(HALYARD_ANGLES_AUTO, least_position, greatest_position);
    const std::int32_t positions[] = {1, 5};
    const auto listed = halyard::positions(positions, {1, 2});
    desc.listed = &listed;
    CHECK(halyard::angle_source(frequencies, desc).info().kind == HALYARD_ANGLES_TABLE);
    desc.reference = HALYARD_REFERENCE_HF_F32;
    CHECK(halyard::angle_source(frequencies, desc).info().kind == HALYARD_ANGLES_TABLE);
}

TEST_CASE("sources: what they own", "[sources]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    const auto phase = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position).info();
    CHECK(phase.kind == HALYARD_ANGLES_PHASE);
    CHECK(phase.rotary_dim == 128);
    CHECK(phase.bytes == 64 * 8);
    const auto factored = make_source(frequencies, HALYARD_ANGLES_FACTORED, 0, 999'999).info();
    CHECK(factored.kind == HALYARD_ANGLES_FACTORED);
    CHECK(factored.bytes <= 4 * 1000 * 128 * sizeof(float));  // about as many rows as the root of a million
}

// ---- Hugging Face's angles -----------------------------------------------------------------------------------------

namespace {

/// How many floats lie between two floats of any sign.
std::int64_t ulps_between(float a, float b) {
    const auto order = [](float value) {
        const auto word = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
        return std::signbit(value) ? -word : word;
    };
    return std::abs(order(a) - order(b));
}

halyard::angle_source hf_table(const halyard::frequencies &frequencies, const halyard_positions &listed) {
    auto desc = describe_source(HALYARD_ANGLES_TABLE, least_position, greatest_position);
    desc.listed = &listed;
    desc.reference = HALYARD_REFERENCE_HF_F32;
    return halyard::angle_source(frequencies, desc);
}

}  // namespace

TEST_CASE("sources: hf_f32 is within an ulp of transformers' cos and sin, given its frequencies", "[sources][golden]") {
    const golden::Section section("hf_apply"), of_frequencies("frequencies");
    std::int64_t greatest = 0, n_off = 0, n_far_from_exact = 0, n_all = 0;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const auto evaluation = of_frequencies.find_case(entry.at("frequencies_case")).at("evaluations").at(0);
        const auto hf = of_frequencies.array<float>(evaluation.at("inv_freq_hf_f32")).values;
        const std::vector<double> list(hf.begin(), hf.end());
        const auto n_pairs = static_cast<std::int64_t>(list.size());
        const auto frequencies =
            halyard::frequencies::from_list(list.data(), n_pairs, evaluation.at("attention_factor").get<double>());
        const auto positions = section.array<std::int64_t>(entry.at("positions")).values;
        const auto n_tokens = static_cast<std::int64_t>(positions.size());
        const auto at = halyard::positions(positions.data(), {1, n_tokens});
        const auto rows = rows_of(hf_table(frequencies, at), &at, 1, n_tokens);
        const auto exact_rows =
            rows_of(halyard::angle_source::table(frequencies, least_position, greatest_position, at), &at, 1, n_tokens);
        const auto cos = section.array<float>(entry.at("cos")), sin = section.array<float>(entry.at("sin"));
        REQUIRE(cos.shape == std::vector<std::int64_t>{n_tokens, n_pairs});
        for (std::int64_t i = 0; i < n_tokens * n_pairs; i++) {
            const auto in_rows = static_cast<std::size_t>(i / n_pairs * 2 * n_pairs + i % n_pairs);
            for (const bool is_sin : {false, true}) {
                const float theirs = (is_sin ? sin : cos).values[static_cast<std::size_t>(i)];
                const std::size_t where = in_rows + static_cast<std::size_t>(is_sin ? n_pairs : 0);
                const std::int64_t ulps = ulps_between(rows[where], theirs);
                greatest = std::max(greatest, ulps);
                n_off += ulps != 0 ? 1 : 0;
                n_far_from_exact += ulps_between(exact_rows[where], theirs) > 1 ? 1 : 0;
                n_all++;
            }
        }
    }
    CHECK(greatest <= 1);
    CHECK(n_far_from_exact >
          n_all / 20);  // Hugging Face's angles are far from exact, so this comparison shows something
    WARN("hf_f32: " << n_off << " of " << n_all << " cos and sin differ from transformers', by at most " << greatest
                    << " ulp; " << n_far_from_exact << " of the exact ones by more than 1");
}

TEST_CASE("sources: hf_f32 is of the angle in float32, at every position", "[sources]") {
    Random random(Catch::getSeed());
    std::int64_t n_wrong = 0;
    for (int round = 0; round < 400; round++) {
        std::vector<double> list;
        for (int k = 0; k < 16; k++) {
            list.push_back(static_cast<float>(random.unit() * std::exp2(static_cast<double>(random.in(-40, 20)))));
        }
        const double factor = random.one_of(attention_factors);
        const auto frequencies = halyard::frequencies::from_list(list.data(), 16, factor);
        std::vector<std::int32_t> positions = {0, 1, -1, 16777217, least_position, greatest_position};
        while (positions.size() < 20) {
            positions.push_back(
                static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 60)));
        }
        const auto at = halyard::positions(positions.data(), {1, 20});
        const auto rows = rows_of(hf_table(frequencies, at), &at, 1, 20);
        for (std::size_t i = 0; i < 20 * 16; i++) {
            const float angle = static_cast<float>(positions[i / 16]) * static_cast<float>(list[i % 16]);
            // long double is wide enough: it is most unlikely that the middle of two floats lies within its error.
            const long double scale = static_cast<float>(factor);
            const auto cos = static_cast<float>(scale * std::cos(static_cast<long double>(angle)));
            const auto sin = static_cast<float>(scale * std::sin(static_cast<long double>(angle)));
            const std::size_t where = i / 16 * 32 + i % 16;
            n_wrong += rows[where] == cos ? 0 : 1;
            n_wrong += rows[where + 16] == sin ? 0 : 1;
        }
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("sources: hf_f32 frequencies from a config are some ulp from transformers'", "[sources][golden]") {
    const golden::Section section("frequencies");
    std::int64_t greatest = 0;
    std::string report;
    for (const auto &entry : section.cases()) {
        const auto form = entry.at("config_new").is_null() ? "config_old" : "config_new";
        std::ifstream file(std::string(HALYARD_GOLDEN_DIR "/frequencies/") + entry.at(form).get<std::string>());
        const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        std::int64_t of_case = 0;
        for (const auto &evaluation : entry.at("evaluations")) {
            const auto layer_type =
                evaluation.at("layer_type").is_null() ? "" : evaluation.at("layer_type").get<std::string>();
            const auto frequencies = halyard::frequencies::from_config(
                text.data(), static_cast<std::int64_t>(text.size()),
                evaluation.at("seq_len").is_null() ? 0 : evaluation.at("seq_len").get<std::int64_t>(),
                layer_type.empty() ? nullptr : layer_type.c_str());
            const auto hf = section.array<float>(evaluation.at("inv_freq_hf_f32")).values;
            REQUIRE(frequencies.info().rotary_dim == 2 * static_cast<std::int64_t>(hf.size()));
            for (std::size_t k = 0; k < hf.size(); k++) {
                of_case = std::max(of_case, ulps_between(static_cast<float>(frequencies.info().inv_freq[k]), hf[k]));
            }
        }
        greatest = std::max(greatest, of_case);
        report += " " + entry.at("name").get<std::string>() + " " + std::to_string(of_case);
    }
    CHECK(greatest <= 4);
    WARN("ulp between float32(inv_freq) and transformers':" << report);
}

TEST_CASE("sources: hf_f32 reads given rows as they are", "[sources]") {
    const float rows[] = {0.25f, 0.5f, 0.75f, 1.0f};
    auto desc = describe_given(rows, rows + 2, 1, 4, 4);
    desc.reference = HALYARD_REFERENCE_HF_F32;
    const halyard::angle_source source{halyard::frequencies(), desc};
    CHECK(rows_of(source, nullptr, 1, 1) == std::vector<float>(rows, rows + 4));
}
