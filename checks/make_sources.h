// Helpers that make angle sources of every kind and rows of cos and sin, and the exact values to compare with.
#pragma once

#include "angles/angle_source.h"
#include "checks/oracle.h"
#include "checks/sized.h"
#include "core/kernels.h"
#include "core/rows.h"
#include "frequencies/frequencies.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

inline constexpr std::int32_t least_position = std::numeric_limits<std::int32_t>::min();
inline constexpr std::int32_t greatest_position = std::numeric_limits<std::int32_t>::max();

/// A random int32 position of any magnitude, often near an end of the range.
inline std::int32_t random_position(oracle::Random &random) {
    static constexpr std::int32_t special[] = {0, 1, -1, 2, least_position, least_position + 1, greatest_position};
    return random.one_in(3) ? random.one_of(special)
                            : static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 62));
}

/// Attention factors for tests of rounding: below, at, just above and far above a power of two.
inline constexpr double attention_factors[] = {1.0, 0.7071, 1.0001, 1.2079, 1.3, 1.9};

inline halyard_angle_source_desc describe_source(std::int32_t kind, std::int32_t first = 0, std::int32_t last = 0) {
    auto desc = sized<halyard_angle_source_desc>();
    desc.kind = kind;
    desc.first = first;
    desc.n_positions = std::int64_t{last} - first + 1;
    return desc;
}

/// Describes a source of given rows of cos and sin.
inline halyard_angle_source_desc describe_given(const void *cos, const void *sin, std::int64_t n_rows,
                                                std::int64_t stride_row, std::int64_t rotary_dim,
                                                std::int32_t dtype = HALYARD_F32) {
    return halyard::angle_source::describe_rows(cos, sin, static_cast<halyard::dtype>(dtype), n_rows, stride_row,
                                                rotary_dim);
}

inline halyard::angle_source make_source(const halyard::frequencies &frequencies, std::int32_t kind, std::int32_t first,
                                         std::int32_t last) {
    return halyard::angle_source(frequencies, describe_source(kind, first, last));
}

/// Dense positions [n_batch, tokens] that point into the vector, which must outlive them.
template <typename Integer>
halyard_positions positions_of(const std::vector<Integer> &values, std::int64_t n_batch = 1) {
    return halyard::positions(values.data(), {n_batch, static_cast<std::int64_t>(values.size()) / n_batch});
}

inline halyard::frequencies make_frequencies(const std::vector<double> &inv_freq, double attention_factor = 1.0) {
    return halyard::frequencies::from_list(inv_freq.data(), static_cast<std::int64_t>(inv_freq.size()),
                                           attention_factor);
}

/// A plan of one tensor, for halyard_make_rows, which uses the kernels of the plan's target.
inline halyard::plan plan_for(std::int64_t rotary_dim) {
    return halyard::plan(halyard::plan_desc(
        rotary_dim, {halyard::describe_tensor(halyard::dtype::f32, rotary_dim, halyard::pairing::half)}));
}

inline halyard_rows_args rows_args(const halyard::angle_source &angles, const halyard_positions *positions,
                                   std::int64_t n_batch, std::int64_t n_tokens, float *rows, std::int64_t n_floats) {
    auto args = halyard::make_struct<halyard_rows_args>();
    args.angles = angles.get();
    args.positions = positions;
    args.n_batch = n_batch;
    args.n_tokens = n_tokens;
    args.rows = rows;
    args.n_floats = n_floats;
    return args;
}

/// The rows [batch, tokens, 2, n_pairs] that halyard_make_rows makes.
inline std::vector<float> rows_of(const halyard::angle_source &source, const halyard_positions *positions,
                                  std::int64_t n_batch, std::int64_t n_tokens,
                                  halyard::bad_position policy = halyard::bad_position::error) {
    std::vector<float> rows(static_cast<std::size_t>(n_batch * n_tokens * source.info().rotary_dim), NAN);
    halyard::make_rows(plan_for(source.info().rotary_dim), source, positions, {n_batch, n_tokens}, rows.data(),
                       static_cast<std::int64_t>(rows.size()), policy);
    return rows;
}

/// The rows of cos and sin, [positions, 2, n_pairs], of tables at any int32 positions. Each position gets a table of
/// its own, with one row.
template <typename Integer>
std::vector<float> table_rows_at(const halyard::frequencies &frequencies, const std::vector<Integer> &positions,
                                 std::int32_t reference = HALYARD_REFERENCE_EXACT) {
    std::vector<float> rows;
    for (const Integer position : positions) {
        const auto only = static_cast<std::int32_t>(position);
        auto desc = describe_source(HALYARD_ANGLES_TABLE, only, only);
        desc.reference = reference;
        const auto at = halyard::positions(&only, {1, 1});
        const auto row = rows_of(halyard::angle_source(frequencies, desc), &at, 1, 1);
        rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
}

struct ExactCosSin {
    long double cos, sin;
};

/// cos and sin of position * inv_freq. At 2^31 radians the product is still exact to 2^-33.
inline ExactCosSin exact_cos_sin(long double inv_freq, std::int64_t position) {
    const long double theta = inv_freq * static_cast<long double>(position);
    return {std::cos(theta), std::sin(theta)};
}

/// The axis whose position a pair uses, by an axis map with counts per axis (see halyard.h).
inline std::int64_t axis_of_pair(std::int32_t axis_map, std::span<const std::int64_t> counts, std::int64_t pair) {
    const auto n_axes = static_cast<std::int64_t>(counts.size());
    if (axis_map == HALYARD_AXIS_MAP_INTERLEAVED) {
        const std::int64_t axis = pair % n_axes;
        return pair < n_axes * counts[static_cast<std::size_t>(axis)] ? axis : 0;
    }
    std::int64_t axis = 0;
    for (std::int64_t end = counts[0]; axis + 1 < n_axes && pair >= end; axis++) {
        end += counts[static_cast<std::size_t>(axis) + 1];
    }
    return axis;
}
