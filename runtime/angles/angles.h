// Frequencies, positions and angle sources as the rest of the runtime sees them.
#pragma once

#include "angles/double_double.h"
#include "base/memory.h"
#include "halyard/halyard.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

namespace halyard {

/// An inverse frequency in quarter turns per position, modulo 4: whole turns change nothing at integer positions.
struct QuarterTurns {
    DoubleDouble value;
    // value in three: a position times high or middle (21 bits each) is exact in double.
    double high = 0.0;
    double middle = 0.0;
    double low = 0.0;
};

}  // namespace halyard

struct halyard_frequencies {
    std::int64_t n_pairs = 0;
    double attention_factor = 1.0;
    halyard_frequencies_info about = {};  // what a config told; the fields above are not in it
    std::unique_ptr<halyard::DoubleDouble[]> inv_freq;
    std::unique_ptr<double[]> rounded_inv_freq;  // what halyard_get_frequencies_info hands out
    std::unique_ptr<halyard::QuarterTurns[]> quarter_turns;
};

namespace halyard {

inline constexpr std::int64_t max_rotary_dim = std::int64_t{1} << 20;
inline constexpr double max_inv_freq = 0x1p20;
inline constexpr double max_attention_factor = 0x1p60;

/// Frequencies that are still to be set, and nothing told about them but the method (a static string). NULL when memory
/// runs out.
std::unique_ptr<halyard_frequencies> allocate_frequencies(std::int64_t n_pairs, const char *method) noexcept;

/// Sets an inverse frequency, |inv_freq| <= max_inv_freq.
void set_inv_freq(halyard_frequencies &frequencies, std::int64_t pair, DoubleDouble inv_freq) noexcept;

/// The caller's positions, checked and with the defaults filled in. (No initializers: a run would pay for them.)
struct Positions {
    const void *data;
    std::int32_t type;
    bool consecutive;
    std::int64_t stride_axis;   // in elements; 0 where there is one axis,
    std::int64_t stride_batch;  // or where one row serves every batch row
    std::int64_t stride_token;
    MemoryRange memory;

    /// The position of a token on an axis. Saturates where start + token leaves int64.
    std::int64_t at(std::int64_t batch, std::int64_t token, std::int32_t axis = 0) const noexcept {
        std::int64_t position = 0;
        if (data != nullptr) {
            const std::int64_t index = axis * stride_axis + batch * stride_batch + token * stride_token;
            if (type == HALYARD_INT64) {
                std::memcpy(&position, static_cast<const char *>(data) + index * 8, 8);
            } else {
                std::int32_t narrow = 0;
                std::memcpy(&narrow, static_cast<const char *>(data) + index * 4, 4);
                position = narrow;
            }
        }
        if (consecutive && __builtin_add_overflow(position, token, &position)) {
            position = std::numeric_limits<std::int64_t>::max();
        }
        return position;
    }
};

/// Checks positions (may be NULL) against the shape that a call works on. name is for the message.
halyard_status read_positions(const halyard_positions *positions, std::int64_t n_batch, std::int64_t n_tokens,
                              std::int32_t n_axes, Positions *out, halyard_error *error,
                              const char *name = "positions") noexcept;

QuarterTurns to_quarter_turns(DoubleDouble inv_freq) noexcept;

/// One entry of a row: float32(f cos theta) and float32(f sin theta).
struct CosSin {
    float cos = 0.0f;
    float sin = 0.0f;
};

/// Works in plain double, and says whether its error bound settles both roundings. Where not, *out is meaningless.
bool try_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position,
                 CosSin *out) noexcept;

/// Works in twice double precision: settles every case, some thirty times slower.
CosSin precise_cos_sin(const halyard_frequencies &frequencies, std::int64_t pair, std::int32_t position) noexcept;

/// Writes float32(f cos theta) and float32(f sin theta), correctly rounded, for every pair at one position.
void make_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row, float *sin_row) noexcept;

/// The same without attention_factor.
void make_unscaled_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row,
                       float *sin_row) noexcept;

/// The row as Hugging Face transformers work it out, within an ulp: float32 frequency times float32 position, rounded
/// to float32, is the angle; float32(attention_factor) times its cos and sin is rounded once.
void make_hf_row(const halyard_frequencies &frequencies, std::int32_t position, float *cos_row,
                 float *sin_row) noexcept;

/// A frequency in 2^-64 turns per position, rounded to nearest; whole turns are left out.
std::uint64_t turns_of(const halyard_frequencies &frequencies, std::int64_t pair) noexcept;

/// Which axis each pair reads its position from.
struct AxisMap {
    std::int32_t kind = HALYARD_AXIS_MAP_NONE;
    std::int32_t n_axes = 1;
    std::int64_t counts[HALYARD_MAX_AXES] = {};  // pairs of each axis
};

/// Rows start on a cache line, so that no vector load of a row whose rotary_dim is a multiple of 16 straddles two.
inline constexpr std::align_val_t row_alignment{64};

struct DeleteRows {
    void operator()(float *rows) const noexcept { ::operator delete(rows, row_alignment); }
};

}  // namespace halyard

/// Where cos and sin come from, and which positions it covers.
struct halyard_angle_source {
    std::int32_t kind = HALYARD_ANGLES_TABLE;
    std::int64_t rotary_dim = 0;
    std::int64_t first = 0;   // the positions that are covered,
    std::int64_t last = 0;    // both included
    std::uint64_t bytes = 0;  // that the source owns
    halyard::AxisMap axes;

    // TABLE and GIVEN: rows in memory. FACTORED: the coarse rows.
    std::int32_t rows_dtype = HALYARD_F32;
    std::int64_t n_rows = 0;        // below 2^31
    std::int32_t identity_row = 0;  // the row of position 0; a table always has one, after its other rows if need be
    std::int64_t stride_row = 0;    // in elements
    const void *cos_rows = nullptr;
    const void *sin_rows = nullptr;
    halyard::MemoryRange cos_memory = {0, 0};  // what the rows span
    halyard::MemoryRange sin_memory = {0, 0};
    std::unique_ptr<float[], halyard::DeleteRows> owned_rows;
    std::unique_ptr<std::int32_t[]> listed;  // ascending positions of the rows of a listed table, else NULL
    std::int64_t n_listed = 0;

    // FACTORED: position first + (i << fine_bits) + j is coarse row i and fine row j.
    std::unique_ptr<float[], halyard::DeleteRows> fine_rows;
    std::int32_t fine_bits = 0;

    // PHASE: frequencies in 2^-64 turns, their upper and lower words; attention_factor in two floats.
    std::unique_ptr<std::uint32_t[]> turns_high, turns_low;
    float scale_high = 1.0f, scale_low = 0.0f;

    bool is_direct = false;  // kernels can read the rows where they lie

    bool covers(std::int64_t position) const noexcept {
        return listed == nullptr ? position >= first && position <= last : find_row(position, 0) >= 0;
    }

    /// The row of a position under a policy; -1 where the policy is HALYARD_BAD_POSITION_ERROR and it is not covered.
    /// For TABLE and GIVEN.
    std::int32_t find_row(std::int64_t position, std::int32_t bad_position) const noexcept {
        return listed == nullptr && position >= first && position <= last ? static_cast<std::int32_t>(position - first)
                                                                          : find_other_row(position, bad_position);
    }

    /// The position that a position stands for under a policy: itself where it is covered, else the nearest or 0.
    /// For FACTORED and PHASE.
    std::int32_t find_position(std::int64_t position, std::int32_t bad_position) const noexcept {
        if (position >= first && position <= last) {
            return static_cast<std::int32_t>(position);
        }
        return bad_position == HALYARD_BAD_POSITION_CLAMP ? static_cast<std::int32_t>(position < first ? first : last)
                                                          : 0;
    }

private:
    std::int32_t find_other_row(std::int64_t position, std::int32_t bad_position) const noexcept;
};

namespace halyard {

/// Fails, naming the first bad position, unless every token has a row under the policy.
halyard_status check_positions(const halyard_angle_source &source, const Positions &positions,
                               std::int32_t bad_position, std::int64_t n_batch, std::int64_t n_tokens,
                               halyard_error *error) noexcept;

}  // namespace halyard
