#include "angles/linear.h"

#include "base/error.h"
#include "base/versioned.h"
#include "frequencies/double_double.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace halyard {

namespace {

constexpr double most_of_angle = 0x1p31, most_of_term = 0x1p40;

/// Whether an angle is within bounds, with a margin: terms and sums have rounding errors of less than 2^-9 together,
/// which must not lead to a refusal.
bool is_angle(double angle) noexcept { return std::fabs(angle) <= most_of_angle + 1.0; }

/// Checks the angles of one token.
halyard_status check_token(const LinearAngles &angles, std::int64_t batch, std::int64_t token,
                           halyard_error *error) noexcept {
    for (std::int64_t pair = 0; pair < angles.n_pairs; pair++) {
        double sum = 0.0;
        for (std::int32_t axis = 0; axis < angles.n_axes; axis++) {
            const double term = angles.position(axis, batch, token) * angles.entry(axis, pair);
            if (!(std::fabs(term) <= most_of_term)) {
                return fail(error, HALYARD_ERROR_POSITION, "linear.positions[axis ", axis, ", batch ", batch,
                            ", token ", token, "] times linear.matrix[axis ", axis, ", pair ", pair, "] is ", term,
                            ", beyond 2^40");
            }
            sum += term;
        }
        if (!is_angle(sum)) {
            return fail(error, HALYARD_ERROR_POSITION, "linear.positions[batch ", batch, ", token ", token,
                        "] turn pair ", pair, " by ", sum, ", beyond 2^31");
        }
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status check_linear_angles(const LinearAngles &angles, std::int64_t n_batch, std::int64_t n_tokens,
                                   halyard_error *error) noexcept {
    double greatest_angle = 0.0;
    for (std::int32_t axis = 0; axis < angles.n_axes; axis++) {
        double greatest_position = 0.0, greatest_entry = 0.0;
        for (std::int64_t pair = 0; pair < angles.n_pairs; pair++) {
            const double entry = angles.entry(axis, pair);
            if (!std::isfinite(entry)) {
                return fail(error, HALYARD_ERROR_FREQUENCY, "linear.matrix[axis ", axis, ", pair ", pair, "] is ",
                            entry, ", but it must be finite");
            }
            greatest_entry = std::max(greatest_entry, std::fabs(entry));
        }
        for (std::int64_t batch = 0; batch < (n_tokens == 0 ? 0 : n_batch); batch++) {
            for (std::int64_t token = 0; token < n_tokens; token++) {
                const double position = angles.position(axis, batch, token);
                if (!std::isfinite(position)) {
                    return fail(error, HALYARD_ERROR_POSITION, "linear.positions[axis ", axis, ", batch ", batch,
                                ", token ", token, "] is ", position, ", but it must be finite");
                }
                greatest_position = std::max(greatest_position, std::fabs(position));
            }
        }
        greatest_angle += greatest_position * greatest_entry;
    }
    for (std::int64_t i = 0; i < n_batch * n_tokens && !is_angle(greatest_angle); i++) {
        HALYARD_TRY(check_token(angles, i / n_tokens, i % n_tokens, error));
    }
    return HALYARD_OK;
}

namespace {

/// Checks the fields of a description except positions. Sets these fields in `out`, and the memory range of the matrix.
halyard_status read_all_but_positions(const halyard_linear_angles &given, LinearAngles &out,
                                      halyard_error *error) noexcept {
    const double factor = given.attention_factor == 0.0 ? 1.0 : given.attention_factor;
    HALYARD_TRY(check_choice("linear", "reserved", given.reserved, 0, error));
    HALYARD_TRY(
        check_fields("linear",
                     {{given.type != HALYARD_REAL32 && given.type != HALYARD_REAL64, HALYARD_ERROR_UNKNOWN_VALUE,
                       "type", given.type, ", but it must be HALYARD_REAL32 (2) or HALYARD_REAL64 (3)"},
                      {given.n_axes < 1 || given.n_axes > HALYARD_MAX_AXES, HALYARD_ERROR_SHAPE, "n_axes", given.n_axes,
                       ", but it must be 1 to ", HALYARD_MAX_AXES},
                      {!(factor >= 0x1p-60 && factor <= 0x1p60), HALYARD_ERROR_FREQUENCY, "attention_factor", factor,
                       ", but it must be 2^-60 to 2^60"}},
                     error));
    HALYARD_TRY(check_given(given.matrix, "linear.matrix", error));
    out.is_f64 = given.type == HALYARD_REAL64;
    out.n_axes = given.n_axes;
    out.attention_factor = factor;
    out.matrix = given.matrix;
    const std::int64_t shape[] = {out.n_axes, out.n_pairs}, strides[] = {out.n_pairs, 1};
    if (!find_memory_range(out.matrix, shape, strides, sizeof(double), &out.matrix_memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "linear.matrix leaves the address space");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_linear_angles(const halyard_linear_angles *linear, std::int64_t rotary_dim, std::int64_t n_batch,
                                  std::int64_t n_tokens, LinearAngles *out, halyard_error *error) noexcept {
    halyard_linear_angles given = {};
    HALYARD_TRY(read_struct(linear, "linear", &given, error));
    out->n_pairs = rotary_dim / 2;
    HALYARD_TRY(read_all_but_positions(given, *out, error));
    if (n_batch == 0 || n_tokens == 0) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_given(given.positions, "linear.positions", error));
    out->positions = given.positions;
    out->stride_axis = given.n_axes > 1 ? given.stride_axis : 0;
    out->stride_batch = n_batch > 1 ? given.stride_batch : 0;
    out->stride_token = n_tokens > 1 ? given.stride_token : 0;
    const std::int64_t shape[] = {given.n_axes, n_batch, n_tokens};
    const std::int64_t strides[] = {out->stride_axis, out->stride_batch, out->stride_token};
    if (!find_memory_range(out->positions, shape, strides, out->is_f64 ? 8 : 4, &out->positions_memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "linear.positions of ", n_batch, " x ", n_tokens,
                    " tokens and strides ", given.stride_axis, ", ", given.stride_batch, ", ", given.stride_token,
                    " leave the address space");
    }
    return HALYARD_OK;
}

namespace {

/// Adding this to a double below 2^51 rounds it to an integer, held in the low bits of the sum.
constexpr double to_integer = 0x1.8p52;

}  // namespace

LinearPairs::LinearPairs(const LinearAngles &angles, std::int64_t first, std::int64_t n_pairs) noexcept
    : angles_(angles), n_pairs_(n_pairs) {
    constexpr DoubleDouble turns_of_radian = {0x1.45f306dc9c883p-3, -0x1.6b01ec5417056p-57};
    for (std::int32_t axis = 0; axis < angles.n_axes; axis++) {
        for (std::int64_t k = 0; k < n_pairs; k++) {
            const DoubleDouble turns = turns_of_radian * angles.entry(axis, first + k);
            upper_[axis][k] = first_bits<26>(turns.hi);
            lower_[axis][k] = turns.hi - upper_[axis][k];
            rest_[axis][k] = turns.lo;
        }
    }
}

// A term is a position times an entry, each split into an upper part of 26 bits and the rest. The product of the upper
// parts is exact, and so is its fraction of a turn. The other products are below 2^12 turns, for terms up to 2^40 rad,
// so the error of an axis is at most 2^-39 turns. The sum of four axes is below 2^15, and the error of each addition is
// at most 2^-39, too. All these errors together are an eighth of the last rounding's error of 2^-33 turns.
void LinearPairs::find_turns(std::int64_t batch, std::int64_t token, std::uint32_t *turns) const noexcept {
    double sum[most] = {};
    for (std::int32_t axis = 0; axis < angles_.n_axes; axis++) {
        const double position = angles_.position(axis, batch, token);
        const double above = first_bits<26>(position), below = position - above;
        for (std::int64_t k = 0; k < n_pairs_; k++) {
            const double product = above * upper_[axis][k];
            const double fraction = product - ((product + to_integer) - to_integer);
            sum[k] += fraction + (position * lower_[axis][k] + (below * upper_[axis][k] + position * rest_[axis][k]));
        }
    }
    for (std::int64_t k = 0; k < n_pairs_; k++) {
        turns[k] = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(sum[k] * 0x1p32 + to_integer));
    }
}

}  // namespace halyard
