// The makers of rows: every target against the reference bit by bit, and all of them against exact cos and sin.
#include "golden.h"
#include "guarded_memory.h"
#include "oracle.h"
#include "sources.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <map>
#include <sstream>
#include <string>

namespace {

using oracle::Random;

constexpr double phase_bound = 1.2e-7, factored_bound = 2.4e-7;  // of cos and sin, times attention_factor

/// n values that end where a page begins that nothing may touch, or begin where such a page ends.
template <typename T>
class Guarded {
public:
    Guarded(std::int64_t n, bool at_end)
        : memory_(static_cast<std::size_t>(n) * sizeof(T) / GuardedMemory::page + 1),
          first_(reinterpret_cast<T *>(at_end ? memory_.end() - static_cast<std::size_t>(n) * sizeof(T)
                                              : memory_.begin())),
          n_(n) {}

    T *data() { return first_; }
    T &operator[](std::int64_t i) { return first_[i]; }
    T *begin() { return first_; }
    T *end() { return first_ + n_; }

private:
    GuardedMemory memory_;
    T *first_;
    std::int64_t n_;
};

/// A buffer as a kernel reads it.
struct Buffer {
    halyard_buffer header = {};
    halyard_dimension dims[3] = {};

    Buffer(const void *data, std::int64_t n, std::int64_t stride_member = 0, std::int64_t n_rows = 0,
           std::int64_t stride_row = 0) {
        header.host = static_cast<std::uint8_t *>(const_cast<void *>(data));
        header.dimensions = n_rows == 0 ? 1 : 3;
        header.dim = dims;
        dims[0] = {0, static_cast<std::int32_t>(n), 1, 0};
        dims[1] = {0, 2, static_cast<std::int32_t>(stride_member), 0};
        dims[2] = {0, static_cast<std::int32_t>(n_rows), static_cast<std::int32_t>(stride_row), 0};
    }
};

/// Where rows go: cos of pair k of token t to t * stride_token + k, sin stride_sin further.
struct Layout {
    std::int64_t n_tokens, n_pairs, stride_token, stride_sin;

    std::int64_t extent() const { return (n_tokens - 1) * stride_token + stride_sin + n_pairs; }
};

Layout random_layout(Random &random) {
    static constexpr std::int64_t long_rows[] = {128, 288, 1000, 2048, 5000};
    Layout layout = {};
    layout.n_pairs = random.one_in(8) ? random.one_of(long_rows) : random.in(1, 97);
    layout.n_tokens = random.in(1, layout.n_pairs > 500 ? 3 : 7);
    if (random.one_in(4)) {  // all cos, then all sin
        layout.stride_token = layout.n_pairs + random.in(0, 3);
        layout.stride_sin = layout.n_tokens * layout.stride_token + random.in(0, 3);
    } else {
        layout.stride_sin = layout.n_pairs + random.in(0, 3);
        layout.stride_token = layout.stride_sin + layout.n_pairs + random.in(0, 3);
    }
    return layout;
}

std::int32_t random_position(Random &random) {
    static constexpr std::int32_t special[] = {0, 1, -1, 2, least_position, least_position + 1, greatest_position};
    return random.one_in(3) ? random.one_of(special)
                            : static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 62));
}

/// A frequency in 2^-64 turns; half of them such that position 1 or -1 comes near a border of octants.
std::uint64_t random_turns(Random &random) {
    if (random.one_in(2)) {
        return random.bits();
    }
    const std::uint64_t border = random.bits() << 61;
    return border + static_cast<std::uint64_t>(static_cast<std::int64_t>(random.bits()) >> random.in(3, 40));
}

/// What a kernel has to work out, with the angle exact: position * turns wraps in 64 bits.
ExactCosSin exact_of_turns(std::uint64_t turns, std::int32_t position) {
    const auto angle = static_cast<std::int64_t>(turns * static_cast<std::uint64_t>(std::int64_t{position}));
    const long double theta = static_cast<long double>(angle) * 0x1p-63L * std::acos(-1.0L);
    return {std::cos(theta), std::sin(theta)};
}

constexpr float poison = -7.25e30f;

/// How many elements of out are not the bits of `want`; any NaN is as good as any other.
std::int64_t count_different(const float *out, const std::vector<float> &want) {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < want.size(); i++) {
        const bool same = std::bit_cast<std::uint32_t>(out[i]) == std::bit_cast<std::uint32_t>(want[i]) ||
                          (std::isnan(out[i]) && std::isnan(want[i]));
        n += same ? 0 : 1;
    }
    return n;
}

/// How many elements of out that are no row's are not poison any more.
std::int64_t count_spoilt(const float *out, const std::vector<float> &want) {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < want.size(); i++) {
        n += want[i] == poison && out[i] != poison ? 1 : 0;
    }
    return n;
}

}  // namespace

TEST_CASE("row kernels: every target of kernels has them", "[rows]") {
    int index = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        const auto target = static_cast<halyard::Target>(index++);
        if (info.built != 0) {
            INFO(info.name);
            const halyard::RowKernels kernels = halyard::select_row_kernels(halyard::bit(target));
            CHECK(kernels.target == target);
            CHECK((kernels.phase == nullptr) == (target == halyard::Target::reference));
            CHECK((kernels.factored == nullptr) == (target == halyard::Target::reference));
        }
    }
    CHECK(halyard::select_row_kernels(0).target == halyard::Target::reference);
}

TEST_CASE("row kernels: phase, the reference's bits within the memory that they are given", "[rows]") {
    Random random(Catch::getSeed());
    for (const RowMaker &maker : row_makers()) {
        INFO(maker.name);
        std::int64_t n_different = 0, n_spoilt = 0, n_beyond = 0;
        for (int trial = 0; trial < 400; trial++) {
            const Layout layout = random_layout(random);
            const double factor = random.one_of(attention_factors);
            const auto scale_high = static_cast<float>(factor), scale_low = static_cast<float>(factor - scale_high);
            const bool at_end = !random.one_in(4);
            Guarded<std::int32_t> positions(layout.n_tokens, at_end);
            Guarded<std::uint32_t> high(layout.n_pairs, at_end), low(layout.n_pairs, at_end);
            Guarded<float> out(layout.extent(), at_end);
            for (std::int32_t &position : positions) {
                position = random_position(random);
            }
            for (std::int64_t k = 0; k < layout.n_pairs; k++) {
                const std::uint64_t turns = random_turns(random);
                high[k] = static_cast<std::uint32_t>(turns >> 32);
                low[k] = static_cast<std::uint32_t>(turns);
            }
            std::fill(out.begin(), out.end(), poison);
            std::vector<float> want(out.begin(), out.end());
            for (std::int64_t t = 0; t < layout.n_tokens; t++) {
                float *const row = want.data() + t * layout.stride_token;
                halyard::phase_row_reference(positions[t], high.data(), low.data(), scale_high, scale_low,
                                             layout.n_pairs, row, row + layout.stride_sin);
            }
            if (maker.kernels.phase != nullptr) {
                Buffer position(positions.data(), layout.n_tokens), turns_high(high.data(), layout.n_pairs),
                    turns_low(low.data(), layout.n_pairs);
                Buffer rows(out.data(), layout.n_pairs, layout.stride_sin, layout.n_tokens, layout.stride_token);
                REQUIRE(maker.kernels.phase(&position.header, &turns_high.header, &turns_low.header, scale_high,
                                            scale_low, &rows.header) == 0);
            } else {
                std::copy(want.begin(), want.end(), out.begin());
            }
            n_different += maker.fused ? count_different(out.data(), want) : 0;
            n_spoilt += count_spoilt(out.data(), want);
            for (std::int64_t t = 0; t < layout.n_tokens; t++) {
                for (std::int64_t k = 0; k < layout.n_pairs; k++) {
                    const std::uint64_t turns = std::uint64_t{high[k]} << 32 | low[k];
                    const ExactCosSin exact = exact_of_turns(turns, positions[t]);
                    const float *const cos = out.data() + t * layout.stride_token + k;
                    n_beyond += std::fabs(cos[0] - factor * exact.cos) <= phase_bound * factor ? 0 : 1;
                    n_beyond += std::fabs(cos[layout.stride_sin] - factor * exact.sin) <= phase_bound * factor ? 0 : 1;
                }
            }
        }
        CHECK(n_different == 0);
        CHECK(n_spoilt == 0);
        CHECK(n_beyond == 0);
    }
}

TEST_CASE("row kernels: factored, the reference's bits within the memory that they are given", "[rows]") {
    Random random(Catch::getSeed());
    for (const RowMaker &maker : row_makers()) {
        INFO(maker.name);
        std::int64_t n_different = 0, n_spoilt = 0, n_beyond = 0;
        for (int trial = 0; trial < 400; trial++) {
            const Layout layout = random_layout(random);
            const bool at_end = !random.one_in(4);
            Guarded<std::int32_t> coarse_row(layout.n_tokens, at_end), fine_row(layout.n_tokens, at_end);
            // Tables of which the pairs are a part, as where pairs are done in blocks.
            const std::int64_t n_coarse = random.in(1, 5), n_fine = random.in(1, 4);
            const std::int64_t stride_sin = layout.n_pairs + random.in(0, 3);
            const std::int64_t stride_row = 2 * stride_sin;
            const auto extent = [&](std::int64_t n) { return (n - 1) * stride_row + stride_sin + layout.n_pairs; };
            Guarded<float> coarse(extent(n_coarse), at_end), fine(extent(n_fine), at_end);
            Guarded<float> out(layout.extent(), at_end);
            const auto values = random.one_in(4) ? oracle::Values::special : oracle::Values::ordinary;
            for (Guarded<float> *table : {&coarse, &fine}) {
                for (float &value : *table) {
                    value = oracle::widen(HALYARD_F32, oracle::random_word(random, HALYARD_F32, values));
                }
            }
            for (std::int64_t t = 0; t < layout.n_tokens; t++) {
                coarse_row[t] = static_cast<std::int32_t>(random.in(0, n_coarse - 1));
                fine_row[t] = static_cast<std::int32_t>(random.in(0, n_fine - 1));
            }
            std::fill(out.begin(), out.end(), poison);
            std::vector<float> want(out.begin(), out.end());
            for (std::int64_t t = 0; t < layout.n_tokens; t++) {
                const float *const a = coarse.data() + coarse_row[t] * stride_row;
                const float *const b = fine.data() + fine_row[t] * stride_row;
                float *const row = want.data() + t * layout.stride_token;
                halyard::factored_row_reference(a, a + stride_sin, b, b + stride_sin, layout.n_pairs, row,
                                                row + layout.stride_sin);
            }
            if (maker.kernels.factored != nullptr) {
                Buffer at_coarse(coarse_row.data(), layout.n_tokens), at_fine(fine_row.data(), layout.n_tokens);
                Buffer of_coarse(coarse.data(), layout.n_pairs, stride_sin, n_coarse, stride_row);
                Buffer of_fine(fine.data(), layout.n_pairs, stride_sin, n_fine, stride_row);
                Buffer rows(out.data(), layout.n_pairs, layout.stride_sin, layout.n_tokens, layout.stride_token);
                REQUIRE(maker.kernels.factored(&at_coarse.header, &at_fine.header, &of_coarse.header, &of_fine.header,
                                               &rows.header) == 0);
            } else {
                std::copy(want.begin(), want.end(), out.begin());
            }
            n_different += maker.fused ? count_different(out.data(), want) : 0;
            n_spoilt += count_spoilt(out.data(), want);
            for (std::int64_t t = 0; t < layout.n_tokens; t++) {
                for (std::int64_t k = 0; k < layout.n_pairs; k++) {
                    const long double a = coarse[coarse_row[t] * stride_row + k],
                                      b = fine[fine_row[t] * stride_row + k];
                    const long double c = coarse[coarse_row[t] * stride_row + stride_sin + k];
                    const long double d = fine[fine_row[t] * stride_row + stride_sin + k];
                    const auto is_off = [](float value, long double first, long double second) {
                        const long double exact = first + second, magnitude = std::fabs(first) + std::fabs(second);
                        const bool judged = magnitude < 0x1p127L;  // not where something overflows, or is NaN
                        return judged &&
                               !(std::fabs(value - exact) <= oracle::kernel_bound(HALYARD_F32, magnitude, exact));
                    };
                    const float *const cos = out.data() + t * layout.stride_token + k;
                    n_beyond += is_off(cos[0], a * b, -c * d) ? 1 : 0;
                    n_beyond += is_off(cos[layout.stride_sin], c * b, a * d) ? 1 : 0;
                }
            }
        }
        CHECK(n_different == 0);
        CHECK(n_spoilt == 0);
        CHECK(n_beyond == 0);
    }
}

// ---- How far cos and sin are off -----------------------------------------------------------------------------------

namespace {

/// The greatest errors of one target.
struct Greatest {
    double of_one = 0;  // cos or sin, as a part of attention_factor
    double of_y = 0;    // what a rotated pair can be off, in 2^-23 of its length

    void see(float cos, float sin, const ExactCosSin &exact, double factor) {
        const auto off_cos = std::fabs(static_cast<double>(cos - factor * exact.cos)) / factor;
        const auto off_sin = std::fabs(static_cast<double>(sin - factor * exact.sin)) / factor;
        // y0 = x0 cos - x1 sin is off by x0 off_cos - x1 off_sin, at most the length of x times that of both; and by
        // the roundings of x1 sin and of y0, each 2^-24: |x1 sin| + |y0| is at most sqrt(1 + 3 sin^2). y1 is alike.
        const double of_both = std::sqrt(off_cos * off_cos + off_sin * off_sin);
        const double sin_squared = static_cast<double>(exact.sin * exact.sin);
        const double y = 0x1p23 * of_both + 0.5 * std::sqrt(1 + 3 * sin_squared);
        // Written so that a NaN is seen.
        of_one = !(off_cos <= of_one) ? off_cos : of_one;
        of_one = !(off_sin <= of_one) ? off_sin : of_one;
        of_y = !(y <= of_y) ? y : of_y;
    }
};
using GreatestByTarget = std::map<std::string, Greatest>;

std::string table_of(const GreatestByTarget &greatest) {
    std::ostringstream text;
    for (const auto &[name, value] : greatest) {
        text << name << " " << value.of_one << " (so y " << value.of_y << " eps); ";
    }
    return text.str();
}

/// Compares rows, [positions, 2, n_pairs], with exact(i, k) of position i and pair k.
template <typename Exact>
void see_all(const std::vector<float> &rows, std::size_t n_pairs, double factor, Exact exact, Greatest &greatest) {
    for (std::size_t i = 0; i < rows.size() / (2 * n_pairs); i++) {
        for (std::size_t k = 0; k < n_pairs; k++) {
            const float *const cos = rows.data() + 2 * i * n_pairs + k;
            greatest.see(cos[0], cos[n_pairs], exact(i, k), factor);
        }
    }
}

/// Exact cos and sin, [positions, n_pairs]: worked out once for all targets and factors.
std::vector<ExactCosSin> exact_rows(const std::vector<long double> &inv_freq,
                                    const std::vector<std::int32_t> &positions) {
    std::vector<ExactCosSin> exact;
    for (const std::int32_t position : positions) {
        for (const long double frequency : inv_freq) {
            exact.push_back(exact_cos_sin(frequency, position));
        }
    }
    return exact;
}

auto in_order(const std::vector<ExactCosSin> &exact, std::size_t n_pairs) {
    return [&exact, n_pairs](std::size_t i, std::size_t k) { return exact[i * n_pairs + k]; };
}

}  // namespace

TEST_CASE("row errors: golden angles, every base, width, target and attention factor", "[rows][golden]") {
    const golden::Section section("angles");
    const auto golden_positions = section.array<std::int64_t>("positions").values;
    std::vector<std::int32_t> positions(golden_positions.begin(), golden_positions.end());
    const std::size_t n_golden = positions.size();
    for (const int shift : {15, 17, 20, 24, 30}) {
        positions.push_back(1 << shift);
        positions.push_back(-(1 << shift) + 1);
    }
    positions.push_back(least_position);
    GreatestByTarget phase, factored;
    for (const auto &entry : section.cases()) {
        INFO(entry.at("name").get<std::string>());
        const double base = entry.at("base");
        const std::int64_t rotary_dim = entry.at("d");
        const auto n_pairs = static_cast<std::size_t>(rotary_dim / 2);
        const auto exact = exact_rows(oracle::inv_freq_of(base, rotary_dim), positions);
        const auto cos = section.array<float>(entry.at("cos_f32")), sin = section.array<float>(entry.at("sin_f32"));
        std::int64_t n_wrong = 0;  // the oracle here agrees with the golden data
        for (std::size_t i = 0; i < n_golden * n_pairs; i++) {
            const auto agree = [](float golden, long double value) {
                return std::fabs(golden - value) <= oracle::half_ulp(HALYARD_F32, value) + 1e-9L;
            };
            n_wrong += agree(cos.values[i], exact[i].cos) && agree(sin.values[i], exact[i].sin) ? 0 : 1;
        }
        CHECK(n_wrong == 0);
        for (const double factor : attention_factors) {
            const auto frequencies = with_factor(halyard::frequencies::from_base(base, rotary_dim), factor);
            const auto by_phase = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position);
            for (const RowMaker &maker : row_makers()) {
                see_all(rows_by(*by_phase.get(), maker.kernels, positions), n_pairs, factor, in_order(exact, n_pairs),
                        phase[maker.name]);
            }
            // Ranges of all sizes about each position, so that it is any part of a coarse and of a fine step.
            for (std::size_t i = 0; i < positions.size(); i++) {
                const std::int64_t before = static_cast<std::int64_t>(i * i * 3),
                                   after = static_cast<std::int64_t>(7 * i);
                const auto first = std::max<std::int64_t>(positions[i] - before, least_position);
                const auto last = std::min<std::int64_t>(positions[i] + after, greatest_position);
                const auto by_factors = make_source(frequencies, HALYARD_ANGLES_FACTORED,
                                                    static_cast<std::int32_t>(first), static_cast<std::int32_t>(last));
                for (const RowMaker &maker : row_makers()) {
                    see_all(
                        rows_by(*by_factors.get(), maker.kernels, {positions[i]}), n_pairs, factor,
                        [&](std::size_t, std::size_t k) { return exact[i * n_pairs + k]; }, factored[maker.name]);
                }
            }
            // TABLE: nearest, so half an ulp; test_angles.cpp has its bits.
            const auto listed = halyard::positions(positions.data(), {1, static_cast<std::int64_t>(positions.size())});
            const auto rows =
                rows_of(halyard::angle_source::table(frequencies, least_position, greatest_position, listed), &listed,
                        1, static_cast<std::int64_t>(positions.size()));
            std::int64_t n_off = 0;
            for (std::size_t i = 0; i < positions.size(); i++) {
                for (std::size_t k = 0; k < n_pairs; k++) {
                    const auto [exact_cos, exact_sin] = exact[i * n_pairs + k];
                    for (const auto &[value, one] : {std::pair{rows[2 * i * n_pairs + k], factor * exact_cos},
                                                     std::pair{rows[(2 * i + 1) * n_pairs + k], factor * exact_sin}}) {
                        n_off += std::fabs(value - one) <= oracle::half_ulp(HALYARD_F32, one) + 1e-9L ? 0 : 1;
                    }
                }
            }
            CHECK(n_off == 0);
        }
    }
    for (const auto &[name, value] : phase) {
        INFO(name);
        CHECK(value.of_one <= phase_bound);
    }
    for (const auto &[name, value] : factored) {
        INFO(name);
        CHECK(value.of_one <= factored_bound);
    }
    WARN("greatest errors, golden angles: phase: " << table_of(phase) << "factored: " << table_of(factored));
}

TEST_CASE("row errors: phase at random positions of the whole range", "[rows]") {
    Random random(Catch::getSeed());
    constexpr std::size_t n_pairs = 128, n_positions = 1024;
    GreatestByTarget greatest;
    for (int round = 0; round < 16; round++) {
        std::vector<double> list;
        for (std::size_t k = 0; k < n_pairs; k++) {
            list.push_back(round % 2 == 0
                               ? std::pow(10000.0, -static_cast<double>(k) / n_pairs) * (1 + random.unit() / 9)
                               : random.unit() * std::exp2(static_cast<double>(random.in(-30, 2))));
        }
        std::vector<std::int32_t> positions;
        while (positions.size() < n_positions) {
            positions.push_back(random_position(random));
        }
        const auto exact = exact_rows({list.begin(), list.end()}, positions);
        for (const double factor : attention_factors) {
            const auto frequencies = halyard::frequencies::from_list(list.data(), n_pairs, factor);
            const auto source = make_source(frequencies, HALYARD_ANGLES_PHASE, least_position, greatest_position);
            for (const RowMaker &maker : row_makers()) {
                see_all(rows_by(*source.get(), maker.kernels, positions), n_pairs, factor, in_order(exact, n_pairs),
                        greatest[maker.name]);
            }
        }
    }
    for (const auto &[name, value] : greatest) {
        INFO(name);
        CHECK(value.of_one <= phase_bound);
        CHECK(value.of_y <= 2);
    }
    WARN("greatest errors, 2097152 random angles by 6 factors: phase: " << table_of(greatest));
}

TEST_CASE("row errors: phase near the borders of octants and quarters", "[rows]") {
    Random random(Catch::getSeed());
    constexpr std::size_t n_pairs = 2048, n_rounds = 100;
    GreatestByTarget greatest;
    std::vector<std::uint32_t> high(n_pairs), low(n_pairs);
    std::vector<float> rows(2 * n_pairs);
    for (std::size_t round = 0; round < n_rounds; round++) {
        const std::int32_t position = round % 2 == 0 ? 1 : -1;
        std::vector<ExactCosSin> exact;
        for (std::size_t k = 0; k < n_pairs; k++) {
            const std::uint64_t turns =
                (random.bits() << 61) +
                static_cast<std::uint64_t>(static_cast<std::int64_t>(random.bits()) >> random.in(4, 34));
            high[k] = static_cast<std::uint32_t>(turns >> 32);
            low[k] = static_cast<std::uint32_t>(turns);
            exact.push_back(exact_of_turns(turns, position));
        }
        for (const double factor : attention_factors) {
            const auto scale_high = static_cast<float>(factor), scale_low = static_cast<float>(factor - scale_high);
            for (const RowMaker &maker : row_makers()) {
                if (maker.kernels.phase != nullptr) {
                    Buffer at(&position, 1), turns_high(high.data(), n_pairs), turns_low(low.data(), n_pairs);
                    Buffer out(rows.data(), n_pairs, n_pairs, 1, 2 * n_pairs);
                    maker.kernels.phase(&at.header, &turns_high.header, &turns_low.header, scale_high, scale_low,
                                        &out.header);
                } else {
                    halyard::phase_row_reference(position, high.data(), low.data(), scale_high, scale_low, n_pairs,
                                                 rows.data(), rows.data() + n_pairs);
                }
                see_all(rows, n_pairs, factor, in_order(exact, n_pairs), greatest[maker.name]);
            }
        }
    }
    for (const auto &[name, value] : greatest) {
        INFO(name);
        CHECK(value.of_one <= phase_bound);
        CHECK(value.of_y <= 2);
    }
    WARN("greatest errors near borders: phase: " << table_of(greatest));
}

TEST_CASE("row errors: factored at random positions, over the whole range and a million", "[rows]") {
    Random random(Catch::getSeed());
    GreatestByTarget greatest;
    const auto see_range = [&](double base, std::int64_t rotary_dim, double factor, std::int32_t first,
                               std::int32_t last, std::size_t n_positions) {
        std::vector<std::int32_t> positions = {first, last};
        while (positions.size() < n_positions) {
            positions.push_back(static_cast<std::int32_t>(random.in(first, last)));
        }
        const auto n_pairs = static_cast<std::size_t>(rotary_dim / 2);
        const auto exact = exact_rows(oracle::inv_freq_of(base, rotary_dim), positions);
        const auto frequencies = with_factor(halyard::frequencies::from_base(base, rotary_dim), factor);
        const auto source = make_source(frequencies, HALYARD_ANGLES_FACTORED, first, last);
        for (const RowMaker &maker : row_makers()) {
            see_all(rows_by(*source.get(), maker.kernels, positions), n_pairs, factor, in_order(exact, n_pairs),
                    greatest[maker.name]);
        }
    };
    for (const double factor : attention_factors) {
        see_range(10000, 8, factor, least_position, greatest_position, 3000);
        for (const double base : {100.0, 10000.0, 500000.0, 1e6, 5e6}) {
            see_range(base, 128, factor, -(1 << 19), (1 << 19) - 1, 500);
        }
    }
    see_range(10000, 128, 1.0001, least_position, greatest_position, 4000);
    for (const auto &[name, value] : greatest) {
        INFO(name);
        CHECK(value.of_one <= factored_bound);
        CHECK(value.of_y <= 4);
    }
    WARN("greatest errors, random positions: factored: " << table_of(greatest));
}
