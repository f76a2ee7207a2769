// Loads and stores: elements of any dtype become floats of a block, and these become elements again.
#include "base/transpose.h"
#include "kv/block.h"

#include <algorithm>

namespace halyard {

void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const char> &x,
           const Elements<float> &to) noexcept {
    StageOperand from(x, element_bytes(dtype)), floats(to, sizeof(float));
    StageCall call(extents, from, floats);
    call.join_all();
    call.for_each_part(kernels.widen[index_of(dtype)]);
}

void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &x,
            const Elements<const float> &r, const Elements<char> &y) noexcept {
    StageOperand floats(x, sizeof(float)), by(r, sizeof(float)), to(y, element_bytes(dtype));
    StageCall call(extents, floats, by, to);
    call.join_all();
    call.for_each_part(kernels.narrow[index_of(dtype)]);
}

void widen(const StageKernels &kernels, Dtype dtype, std::int64_t n, const char *from, float *to) noexcept {
    widen(kernels, dtype, {n, 1, 1}, {from, {1, 0, 0}}, {to, {1, 0, 0}});
}

void narrow(const StageKernels &kernels, Dtype dtype, std::int64_t n, const float *from, char *to) noexcept {
    static constexpr float one = 1.0f;
    narrow(kernels, dtype, {n, 1, 1}, {from, {1, 0, 0}}, {&one, {0, 0, 0}}, {to, {1, 0, 0}});
}

Scatter scatter_of_output(const KvCall &call, const Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const auto &cache = call.stages(block).cache;
    return cache                                  ? cache->scatter(desc.out_dim, desc.out_bytes)
           : call.tensor(block).y.element == 1 ? Scatter::none
                                                  : Scatter::single;
}

namespace {

/// Elements of a block that lie evenly apart in a cache too: heads of some tokens. When heads are tiled, dimension 1
/// counts the tiles of one head, not heads.
struct CachedPart {
    Extents extents;
    std::int64_t token, head, element;  // where they begin in the block
    bool is_tiled;
    ElementStrides strides;        // of dense elements of the block
    std::int64_t offset;           // in the cache, from slot 0 and the block's first head on
    ElementStrides cache_strides;  // likewise
    // n_groups such groups of tokens, if they may be groups; each starts cache_stride after the one before.
    std::int64_t n_groups, cache_stride;
};

/// Calls function(token, stored, n_groups, stride) for the tokens of a block that are stored: for what lies evenly
/// apart, and if it may for as many groups of tokens as have one shape and lie evenly apart themselves.
template <typename Function>
void for_each_group(const KvCall &call, const Block &block, bool may_group, const Function &function) {
    const CacheDesc &cache = *call.stages(block).cache;
    Stored one = {};
    std::int64_t first_token = 0, n_groups = 0, stride = 0;
    const auto flush = [&] {
        if (n_groups > 0) {
            function(first_token, one, n_groups, stride);
        }
    };
    for_each_stored(call.kv.slots, call.arrays.slots, cache, block.first(call), block.n_tokens,
                    [&](std::int64_t token, const Stored &stored) {
                        const std::int64_t step = stored.offset - one.offset - (n_groups - 1) * stride;
                        if (may_group && n_groups > 0 && token == first_token + n_groups * one.n_tokens &&
                            stored.n_tokens == one.n_tokens && stored.stride_token == one.stride_token &&
                            (n_groups == 1 || step == stride)) {
                            stride = step;
                            n_groups++;
                            return;
                        }
                        flush();
                        one = stored;
                        first_token = token;
                        n_groups = 1;
                        stride = 0;
                    });
    flush();
}

/// Calls function(part) for all elements of a block that are stored, in as few parts as it takes.
template <typename Function>
void for_each_cached(const KvCall &call, const Block &block, bool may_group, const Function &function) {
    const CacheDesc &cache = *call.stages(block).cache;
    const std::int64_t head_dim = call.desc(block).head_dim, tile = cache.tile_elements, n_tiles = head_dim / tile;
    std::int64_t element = 0;
    const bool is_linear = cache.is_linear(head_dim, &element);
    for_each_group(call, block, may_group,
                   [&](std::int64_t token, const Stored &stored, std::int64_t n_groups, std::int64_t stride) {
                       if (is_linear) {
                           function(CachedPart{{head_dim, block.n_heads, stored.n_tokens},
                                               token, 0, 0, false, block.strides, stored.offset,
                                               {element, cache.stride_head, stored.stride_token},
                                               n_groups, stride});
                           return;
                       }
                       CachedPart part = {};
                       part.token = token;
                       part.is_tiled = true;
                       part.strides = {1, tile, block.strides.token};
                       part.cache_strides = {cache.stride_element, cache.stride_tile_elements, stored.stride_token};
                       part.n_groups = n_groups;
                       part.cache_stride = stride;
                       for (part.head = 0; part.head < block.n_heads; part.head++) {
                           for (const bool is_rest : {false, true}) {  // at the end of a head is a shorter tile
                               part.element = is_rest ? n_tiles * tile : 0;
                               part.extents = is_rest ? Extents{head_dim - part.element, 1, stored.n_tokens}
                                                      : Extents{tile, n_tiles, stored.n_tokens};
                               part.offset = stored.offset + part.head * cache.stride_head +
                                             part.element / tile * cache.stride_tile_elements;
                               if (part.extents.n_elements > 0 && part.extents.n_heads > 0) {
                                   function(part);
                               }
                           }
                       }
                   });
}

/// Where a part begins in a block.
std::int64_t offset_of(const Block &block, const CachedPart &part) {
    return part.token * block.strides.token + part.head * block.strides.head + part.element;
}

char *cache_of(const KvCall &call, const Block &block) {
    return call.data(block, Array::cache) +
           block.head * call.stages(block).cache->stride_head * call.desc(block).out_bytes;
}

/// The workspace's words: the block's elements, as dense as its floats.
char *words_of(const Block &block) { return reinterpret_cast<char *>(block.work->spare); }

/// Copies units of so many elements of some bytes each. Strides are in elements.
void copy(std::int64_t bytes, std::int64_t unit, const Extents &n, const Elements<const char> &from,
          const Elements<char> &to) {
    const auto units = [&]<typename T>(const Elements<T> &of) {
        return Units<T>{of.data, of.strides.element * bytes, of.strides.head * bytes, of.strides.token * bytes};
    };
    copy_units(unit * bytes, n.n_elements, n.n_heads, n.n_tokens, units(from), units(to));
}

/// Copies a part of words that are scattered in a cache; if `by_tiles`, a tile is a unit.
void copy_part(const Block &block, std::int64_t bytes, bool by_tiles, const CachedPart &part, char *cache) {
    const Extents &n = part.extents;
    const ElementStrides &from = part.strides, &to = part.cache_strides;
    const char *const words = words_of(block) + offset_of(block, part) * bytes;
    char *const y = cache + part.offset * bytes;
    // Groups stand in the place of heads, one of which is copied after the other: its groups are often neighbours.
    for (std::int64_t h = 0; h < (by_tiles ? 1 : n.n_heads); h++) {
        copy(bytes, by_tiles ? n.n_elements : 1, {by_tiles ? n.n_heads : n.n_elements, part.n_groups, n.n_tokens},
             {words + h * from.head * bytes,
              {by_tiles ? from.head : from.element, n.n_tokens * from.token, from.token}},
             {y + h * to.head * bytes, {by_tiles ? to.head : to.element, part.cache_stride, to.token}});
    }
}

}  // namespace

void load(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const Side &in = call.tensor(block).in();
    widen(call.kernels(), desc.dtype, block.extents(desc.head_dim),
          {call.x(block), {in.element, in.head, in.token}}, block.floats());
}

void load_scattered(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const Side &in = call.tensor(block).in();
    copy(desc.bytes, 1, block.extents(desc.head_dim), {call.x(block), {in.element, in.head, in.token}},
         {words_of(block), block.strides});
    widen(call.kernels(), desc.dtype, block.extents(desc.head_dim), {words_of(block), block.strides}, block.floats());
}

void load_from_cache(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const std::int64_t bytes = desc.bytes;
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        if (call.slot_of(block, token) < 0) {
            std::fill_n(block.work->floats + token * block.strides.token, block.n_heads * block.strides.head, 0.0f);
        }
    }
    const char *const cache = cache_of(call, block);
    for_each_cached(call, block, false, [&](const CachedPart &part) {
        Elements<const char> elements = {cache + part.offset * bytes, part.cache_strides};
        const ElementStrides &at = part.cache_strides, &dense = part.strides;
        if (at.element != 1) {
            // Tokens that are neighbours are transposed in registers if they are what copy_units calls units.
            copy(bytes, 1, {part.extents.n_tokens, part.extents.n_heads, part.extents.n_elements},
                 {elements.data, {at.token, at.head, at.element}}, {words_of(block), {dense.token, dense.head, 1}});
            elements = {words_of(block), {1, dense.head, dense.token}};
        }
        widen(call.kernels(), desc.dtype, part.extents, elements,
              {block.work->floats + offset_of(block, part), part.strides});
    });
}

void store(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const Side &out = call.tensor(block).y;
    narrow(call.kernels(), desc.out_dtype, block.extents(desc.head_dim), {block.work->floats, block.strides},
           block.factors, {call.y(block), {1, out.head, out.token}});
}

void store_in_cache(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const ElementStrides &by = block.factors.strides;
    char *const cache = cache_of(call, block);
    for_each_cached(call, block, false, [&](const CachedPart &part) {
        const Elements<const float> factors = {block.factors.data + part.token * by.token + part.head * by.head,
                                               {0, part.is_tiled ? 0 : by.head, by.token}};
        narrow(call.kernels(), desc.out_dtype, part.extents,
               {block.work->floats + offset_of(block, part), part.strides}, factors,
               {cache + part.offset * desc.out_bytes, part.cache_strides});
    });
}

void store_words(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const std::int64_t bytes = desc.out_bytes;
    if (!call.stages(block).cache) {
        const Side &out = call.tensor(block).y;
        copy(bytes, 1, block.extents(desc.head_dim), {words_of(block), block.strides},
             {call.y(block), {out.element, out.head, out.token}});
        return;
    }
    const bool has_units = scatter_of_output(call, block) == Scatter::tiles;
    char *const cache = cache_of(call, block);
    for_each_cached(call, block, true, [&](const CachedPart &part) {
        const bool is_whole = part.is_tiled && part.extents.n_elements == call.stages(block).cache->tile_elements;
        copy_part(block, bytes, has_units && is_whole, part, cache);
    });
}

void store_scattered(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    narrow(call.kernels(), desc.out_dtype, block.extents(desc.head_dim), {block.work->floats, block.strides},
           block.factors, {words_of(block), block.strides});
    store_words(call, block);
}

}  // namespace halyard
