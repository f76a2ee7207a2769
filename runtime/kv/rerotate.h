// Re-rotation: keys that were rotated for one position move to another.
#pragma once

#include "kv/block.h"

namespace halyard {

/// Checks by which sources and positions the keys of a run move, and the positions' form.
halyard_status bind_moves(const Program &program, const halyard_run_args &args, KvProgram *out,
                          halyard_error *error) noexcept;

/// Fails, naming the first bad one, unless the positions of all tokens that are moved have 32 bits.
halyard_status check_moves(const KvCall &call, const TokenSet *tokens, halyard_error *error) noexcept;

/// Calls walk(call, tokens, rows, heads) for blocks of the tokens first … last - 1, with the rows by which their keys
/// turn.
using WalkBlock = void(const KvCall &call, const TokenBlock &tokens, Rows *rows, const Share &heads);
void for_each_moved_block(const KvCall &call, std::int64_t first, std::int64_t last, const Share &heads,
                          WalkBlock *walk) noexcept;

}  // namespace halyard
