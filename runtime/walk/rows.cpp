#include "walk/rows.h"

#include "base/storage.h"
#include "walk/piece.h"
#include "walk/reference.h"

#include <algorithm>
#include <cstring>

namespace halyard {

namespace {

/// Copies or widens n_pairs elements of a caller's row.
void widen(Dtype dtype, const void *row, std::int64_t first, std::int64_t n_pairs, float *out) noexcept {
    if (dtype == Dtype::f32) {
        std::memcpy(out, static_cast<const char *>(row) + first * 4, std::size_t(n_pairs) * 4);
        return;
    }
    with_storage(dtype, [&](auto storage) { widen_words<decltype(storage)>(row, first, n_pairs, out); });
}

/// A buffer as a kernel reads it. Strides of dimension 0 are always 1.
struct Buffer {
    halyard_buffer header;
    halyard_dimension dims[3];

    Buffer(const void *data, std::int64_t extent0, std::int64_t stride1 = 0, std::int64_t extent2 = 0,
           std::int64_t stride2 = 0) {
        set_buffer(header, data, dims);
        set_dimension(dims[0], extent0, 1);
        set_dimension(dims[1], 2, stride1);
        set_dimension(dims[2], extent2, stride2);  // NOLINT(*UninitializedObject): see set_buffer
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
};

void make_phase_rows(const Phases &phases, const RowKernels &kernels, const std::int32_t *positions,
                     std::int64_t n_tokens, std::int64_t n_pairs, const RowOutput &out) noexcept {
    if (kernels.phase == nullptr) {
        for (std::int64_t t = 0; t < n_tokens; t++) {
            float *row = out.data + t * out.stride_token;
            phase_row_reference(positions[t], phases, n_pairs, row, row + out.stride_sin);
        }
        return;
    }
    const auto &[high, low, scale_high, scale_low] = phases;
    Buffer position(positions, n_tokens), turns_high(high, n_pairs), turns_low(low, n_pairs);
    Buffer rows(out.data, n_pairs, out.stride_sin, n_tokens, out.stride_token);
    kernels.phase(&position.header, &turns_high.header, &turns_low.header, scale_high, scale_low, &rows.header);
}

/// Widens n rows that follow each other.
void widen_rows(halyard_widen_kernel *kernel, const char *from, std::int64_t stride_row, std::int64_t n_pairs,
                std::int64_t n, const RowOutput &out) noexcept {
    halyard_buffer x, y;
    halyard_dimension x_dims[3], y_dims[3];
    set_buffer(x, from, x_dims);
    set_buffer(y, out.data, y_dims);
    for (halyard_dimension *dims : {x_dims, y_dims}) {
        set_dimension(dims[0], n_pairs, 1);
        set_dimension(dims[1], 1, 0);
        set_dimension(dims[2], n, n == 1 ? 0 : dims == x_dims ? stride_row : out.stride_token);
    }
    kernel(&x, &y);
}

/// Copies rows that lie in memory, and widens them to float.
void copy_rows(const halyard_angle_source &source, const RowKernels &kernels, const std::int32_t *row_of_token,
               const RowTokens &tokens, std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept {
    const bool is_float = source.rows_dtype == Dtype::f32;
    halyard_widen_kernel *const kernel = is_float ? nullptr : kernels.widen[index_of(source.rows_dtype)];
    const bool may_join = kernel != nullptr && source.stride_row <= max_offset / max_piece_tokens;
    for (std::int64_t i = 0, n = 1; i < tokens.n_tokens; i += n) {
        for (n = 1; may_join && i + n < tokens.n_tokens && row_of_token[i + n] == row_of_token[i] + n;) {
            n++;
        }
        const std::int64_t at = row_of_token[i] * source.stride_row + first_pair;
        for (const bool is_sin : {false, true}) {
            const void *const rows = is_sin ? source.sin_rows : source.cos_rows;
            float *const row = out.data + i * out.stride_token + (is_sin ? out.stride_sin : 0);
            if (kernel == nullptr) {
                widen(source.rows_dtype, rows, at, n_pairs, row);
            } else {
                widen_rows(kernel, static_cast<const char *>(rows) + at * element_bytes(source.rows_dtype),
                           source.stride_row, n_pairs, n, {row, out.stride_token, 0});
            }
        }
    }
}

/// Makes rows of pairs that all read one axis.
void make_band(const halyard_angle_source &source, const RowKernels &kernels, const RowTokens &tokens,
               std::int32_t axis, std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept {
    if (n_pairs <= 0) {
        return;
    }
    const bool reads_rows = source.has_rows();
    std::int32_t found[max_piece_tokens];  // rows, or the positions that count
    std::int64_t batch = tokens.first / tokens.tokens_in_batch, token = tokens.first % tokens.tokens_in_batch;
    for (std::int64_t i = 0; i < tokens.n_tokens; i++) {
        const std::int64_t position = tokens.positions->at(batch, token, axis);
        found[i] = reads_rows ? source.find_row(position, tokens.bad_position)
                              : source.find_position(position, tokens.bad_position);
        if (reads_rows && found[i] < 0) {
            found[i] = source.identity_row;
        }
        if (++token == tokens.tokens_in_batch) {
            token = 0;
            batch++;
        }
    }
    switch (source.kind) {
    case AngleKind::phase:
        make_phase_rows({source.turns_high.get() + first_pair, source.turns_low.get() + first_pair, source.scale_high,
                         source.scale_low},
                        kernels, found, tokens.n_tokens, n_pairs, out);
        break;
    case AngleKind::table:
    case AngleKind::given: copy_rows(source, kernels, found, tokens, first_pair, n_pairs, out); break;
    }
}

/// Copies an axis' own pairs from rows of n_pairs pairs, those of other axes among them.
void take_own_pairs(const PairAxes::Span &span, std::int64_t n_tokens, std::int64_t first_pair, std::int64_t n_pairs,
                    const RowOutput &from, const RowOutput &to) noexcept {
    const std::int32_t *const begin = std::lower_bound(span.own, span.own + span.n_own, first_pair);
    const std::int32_t *const end = std::lower_bound(begin, span.own + span.n_own, first_pair + n_pairs);
    for (std::int64_t t = 0; t < n_tokens; t++) {
        const float *const its = from.data + t * from.stride_token - first_pair;
        float *const row = to.data + t * to.stride_token - first_pair;
        for (const std::int32_t *pair = begin; pair != end; pair++) {
            row[*pair] = its[*pair];
            row[*pair + to.stride_sin] = its[*pair + from.stride_sin];
        }
    }
}

}  // namespace

RowBlock row_block(std::int64_t rotary_dim) noexcept {
    const std::int64_t n_pairs = std::min(rotary_dim, made_floats) / 2;
    return {std::clamp<std::int64_t>(made_floats / rotary_dim, 1, max_piece_tokens), n_pairs};
}

void make_rows(const halyard_angle_source &source, const RowKernels &kernels, const RowTokens &tokens,
               std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept {
    const PairAxes &axes = source.axes;
    if (axes.n_axes == 1) {
        make_band(source, kernels, tokens, 0, first_pair, n_pairs, out);
        return;
    }
    for (std::int32_t axis = 0; axis < axes.n_axes; axis++) {
        const PairAxes::Span &span = axes.spans[axis];
        const std::int64_t first = std::max(span.first, first_pair);
        const std::int64_t n = std::min(span.last, first_pair + n_pairs) - first;
        const RowOutput its = {out.data + first - first_pair, out.stride_token, out.stride_sin};
        if (span.comes_first) {  // pairs in between are written by axes that follow
            make_band(source, kernels, tokens, axis, first, n, its);
        } else if (n > 0) {
            float made[made_floats];
            const RowOutput whole = {made, 2 * n, n};
            make_band(source, kernels, tokens, axis, first, n, whole);
            take_own_pairs(span, tokens.n_tokens, first, n, whole, its);
        }
    }
}

void make_linear_rows(const LinearAngles &linear, const RowKernels &kernels, std::int64_t tokens_in_batch,
                      std::int64_t first, std::int64_t last, float *rows) noexcept {
    const auto factor_high = static_cast<float>(linear.attention_factor);
    const auto factor_low = static_cast<float>(linear.attention_factor - static_cast<double>(factor_high));
    const std::int64_t stride = 2 * linear.n_pairs;
    const std::int32_t once = 1;  // at position 1 the lower word of the turns adds nothing
    for (std::int64_t pair = 0; pair < linear.n_pairs; pair += LinearPairs::most) {
        const std::int64_t n = std::min(linear.n_pairs - pair, LinearPairs::most);
        const LinearPairs pairs(linear, pair, n);
        for (std::int64_t at = first; at < last; at++) {
            std::uint32_t turns[LinearPairs::most];
            pairs.find_turns(at / tokens_in_batch, at % tokens_in_batch, turns);
            make_phase_rows({turns, turns, factor_high, factor_low}, kernels, &once, 1, n,
                            {rows + at * stride + pair, stride, linear.n_pairs});
        }
    }
}

std::int64_t make_moved_rows(const Moves &moves, const RowKernels &kernels, const MovedTokens &tokens,
                             std::int64_t first_pair, std::int64_t n_pairs, float *rows,
                             std::int32_t *row_of_token) noexcept {
    const auto &[tokens_in_batch, first, last] = tokens;
    const std::int64_t most_rows = row_block(moves.to->rotary_dim).n_tokens;
    const std::int64_t most_tokens = std::min(last - first, max_piece_tokens);
    Move move;
    std::int64_t n_rows = 0, n_tokens = 0;
    for (; n_tokens < most_tokens; n_tokens++) {
        const std::int64_t batch = (first + n_tokens) / tokens_in_batch;
        const Move next = move_of(moves, batch, first + n_tokens - batch * tokens_in_batch);
        if (n_rows == 0 || next != move) {
            if (n_rows == most_rows) {
                break;
            }
            move = next;
            std::uint32_t turns[made_floats / 2];
            find_turns(moves, move, first_pair, n_pairs, turns);
            const double factor = moves.factor();
            const auto factor_high = static_cast<float>(factor);
            const auto factor_low = static_cast<float>(factor - static_cast<double>(factor_high));
            const std::int32_t once = 1;  // at position 1 the lower word of the turns adds nothing
            make_phase_rows({turns, turns, factor_high, factor_low}, kernels, &once, 1, n_pairs,
                            {rows + n_rows * 2 * n_pairs, 2 * n_pairs, n_pairs});
            n_rows++;
        }
        row_of_token[n_tokens] = static_cast<std::int32_t>(n_rows - 1);
    }
    return n_tokens;
}

}  // namespace halyard
