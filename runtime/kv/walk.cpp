#include "kv/walk.h"

#include "kv/convert.h"
#include "kv/rerotate.h"

#include <algorithm>

namespace halyard {

namespace {

constexpr std::int64_t line_bytes = 64;  // of the CPU's caches
constexpr float one = 1.0f;

/// A set of a run's tensors, a bit for each.
using TensorSet = std::uint32_t;
constexpr TensorSet all_tensors = (1u << HALYARD_MAX_TENSORS) - 1;

const Steps &steps_of(const KvCall &call, const Block &block) { return *call.kv.tensors[block.index].steps; }

void run_steps(const KvCall &call, Block &block, int n) {
    block.factors = {&one, {0, 0, 0}};
    for (int i = 0; i < n; i++) {
        steps_of(call, block).list[i].run(call, block);
    }
}

/// How many heads and tokens go through the steps at once, of as many as `all` has. A norm of rows needs all heads.
Block size_of_blocks(const KvCall &call, const Block &all) {
    const TensorPlan &desc = call.desc(all);
    const KvTensor &stages = call.stages(all);
    const bool norms_rows = stages.norm && stages.norm->row,
               is_scattered = scatter_of_output(call, all) != Scatter::none;
    const std::int64_t most_heads = most_heads_in_block(stages, desc.head_dim);
    Block block = all;
    block.n_heads = std::min(all.n_heads, most_heads);
    if (is_scattered && !norms_rows) {
        // Tokens lie side by side there, so that more of them make longer stores.
        const std::int64_t n_tokens = std::min(line_bytes / desc.out_bytes, all.n_tokens);
        block.n_heads = std::clamp<std::int64_t>(most_heads / n_tokens, 1, block.n_heads);
    }
    const std::int64_t n_floats = stages.groups ? block_floats / 4 : block_floats;
    const std::int64_t words_bytes = block_floats;  // of scattered outputs: a quarter of the memory for them
    block.n_tokens = std::min({n_floats / (block.n_heads * desc.head_dim), stages.most_heads / block.n_heads,
                               is_scattered ? words_bytes / (desc.head_dim * desc.out_bytes) : block_floats});
    block.n_tokens = std::clamp<std::int64_t>(block.n_tokens, 1, all.n_tokens);
    return block;
}

/// Does all steps of some heads of some tokens, block by block. (Not inlined, because of the workspace: weights evict
/// the stack from the cache, so small calls must not touch such frames.)
[[gnu::noinline]] void walk_blocks(const KvCall &call, const Block &all) {
    Workspace work;
    const Block size = size_of_blocks(call, all);
    const std::int64_t head_dim = call.desc(all).head_dim;
    const bool has_long_rows = call.stages(all).norm && call.stages(all).norm->row && size.n_heads < all.n_heads;
    Block block = all;
    block.work = &work;
    const auto walk_heads = [&](std::int64_t token, std::int64_t n_tokens) {
        block.token = all.token + token;
        block.n_tokens = n_tokens;
        block.row_of_token = all.row_of_token == nullptr ? nullptr : all.row_of_token + token;
        block.strides = {1, head_dim, block.n_heads * head_dim};
        run_steps(call, block, steps_of(call, all).n);
    };
    if (has_long_rows) {
        for (std::int64_t token = 0; token < all.n_tokens; token++) {
            Block first = all;
            first.work = &work;
            first.token += token;
            first.row_of_token = all.row_of_token == nullptr ? nullptr : all.row_of_token + token;
            first.n_tokens = 1;
            first.n_heads = size.n_heads;
            find_row_factor(call, first, all.n_heads);
            for (std::int64_t head = 0; head < all.n_heads; head += size.n_heads) {
                block.head = all.head + head;
                block.n_heads = std::min(size.n_heads, all.n_heads - head);
                walk_heads(token, 1);
            }
        }
        return;
    }
    for (std::int64_t head = 0; head < all.n_heads; head += size.n_heads) {
        block.head = all.head + head;
        block.n_heads = std::min(size.n_heads, all.n_heads - head);
        for (std::int64_t token = 0; token < all.n_tokens; token += size.n_tokens) {
            walk_heads(token, std::min(size.n_tokens, all.n_tokens - token));
        }
    }
}

/// Does all steps of a share of the heads of one tensor, for tokens of one batch row after the other.
void walk_tensor(const KvCall &call, int index, const TokenBlock &tokens, Rows *rows, const Share &heads) {
    const ProgramTensor &tensor = call.program.tensors[index];
    const Steps &steps = *call.kv.tensors[index].steps;
    const std::int64_t in_row = call.program.positions.n_tokens;
    const std::int64_t head = first_of_share(tensor.n_heads, heads);
    Block block = {index,
                   0,
                   0,
                   head,
                   0,
                   end_of_share(tensor.n_heads, heads) - head,
                   call.plan().tensors[index].rotates ? rows : nullptr,
                   nullptr,
                   nullptr,
                   {0, 0, 0},
                   {nullptr, {0, 0, 0}}};
    for (std::int64_t done = 0; done < tokens.n_tokens && block.n_heads > 0; done += block.n_tokens) {
        const std::int64_t at = tokens.first + done;
        block.batch = at < in_row ? 0 : at / in_row;
        block.token = at - block.batch * in_row;
        block.n_tokens = std::min(tokens.n_tokens - done, in_row - block.token);
        block.row_of_token = block.rows == nullptr ? nullptr : tokens.row_of_token + done;
        if (steps.in_blocks) {
            walk_blocks(call, block);
        } else {
            run_steps(call, block, steps.n);
        }
    }
}

// Heads that go through blocks have no more pairs than one block of rows holds. Longer ones are rotated without blocks,
// some pairs after the other.
static_assert(max_head <= made_floats);

void walk_tensors(const KvCall &call, const TokenBlock &tokens, Rows *rows, const Share &heads, TensorSet set) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        if (call.program.tensors[i].n_heads == 0 || (set >> i & 1) == 0) {
            continue;
        }
        if (call.plan().tensors[i].is_plain()) {
            rotate_heads(call.program, call.given, i, tokens, *rows, heads);
        } else if (rows == nullptr || rows->first_pair == 0 || call.plan().tensors[i].rotates) {
            walk_tensor(call, i, tokens, rows, heads);
        }
    }
}

/// Does the tokens first … last - 1, whose positions were checked.
void walk_tokens(const KvCall &call, std::int64_t first, std::int64_t last, const Share &heads, TensorSet set) {
    const auto walk = [&](const TokenBlock &tokens, Rows &rows) { walk_tensors(call, tokens, &rows, heads, set); };
    if (call.plan().rotary_dim == 0) {
        walk_tensors(call, {first, last - first, nullptr}, nullptr, heads, set);
    } else if (call.kv.rerotates) {
        for_each_moved_block(call, first, last, walk);
    } else {
        for_each_token_block(call.program, call.given, first, last, walk);
    }
}

/// Does the tokens whose slots belong to this task. Tokens with one slot then belong to one task, which keeps the later
/// one. Slots go to tasks in turn, 16 at a time so that calls stay long.
void walk_own_slots(const KvCall &call, const Share &share, TensorSet set) {
    const std::int64_t n = call.program.positions.count(), together = 16;
    const auto is_own = [&](std::int64_t token) {
        const std::int64_t slot = call.kv.slots.of_token(call.arrays.slots, token);
        return slot >= 0 && slot / together % share.count == share.index;
    };
    for (std::int64_t first = 0, last = 0; first < n; first = last + 1) {
        for (last = first; last < n && is_own(last);) {
            last++;
        }
        if (first < last) {
            walk_tokens(call, first, last, all_heads, set);
        }
    }
}

}  // namespace

void run_steps_before_norm(const KvCall &call, Block &block) noexcept {
    run_steps(call, block, steps_of(call, block).n_before_norm);
}

void walk_share(const KvCall &call, const Share &share) noexcept {
    const std::int64_t n = call.program.positions.count();
    const TokenShare own = share_of_tokens(n, share);
    TensorSet by_slot = 0, by_row = 0;
    for (int i = 0; i < call.plan().n_tensors && share.count > 1; i++) {
        const KvTensor &stages = call.kv_plan().tensors[i];
        const TensorSet bit = 1u << i;
        if (stages.cache && call.kv.slots.is_given && call.kv.slots.may_be_doubled) {
            by_slot |= bit;
        } else if (own.heads.count > 1 && stages.norm && stages.norm->row) {
            by_row |= bit;
        }
    }
    walk_tokens(call, own.first, own.last, own.heads, all_tensors & ~by_slot & ~by_row);
    if (by_row != 0) {  // a norm of rows needs all heads of a token
        walk_tokens(call, first_of_share(n, share), end_of_share(n, share), all_heads, by_row);
    }
    if (by_slot != 0) {
        walk_own_slots(call, share, by_slot);
    }
}

}  // namespace halyard
