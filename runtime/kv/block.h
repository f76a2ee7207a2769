// A block: some heads of some tokens, as floats in a thread's workspace, on which a tensor's steps work one after the
// other. It is small enough to stay in the L1 cache.
#pragma once

#include "core/call.h"
#include "kv/check_and_bind.h"
#include "kv/stages.h"

namespace halyard {

/// A thread's memory for blocks.
struct Workspace {
    alignas(64) float floats[block_floats];   // [token][head][head_dim], dense
    alignas(64) float spare[block_floats];    // scratch of a step: rotary windows, words, elements of groups
    alignas(64) float numbers[block_heads];   // one for each head of each token, or scales and the like of groups
    alignas(64) float weights[block_floats];  // a norm's weights widened to float; in the second half its biases
    std::int64_t weights_of = -1;             // the first head whose weights these are
};

struct Block {
    int index;                  // the tensor's
    std::int64_t batch, token;  // its first token; batch rows of one token count as one row
    std::int64_t head;          // its first head
    std::int64_t n_tokens, n_heads;
    Rows *rows;                           // none, if the plan rotates no tensor
    const std::int32_t *row_of_token;     // [n_tokens]
    Workspace *work = nullptr;            // whole heads need none
    ElementStrides strides;               // of work->floats, dense
    Elements<const float> factors = one;  // the store multiplies elements by them

    /// Sets head, n_heads and the strides of dense floats.
    void take_heads(std::int64_t first, std::int64_t n, std::int64_t head_dim) noexcept {
        head = first;
        n_heads = n;
        strides = {1, head_dim, n * head_dim};
    }
    TokenBlock tokens() const noexcept { return {token, n_tokens, row_of_token}; }
    /// Takes n of all tokens from number `first` on.
    void take_tokens(const TokenBlock &all, std::int64_t first, std::int64_t n) noexcept {
        token = all.first + first;
        n_tokens = n;
        row_of_token = all.row_of_token + first;
    }

    /// Calls function(i, token, head) for each head of each token, with i = 0, 1, 2, …
    template <typename Function>
    void for_each_head(const Function &function) const noexcept {
        for (std::int64_t t = 0, i = 0; t < n_tokens; t++) {
            for (std::int64_t h = 0; h < n_heads; h++, i++) {
                function(i, t, h);
            }
        }
    }

    Extents extents(std::int64_t n_elements) const noexcept { return {n_elements, n_heads, n_tokens}; }
    Elements<float> floats() const noexcept { return {work->floats, strides}; }
};

/// A call with KV arguments, or of a plan that has stages.
struct KvCall {
    const Program &program;
    const KvProgram &kv_program;
    const Pointers &given;
    const KvPointers &arrays;

    const halyard_plan &plan() const noexcept { return *program.plan; }
    const KvPlan &kv_plan() const noexcept { return *kv_program.plan; }
    const StageKernels &kernels() const noexcept { return *kv_plan().kernels; }
    const TensorPlan &tensor_plan(const Block &block) const noexcept { return program.plan->tensors[block.index]; }
    const KvTensorPlan &stages(const Block &block) const noexcept { return kv_plan().tensors[block.index]; }
    const TensorProgram &tensor(const Block &block) const noexcept { return program.tensors[block.index]; }
    const Steps &steps(const Block &block) const noexcept { return *kv_program.tensors[block.index].steps; }

    TensorCall whole_heads(const Block &block) const noexcept {
        const TensorProgram &direct = kv_program.tensors[block.index].direct;
        return {plan(), tensor_plan(block), direct, *direct.kernel, *block.rows};
    }

    /// The index of the block's first token, counted through all batch rows.
    std::int64_t first_of(const Block &block) const noexcept {
        return block.batch * program.positions.n_tokens + block.token;
    }
    /// The slot of the block's token `token`; -1 if it is not stored.
    std::int64_t slot_of(const Block &block, std::int64_t token) const noexcept {
        return kv_program.slots.slot_of_token(arrays.slots, first_of(block) + token);
    }

    /// An array that the run passes for a tensor, and its address.
    const BoundArray &bound(int index, Array array) const noexcept {
        return kv_program.tensors[index].arrays[static_cast<int>(array)];
    }
    char *data(int index, Array array) const noexcept { return arrays.of_tensor[index][static_cast<int>(array)]; }

    /// The address of slot 0 of a tensor's cache, for the block's first head.
    char *cache_of(const Block &block) const noexcept {
        return data(block.index, Array::cache) +
               block.head * stages(block).cache->stride_head * tensor_plan(block).out_bytes;
    }

    /// The address of an array's element for a batch row, token and head. For arrays by slot, `token` is the slot;
    /// for scales of groups in a cache, `batch` is the cache's block and `token` the slot within the block.
    char *place_of(int index, Array array, std::int64_t batch, std::int64_t token, std::int64_t head) const noexcept {
        const Lattice &of = bound(index, array).elements;
        return data(index, array) +
               (batch * of.strides[0] + token * of.strides[1] + head * of.strides[2]) * of.element_bytes;
    }

    /// The address of the block's first element in x; in y, if the output is not a cache.
    const char *x(const Block &block) const noexcept {
        const Side &side = tensor(block).x;
        return static_cast<const char *>(given.x[block.index]) + offset(side, block) * tensor_plan(block).bytes;
    }
    char *y(const Block &block) const noexcept {
        return static_cast<char *>(given.y[block.index]) +
               offset(tensor(block).y, block) * tensor_plan(block).out_bytes;
    }

private:
    static std::int64_t offset(const Side &side, const Block &block) noexcept {
        return block.batch * side.batch + block.token * side.token + block.head * side.head;
    }
};

/// Calls function(stored) for the tokens of a block that have slots in its tensor's cache, for as many at once as are
/// evenly spaced there. stored.first counts from the block's first token.
template <typename Function>
[[gnu::always_inline]] inline void for_each_stored(const KvCall &call, const Block &block, const Function &function) {
    const std::int64_t first = call.first_of(block);
    for (std::int64_t done = 0; done < block.n_tokens;) {
        Stored stored = find_stored(call.kv_program.slots, call.arrays.slots, *call.stages(block).cache, first + done,
                                    block.n_tokens - done);
        if (stored.n_tokens == 0) {
            break;
        }
        stored.first -= first;
        done = stored.first + stored.n_tokens;
        function(stored);
    }
}

/// A part of a block whose elements are evenly spaced in a view or cache: heads of some tokens. When heads are tiled,
/// dimension 1 counts the tiles of one head, not heads. When tiles are units, dimension 0 counts the units of one head.
struct PlacedPart {
    Extents extents;
    CopyUnits *copy;                   // copies elements or, of tiles that are units, these
    std::int64_t token, head, offset;  // its first token and head in the block, and the offset of its dense elements
    ElementStrides dense;              // strides of the block's dense elements
    Elements<char> there;              // the elements in the view or cache
};

/// Calls function(part) for the elements of tokens that are stored in a cache, in as few parts as possible.
template <Where where, typename Function>
void for_each_part_of(const Stored &stored, const KvCall &call, const Block &block, const Function &function) {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    const KvTensorPlan &stages = call.stages(block);
    const CacheDesc &cache = *stages.cache;
    const std::int64_t head_dim = tensor_plan.out_dim, tile = cache.tile_elements, n_tokens = stored.n_tokens;
    const std::int64_t to_tile = cache.stride_tile_elements, of_tokens = block.strides.token;
    const auto call_for = [&](std::int64_t head, std::int64_t first_tile, CopyUnits *copy, const Extents &extents,
                              const ElementStrides &dense, const ElementStrides &there) {
        const std::int64_t at = stored.offset + head * cache.stride_head + first_tile * to_tile;
        function(PlacedPart{extents,
                            copy,
                            stored.first,
                            head,
                            stored.first * of_tokens + head * block.strides.head + first_tile * tile,
                            dense,
                            {call.cache_of(block) + at * tensor_plan.out_bytes, there}});
    };
    if constexpr (where == Where::cache) {
        call_for(0, 0, stages.copy.of_y, {head_dim, block.n_heads, n_tokens}, block.strides,
                 {cache.spacing, cache.stride_head, stored.stride_token});
        return;
    }
    const std::int64_t n_tiles = head_dim / tile, rest = head_dim % tile;
    const ElementStrides dense = {1, tile, of_tokens}, there = {cache.stride_element, to_tile, stored.stride_token};
    for (std::int64_t head = 0; head < block.n_heads; head++) {
        if constexpr (where == Where::units) {
            call_for(head, 0, stages.copy.of_tile, {n_tiles, 1, n_tokens}, {tile, 0, of_tokens},
                     {to_tile, 0, stored.stride_token});
        } else {
            call_for(head, 0, stages.copy.of_y, {tile, n_tiles, n_tokens}, dense, there);
        }
        if (rest != 0) {  // a shorter tile
            call_for(head, n_tiles, stages.copy.of_y, {rest, 1, n_tokens}, dense, there);
        }
    }
}

/// Calls function(part) for all elements of a block: in its view x or y, or, for tokens with slots, in its cache.
template <Where where, typename Function>
[[gnu::always_inline]] inline void for_each_part(const KvCall &call, const Block &block, bool is_output,
                                                 const Function &function) {
    if constexpr (where == Where::view) {
        const Side &side = is_output ? call.tensor(block).y : call.tensor(block).x;
        char *const data = is_output ? call.y(block) : const_cast<char *>(call.x(block));
        const Elements<char> there = {data, {side.element, side.head, side.token}};
        CopyUnits *const copy = is_output ? call.stages(block).copy.of_y : call.stages(block).copy.of_x;
        function(PlacedPart{block.extents(call.tensor_plan(block).head_dim), copy, 0, 0, 0, block.strides, there});
    } else {
        for_each_stored(call, block,
                        [&](const Stored &stored) { for_each_part_of<where>(stored, call, block, function); });
    }
}

/// Calls function(stretch) for whole heads of a block: from x to a view or cache, or in a cache.
template <Where from, Where to, typename Function>
void for_each_stretch(const KvCall &call, const Block &block, const Function &function) {
    for_each_part<to>(call, block, true, [&](const PlacedPart &part) {
        const auto &[y, at, unused, dims] = part.there;
        const std::int32_t *const rows = block.row_of_token + part.token;
        if constexpr (from == Where::cache) {
            function(Stretch{y, y, rows, block.n_heads, part.extents.n_tokens, at.token, at.token});
        } else {
            const std::int64_t x_token = call.tensor(block).x.token;
            function(Stretch{call.x(block) + part.token * x_token * call.tensor_plan(block).bytes, y, rows,
                             block.n_heads, part.extents.n_tokens, x_token, at.token});
        }
    });
}

/// The stretch from a block's x to dense words in its workspace.
inline Stretch stretch_of_words(const KvCall &call, const Block &block) {
    return {call.x(block),
            reinterpret_cast<char *>(block.work->spare),
            block.row_of_token,
            block.n_heads,
            block.n_tokens,
            call.tensor(block).x.token,
            block.n_heads * call.tensor_plan(block).head_dim};
}

/// Sets the floats of tokens that are loaded from a cache, but have no slot there, to 0.
RunStep clear_tokens_without_slots;

// ---- The walk (call.cpp) --------------------------------------------------------------------------------------------

/// Runs steps first … last - 1 of the block's tensor. For k in bf16 with a norm, a static scale and an e4m3 cache,
/// these are load_and_norm, rotate_windows, set_factors_by_static_scales and store.
inline void run_steps(const KvCall &call, Block &block, int first, int last) noexcept {
    for (const Step *step = call.steps(block).list + first, *end = step + last - first; step != end; step++) {
        step->run(call, block);
    }
}

/// Runs all steps on heads of tokens, block by block, for a norm of rows that are longer than a block. (norm.cpp)
template <bool is_layer>
void walk_long_rows(const KvCall &call, Block &block) noexcept;

// ---- Re-rotation (rerotate.cpp): keys that were rotated for one position are rotated to another --------------------

/// Fails, naming the first bad position, unless the old and new positions of all tokens of the set fit 32 bits.
halyard_status check_moves(const KvCall &call, const TokenSet *tokens, halyard_error *error) noexcept;

/// Makes rows that rotate keys from their old positions to their new ones, [row][cos, sin][pairs], for n_pairs pairs
/// from first_pair on, for as many of the tokens first … last - 1 as there is room for. Consecutive tokens with equal
/// moves share a row. Returns how many tokens have a row now, at least one and at most max_block_tokens.
std::int64_t make_moved_rows(const KvCall &call, std::int64_t first, std::int64_t last, std::int64_t first_pair,
                             std::int64_t n_pairs, float *rows, std::int32_t *row_of_token) noexcept;

}  // namespace halyard
