// Angles that are linear in positions, which need not be integers. Each axis of positions adds a term to an angle: the
// position times an entry of a matrix. This reads the caller's description, and makes angles as fractions of a turn.
#pragma once

#include "base/overlap.h"
#include "base/storage.h"
#include "halyard/halyard.h"

#include <cstdint>

namespace halyard {

/// The caller's description, checked.
struct LinearAngles {
    const void *positions = nullptr;
    bool is_f64 = false;  // type of positions; false: f32
    std::int32_t n_axes = 0;
    std::int64_t stride_axis = 0, stride_batch = 0, stride_token = 0;  // in elements; 0 in dimensions of size 1
    const void *matrix = nullptr;
    std::int64_t n_pairs = 0;
    double attention_factor = 1.0;
    MemoryRange positions_memory = {0, 0}, matrix_memory = {0, 0};

    double position(std::int32_t axis, std::int64_t batch, std::int64_t token) const noexcept {
        const std::int64_t at = axis * stride_axis + batch * stride_batch + token * stride_token;
        return is_f64 ? read_word<double>(positions, at) : read_word<float>(positions, at);
    }

    double entry(std::int32_t axis, std::int64_t pair) const noexcept {
        return read_word<double>(matrix, axis * n_pairs + pair);
    }
};

/// Checks a description for rows of rotary_dim, except the values of positions and matrix, and fills in *out.
halyard_status read_linear_angles(const halyard_linear_angles *linear, std::int64_t rotary_dim, std::int64_t n_batch,
                                  std::int64_t n_tokens, LinearAngles *out, halyard_error *error) noexcept;

/// Fails, naming the first bad value, unless positions and matrix are finite and all angles are within bounds.
halyard_status check_linear_angles(const LinearAngles &angles, std::int64_t n_batch, std::int64_t n_tokens,
                                   halyard_error *error) noexcept;

/// Computes the angles of some pairs.
struct LinearPairs {
    static constexpr std::int64_t most = 128;

    /// Takes pairs first … first + n_pairs - 1, at most `most`.
    LinearPairs(const LinearAngles &angles, std::int64_t first, std::int64_t n_pairs) noexcept;

    /// Sets turns[i] to a token's angle for the pair number `first + i`, modulo one turn, in units of 2^-32 turns. The
    /// error is below 0.7 units.
    void find_turns(std::int64_t batch, std::int64_t token, std::uint32_t *turns) const noexcept;

private:
    const LinearAngles &angles_;
    const std::int64_t n_pairs_;
    // Entries of the matrix in turns per position, each the sum of three parts; the upper one has 26 bits.
    double upper_[HALYARD_MAX_AXES][most], lower_[HALYARD_MAX_AXES][most], rest_[HALYARD_MAX_AXES][most];
};

}  // namespace halyard
