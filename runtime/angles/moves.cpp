#include "angles/moves.h"

#include "base/error.h"

#include <limits>

namespace halyard {

halyard_status check_source_of_moves(const halyard_angle_source &source, const char *name, std::int64_t rotary_dim,
                                     halyard_error *error) noexcept {
    if (source.rotary_dim != rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, " has a rotary_dim of ", source.rotary_dim,
                    ", but the plan's is ", rotary_dim);
    }
    if (source.turns_high == nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, name,
                    source.kind == AngleKind::given ? " has given rows, which do not tell by how much a key has to turn"
                                                    : " has another reference than EXACT, by which keys do not move");
    }
    return HALYARD_OK;
}

namespace {

halyard_status check_are_int32(const CheckedPositions &positions, std::int32_t n_axes, std::int64_t n_batch,
                               std::int64_t n_tokens, const char *name, halyard_error *error) {
    using Position = std::numeric_limits<std::int32_t>;
    const std::int64_t n_distinct = positions.stride_batch == 0 ? 1 : n_batch;
    for (std::int32_t axis = 0; axis < n_axes; axis++) {
        for (std::int64_t batch = 0; batch < n_distinct; batch++) {
            for (std::int64_t token = 0; token < n_tokens; token++) {
                const std::int64_t position = positions.at(batch, token, axis);
                if (position < Position::min() || position > Position::max()) {
                    return fail(error, HALYARD_ERROR_POSITION, name, n_axes > 1 ? "[axis " : "[",
                                n_axes > 1 ? Part(axis) : Part(""), n_axes > 1 ? ", batch " : "batch ", batch,
                                ", token ", token, "] is ", position, ", but positions of 32 bits are ",
                                Position::min(), " to ", Position::max());
                }
            }
        }
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status check_moves(const Moves &moves, std::int64_t n_batch, std::int64_t n_tokens,
                           halyard_error *error) noexcept {
    HALYARD_TRY(check_are_int32(*moves.to_positions, moves.to->axes.n_axes, n_batch, n_tokens, "positions", error));
    return check_are_int32(*moves.from_positions, moves.from->axes.n_axes, n_batch, n_tokens, "from_positions", error);
}

Move move_of(const Moves &moves, std::int64_t batch, std::int64_t token) noexcept {
    Move move;
    for (std::int32_t axis = 0; axis < moves.to->axes.n_axes; axis++) {
        move.to[std::size_t(axis)] = static_cast<std::uint64_t>(moves.to_positions->at(batch, token, axis));
    }
    auto &from = moves.to == moves.from ? move.to : move.from;
    for (std::int32_t axis = 0; axis < moves.from->axes.n_axes; axis++) {
        from[std::size_t(axis)] -= static_cast<std::uint64_t>(moves.from_positions->at(batch, token, axis));
    }
    return move;
}

namespace {

/// What some positions of a pair's axis come to, in 2^-64 turns.
std::uint64_t turns_of(const halyard_angle_source &source, const decltype(Move::to) &positions, std::int64_t pair) {
    const std::uint64_t turns = std::uint64_t{source.turns_high.get()[pair]} << 32 | source.turns_low.get()[pair];
    return turns * positions[std::size_t(source.axes.of(pair))];
}

}  // namespace

void find_turns(const Moves &moves, const Move &move, std::int64_t first_pair, std::int64_t n_pairs,
                std::uint32_t *turns) noexcept {
    for (std::int64_t i = 0; i < n_pairs; i++) {
        const std::int64_t pair = first_pair + i;
        const std::uint64_t both = turns_of(*moves.to, move.to, pair) + turns_of(*moves.from, move.from, pair);
        turns[i] = static_cast<std::uint32_t>(both >> 32);
    }
}

}  // namespace halyard
