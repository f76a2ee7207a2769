// The walk of a call's tokens and heads through the steps of their tensors.
#pragma once

#include "kv/block.h"

namespace halyard {

/// Loads a block, and does the steps that come before its norm.
void run_steps_before_norm(const KvCall &call, Block &block) noexcept;

/// Does a share of a call that was checked.
void walk_share(const KvCall &call, const Share &share) noexcept;

}  // namespace halyard
