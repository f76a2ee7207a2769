// Loads and stores: convert elements of any dtype to floats of a block, and back.
#include "base/transpose.h"
#include "kv/block.h"

#include <algorithm>

namespace halyard {

void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &x,
            const Elements<const float> &r, const Elements<char> &y) noexcept {
    StageCall(extents, x, r, Elements<char>{y.data, y.strides, element_bytes(dtype)})
        .join_all()
        .for_each_part(kernels.narrow[index_of(dtype)]);
}

void widen(const StageKernels &kernels, Dtype dtype, std::int64_t n, const char *from, float *to) noexcept {
    widen(kernels, dtype, {n, 1, 1}, {from, {1, 0, 0}}, {to, {1, 0, 0}});
}

void narrow(const StageKernels &kernels, Dtype dtype, std::int64_t n, const float *from, char *to) noexcept {
    static constexpr float one = 1.0f;
    narrow(kernels, dtype, {n, 1, 1}, {from, {1, 0, 0}}, {&one, {0, 0, 0}}, {to, {1, 0, 0}});
}

Scatter scatter_of_output(const KvCall &call, const Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    const auto &cache = call.stages(block).cache;
    return cache                               ? cache->scatter(tensor_plan.out_dim, tensor_plan.out_bytes)
           : call.tensor(block).y.element == 1 ? Scatter::none
                                               : Scatter::single;
}

namespace {

/// A part of a block whose elements are evenly spaced in a view or cache: heads of some tokens. When heads are tiled,
/// dimension 1 counts the tiles of one head, not heads.
struct PlacedPart {
    Extents extents;
    std::int64_t token, head, offset;  // its first token and head in the block, and the offset of its dense elements
    bool is_tiled;
    ElementStrides dense;  // strides of the block's dense elements
    Elements<char> there;  // the elements in the view or cache
};

/// Calls function(part) for the elements of tokens that are stored, in as few parts as possible.
template <typename Function>
void for_each_part_in_cache(const KvCall &call, const Block &block, const Stored &stored, const Function &function) {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    const CacheDesc &cache = *call.stages(block).cache;
    PlacedPart part;  // not initialised as a whole, which would slow down a run of one token
    part.extents = {tensor_plan.head_dim, block.n_heads, stored.n_tokens};
    part.token = stored.first;
    part.head = 0;
    part.offset = stored.first * block.strides.token;
    part.dense = block.strides;
    part.there.data = call.cache_of(block) + stored.offset * tensor_plan.out_bytes;
    part.there.strides = {0, cache.stride_head, stored.stride_token};
    part.is_tiled = !cache.is_linear(tensor_plan.head_dim, &part.there.strides.element);
    if (!part.is_tiled) {
        function(part);
        return;
    }
    const std::int64_t tile = cache.tile_elements, n_tiles = tensor_plan.head_dim / tile,
                       rest = tensor_plan.head_dim % tile;
    part.dense.head = tile;
    part.there.strides = {cache.stride_element, cache.stride_tile_elements, stored.stride_token};
    for (; part.head < block.n_heads; part.head++) {
        PlacedPart tiles = part;
        tiles.offset += part.head * block.strides.head;
        tiles.there.data += part.head * cache.stride_head * tensor_plan.out_bytes;
        tiles.extents = {tile, n_tiles, stored.n_tokens};
        function(tiles);
        if (rest != 0) {  // a shorter tile
            tiles.offset += n_tiles * tile;
            tiles.there.data += n_tiles * cache.stride_tile_elements * tensor_plan.out_bytes;
            tiles.extents = {rest, 1, stored.n_tokens};
            function(tiles);
        }
    }
}

/// Calls function(part) for all elements of a block, in its view x or y.
template <typename Function>
void for_each_part_in_view(const KvCall &call, const Block &block, bool is_output, const Function &function) {
    const Side &side = is_output ? call.tensor(block).y : call.tensor(block).in();
    char *const data = is_output ? call.y(block) : const_cast<char *>(call.x(block));
    const Elements<char> there = {data, {side.element, side.head, side.token}};
    function(PlacedPart{block.extents(call.tensor_plan(block).head_dim), 0, 0, 0, false, block.strides, there});
}

/// Calls function(part) for all elements of a block in the view, or in the cache, where only tokens with slots are.
template <typename Function>
void for_each_placed(const KvCall &call, const Block &block, bool is_output, const Function &function) {
    if (!call.stages(block).cache || (!is_output && call.tensor_plan(block).reads_x)) {
        for_each_part_in_view(call, block, is_output, function);
        return;
    }
    for_each_stored(call, block, [&](const Stored &stored) { for_each_part_in_cache(call, block, stored, function); });
}

/// The workspace's words: the block's elements in the tensor's dtype, with the strides of its floats.
char *words_of(const Block &block) { return reinterpret_cast<char *>(block.work->spare); }

/// Copies units of `unit` elements of `bytes` bytes each. Strides are in elements.
void copy(std::int64_t bytes, std::int64_t unit, const Extents &n, const Elements<const char> &from,
          const Elements<char> &to) {
    const auto units = [&]<typename T>(const Elements<T> &of) {
        return Units<T>{of.data, of.strides.element * bytes, of.strides.head * bytes, of.strides.token * bytes};
    };
    copy_units(unit * bytes, n.n_elements, n.n_heads, n.n_tokens, units(from), units(to));
}

}  // namespace

void clear_tokens_without_slots(const KvCall &call, const Block &block) noexcept {
    for (std::int64_t token = 0; token < block.n_tokens && !call.tensor_plan(block).reads_x; token++) {
        if (call.slot_of(block, token) < 0) {
            std::fill_n(block.work->floats + token * block.strides.token, block.strides.token, 0.0f);
        }
    }
}

void load(const KvCall &call, Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    // A dense view is loaded in one call, because PlacedParts would slow down a run of one token.
    if (const Side &in = call.tensor(block).in(); tensor_plan.reads_x && in.element == 1) {
        widen(call.kernels(), tensor_plan.dtype, block.extents(tensor_plan.head_dim),
              {call.x(block), {1, in.head, in.token}}, block.floats());
        return;
    }
    clear_tokens_without_slots(call, block);
    for_each_placed(call, block, false, [&](const PlacedPart &part) {
        const char *const data = part.there.data;
        const ElementStrides &at = part.there.strides;
        const ElementStrides &dense = part.dense;
        const Extents &n = part.extents;
        const Elements<float> floats = {block.work->floats + part.offset, dense};
        if (at.element == 1) {
            widen(call.kernels(), tensor_plan.dtype, n, {data, at}, floats);
            return;
        }
        char *const words = words_of(block);
        if (at.token == 1) {  // tokens are contiguous: copy takes them as units and transposes in registers
            copy(tensor_plan.bytes, 1, {n.n_tokens, n.n_heads, n.n_elements}, {data, {1, at.head, at.element}},
                 {words, {dense.token, dense.head, 1}});
        } else {
            copy(tensor_plan.bytes, 1, n, {data, at}, {words, dense});
        }
        widen(call.kernels(), tensor_plan.dtype, n, {words, dense}, floats);
    });
}

void store(const KvCall &call, Block &block) noexcept {
    const ElementStrides &by = block.factors.strides;
    for_each_placed(call, block, true, [&](const PlacedPart &part) {
        const Elements<const float> factors = {block.factors.data + part.token * by.token + part.head * by.head,
                                               {0, part.is_tiled ? 0 : by.head, by.token}};
        narrow(call.kernels(), call.tensor_plan(block).out_dtype, part.extents,
               {block.work->floats + part.offset, part.dense}, factors, part.there);
    });
}

void store_words(const KvCall &call, Block &block) noexcept {
    const std::int64_t bytes = call.tensor_plan(block).out_bytes;
    const bool has_units = scatter_of_output(call, block) == Scatter::tiles;
    // Stretches of tokens (find_stored) are copied together if they have equal numbers of tokens and equal distances.
    std::int64_t n_groups = 1, group_stride = 0;
    const auto copy_part = [&](const PlacedPart &part) {
        const Extents &n = part.extents;
        const ElementStrides &from = part.dense, &to = part.there.strides;
        // A whole tile is a unit, if it can be one.
        const bool by_tiles = has_units && part.is_tiled && n.n_elements == call.stages(block).cache->tile_elements;
        const char *const words = words_of(block) + part.offset * bytes;
        // Heads are copied one by one, and stretches are their dimension 1: a head's stretches are often contiguous.
        for (std::int64_t h = 0; h < (by_tiles ? 1 : n.n_heads); h++) {
            copy(bytes, by_tiles ? n.n_elements : 1, {by_tiles ? n.n_heads : n.n_elements, n_groups, n.n_tokens},
                 {words + h * from.head * bytes,
                  {by_tiles ? from.head : from.element, n.n_tokens * from.token, from.token}},
                 {part.there.data + h * to.head * bytes, {by_tiles ? to.head : to.element, group_stride, to.token}});
        }
    };
    if (!call.stages(block).cache) {
        for_each_part_in_view(call, block, true, copy_part);
        return;
    }
    Stored first = {0, 0, 0, 0};
    for_each_stored(call, block, [&](const Stored &next) {
        const std::int64_t step = next.offset - first.offset - (n_groups - 1) * group_stride;
        if (next.n_tokens == first.n_tokens && next.first == first.first + n_groups * first.n_tokens &&
            next.stride_token == first.stride_token && (n_groups == 1 || step == group_stride)) {
            group_stride = step;
            n_groups++;
            return;
        }
        if (first.n_tokens != 0) {
            for_each_part_in_cache(call, block, first, copy_part);
        }
        first = next;
        n_groups = 1;
        group_stride = 0;
    });
    if (first.n_tokens != 0) {
        for_each_part_in_cache(call, block, first, copy_part);
    }
}

void store_scattered(const KvCall &call, Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    narrow(call.kernels(), tensor_plan.out_dtype, block.extents(tensor_plan.head_dim),
           {block.work->floats, block.strides}, block.factors, {words_of(block), block.strides});
    store_words(call, block);
}

}  // namespace halyard
