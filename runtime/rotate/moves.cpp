#include "rotate/moves.h"

#include "base/error.h"
#include "rotate/piece.h"
#include "rotate/rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace halyard {

namespace {

halyard_status check_source(const halyard_angle_source &source, const char *name, std::int64_t rotary_dim,
                            halyard_error *error) {
    if (source.rotary_dim != rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, " has a rotary_dim of ", source.rotary_dim,
                    ", but the plan's is ", rotary_dim);
    }
    if (source.turns_high == nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, name,
                    source.kind == AngleKind::given ? " has given rows" : " has another reference than EXACT",
                    ", by which no key can move to another position");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_moves(const halyard_run_args &args, Run &run, halyard_error *error) noexcept {
    if (!run.plan->rerotates) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.from_",
                    args.from_positions != nullptr ? "positions" : "angles", " is set, but the plan does not rerotate");
    }
    if (args.from_positions == nullptr) {
        return fail_null(error, "args.from_positions");
    }
    if (run.bad_position != BadPosition::error) {
        return fail(error, HALYARD_ERROR_MISMATCH, "bad_position is ", args.bad_position,
                    ", but keys move from and to every position of 32 bits, so that it must be 0");
    }
    run.from_angles = args.from_angles != nullptr ? args.from_angles : run.angles;
    halyard_status status = check_source(*run.angles, "angles", run.plan->rotary_dim, error);
    if (status == HALYARD_OK) {
        status = check_source(*run.from_angles, "from_angles", run.plan->rotary_dim, error);
    }
    return status != HALYARD_OK
               ? status
               : read_positions(args.from_positions, run.n_batch, run.n_tokens, run.from_angles->axes.n_axes,
                                &run.from_positions, error, "from_positions");
}

// ---- Checks --------------------------------------------------------------------------------------------------------

namespace {

halyard_status check_positions(const Run &run, const CheckedPositions &positions, std::int32_t n_axes, const char *name,
                               halyard_error *error) {
    using Position = std::numeric_limits<std::int32_t>;
    const std::int64_t n_distinct = positions.stride_batch == 0 ? 1 : run.n_batch;
    for (std::int32_t axis = 0; axis < n_axes; axis++) {
        for (std::int64_t batch = 0; batch < n_distinct; batch++) {
            for (std::int64_t token = 0; token < run.n_tokens; token++) {
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

halyard_status check_scales(const Run &run, int index, halyard_error *error) {
    const TensorDesc &desc = run.plan->tensors[index].desc;
    const RunStages &stages = run.stages[index];
    for (std::int64_t batch = 0; batch < run.n_batch; batch++) {
        for (std::int64_t token = 0; token < run.n_tokens; token++) {
            const std::int64_t row = desc.cache ? run.slots.of_token(batch * run.n_tokens + token) : token;
            for (std::int64_t head = 0; head < run.tensors[index].n_heads && row >= 0; head++) {
                const std::int64_t at = (desc.cache ? 0 : batch * stages.stride_batch) + row * stages.stride_token +
                                        head * stages.stride_head;
                const float scale = read_cached_scale(stages.scales_out + at * std::int64_t{sizeof(float)});
                if (!is_scale(scale)) {
                    return fail(error, HALYARD_ERROR_SCALE, "stages[", index, "].scales_out[",
                                desc.cache ? "slot " : "token ", row, ", head ", head, "] is ", double(scale),
                                ", but it and its reciprocal must be positive and finite: no key was stored there");
                }
            }
        }
    }
    return HALYARD_OK;
}

}  // namespace

float read_cached_scale(const char *at) noexcept {
    return std::bit_cast<float>(__atomic_load_n(reinterpret_cast<const std::uint32_t *>(at), __ATOMIC_RELAXED));
}

void write_cached_scale(char *at, float scale) noexcept {
    __atomic_store_n(reinterpret_cast<std::uint32_t *>(at), std::bit_cast<std::uint32_t>(scale), __ATOMIC_RELAXED);
}

halyard_status check_moves(const Run &run, halyard_error *error) noexcept {
    halyard_status status = check_positions(run, run.positions, run.angles->axes.n_axes, "positions", error);
    if (status == HALYARD_OK) {
        status = check_positions(run, run.from_positions, run.from_angles->axes.n_axes, "from_positions", error);
    }
    for (int i = 0; i < run.plan->n_tensors && status == HALYARD_OK; i++) {
        const TensorDesc &desc = run.plan->tensors[i].desc;
        if (desc.scale && desc.scale->dynamic && run.tensors[i].n_heads != 0) {
            status = check_scales(run, i, error);
        }
    }
    return status;
}

// ---- Rows ----------------------------------------------------------------------------------------------------------

namespace {

/// By how many positions a token's keys turn on each axis, with the source that they go to and the one that they come
/// from. With one source both are one difference, so that equal ones are seen.
struct Move {
    std::array<std::uint64_t, HALYARD_MAX_AXES> to{}, from{};
    bool operator==(const Move &) const = default;
};

Move move_of(const Run &run, std::int64_t batch, std::int64_t token) {
    Move move;
    for (std::int32_t axis = 0; axis < run.angles->axes.n_axes; axis++) {
        move.to[std::size_t(axis)] = static_cast<std::uint64_t>(run.positions.at(batch, token, axis));
    }
    auto &from = run.angles == run.from_angles ? move.to : move.from;
    for (std::int32_t axis = 0; axis < run.from_angles->axes.n_axes; axis++) {
        from[std::size_t(axis)] -= static_cast<std::uint64_t>(run.from_positions.at(batch, token, axis));
    }
    return move;
}

std::int32_t axis_of(const PairAxes &axes, std::int64_t pair) {
    std::int32_t axis = 0;
    switch (axes.kind) {
    case AxisMapKind::none: break;
    case AxisMapKind::sections:
        for (std::int64_t end = axes.counts[0]; pair >= end; end += axes.counts[axis]) {
            axis++;
        }
        break;
    case AxisMapKind::interleaved:
        axis = static_cast<std::int32_t>(pair % axes.n_axes);
        axis = pair < axes.n_axes * axes.counts[axis] ? axis : 0;
        break;
    }
    return axis;
}

/// What some positions of a pair's axis come to in 2^-64 turns. Whole turns are lost, as they may.
std::uint64_t turns_of(const halyard_angle_source &source, const decltype(Move::to) &positions, std::int64_t pair) {
    const std::uint64_t turns = std::uint64_t{source.turns_high.get()[pair]} << 32 | source.turns_low.get()[pair];
    return turns * positions[std::size_t(axis_of(source.axes, pair))];
}

}  // namespace

std::int64_t make_moved_rows(const Run &run, std::int64_t first, std::int64_t last, std::int64_t first_pair,
                             std::int64_t n_pairs, float *rows, std::int32_t *row_of_token) noexcept {
    const halyard_angle_source &to = *run.angles, &from = *run.from_angles;
    const double factor = &to == &from ? 1.0 : to.attention_factor / from.attention_factor;
    const auto factor_high = static_cast<float>(factor);
    const auto factor_low = static_cast<float>(factor - static_cast<double>(factor_high));
    const std::int64_t most_rows = row_block(to.rotary_dim).n_tokens;
    const std::int64_t most_tokens = std::min(last - first, max_piece_tokens);
    Move move;
    std::int64_t n_rows = 0, n_tokens = 0;
    for (; n_tokens < most_tokens; n_tokens++) {
        const std::int64_t batch = (first + n_tokens) / run.n_tokens;
        const Move next = move_of(run, batch, first + n_tokens - batch * run.n_tokens);
        if (n_rows == 0 || next != move) {
            if (n_rows == most_rows) {
                break;
            }
            move = next;
            std::uint32_t turns[made_floats / 2];
            for (std::int64_t i = 0; i < n_pairs; i++) {
                const std::uint64_t both =
                    turns_of(to, move.to, first_pair + i) + turns_of(from, move.from, first_pair + i);
                turns[i] = static_cast<std::uint32_t>(both >> 32);
            }
            make_row_of_turns(run.plan->row_kernels, turns, factor_high, factor_low, n_pairs,
                              {rows + n_rows * 2 * n_pairs, 2 * n_pairs, n_pairs});
            n_rows++;
        }
        row_of_token[n_tokens] = static_cast<std::int32_t>(n_rows - 1);
    }
    return n_tokens;
}

}  // namespace halyard
