// What an angle source is: where cos and sin come from, which positions it covers, and the row of a position.
#pragma once

#include "angles/pair_axes.h"
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

/// HALYARD_ANGLES_… but AUTO, which stands for one of them.
enum class AngleKind : std::int32_t {
    table = HALYARD_ANGLES_TABLE,
    given = HALYARD_ANGLES_GIVEN,
    phase = HALYARD_ANGLES_PHASE
};

/// HALYARD_REFERENCE_…: whose cos and sin a table holds.
enum class Reference : std::int32_t { exact = HALYARD_REFERENCE_EXACT, hf_f32 = HALYARD_REFERENCE_HF_F32 };

/// HALYARD_BAD_POSITION_…: what a position stands for that a source does not cover.
enum class BadPosition : std::int32_t {
    error = HALYARD_BAD_POSITION_ERROR,
    clamp = HALYARD_BAD_POSITION_CLAMP,
    identity = HALYARD_BAD_POSITION_IDENTITY
};

/// The policy that a number of the C ABI stands for; none where there is no such policy.
constexpr std::optional<BadPosition> to_bad_position(std::int32_t number) noexcept {
    const bool exists = number >= HALYARD_BAD_POSITION_ERROR && number <= HALYARD_BAD_POSITION_IDENTITY;
    return exists ? std::optional(BadPosition(number)) : std::nullopt;
}

/// Rows start on a cache line, so that no vector load of a row whose rotary_dim is a multiple of 16 straddles two.
inline constexpr std::align_val_t row_alignment{64};

struct DeleteRows {
    void operator()(float *rows) const noexcept { ::operator delete(rows, row_alignment); }
};

/// Where cos and sin come from, and which positions it covers: all but the memory that a source owns.
struct AngleShape {
    AngleKind kind = AngleKind::table;
    std::int64_t rotary_dim = 0;
    std::int64_t first = 0;   // the positions that are covered,
    std::int64_t last = 0;    // both included
    std::uint64_t bytes = 0;  // that the source owns

    // table and given: rows in memory
    Dtype rows_dtype = Dtype::f32;
    std::int64_t n_rows = 0;        // below 2^31
    std::int32_t identity_row = 0;  // the row of position 0; a table always has one, after its other rows if need be
    std::int64_t stride_row = 0;    // in elements
    const void *cos_rows = nullptr;
    const void *sin_rows = nullptr;
    MemoryRange cos_memory = {0, 0};  // what the rows span
    MemoryRange sin_memory = {0, 0};

    double attention_factor = 1.0;
    float scale_high = 1.0f, scale_low = 0.0f;  // attention_factor in two floats

    Reference reference = Reference::exact;
    bool is_direct = false;  // kernels can read the rows where they lie
    bool by_token = false;   // given: the rows are those of a run's tokens, in order,
    bool is_shared = false;  // or those of each of its batch rows

    /// Whether each position has a row in memory.
    bool has_rows() const noexcept { return kind == AngleKind::table || kind == AngleKind::given; }
};

}  // namespace halyard

struct halyard_angle_source : halyard::AngleShape {
    halyard::PairAxes axes;
    std::unique_ptr<float[], halyard::DeleteRows> owned_rows;
    // phase, and all others but given whose reference is exact, since keys move by them: frequencies in 2^-64 turns,
    // their upper and lower words.
    std::unique_ptr<std::uint32_t[]> turns_high, turns_low;
};

namespace halyard {

/// In what two sources of given rows differ beside where these lie; NULL where in nothing.
const char *find_difference(const halyard_angle_source &a, const halyard_angle_source &b) noexcept;

}  // namespace halyard
