// Angle sources of every kind: random cases of wide heads, pairs of the greatest permitted length, ranges of positions,
// and sources' infos. test_source_errors.cpp tests bad descriptions, test_references.cpp engines' cos and sin,
// test_row_kernels.cpp the accuracy of rows.
#include "checks/cases/run_modes.h"
#include "checks/make_sources.h"
#include "count_wrong.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace cases;
using oracle::Random;

TEST_CASE("sources: runs are within the promise, and the same bits on every target", "[sources]") {
    Random random(Catch::getSeed());
    constexpr std::int64_t rotary_dims[] = {2, 6, 128, 576, 4096, 4100, 8192, 10000}, margins[] = {0, 0, 2, 3, 8};
    Levels n_levels;
    n_levels.fill(1);
    n_levels[of_head_dim] = std::size(rotary_dims);
    n_levels[of_source] = of_kv_path[of_source];
    n_levels[of_pairing] = 4 * of_kv_path[of_dtype];  // all pairings, with each dtype
    n_levels[of_shape] = 5;                           // numbers of tokens
    for (const Levels &levels : cover_level_pairs(random, n_levels)) {
        const std::int64_t rotary_dim = rotary_dims[levels[of_head_dim]];
        const std::int64_t block = halyard::row_block(rotary_dim).n_tokens;
        const std::int64_t token_counts[] = {1, block, block + 1, 2 * block + 1, std::max<std::int64_t>(1, block - 1)};
        const std::int64_t n = token_counts[levels[of_shape]];
        const std::int64_t n_batch = random.one_in(3) && n % 3 == 0 ? 3 : 1;
        Choice choice = Choice::of_rotations();
        choice.n_tensors = 1;
        choice.shape = {n_batch, n / n_batch, random.in(1, 2)};
        choice.rotary_dim = rotary_dim;
        choice.rotary_offset = random.one_of(margins);
        choice.head_dim = rotary_dim + choice.rotary_offset + random.one_of(margins);
        choice.level[of_source] = levels[of_source];
        choice.level[of_values] = 0;
        choice.level[of_pairing] = levels[of_pairing] % 4;
        choice.level[of_dtype] = levels[of_pairing] / 4;
        Draw draw(random);
        Case drawn(draw, choice);
        REQUIRE(fault_in_run_modes(drawn) == "");
    }
}

namespace {

/// Pairs (x0, x1) of the greatest length that halyard.h permits. The rotation takes half of them to (y0, 0), where
/// y0 is that length times the attention factor f. `turns` has the cos and sin of each token's pairs, multiplied by f.
Elements longest_pairs(std::int32_t dtype, double greatest, double factor, std::int64_t n_pairs,
                       const std::vector<ExactCosSin> &turns, Random &random) {
    const double longest = 0.999999 * greatest / factor;
    Elements x(dtype, {1, static_cast<std::int64_t>(turns.size()) / n_pairs, 1, 2 * n_pairs});
    for (std::int64_t i = 0; i < std::ssize(turns); i++) {
        const std::int64_t first = i / n_pairs * 2 * n_pairs + i % n_pairs, second = first + n_pairs;
        const ExactCosSin &turn = turns[static_cast<std::size_t>(i)];
        const double length = std::min(longest, greatest) / factor;
        const double part = random.one_in(2) ? random.unit() : 0;  // y1's part of the length
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
    return x;
}

}  // namespace

// Random cases of any bits show that all targets have the same bits, so one target is enough here.
TEST_CASE("sources: pairs may be as long, and attention_factor as small, as halyard.h says", "[sources]") {
    Random random(Catch::getSeed());
    constexpr std::int64_t rotary_dim = 64, n_pairs = rotary_dim / 2, n_tokens = 40;
    constexpr struct {
        std::int32_t kind, first, last;
    } ranges[] = {{HALYARD_ANGLES_TABLE, -20, 40},
                  {HALYARD_ANGLES_TABLE, greatest_position - 60, greatest_position},
                  {HALYARD_ANGLES_PHASE, least_position, greatest_position}};
    const auto exact = oracle::inv_freq_of(500000, rotary_dim);
    const std::vector<double> inv_freq(exact.begin(), exact.end());
    for (const auto &[kind, first, last] : ranges) {
        for (const double factor : {0x1p-60, 0.9, 1.0, 1.5, 1000.0, 0x1p60}) {
            const auto source = make_source(make_frequencies(inv_freq, factor), kind, first, last);
            std::vector<std::int64_t> positions = {first, last};
            while (std::ssize(positions) < n_tokens) {
                positions.push_back(random.in(first, last));
            }
            std::vector<ExactCosSin> turns;
            for (std::int64_t i = 0; i < n_tokens * n_pairs; i++) {
                const auto turn = exact_cos_sin(inv_freq[static_cast<std::size_t>(i % n_pairs)],
                                                positions[static_cast<std::size_t>(i / n_pairs)]);
                turns.push_back({factor * turn.cos, factor * turn.sin});
            }
            const auto at = positions_of(positions);
            for (const auto &[dtype, greatest] :
                 {std::pair(HALYARD_F32, 0x1.fffffep127), {HALYARD_F16, 65504.0}, {HALYARD_BF16, 0x1.fep127}}) {
                const Elements x = longest_pairs(dtype, greatest, factor, n_pairs, turns, random);
                INFO(kind << " from " << first << ", attention_factor " << factor << ", dtype " << dtype);
                const Rotation rotation = {.rotary_dim = rotary_dim, .dtype = dtype};
                CHECK(count_wrong(
                          rotation, x, rotate(rotation, source, &at, x),
                          [&](std::int64_t token, std::int64_t k) {
                              return turns[static_cast<std::size_t>(token * n_pairs + k)];
                          },
                          [&](oracle::Pair<long double> pair, const ExactCosSin &, long double result) {
                              return oracle::promised_bound(dtype, pair, factor, result);
                          }) == 0);
            }
        }
    }
}

// Random cases (checks/cases/draw_run.cpp) test bad positions of every size by every policy.
TEST_CASE("sources: ranges are covered, and outside is no rotation to the last bit", "[sources]") {
    const double factor = 1.3;
    const auto frequencies = halyard::frequencies::from_base(10000, 24);
    frequencies.get()->attention_factor = factor;  // frequencies from a base have none
    constexpr struct {
        std::int32_t first, last;
        std::int64_t n_rows;  // rows of a table: position 0 always has one, even if it is not covered
    } ranges[] = {{0, 99, 100},
                  {0, 0, 1},
                  {100, 199, 101},
                  {-500, -400, 102},
                  {-5, 5, 11},
                  {7, 7, 2},
                  {least_position, least_position + 3, 5},
                  {greatest_position - 3, greatest_position, 5},
                  {least_position, greatest_position, 0}};
    for (const auto &[first, last, n_rows] : ranges) {
        for (const std::int32_t kind : {HALYARD_ANGLES_PHASE, HALYARD_ANGLES_TABLE}) {
            if (kind == HALYARD_ANGLES_TABLE && n_rows == 0) {
                continue;
            }
            INFO(first << " to " << last << ", kind " << kind);
            const auto source = make_source(frequencies, kind, first, last);
            const auto info = source.info();
            CHECK((info.first == first && info.last == last));
            CHECK(info.n_rows == (kind == HALYARD_ANGLES_TABLE ? n_rows : 0));
            std::vector<float> no_rotation(24, 0.0f);
            std::fill_n(no_rotation.begin(), 12, static_cast<float>(factor));
            for (const std::int64_t outside : {std::int64_t{first} - 1, std::int64_t{last} + 1}) {
                const auto at = halyard::positions(&outside, {1, 1});
                CHECK(rows_of(source, &at, 1, 1, halyard::bad_position::identity) == no_rotation);
            }
        }
    }
}

TEST_CASE("sources: what AUTO stands for", "[sources]") {
    // A table may have 64 MiB, or 2^24 floats: 16 rows of 2^20 floats, or 2^17 rows of 128 floats.
    const struct {
        std::int64_t rotary_dim;
        std::int32_t first;
        std::int64_t n_positions;
        std::int32_t kind, reference = HALYARD_REFERENCE_EXACT;
    } rows[] = {
        {1 << 20, -8, 16, HALYARD_ANGLES_TABLE},
        {1 << 20, -8, 17, HALYARD_ANGLES_PHASE},
        {1 << 20, least_position, halyard::all_positions, HALYARD_ANGLES_PHASE},
        {128, 0, 1 << 17, HALYARD_ANGLES_TABLE},
        {128, 0, (1 << 17) + 1, HALYARD_ANGLES_PHASE},
        {2, least_position, halyard::all_positions, HALYARD_ANGLES_PHASE},
        {128, 0, (1 << 17) + 1, HALYARD_ANGLES_TABLE, HALYARD_REFERENCE_HF_F32},  // only tables have references
    };
    for (const auto &row : rows) {
        CAPTURE(row.rotary_dim, row.n_positions);
        auto desc = halyard::describe_angles(HALYARD_ANGLES_AUTO, row.first, row.n_positions);
        desc.reference = row.reference;
        const auto info = halyard::angle_source(halyard::frequencies::from_base(10000, row.rotary_dim), desc).info();
        CHECK((info.kind == row.kind && info.first == row.first && info.last == row.first + row.n_positions - 1));
    }
}

TEST_CASE("sources: what they own", "[sources]") {
    const auto frequencies = halyard::frequencies::from_base(10000, 128);
    const auto phase = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position).info();
    CHECK((phase.kind == HALYARD_ANGLES_PHASE && phase.rotary_dim == 128 && phase.bytes == 64 * 8));
    const auto table = make_source(frequencies, HALYARD_ANGLES_TABLE, -40, 60);
    CHECK(table.info().bytes == 101 * 128 * 4 + 64 * 8);
    const auto with_axes = halyard::describe_angles(HALYARD_ANGLES_PHASE, halyard::axis_map::sections({32, 16, 16}));
    CHECK(halyard::angle_source(frequencies, with_axes).info().bytes == 64 * 8 + 64 * (1 + 4));  // the axis of each pair
    CHECK(reinterpret_cast<std::uintptr_t>(table.get()->cos_rows) % 64 == 0);
}
