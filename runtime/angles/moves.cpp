#include "angles/moves.h"

#include "base/error.h"

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

halyard_status check_moves(const Moves &moves, const Tokens &tokens, halyard_error *error) noexcept {
    constexpr PositionRange all = {INT32_MIN, INT32_MAX, "positions of 32 bits are "};
    HALYARD_TRY(check_within(all, *moves.to_positions, moves.to->axes.n_axes, tokens, "positions", error));
    return check_within(all, *moves.from_positions, moves.from->axes.n_axes, tokens, "from_positions", error);
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
