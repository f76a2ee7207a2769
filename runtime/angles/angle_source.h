// Angle sources: where cos and sin come from, which positions a source covers, and the row of a position.
#pragma once

#include "angles/pair_axes.h"
#include "base/error.h"
#include "base/overlap.h"
#include "base/storage.h"
#include "frequencies/frequencies.h"
#include "halyard/halyard.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>

namespace halyard {

/// HALYARD_ANGLES_… except AUTO, which is resolved to one of them.
enum class AngleKind : std::int32_t {
    table = HALYARD_ANGLES_TABLE,
    given = HALYARD_ANGLES_GIVEN,
    phase = HALYARD_ANGLES_PHASE
};

/// HALYARD_REFERENCE_…: which arithmetic a table's cos and sin have.
enum class Reference : std::int32_t { exact = HALYARD_REFERENCE_EXACT, hf_f32 = HALYARD_REFERENCE_HF_F32 };

/// HALYARD_BAD_POSITION_…: what a run does with a position that the source does not cover.
enum class BadPosition : std::int32_t {
    error = HALYARD_BAD_POSITION_ERROR,
    clamp = HALYARD_BAD_POSITION_CLAMP,
    identity = HALYARD_BAD_POSITION_IDENTITY
};

/// Converts a number of the C ABI; none if it is no policy for bad positions.
constexpr std::optional<BadPosition> to_bad_position(std::int32_t number) noexcept {
    const bool exists = number >= HALYARD_BAD_POSITION_ERROR && number <= HALYARD_BAD_POSITION_IDENTITY;
    return exists ? std::optional(BadPosition(number)) : std::nullopt;
}

/// Rows start on a cache line. So if rotary_dim is a multiple of 16, no vector load of a row straddles two cache lines.
inline constexpr std::align_val_t row_alignment{64};

struct DeleteRows {
    void operator()(float *rows) const noexcept { ::operator delete(rows, row_alignment); }
};

/// An angle source without the memory that it owns.
struct AngleShape {
    AngleKind kind = AngleKind::table;
    std::int64_t rotary_dim = 0;
    std::int64_t first = 0;  // first … last: the positions that the source covers
    std::int64_t last = 0;
    std::uint64_t bytes = 0;  // of memory that the source owns

    // table and given: rows in memory
    Dtype rows_dtype = Dtype::f32;
    std::int64_t n_rows = 0;        // below 2^31
    std::int32_t identity_row = 0;  // the row of position 0; a table that does not cover 0 has it after its other rows
    std::int64_t stride_row = 0;    // in elements
    const void *cos_rows = nullptr;
    const void *sin_rows = nullptr;
    MemoryRange cos_memory = {0, 0};  // the addresses of all cos rows
    MemoryRange sin_memory = {0, 0};

    double attention_factor = 1.0;
    float scale_high = 1.0f, scale_low = 0.0f;  // attention_factor in two floats

    Reference reference = Reference::exact;
    bool is_direct = false;  // kernels can read the rows where they are in memory
    bool by_token = false;   // given: there is a row for each token of a run, in order
    bool is_shared = false;  // by_token, and all batch rows read the same rows

    /// Whether each position has a row in memory.
    bool has_rows() const noexcept { return kind == AngleKind::table || kind == AngleKind::given; }
};

}  // namespace halyard

struct halyard_angle_source : halyard::AngleShape {
    halyard::PairAxes axes;
    std::unique_ptr<float[], halyard::DeleteRows> owned_rows;
    // Frequencies in 2^-64 of a full turn per position, upper and lower words. Set for phase, and for tables whose
    // reference is exact, because re-rotation needs them.
    std::unique_ptr<std::uint32_t[]> turns_high, turns_low;
};

namespace halyard {

/// The name of a field in which two sources of given rows differ; NULL if none does. The rows' addresses may differ.
const char *find_difference(const halyard_angle_source &a, const halyard_angle_source &b) noexcept;

/// Fails unless a source has the rotary_dim of a plan. `name` is for the error message.
inline halyard_status check_rotary_dim(const halyard_angle_source &source, const char *name, std::int64_t rotary_dim,
                                       halyard_error *error) noexcept {
    return source.rotary_dim == rotary_dim ? HALYARD_OK
                                           : fail(error, HALYARD_ERROR_MISMATCH, name, " has a rotary_dim of ",
                                                  source.rotary_dim, ", but the plan's is ", rotary_dim);
}

}  // namespace halyard
