// A call of a plan with stages: its memory and all values that are read are checked before the walk of its tokens and
// heads through the steps of their tensors writes anything.
#include "kv/rerotate.h"

#include <algorithm>
#include <bit>

namespace halyard {

namespace {

constexpr ArgumentName slots_name = {"args.kv.slots.data"}, scratch_name = {"args.kv.slots.scratch"},
                       from_positions_name = {"args.kv.from_positions.data", "args.kv.from_positions.data", true};
constexpr int most_areas = most_plain_areas + n_arrays * HALYARD_MAX_TENSORS + 3;

/// The elements of an array, where it lies.
Lattice elements_of(const KvCall &call, int index, Array array) {
    const TensorPlan &desc = call.plan().tensors[index];
    const void *const data = call.arrays.of_tensor[index][static_cast<int>(array)];
    if (array == Array::cache) {
        return call.kv_plan().tensors[index].cache->elements(data, desc.out_dtype, call.program.tensors[index].n_heads,
                                                             desc.out_dim);
    }
    const BoundArray &bound = call.kv.tensors[index].arrays[static_cast<int>(array)];
    if (array == Array::weight || array == Array::bias || array == Array::scales) {
        return {data, 1, {static_cast<std::int64_t>(bound.reach.above), 1, 1, 1, 1, 1}, {1, 0, 0, 0, 0, 0}};
    }
    Lattice elements = bound.elements;
    elements.data = data;
    return elements;
}

/// Lists the arrays of all stages that are written, or that are only read.
template <typename Add>
[[gnu::always_inline]] inline void list_arrays(const KvCall &call, bool is_written, const Add &add) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        unsigned left = call.program.tensors[i].n_heads == 0 ? 0 : call.kv_plan().tensors[i].asked;
        for (left &= is_written ? written_arrays : ~written_arrays; left != 0; left &= left - 1) {
            const int array = std::countr_zero(left);
            add_memory(add, is_written, words_of(Array(array)).name, i, call.arrays.of_tensor[i][array],
                       call.kv.tensors[i].arrays[array].reach, [&] { return elements_of(call, i, Array(array)); });
        }
    }
}

/// All memory of a call, as list_memory lists it: what is read first.
template <typename Add>
void list_kv_memory(const KvCall &call, const Add &add) {
    const Slots &slots = call.kv.slots;
    list_arrays(call, false, add);
    if (call.kv.rerotates && call.kv.from_positions.is_given) {
        add_memory(add, false, from_positions_name, 0, call.arrays.from_positions, call.kv.from_positions.reach,
                   nullptr);
    }
    if (slots.is_given) {
        add_memory(add, false, slots_name, 0, call.arrays.slots, slots.reach, nullptr);
    }
    list_memory(call.program, call.given, add);
    list_arrays(call, true, add);
    if (slots.is_given && slots.scratch_bytes != 0) {
        add_memory(add, true, scratch_name, 0, call.arrays.scratch,
                   {0, static_cast<std::uintptr_t>(slots.scratch_bytes)}, nullptr);
    }
}

/// The arrays of a tensor that a call lacks or brings for nothing, a bit for each.
[[gnu::always_inline]] inline unsigned find_wrong_arrays(const KvCall &call, int index) {
    unsigned brought = 0;
    for (int array = 0; array < n_arrays; array++) {
        brought |= unsigned{call.arrays.of_tensor[index][array] != nullptr} << array;
    }
    return call.program.tensors[index].n_heads == 0 ? 0 : brought ^ call.kv_plan().tensors[index].asked;
}

/// Says what is wrong with the arrays of a tensor.
[[gnu::cold]] halyard_status fail_arrays(const KvCall &call, unsigned wrong, int index, halyard_error *error) {
    const auto first = static_cast<Array>(std::countr_zero(wrong));
    const bool is_needed = call.kv_plan().tensors[index].asks_for(first);
    return fail(error, is_needed ? HALYARD_ERROR_NULL_POINTER : HALYARD_ERROR_MISMATCH,
                NameText(words_of(first).name, call.given.is_bound, index), is_needed ? " is NULL" : " is set",
                ", but tensors[", index, is_needed ? "] has " : "] does not have ", words_of(first).asked_by);
}

/// Whether any tensor writes a token: a view does, and a cache that has a slot for it.
bool is_written(const void *context, std::int64_t token) {
    const KvCall &call = *static_cast<const KvCall *>(context);
    return call.kv.slots.of_token(call.arrays.slots, token) >= 0;
}

/// Checks positions, but not of tokens that are stored nowhere.
halyard_status check_all_positions(const KvCall &call, halyard_error *error) {
    const TokenSet written = {is_written, &call};
    const TokenSet *const tokens = stores_in_caches_only(call.program, call.kv) ? &written : nullptr;
    return call.kv.rerotates ? check_moves(call, tokens, error)
                             : check_positions(row_input(call.program, call.given), tokens, error);
}

halyard_status check_call(const KvCall &call, halyard_error *error) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        if (const unsigned wrong = find_wrong_arrays(call, i); wrong != 0) {
            return fail_arrays(call, wrong, i, error);
        }
    }
    const auto list = [&](const auto &add) { list_kv_memory(call, add); };
    const Look look = look_at<most_areas>(list);
    if (look.is_missing) {
        return fail_missing(list, call.program, call.given, error);
    }
    for (int i = 0; i < call.plan().n_tensors; i++) {
        const KvTensor &stages = call.kv_plan().tensors[i];
        if (call.program.tensors[i].n_heads != 0 && (stages.scale || stages.position_scales)) {
            HALYARD_TRY(check_read_scales(call, i, error));
        }
    }
    return look.meets ? check_listed_elements<most_areas>(list, call.given.is_bound, error) : HALYARD_OK;
}

// ---- The walk ------------------------------------------------------------------------------------------------------

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

/// How many heads and tokens go through the steps at once.
struct BlockSize {
    std::int64_t n_heads, n_tokens;
};

/// Finds it for as many as `all` has. A norm of rows needs all heads.
BlockSize size_of_blocks(const KvCall &call, const Block &all) {
    const TensorPlan &desc = call.desc(all);
    const KvTensor &stages = call.stages(all);
    const bool norms_rows = stages.norm && stages.norm->row,
               is_scattered = scatter_of_output(call, all) != Scatter::none;
    const std::int64_t most_heads = most_heads_in_block(stages, desc.head_dim);
    std::int64_t n_heads = std::min(all.n_heads, most_heads);
    if (is_scattered && !norms_rows) {
        // Tokens lie side by side there, so that more of them make longer stores.
        const std::int64_t n_tokens = std::min(line_bytes / desc.out_bytes, all.n_tokens);
        n_heads = std::clamp<std::int64_t>(most_heads / n_tokens, 1, n_heads);
    }
    const std::int64_t n_floats = stages.groups ? block_floats / 4 : block_floats;
    const std::int64_t words_bytes = block_floats;  // of scattered outputs: a quarter of the memory for them
    const std::int64_t n_tokens =
        std::min({n_floats / (n_heads * desc.head_dim), stages.most_heads / n_heads,
                  is_scattered ? words_bytes / (desc.head_dim * desc.out_bytes) : block_floats});
    return {n_heads, std::clamp<std::int64_t>(n_tokens, 1, all.n_tokens)};
}

/// Does all steps of some heads of some tokens, block by block: `block` becomes each of them. (Not inlined, because of
/// the workspace: weights evict the stack from the cache, so small calls must not touch such frames.)
[[gnu::noinline]] void walk_blocks(const KvCall &call, Block &block) {
    Workspace work;
    const BlockSize size = size_of_blocks(call, block);
    const std::int64_t head_dim = call.desc(block).head_dim;
    const std::int64_t first_token = block.token, first_head = block.head, n_heads = block.n_heads;
    const std::int32_t *const rows = block.row_of_token;
    const auto take_tokens = [&](std::int64_t at, std::int64_t n) {
        block.token = first_token + at;
        block.n_tokens = n;
        block.row_of_token = rows == nullptr ? nullptr : rows + at;
    };
    const bool has_long_rows = call.stages(block).norm && call.stages(block).norm->row && size.n_heads < n_heads;
    // Tokens that take each step together; of a long row, the blocks of all heads have one factor.
    const std::int64_t n_tokens = block.n_tokens, n_together = has_long_rows ? 1 : n_tokens;
    block.work = &work;
    for (std::int64_t first = 0; first < n_tokens; first += n_together) {
        if (has_long_rows) {
            take_tokens(first, 1);
            find_row_factor(call, block, size.n_heads, n_heads);
        }
        for (std::int64_t head = 0; head < n_heads; head += size.n_heads) {
            block.take_heads(first_head + head, std::min(size.n_heads, n_heads - head), head_dim);
            for (std::int64_t done = 0; done < n_together; done += size.n_tokens) {
                take_tokens(first + done, std::min(size.n_tokens, n_together - done));
                run_steps(call, block, steps_of(call, block).n);
            }
        }
    }
    block.work = nullptr;
}

/// Does all steps of a share of the heads of one tensor, for tokens of one batch row after the other.
void walk_tensor(const KvCall &call, int index, const TokenBlock &tokens, Rows *rows, const Share &heads) {
    const Steps &steps = *call.kv.tensors[index].steps;
    const std::int64_t in_row = call.program.positions.n_tokens, n_heads = call.program.tensors[index].n_heads;
    Block block;
    block.index = index;
    block.rows = call.plan().tensors[index].rotates ? rows : nullptr;
    for (std::int64_t done = 0, n = 0; done < tokens.n_tokens; done += n) {
        const std::int64_t at = tokens.first + done;
        block.batch = at < in_row ? 0 : at / in_row;
        block.token = at - block.batch * in_row;
        n = block.n_tokens = std::min(tokens.n_tokens - done, in_row - block.token);
        block.row_of_token = block.rows == nullptr ? nullptr : tokens.row_of_token + done;
        block.head = first_of_share(n_heads, heads);
        block.n_heads = end_of_share(n_heads, heads) - block.head;
        if (block.n_heads > 0) {
            steps.in_blocks ? walk_blocks(call, block) : run_steps(call, block, steps.n);
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

/// Does a share of a call that was checked.
[[gnu::noinline]] void walk_share(const KvCall &call, const Share &share) {
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

}  // namespace

void run_steps_before_norm(const KvCall &call, Block &block) noexcept {
    run_steps(call, block, steps_of(call, block).n_before_norm);
}

halyard_status check_kv_memory(const Program &program, const KvProgram &kv, const Pointers &given,
                               const KvPointers &arrays, halyard_error *error) noexcept {
    return program.is_empty ? HALYARD_OK : check_call({program, kv, given, arrays}, error);
}

halyard_status call_kv(const Program &program, const KvProgram &kv, const Pointers &given, const KvPointers &arrays,
                       const Share &share, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    const KvCall call = {program, kv, given, arrays};
    HALYARD_TRY(check_call(call, error));
    if (kv.slots.is_given) {
        HALYARD_TRY(check_slots(kv.slots, arrays.slots, arrays.scratch, error));
    }
    if (program.angles != nullptr) {
        HALYARD_TRY(check_all_positions(call, error));
    }
    for (int i = 0; i < program.plan->n_tensors && kv.rerotates; i++) {
        if (program.tensors[i].n_heads != 0) {
            HALYARD_TRY(call.kv_plan().tensors[i].groups ? check_moved_records(call, i, error)
                                                         : check_moved_scales(call, i, error));
        }
    }
    if (program.n_tasks > 1) {
        return on_executor(
            program, [&](const Share &part) { walk_share(call, part); }, error);
    }
    walk_share(call, share);
    return HALYARD_OK;
}

}  // namespace halyard
