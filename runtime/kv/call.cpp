// A call of a plan with stages. It first checks its memory and all values that it reads. Then it runs the steps of each
// tensor on its tokens and heads, block by block. From top to bottom: checks, a call, its shares, tensors and blocks.
#include "kv/memory.h"

#include <algorithm>
#include <bit>

namespace halyard {

namespace {

/// Fails for the first array that is needed and NULL, or not needed and set. (Arrays of a tensor without heads are
/// neither.)
[[gnu::cold]] halyard_status check_given_arrays(const KvCall &call, halyard_error *error) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        for (int number = 0; number < n_arrays && call.program.tensors[i].n_heads != 0; number++) {
            const auto array = static_cast<Array>(number);
            const bool is_needed = call.kv_plan().tensors[i].needs(array);
            if (is_needed != (call.data(i, array) != nullptr)) {
                return fail(error, is_needed ? HALYARD_ERROR_NULL_POINTER : HALYARD_ERROR_MISMATCH,
                            NameText(texts_of(array).name, call.given.is_bound, i), is_needed ? " is NULL" : " is set",
                            ", but tensors[", i, is_needed ? "] has " : "] does not have ", texts_of(array).needed_by);
            }
        }
    }
    return HALYARD_OK;
}

/// Checks the positions of tokens that are written: all if an output is a view, else those with a slot.
halyard_status check_all_positions(const KvCall &call, halyard_error *error) {
    const auto is_written = [](const void *of, std::int64_t token) {
        const KvCall &its = *static_cast<const KvCall *>(of);
        return its.kv_program.slots.slot_of_token(its.arrays.slots, token) >= 0;
    };
    const TokenSet written = {is_written, &call};
    const TokenSet *const tokens = stores_in_caches_only(call.program, call.kv_program) ? &written : nullptr;
    return call.kv_plan().rerotates ? check_moves(call, tokens, error)
                                    : check_positions(row_input(call.program, call.given), tokens, error);
}

halyard_status check_call(const KvCall &call, halyard_error *error) {
    const auto list = [&](const auto &add) { list_kv_memory(call, add); };
    const SpanCheck spans = inspect_spans<most_areas>(list);
    // If the numbers are equal but other arrays are given, then a needed one is NULL, so spans.any_invalid is true.
    if (call.arrays.n_given != call.kv_program.needed[0].n + call.kv_program.needed[1].n) {
        HALYARD_TRY(check_given_arrays(call, error));
    }
    if (spans.any_invalid) {
        return fail_missing(list, call.program, call.given, error);
    }
    for (int i = 0; i < call.plan().n_tensors; i++) {
        const KvTensorPlan &stages = call.kv_plan().tensors[i];
        if (call.program.tensors[i].n_heads != 0 && (stages.scale || stages.position_scales)) {
            HALYARD_TRY(check_input_scales(call, i, error));
        }
    }
    return spans.any_overlap ? check_listed_overlaps<most_areas>(list, call.given.is_bound, error) : HALYARD_OK;
}

// ---- The walk ------------------------------------------------------------------------------------------------------

void walk_share(const KvCall &call, const Share &share);
void walk_slots_of_share(const KvCall &call, const Share &share);
void walk_tensors(const KvCall &call, const TokenBlock &tokens, Rows &rows, const Share &heads);
void walk_blocks_of(const KvCall &call, Block &block);

}  // namespace

halyard_status check_kv_memory(const Program &program, const KvProgram &kv_program, const Pointers &given,
                               const KvPointers &arrays, halyard_error *error) noexcept {
    return program.is_empty ? HALYARD_OK : check_call({program, kv_program, given, arrays}, error);
}

halyard_status call_kv(const Program &program, const KvProgram &kv_program, const Pointers &given,
                       const KvPointers &arrays, const Share &share, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    const KvCall call = {program, kv_program, given, arrays};
    HALYARD_TRY(check_call(call, error));
    if (kv_program.slots.is_given) {
        HALYARD_TRY(check_slots(kv_program.slots, arrays.slots, arrays.scratch, error));
    }
    if (program.angles != nullptr) {
        HALYARD_TRY(check_all_positions(call, error));
    }
    for (int i = 0; i < program.plan->n_tensors && kv_program.plan->rerotates; i++) {
        CheckKeys *const check = program.tensors[i].n_heads != 0 ? kv_program.tensors[i].steps->check_keys : nullptr;
        HALYARD_TRY(check != nullptr ? check(call, i, error) : HALYARD_OK);
    }
    return run_shares(program, share, [&](const Share &part) { walk_share(call, part); }, error);
}

namespace {

/// Processes a share of a call that was checked.
[[gnu::noinline]] void walk_share(const KvCall &call, const Share &share) {
    const std::int64_t n = call.program.positions.count();
    if (share.count > 1 && call.kv_program.slots.is_given && call.kv_program.slots.may_be_doubled) {
        walk_slots_of_share(call, share);
        return;
    }
    TokenShare own = share_of_tokens(n, share);
    if (own.heads.count > 1 && call.kv_plan().norms_rows) {
        own = {first_of_share(n, share), end_of_share(n, share), all_heads};
    }
    call.kv_plan().walk(call, own.first, own.last, own.heads);
}

/// Processes the tokens whose slots belong to this task, so that of two tokens with one slot the later one is kept.
/// Slots are dealt to the tasks in turn, `together` consecutive ones at a time, so that a kernel is called for many
/// tokens at once. Tokens without a slot are dealt likewise, by their numbers.
void walk_slots_of_share(const KvCall &call, const Share &share) {
    const std::int64_t n = call.program.positions.count();
    const std::int64_t together = std::clamp<std::int64_t>(n / share.count, 1, 16);
    const auto is_own = [&](std::int64_t token) {
        const std::int64_t slot = call.kv_program.slots.slot_of_token(call.arrays.slots, token);
        return (slot < 0 ? token : slot) / together % share.count == share.index;
    };
    for (std::int64_t first = 0, last = 0; first < n; first = last + 1) {
        for (last = first; last < n && is_own(last);) {
            last++;
        }
        if (first < last) {
            call.kv_plan().walk(call, first, last, all_heads);
        }
    }
}

}  // namespace

void walk_tokens(const KvCall &call, std::int64_t first, std::int64_t last, const Share &heads) noexcept {
    for_each_token_block(call.program, call.given, first, last,
                         [&](const TokenBlock &tokens, Rows &rows) { walk_tensors(call, tokens, rows, heads); });
}

void walk_moved_tokens(const KvCall &call, std::int64_t first, std::int64_t last, const Share &heads) noexcept {
    const auto make = [&](std::int64_t at, std::int64_t pair, std::int64_t n_pairs, float *made,
                          std::int32_t *row_of_token) {
        return make_moved_rows(call, at, last, pair, n_pairs, made, row_of_token);
    };
    with_made_rows(call.plan().rotary_dim, first, last, make,
                   [&](const TokenBlock &tokens, Rows &rows) { walk_tensors(call, tokens, rows, heads); });
}

void walk_unrotated_tokens(const KvCall &call, std::int64_t first, std::int64_t last, const Share &heads) noexcept {
    static constexpr std::int32_t unused[max_block_tokens] = {};
    Rows none(nullptr, nullptr, 0, 0, 0, 0);
    for (std::int64_t at = first; at < last; at += max_block_tokens) {
        walk_tensors(call, {at, std::min(last - at, max_block_tokens), unused}, none, heads);
    }
}

namespace {

// One block of rows holds all pairs of a head that is processed in blocks. Longer heads are rotated without blocks, in
// several calls for different pairs, the first of which also processes tensors that are not rotated.
static_assert(max_head <= made_floats);

void walk_tensors(const KvCall &call, const TokenBlock &tokens, Rows &rows, const Share &heads) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        if (call.program.tensors[i].n_heads != 0 && (rows.first_pair == 0 || call.plan().tensors[i].rotates)) {
            call.kv_program.tensors[i].walk(call, i, tokens, rows, heads);
        }
    }
}

/// Calls walk(block) for a share of the heads of the tokens of each batch row.
template <typename Walk>
void for_each_row(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows, const Share &heads,
                  const Walk &walk) {
    const std::int64_t of_tensor = call.program.tensors[index].n_heads;
    const std::int64_t head = first_of_share(of_tensor, heads), n_heads = end_of_share(of_tensor, heads) - head;
    if (n_heads == 0) {
        return;
    }
    Block block;
    block.index = index;
    block.rows = &rows;
    for_each_batch_row(tokens, call.program.positions.n_tokens,
                       [&](std::int64_t batch, std::int64_t token, const TokenBlock &of_row) {
                           block.batch = batch;
                           block.token = token;
                           block.n_tokens = of_row.n_tokens;
                           block.row_of_token = of_row.row_of_token;
                           block.take_heads(head, n_heads, call.program.plan->tensors[index].head_dim);
                           walk(block);
                       });
}

}  // namespace

void walk_plain_tensor(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows,
                       const Share &heads) noexcept {
    rotate_heads(call.program, call.given, index, tokens, rows, heads);
}

/// Runs a list of one step, whose kernel does all stages of whole heads without a workspace.
void walk_whole_heads(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows,
                      const Share &heads) noexcept {
    for_each_row(call, index, tokens, rows, heads, [&](Block &block) { run_steps(call, block, 0, 1); });
}

void walk_blocks(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows, const Share &heads) noexcept {
    for_each_row(call, index, tokens, rows, heads, [&](Block &block) { walk_blocks_of(call, block); });
}

void walk_long_rms_rows(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows,
                        const Share &heads) noexcept {
    for_each_row(call, index, tokens, rows, heads, [&](Block &block) { walk_long_rows<false>(call, block); });
}
void walk_long_layer_rows(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows,
                          const Share &heads) noexcept {
    for_each_row(call, index, tokens, rows, heads, [&](Block &block) { walk_long_rows<true>(call, block); });
}

namespace {

/// How many heads and tokens go through the steps at once.
struct BlockSize {
    std::int64_t n_heads, n_tokens;
};

BlockSize size_of_blocks(const BlockLimits &limits, const Block &all) {
    const std::int64_t n_together = std::min(limits.tokens_of_line, all.n_tokens);
    const std::int64_t n_heads =
        std::clamp<std::int64_t>(limits.heads / n_together, 1, std::min(all.n_heads, limits.heads));
    const std::int64_t n_tokens = std::min(limits.heads_and_tokens / n_heads, limits.tokens);
    return {n_heads, std::clamp<std::int64_t>(n_tokens, 1, all.n_tokens)};
}

/// Runs all steps on heads of tokens, block by block. (Not inlined, because the workspace would make the stack frame of
/// its caller large. Between calls a model's matrices evict the stack from the CPU's caches, so a large frame slows
/// small calls.)
[[gnu::noinline]] void walk_blocks_of(const KvCall &call, Block &block) {
    Workspace work;
    const Steps &steps = call.steps(block);
    const BlockSize size = size_of_blocks(steps.limits, block);
    const std::int64_t first_head = block.head, n_heads = block.n_heads, head_dim = call.tensor_plan(block).head_dim;
    const TokenBlock tokens = block.tokens();
    block.work = &work;
    for (std::int64_t head = 0; head < n_heads; head += size.n_heads) {
        block.take_heads(first_head + head, std::min(size.n_heads, n_heads - head), head_dim);
        for (std::int64_t token = 0; token < tokens.n_tokens; token += size.n_tokens) {
            block.take_tokens(tokens, token, std::min(size.n_tokens, tokens.n_tokens - token));
            run_steps(call, block, 0, steps.n);
        }
    }
    block.work = nullptr;
}

}  // namespace

}  // namespace halyard
