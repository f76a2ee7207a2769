// Loads and stores: elements of any dtype become floats of a block, and these become elements again.
#include "base/transpose.h"
#include "kv/block.h"

#include <algorithm>

namespace halyard {

void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const char> &x,
           const Elements<float> &to) noexcept {
    StageCall(extents, Elements<const char>{x.data, x.strides, element_bytes(dtype)}, to)
        .join_all()
        .for_each_part(kernels.widen[index_of(dtype)]);
}

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
    const TensorPlan &desc = call.desc(block);
    const auto &cache = call.stages(block).cache;
    return cache                               ? cache->scatter(desc.out_dim, desc.out_bytes)
           : call.tensor(block).y.element == 1 ? Scatter::none
                                               : Scatter::single;
}

namespace {

/// Elements of a block that lie evenly apart in a view or a cache too: heads of some tokens. When heads are tiled,
/// dimension 1 counts the tiles of one head, not heads.
struct PlacedPart {
    Extents extents;
    std::int64_t token, head, element;  // where they begin in the block
    bool is_tiled;
    ElementStrides strides;  // of dense elements of the block
    char *data;              // where they begin in the view or cache
    ElementStrides there;    // their strides there
    // n_groups such groups of tokens, if they may be groups; each starts group_stride after the one before.
    std::int64_t n_groups, group_stride;

    std::int64_t offset_in(const Block &block) const noexcept {
        return token * block.strides.token + head * block.strides.head + element;
    }
};

/// Calls function(part) for all elements of a block where they are read or written: for a view once, and in a cache for
/// those that are stored, in as few parts as it takes. If it may group, groups of tokens that have one shape and lie
/// evenly apart themselves are one part.
template <typename Function>
void for_each_placed(const KvCall &call, const Block &block, bool is_output, bool may_group, const Function &function) {
    const TensorPlan &desc = call.desc(block);
    if (!call.stages(block).cache || (!is_output && desc.reads_x)) {
        const Side &side = is_output ? call.tensor(block).y : call.tensor(block).in();
        char *const data = is_output ? call.y(block) : const_cast<char *>(call.x(block));
        function(PlacedPart{block.extents(desc.head_dim),
                            0,
                            0,
                            0,
                            false,
                            block.strides,
                            data,
                            {side.element, side.head, side.token},
                            1,
                            0});
        return;
    }
    const CacheDesc &cache = *call.stages(block).cache;
    char *const data = call.cache_of(block);
    PlacedPart part;  // not initialised as a whole, for the cost of a token
    part.n_groups = part.group_stride = 0;
    std::int64_t element = 0;
    part.is_tiled = !cache.is_linear(desc.head_dim, &element);
    if (!part.is_tiled && !may_group) {  // whole heads need no more, for the cost of a token
        part.head = part.element = 0;
        part.n_groups = 1;
        part.strides = block.strides;
        for_each_stored(call, block, [&](const Stored &one) {
            part.extents = block.extents(desc.head_dim);
            part.extents.n_tokens = one.n_tokens;
            part.token = one.first;
            part.data = data + one.offset * desc.out_bytes;
            part.there = {element, cache.stride_head, one.stride_token};
            function(part);
        });
        return;
    }
    const std::int64_t tile = part.is_tiled ? cache.tile_elements : desc.head_dim;
    const std::int64_t n_tiles = part.is_tiled ? desc.head_dim / tile : 1;
    const std::int64_t n_rows = part.is_tiled ? n_tiles : block.n_heads;
    Stored one = {0, 0, 0, 0};
    const auto place = [&] {
        part.token = one.first;
        part.strides = {1, part.is_tiled ? tile : block.strides.head, block.strides.token};
        part.there = {part.is_tiled ? cache.stride_element : element,
                      part.is_tiled ? cache.stride_tile_elements : cache.stride_head, one.stride_token};
        const std::int64_t n_heads = part.n_groups == 0 ? 0 : part.is_tiled ? block.n_heads : 1;
        for (part.head = 0; part.head < n_heads; part.head++) {
            for (part.element = 0; part.element < desc.head_dim; part.element += n_tiles * tile) {
                const bool is_rest = part.element > 0;  // at the end of a head is a shorter tile
                part.extents = {is_rest ? desc.head_dim - part.element : tile, is_rest ? 1 : n_rows, one.n_tokens};
                part.data = data + (one.offset + part.head * cache.stride_head +
                                    (is_rest ? n_tiles * cache.stride_tile_elements : 0)) *
                                       desc.out_bytes;
                function(part);
            }
        }
    };
    for_each_stored(call, block, [&](const Stored &next) {
        const std::int64_t step = next.offset - one.offset - (part.n_groups - 1) * part.group_stride;
        if (may_group && part.n_groups > 0 && next.first == one.first + part.n_groups * one.n_tokens &&
            next.n_tokens == one.n_tokens && next.stride_token == one.stride_token &&
            (part.n_groups == 1 || step == part.group_stride)) {
            part.group_stride = step;
            part.n_groups++;
            return;
        }
        place();
        one = next;
        part.n_groups = 1;
        part.group_stride = 0;
    });
    place();
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

}  // namespace

void load(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    // A dense view is loaded without the walk, for the cost of a token.
    if (const Side &in = call.tensor(block).in(); desc.reads_x && in.element == 1) {
        widen(call.kernels(), desc.dtype, block.extents(desc.head_dim), {call.x(block), {1, in.head, in.token}},
              block.floats());
        return;
    }
    for (std::int64_t token = 0; token < block.n_tokens && !desc.reads_x; token++) {
        if (call.slot_of(block, token) < 0) {
            std::fill_n(block.work->floats + token * block.strides.token, block.n_heads * block.strides.head, 0.0f);
        }
    }
    for_each_placed(call, block, false, false, [&](const PlacedPart &part) {
        const ElementStrides &at = part.there, &dense = part.strides;
        const Extents &n = part.extents;
        const Elements<float> floats = {block.work->floats + part.offset_in(block), dense};
        if (at.element == 1) {
            widen(call.kernels(), desc.dtype, n, {part.data, at}, floats);
            return;
        }
        char *const words = words_of(block);
        if (at.token == 1) {  // then tokens are units, which are transposed in registers
            copy(desc.bytes, 1, {n.n_tokens, n.n_heads, n.n_elements}, {part.data, {1, at.head, at.element}},
                 {words, {dense.token, dense.head, 1}});
        } else {
            copy(desc.bytes, 1, n, {part.data, at}, {words, dense});
        }
        widen(call.kernels(), desc.dtype, n, {words, dense}, floats);
    });
}

void store(const KvCall &call, Block &block) noexcept {
    const ElementStrides &by = block.factors.strides;
    for_each_placed(call, block, true, false, [&](const PlacedPart &part) {
        const Elements<const float> factors = {block.factors.data + part.token * by.token + part.head * by.head,
                                               {0, part.is_tiled ? 0 : by.head, by.token}};
        narrow(call.kernels(), call.desc(block).out_dtype, part.extents,
               {block.work->floats + part.offset_in(block), part.strides}, factors, {part.data, part.there});
    });
}

void store_words(const KvCall &call, Block &block) noexcept {
    const std::int64_t bytes = call.desc(block).out_bytes;
    const bool has_units = scatter_of_output(call, block) == Scatter::tiles;
    for_each_placed(call, block, true, true, [&](const PlacedPart &part) {
        const Extents &n = part.extents;
        const ElementStrides &from = part.strides, &to = part.there;
        // A whole tile is a unit, if it can be one.
        const bool by_tiles = has_units && part.is_tiled && n.n_elements == call.stages(block).cache->tile_elements;
        const char *const words = words_of(block) + part.offset_in(block) * bytes;
        // Groups stand in the place of heads, one of which is copied after the other: its groups are often neighbours.
        for (std::int64_t h = 0; h < (by_tiles ? 1 : n.n_heads); h++) {
            copy(bytes, by_tiles ? n.n_elements : 1, {by_tiles ? n.n_heads : n.n_elements, part.n_groups, n.n_tokens},
                 {words + h * from.head * bytes,
                  {by_tiles ? from.head : from.element, n.n_tokens * from.token, from.token}},
                 {part.data + h * to.head * bytes, {by_tiles ? to.head : to.element, part.group_stride, to.token}});
        }
    });
}

void store_scattered(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    narrow(call.kernels(), desc.out_dtype, block.extents(desc.head_dim), {block.work->floats, block.strides},
           block.factors, {words_of(block), block.strides});
    store_words(call, block);
}

}  // namespace halyard
