#include "base/versioned.h"
#include "kv/block.h"

#include <array>

namespace halyard {

namespace {

/// Fails unless an angle source has the frequencies that re-rotation needs.
halyard_status check_source_of_moves(const halyard_angle_source &source, const char *name, halyard_error *error) {
    if (source.turns_high == nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, name,
                    source.kind == AngleKind::given ? " has given rows, which do not tell by how much a key has to turn"
                                                    : " has another reference than EXACT, by which keys do not move");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status bind_moves(const Program &program, const halyard_run_args &args, KvProgram *out,
                          halyard_error *error) noexcept {
    const halyard_kv_args &kv_args = or_none(args.kv);
    HALYARD_TRY(check_given(kv_args.from_positions, "args.kv.from_positions", error));
    if (program.bad_position != BadPosition::error) {
        return fail(error, HALYARD_ERROR_MISMATCH, "bad_position is ", args.bad_position,
                    ", but keys move from and to every position of 32 bits, so that it must be 0");
    }
    out->from_angles = kv_args.from_angles != nullptr ? kv_args.from_angles : program.angles;
    HALYARD_TRY(check_source_of_moves(*program.angles, "angles", error));
    HALYARD_TRY(check_rotary_dim(*out->from_angles, "args.kv.from_angles", program.plan->rotary_dim, error));
    HALYARD_TRY(check_source_of_moves(*out->from_angles, "args.kv.from_angles", error));
    return bind_positions(kv_args.from_positions, args.x->shape[0], args.x->shape[1], out->from_angles->axes.n_axes,
                          "args.kv.from_positions", &out->from_positions, error);
}

halyard_status check_moves(const KvCall &call, const TokenSet *tokens, halyard_error *error) noexcept {
    constexpr PositionRange all = {INT32_MIN, INT32_MAX, "positions of 32 bits are "};
    HALYARD_TRY(check_within(all, call.program.positions, call.given.positions, call.given.angles->axes.n_axes, tokens,
                             "positions", error));
    return check_within(all, call.kv_program.from_positions, call.arrays.from_positions,
                        call.kv_program.from_angles->axes.n_axes, tokens, "args.kv.from_positions", error);
}

namespace {

/// By how many positions a token's keys rotate on each axis. `to` is the new position, at the frequencies of the source
/// `angles`; `from` is the negated old position, at those of `from_angles`. If both are one source, `to` is the
/// difference of the positions and `from` is 0, so that tokens that move equally far have equal Moves.
struct Move {
    std::array<std::uint64_t, HALYARD_MAX_AXES> to{}, from{};
    bool operator==(const Move &) const = default;
};

Move move_of(const KvCall &call, std::int64_t token_index) {
    const halyard_angle_source &to = *call.given.angles, &from = *call.kv_program.from_angles;
    const Positions &positions = call.program.positions;
    const std::int64_t batch = token_index / positions.n_tokens, token = token_index - batch * positions.n_tokens;
    Move move;
    for (std::int32_t axis = 0; axis < to.axes.n_axes; axis++) {
        move.to[std::size_t(axis)] = static_cast<std::uint64_t>(positions.at(call.given.positions, batch, token, axis));
    }
    auto &back = &to == &from ? move.to : move.from;
    for (std::int32_t axis = 0; axis < from.axes.n_axes; axis++) {
        back[std::size_t(axis)] -= static_cast<std::uint64_t>(
            call.kv_program.from_positions.at(call.arrays.from_positions, batch, token, axis));
    }
    return move;
}

/// The angle by which a pair rotates for these positions, in 2^-64 of a full turn.
std::uint64_t turns_of(const halyard_angle_source &source, const decltype(Move::to) &positions, std::int64_t pair) {
    const std::uint64_t turns = std::uint64_t{source.turns_high.get()[pair]} << 32 | source.turns_low.get()[pair];
    return turns * positions[std::size_t(source.axes.of(pair))];
}

/// Makes the row of cos and sin of a move. Angles wrap at whole turns, which do not change cos and sin.
void make_row(const KvCall &call, const Move &move, std::int64_t first_pair, std::int64_t n_pairs, float *row) {
    const halyard_angle_source &to = *call.given.angles, &from = *call.kv_program.from_angles;
    std::uint32_t turns[made_floats / 2];  // in 2^-32 of a full turn
    for (std::int64_t i = 0; i < n_pairs; i++) {
        turns[i] = static_cast<std::uint32_t>(
            (turns_of(to, move.to, first_pair + i) + turns_of(from, move.from, first_pair + i)) >> 32);
    }
    // The keys have been multiplied by the attention_factor of from_angles already.
    const double factor = &to == &from ? 1.0 : to.attention_factor / from.attention_factor;
    make_row_of_turns(turns, factor, call.plan().row_kernels, n_pairs, {row, 2 * n_pairs, n_pairs});
}

}  // namespace

std::int64_t make_moved_rows(const KvCall &call, std::int64_t first, std::int64_t last, std::int64_t first_pair,
                             std::int64_t n_pairs, float *rows, std::int32_t *row_of_token) noexcept {
    const std::int64_t most_rows = row_block(call.plan().rotary_dim).n_tokens;
    const std::int64_t most_tokens = std::min(last - first, max_block_tokens);
    Move move;
    std::int64_t n_rows = 0, n_tokens = 0;
    for (; n_tokens < most_tokens; n_tokens++) {
        const Move next = move_of(call, first + n_tokens);
        if (n_rows == 0 || next != move) {
            if (n_rows == most_rows) {
                break;
            }
            move = next;
            make_row(call, move, first_pair, n_pairs, rows + n_rows * 2 * n_pairs);
            n_rows++;
        }
        row_of_token[n_tokens] = static_cast<std::int32_t>(n_rows - 1);
    }
    return n_tokens;
}

}  // namespace halyard
