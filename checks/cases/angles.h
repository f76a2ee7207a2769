// The angle source of a case, of any kind, and its exact cos and sin.
#pragma once

#include "checks/cases/choice.h"
#include "checks/cases/draw.h"
#include "checks/cases/memory.h"
#include "checks/make_sources.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace cases {

struct Angles {
    enum Kind { table, phase, given_f32, given_f16, given_bf16, by_token };
    /// Whether the old angles of re-rotated keys come from the same source as the new ones, or from another.
    enum From { same, other };

    Sized<halyard_angle_source_desc> desc;  // HALYARD_ANGLES_GIVEN: its rows lie in the case's memory
    Kind kind = table;
    std::int32_t first = 0, last = 0;  // the positions that the source covers
    From from = same;

    // ---- Drawing ----

    /// Draws a source for a run's tokens, and reserves memory for its given rows, if it has any.
    void draw(Draw &draw, const Choice &choice, const Call &call, Kind of_kind, int axes_level, Memory &memory) {
        kind = of_kind;
        const std::int64_t widest = std::max<std::int64_t>(4096, choice.rotary_dim);  // fuzzers' rotary_dim may be huge
        const std::int64_t asked = call.plan.rotary_dim, n_tokens = call.n_tokens();
        desc.rotary_dim = asked >= 2 && asked <= widest ? asked / 2 * 2 : 2;
        desc.kind = kind == table ? HALYARD_ANGLES_TABLE : kind == phase ? HALYARD_ANGLES_PHASE : HALYARD_ANGLES_GIVEN;
        draw_position_range_of_source(draw, choice);
        draw_axis_map(draw, axes_level);
        if (kind == by_token) {
            desc.rows_dtype = static_cast<std::int32_t>(draw.in(HALYARD_F32, HALYARD_BF16));
            desc.by_token = static_cast<std::int32_t>(draw.in(1, 2));
            desc.n_rows = std::max<std::int64_t>(n_tokens * (desc.by_token == 1 ? call.n_batch() : 1), 1);
        } else if (is_given()) {
            desc.rows_dtype = kind - given_f32 + 1;
            desc.n_rows = desc.n_positions;
        }
        are_from_base_ = draw.one_in(2);
        for (int i = 0; i < 2; i++) {
            for (const long double value : oracle::inv_freq_of(bases[i], desc.rotary_dim)) {
                inv_freq_[i].push_back(are_from_base_ ? value : static_cast<double>(value));
            }
            factors_[i] = are_from_base_ || draw.one_in(2) ? 1 : i == 0 ? 1.2707 : 0.7;
        }
        if (is_given()) {
            const bool is_fused = draw.one_in(2);  // a row holds cos, then sin
            const std::int64_t width = is_fused ? desc.rotary_dim : n_pairs(), bytes = bytes_of(desc.rows_dtype);
            desc.stride_row = width + draw.in(0, 3);
            const std::size_t region = memory.new_region();
            const Extent extent = Extent(bytes, width).add(desc.n_rows, desc.stride_row);
            memory.add(desc.cos_rows, region, extent, bytes);
            if (is_fused) {
                memory.add_beside(desc.sin_rows, desc.cos_rows, n_pairs() * bytes);
            } else {
                memory.add(desc.sin_rows, region, extent, bytes);
            }
        }
    }
    void fill(oracle::Random &random) const {
        for (std::int64_t i = 0; is_given() && i < desc.n_rows * n_pairs(); i++) {
            const double theta = 3 * random.unit();
            write_real(desc.rows_dtype, address_of(desc.cos_rows, i / n_pairs(), i % n_pairs()), std::cos(theta));
            write_real(desc.rows_dtype, address_of(desc.sin_rows, i / n_pairs(), i % n_pairs()), std::sin(theta));
        }
    }
    /// After Memory::allocate_and_fill, creates the source (two for a re-rotation). Returns an error message or an
    /// empty string.
    std::string create_sources(bool rerotates) {
        auto error = sized<halyard_error>();
        for (int i = 0; i < (rerotates ? 2 : 1); i++) {
            frequencies_[i] =
                are_from_base_
                    ? halyard::frequencies::from_base(bases[i], 2 * std::ssize(inv_freq_[i]))
                    : make_frequencies(std::vector<double>(inv_freq_[i].begin(), inv_freq_[i].end()), factors_[i]);
            halyard_angle_source *made = nullptr;
            const halyard_angle_source_desc described = describe(i);
            if (halyard_create_angle_source(frequencies_[i].get(), &described, &made, &error) != HALYARD_OK) {
                return error.message;
            }
            sources_[i] = halyard::angle_source(made);
        }
        return "";
    }

    // ---- The source ----

    const halyard::angle_source &source() const { return sources_[0]; }
    /// The frequencies of source() (0), or of the other source of a re-rotation (1).
    const halyard::frequencies &frequencies(int source) const { return frequencies_[source]; }
    /// The source of the old angles of a re-rotation; NULL if it is source().
    const halyard_angle_source *get_from() const { return from == other ? sources_[1].get() : nullptr; }
    bool is_given() const { return desc.kind == HALYARD_ANGLES_GIVEN; }
    bool is_covered(std::int64_t position) const { return position >= first && position <= last; }
    std::int64_t n_axes() const { return std::max(desc.n_axes, 1); }
    std::int64_t n_pairs() const { return desc.rotary_dim / 2; }

    /// The row of a token when rows are given by token.
    std::int64_t row_of(const Call &call, std::int64_t batch, std::int64_t token) const {
        return desc.by_token == 1 ? batch * call.n_tokens() + token : token;
    }
    halyard::angle_source of_row(std::int64_t row) const {
        return of_rows(address_of(desc.cos_rows, row, 0), address_of(desc.sin_rows, row, 0), 1);
    }
    /// A source like this one, whose given rows lie at other addresses.
    halyard::angle_source of_rows(const void *cos, const void *sin, std::int64_t n_rows) const {
        halyard_angle_source_desc described = desc;
        described.cos_rows = cos;
        described.sin_rows = sin;
        described.n_rows = n_rows;
        return halyard::angle_source(halyard::frequencies(), described);
    }

    /// The exact cos and sin of a token's pair, with the sign of the direction.
    ExactCosSin at(const Call &call, std::int64_t batch, std::int64_t token, std::int64_t pair) const {
        const auto k = static_cast<std::size_t>(pair);
        const std::int64_t position =
            apply_bad_position_policy(call, position_of(call.args.positions, axis_of(0, pair), batch, token));
        const long double sign = call.plan.direction == HALYARD_INVERSE ? -1 : 1;
        if (is_given()) {
            const std::int64_t row = desc.by_token == 0 ? position : row_of(call, batch, token);
            return {read_real(desc.rows_dtype, address_of(desc.cos_rows, row, pair)),
                    sign * read_real(desc.rows_dtype, address_of(desc.sin_rows, row, pair))};
        }
        long double theta = inv_freq_[0][k] * position, factor = factors_[0];
        if (call.plan.rerotates != 0) {  // theta is exact to 2^-31
            const int source = call.kv_args.from_angles == nullptr ? 0 : 1;
            const std::int64_t from_position =
                position_of(call.kv_args.from_positions, axis_of(source, pair), batch, token);
            theta = source == 0 ? inv_freq_[0][k] * static_cast<long double>(position - from_position)
                                : theta - inv_freq_[1][k] * from_position;
            factor /= factors_[source];
        }
        return {factor * std::cos(theta), sign * factor * std::sin(theta)};
    }

private:
    static constexpr double bases[] = {10000, 500000};
    std::vector<std::int32_t> axis_of_pair_[2];  // [0] is source(), [1] the other source
    std::vector<long double> inv_freq_[2];
    bool are_from_base_ = false;  // the frequencies are made from a base, not from a list
    double factors_[2] = {1, 1};
    halyard::frequencies frequencies_[2];
    halyard::angle_source sources_[2];

    const char *address_of(const void *rows, std::int64_t row, std::int64_t pair) const {
        return static_cast<const char *>(rows) + (row * desc.stride_row + pair) * bytes_of(desc.rows_dtype);
    }

    /// Draws the positions that the source covers: around 0, or at either end of int32.
    void draw_position_range_of_source(Draw &draw, const Choice &choice) {
        constexpr std::int32_t least = INT32_MIN, greatest = INT32_MAX;
        const bool is_wide = desc.rotary_dim > (draw.is_fuzzed() ? 32 : 1024);
        const std::int64_t most = is_wide ? 40 : draw.is_fuzzed() ? 256 : 200;  // large tables are slow
        const std::int64_t n = choice.any_range ? draw.in(1, draw.is_fuzzed() ? 40 : 301) : most;
        const std::int64_t begin = !draw.one_in(3)  ? draw.in(-100, 100)
                                   : draw.one_in(2) ? least + draw.in(0, 9)
                                                    : greatest - n + 1 - draw.in(0, draw.one_in(2) ? 0 : 9);
        desc.first = is_given() ? 0 : static_cast<std::int32_t>(begin);
        desc.n_positions = n;
        if (kind == phase && draw.one_in(2)) {
            desc.first = least + static_cast<std::int32_t>(draw.in(0, 9));
            desc.n_positions = greatest - draw.in(0, draw.one_in(2) ? 9 : greatest) - desc.first + 1;
        }
        first = desc.first;
        last = static_cast<std::int32_t>(first + desc.n_positions - 1);
    }

    void draw_axis_map(Draw &draw, int axes_level) {
        if (axes_level == 0 || n_pairs() < 3) {
            return;
        }
        desc.axis_map = HALYARD_AXIS_MAP_NONE + axes_level;
        const std::int64_t n = draw.in(2, std::min<std::int64_t>(n_pairs(), HALYARD_MAX_AXES)), each = n_pairs() / n;
        desc.n_axes = static_cast<std::int32_t>(n);
        for (std::int64_t k = 0; k < n_pairs(); k++) {
            for (int source = 0; source < 2; source++) {
                const std::int64_t axis = draw.is_fuzzed() ? (k + source) * k % n : draw.in(0, n - 1);
                axis_of_pair_[source].push_back(static_cast<std::int32_t>(axis));
            }
        }
        desc.axis_of_pair = axis_of_pair_[0].data();
        std::fill_n(desc.axis_counts + 1, n - 1, each);
        desc.axis_counts[n - 1] -= n_pairs() > n ? 1 : 0;
        desc.axis_counts[0] = n_pairs() - std::accumulate(desc.axis_counts + 1, desc.axis_counts + n, std::int64_t{0});
    }

    /// The second source has an axis map of its own.
    halyard_angle_source_desc describe(int source) const {
        halyard_angle_source_desc described = desc;
        if (source == 1 && desc.axis_map != 0 && !axis_of_pair_[1].empty()) {
            described.axis_map = HALYARD_AXIS_MAP_LIST;
            described.axis_of_pair = axis_of_pair_[1].data();
        }
        return described;
    }
    std::int64_t axis_of(int source, std::int64_t pair) const {
        switch (describe(source).axis_map) {
        case HALYARD_AXIS_MAP_SECTIONS:
        case HALYARD_AXIS_MAP_INTERLEAVED:
            return axis_of_pair(desc.axis_map, {desc.axis_counts, static_cast<std::size_t>(desc.n_axes)}, pair);
        case HALYARD_AXIS_MAP_LIST: return axis_of_pair_[source][static_cast<std::size_t>(pair)];
        default: return 0;
        }
    }

    /// The position that a run uses after its bad_position policy.
    std::int64_t apply_bad_position_policy(const Call &call, std::int64_t position) const {
        const std::int32_t policy = call.args.bad_position;
        if (call.plan.rerotates != 0 || is_covered(position) || policy == HALYARD_BAD_POSITION_ERROR) {
            return position;
        }
        return policy == HALYARD_BAD_POSITION_IDENTITY ? 0 : std::clamp<std::int64_t>(position, first, last);
    }
};

}  // namespace cases
