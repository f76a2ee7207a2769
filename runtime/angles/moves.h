// Keys that were rotated for one position and move to another: by how much they turn.
#pragma once

#include "angles/angle_source.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace halyard {

/// Where a run's keys go to and where they come from: sources that may be one, and a position of every token in each.
struct Moves {
    const halyard_angle_source *to, *from;
    const CheckedPositions *to_positions, *from_positions;

    /// What keys are multiplied by besides, since attention_factor was applied before.
    double factor() const noexcept { return to == from ? 1.0 : to->attention_factor / from->attention_factor; }
};

/// Fails unless keys can move by a source of the plan's rotary_dim. name is for the message.
halyard_status check_source_of_moves(const halyard_angle_source &source, const char *name, std::int64_t rotary_dim,
                                     halyard_error *error) noexcept;

/// Fails, naming the first bad one, unless the positions of all tokens that are written have 32 bits.
halyard_status check_moves(const Moves &moves, const Tokens &tokens, halyard_error *error) noexcept;

/// By how many positions a token's keys turn on each axis with the source that they go to and with that which they come
/// from. With one source both are one difference, so that equal ones are seen.
struct Move {
    std::array<std::uint64_t, HALYARD_MAX_AXES> to{}, from{};
    bool operator==(const Move &) const = default;
};
Move move_of(const Moves &moves, std::int64_t batch, std::int64_t token) noexcept;

/// By how much pairs turn, in 2^-32 turns. Whole turns are lost, as they may.
void find_turns(const Moves &moves, const Move &move, std::int64_t first_pair, std::int64_t n_pairs,
                std::uint32_t *turns) noexcept;

}  // namespace halyard
