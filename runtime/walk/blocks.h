// The road: load, norm, rotation, scale and store of a tensor that has more stages than its rotation. Also how tokens
// are found in caches.
#pragma once

#include "read/read_run.h"
#include "walk/piece.h"
#include "walk/run.h"

#include <array>
#include <numeric>

namespace halyard {

/// Rows of cos and sin as kernels read them, for some pairs.
struct Rows {
    const char *cos, *sin;
    std::int64_t n_rows, stride_row;
    std::int64_t first_pair, n_pairs;
    const std::int32_t *row_of_token;  // NULL where nothing is rotated

    /// Sets the rows of a piece whose first token is the given one.
    void turn(Piece &piece, std::uint32_t sin_sign, std::int64_t first_token) const noexcept {
        piece.cos_rows = cos;
        piece.sin_rows = sin;
        piece.n_rows = n_rows;
        piece.stride_row = stride_row;
        piece.row_of_token = row_of_token + first_token;
        piece.sin_sign = sin_sign;
    }
};

/// Of rows that were made for tokens in order.
inline constexpr auto row_after_row = [] {
    std::array<std::int32_t, max_piece_tokens> rows{};
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
}();

/// Some heads of tokens that lie evenly apart.
struct Stretch {
    std::int64_t first;  // token, counted through all batch rows
    std::int64_t n_tokens, first_head, n_heads;
    const char *x;                                   // the first head of the first token
    char *y;                                         // likewise; with a cache, of slot 0
    char *scales_out;                                // likewise
    const char *position_scales;                     // likewise; not read where the tensor has none
    std::int64_t in_token, out_token, scales_token;  // strides; of a cache not read
    std::int64_t position_scales_token;
};

/// Rotates a stretch from x to y, or copies it if the tensor is not rotated. (Inline for the cost of a run.)
[[gnu::always_inline]] inline void rotate_stretch(const Run &run, int index, const RunTensor &tensor,
                                                  const Stretch &stretch, const Rows &rows) {
    const TensorDesc &desc = run.plan->tensors[index];
    const std::int64_t bytes = element_bytes(desc.dtype);
    const std::int64_t window = desc.rotary_offset, rotary_dim = desc.rotates ? run.plan->rotary_dim : 0;
    if (desc.rotates) {
        Piece piece;
        piece.dtype = desc.dtype;
        set_pair_strides(tensor.in, desc.pairing, rotary_dim / 2, stretch.in_token, piece.in);
        set_pair_strides(tensor.out, desc.out_pairing, rotary_dim / 2, stretch.out_token, piece.out);
        piece.x = stretch.x + (window * tensor.in.element + rows.first_pair * piece.in.pair) * bytes;
        piece.y = stretch.y + (window * tensor.out.element + rows.first_pair * piece.out.pair) * bytes;
        piece.n_pairs = rows.n_pairs;
        piece.n_heads = stretch.n_heads;
        piece.n_tokens = stretch.n_tokens;
        rows.turn(piece, run.plan->sin_sign, 0);
        piece.within_int32 = tensor.within_int32;
        rotate_piece(*tensor.kernel, piece);
    }
    if (!tensor.in_place && rows.first_pair == 0) {
        const ElementStrides in = {tensor.in.element, tensor.in.head, stretch.in_token};
        const ElementStrides out = {tensor.out.element, tensor.out.head, stretch.out_token};
        const auto copy = [&](std::int64_t first, std::int64_t last) {
            copy_elements(bytes, tensor.non_temporal, {last - first, stretch.n_heads, stretch.n_tokens},
                          {stretch.x + first * in.element * bytes, in}, {stretch.y + first * out.element * bytes, out});
        };
        copy(0, window);
        copy(window + rotary_dim, desc.head_dim);
    }
}

/// As much of a stretch as stages work on at once, in floats.
struct Block {
    std::int64_t token, n_tokens;  // counted from the stretch's first
    std::int64_t head, n_heads;    // likewise
    ElementStrides strides;
};

/// Tokens that lie evenly apart in a cache.
struct Stored {
    std::int64_t first, n_tokens;  // first is counted from where the search began; n_tokens is 0 where there is none
    std::int64_t offset, stride_token;  // in elements, from slot 0 on
};

/// Finds the next tokens that are stored among n tokens from `first` on, counted through all batch rows.
Stored find_stored(const CheckedSlots &slots, const CacheDesc &cache, std::int64_t first, std::int64_t n) noexcept;

/// Calls function(token, stored) for all tokens that are stored among n tokens from `first` on. token counts from
/// `first`.
template <typename Function>
void for_each_stored(const CheckedSlots &slots, const CacheDesc &cache, std::int64_t first, std::int64_t n,
                     const Function &function) {
    for (std::int64_t token = 0; token < n;) {
        const Stored stored = find_stored(slots, cache, first + token, n - token);
        token += stored.first;
        if (stored.n_tokens > 0) {
            function(token, stored);
        }
        token += stored.n_tokens;
    }
}

/// Calls function(part, rows) for all tokens of a stretch that are stored in its tensor's cache, which have the dtype
/// of the input: for those that lie evenly apart there. Keys that rerotate are read there too.
template <typename Function>
void for_each_part(const Run &run, const TensorDesc &desc, const Stretch &stretch, const Rows &rows,
                   const Function &function) {
    const std::int64_t bytes = element_bytes(desc.dtype);
    Stretch part = stretch;
    Rows its = rows;
    for_each_stored(run.slots, *desc.cache, stretch.first, stretch.n_tokens,
                    [&](std::int64_t token, const Stored &stored) {
                        part.n_tokens = stored.n_tokens;
                        part.y = stretch.y + stored.offset * bytes;
                        part.out_token = stored.stride_token;
                        part.x = run.plan->rerotates ? part.y : stretch.x + token * stretch.in_token * bytes;
                        part.in_token = run.plan->rerotates ? part.out_token : stretch.in_token;
                        its.row_of_token = desc.rotates ? rows.row_of_token + token : nullptr;
                        function(part, its);
                    });
}

/// Whether a tensor has no stage beside its rotation, and is_staged only for how its cache lies: its words are made by
/// one call, and copied.
bool only_lies_apart(const PlanDesc &plan, const TensorDesc &desc) noexcept;

/// Does all stages of a stretch of a tensor that is_staged.
void take_road(const Run &run, int index, const Stretch &stretch, const Rows &rows) noexcept;

}  // namespace halyard
