// Keys that were rotated for one position and move to another: by how much they turn.
#pragma once

#include "angles/angle_source.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace halyard {

/// Where a run's keys go to and where they come from: sources that may be one, or joined, and a position of every token
/// in each.
struct Moves {
    const halyard_angle_source *to, *from;
    const CheckedPositions *to_positions, *from_positions;
};

/// Fails unless keys can move by a source of the plan's rotary_dim. name is for the message.
halyard_status check_source_of_moves(const halyard_angle_source &source, const char *name, std::int64_t rotary_dim,
                                     halyard_error *error) noexcept;

/// Fails, naming the first bad one, unless all positions have 32 bits and the index of joined sources tells of every
/// token which of them it reads.
halyard_status check_moves(const Moves &moves, std::int64_t n_batch, std::int64_t n_tokens,
                           halyard_error *error) noexcept;

/// How a token's keys move: the sources that they go to and come from, of joined ones those that the index says, and by
/// how many positions they turn on each axis with either. With one source both are one difference, so that equal ones
/// are seen.
struct Move {
    const halyard_angle_source *to_angles = nullptr, *from_angles = nullptr;
    std::array<std::uint64_t, HALYARD_MAX_AXES> to{}, from{};
    bool operator==(const Move &) const = default;

    /// What keys are multiplied by besides, since attention_factor was applied before.
    double factor() const noexcept {
        return to_angles == from_angles ? 1.0 : to_angles->attention_factor / from_angles->attention_factor;
    }
};
Move move_of(const Moves &moves, std::int64_t batch, std::int64_t token, std::int64_t n_tokens) noexcept;

/// By how much pairs turn, in 2^-32 turns. Whole turns are lost, as they may.
void find_turns(const Move &move, std::int64_t first_pair, std::int64_t n_pairs, std::uint32_t *turns) noexcept;

}  // namespace halyard
