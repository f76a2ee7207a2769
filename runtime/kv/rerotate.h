// Re-rotation: keys that were rotated for one position move to another.
#pragma once

#include "kv/block.h"

namespace halyard {

/// Checks by which sources and positions the keys of a run move, and the positions' form.
halyard_status bind_moves(const Program &program, const halyard_run_args &args, KvProgram *out,
                          halyard_error *error) noexcept;

/// Fails, naming the first bad one, unless the positions of all tokens that are moved have 32 bits.
halyard_status check_moves(const KvCall &call, const TokenSet *tokens, halyard_error *error) noexcept;

/// Makes the rows by which keys turn, [row][cos, sin][pairs], for n_pairs pairs from first_pair on: of as many of the
/// tokens first … last - 1 as there is room for. Tokens in a row that move alike share one. Returns how many tokens
/// have a row now, at least one and at most max_block_tokens.
std::int64_t make_moved_rows(const KvCall &call, std::int64_t first, std::int64_t last, std::int64_t first_pair,
                             std::int64_t n_pairs, float *rows, std::int32_t *row_of_token) noexcept;

/// Calls function(tokens, rows) for blocks of the tokens first … last - 1.
template <typename Function>
[[gnu::noinline]] void for_each_moved_block(const KvCall &call, std::int64_t first, std::int64_t last,
                                            const Function &function) {
    float made[made_floats];
    std::int32_t row_of_token[max_block_tokens];
    const RowBlock size = row_block(call.plan().rotary_dim);
    const std::int64_t n_pairs = call.plan().rotary_dim / 2;
    for (std::int64_t at = first, n_tokens = 0; at < last; at += n_tokens) {
        for (std::int64_t pair = 0; pair < n_pairs; pair += size.n_pairs) {
            const std::int64_t n = std::min(n_pairs - pair, size.n_pairs);
            n_tokens = make_moved_rows(call, at, last, pair, n, made, row_of_token);
            Rows rows(made, made + n, size.n_tokens, 2 * n, pair, n);
            function(TokenBlock{at, n_tokens, row_of_token}, rows);
        }
    }
}

}  // namespace halyard
