// Runs a program with the pointers of one call.
#pragma once

#include "core/memory.h"
#include "core/rotate.h"
#include "core/rows.h"
#include "core/threads.h"

#include <algorithm>
#include <numeric>

namespace halyard {

/// Checks the memory and the positions, and rotates everything or a share.
halyard_status call(const Program &program, const Pointers &given, const Share &share, halyard_error *error) noexcept;

inline RowInput row_input(const Program &program, const Pointers &given) noexcept {
    return {given.angles, &program.positions, given.positions, program.bad_position};
}

/// The rows of a source that kernels can read where they are in memory.
inline Rows rows_in_memory(const halyard_angle_source &angles) noexcept {
    return Rows(angles.cos_rows, angles.sin_rows, angles.n_rows, angles.stride_row, 0, angles.rotary_dim / 2);
}

/// Makes rows for the tokens first … last - 1, and calls function(tokens, rows) for each block of tokens. If there is
/// no room for the rows of all pairs, it calls function several times for the same tokens, each time with other pairs.
/// make(at, pair, n_pairs, rows, row_of_token) makes [row][cos, sin][n_pairs] for as many tokens from `at` on as there
/// is room for, sets the row of each, and returns the number of tokens, which is the same for all pairs.
template <typename Make, typename Function>
[[gnu::noinline]] void with_made_rows(std::int64_t rotary_dim, std::int64_t first, std::int64_t last, const Make &make,
                                      const Function &function) {
    float made[made_floats];
    std::int32_t row_of_token[max_block_tokens];
    const RowBlock block = row_block(rotary_dim);
    for (std::int64_t at = first, n_tokens = 0; at < last; at += n_tokens) {
        for (std::int64_t pair = 0; pair < rotary_dim / 2; pair += block.n_pairs) {
            const std::int64_t n = std::min(rotary_dim / 2 - pair, block.n_pairs);
            n_tokens = make(at, pair, n, made, row_of_token);
            Rows rows(made, made + n, block.n_tokens, 2 * n, pair, n);
            function(TokenBlock{at, n_tokens, row_of_token}, rows);
        }
    }
}

/// Calls function(tokens, rows) for blocks of the tokens first … last - 1, whose positions were checked. Makes rows
/// only if kernels cannot read those of the source where they are.
template <typename Function>
void for_each_token_block(const Program &program, const Pointers &given, std::int64_t first, std::int64_t last,
                          const Function &function) {
    if (!program.reads_rows) {
        const std::int64_t rotary_dim = program.plan->rotary_dim, most = row_block(rotary_dim).n_tokens;
        const auto make = [&](std::int64_t at, std::int64_t pair, std::int64_t n_pairs, float *made,
                              std::int32_t *row_of_token) {
            const std::int64_t n = std::min(last - at, most);
            make_rows(row_input(program, given), program.plan->row_kernels, at, n, pair, n_pairs,
                      {made, 2 * n_pairs, n_pairs});
            std::iota(row_of_token, row_of_token + n, 0);
            return n;
        };
        with_made_rows(rotary_dim, first, last, make, function);
        return;
    }
    std::int32_t row_of_token[max_block_tokens];
    Rows rows = rows_in_memory(*given.angles);
    for (std::int64_t at = first; at < last; at += max_block_tokens) {
        const std::int64_t n = std::min(last - at, max_block_tokens);
        find_rows(row_input(program, given), 0, at, n, row_of_token);  // positions were checked, so all have rows
        function(TokenBlock{at, n, row_of_token}, rows);
    }
}

/// Calls function(batch, token, tokens) for those of some tokens that lie in one batch row of n_tokens tokens, row
/// after row. `token` is the number of the first one in its row.
template <typename Function>
void for_each_batch_row(const TokenBlock &all, std::int64_t n_tokens, const Function &function) {
    for (std::int64_t done = 0, n = 0; done < all.n_tokens; done += n) {
        const std::int64_t at = all.first + done, batch = at < n_tokens ? 0 : at / n_tokens;
        const std::int64_t token = at - batch * n_tokens;
        n = std::min(all.n_tokens - done, n_tokens - token);
        function(batch, token, TokenBlock{at, n, all.row_of_token + done});
    }
}

/// Rotates a share of the heads of a plain tensor.
void rotate_heads(const Program &program, const Pointers &given, int index, const TokenBlock &tokens, Rows &rows,
                  const Share &heads) noexcept;

}  // namespace halyard
