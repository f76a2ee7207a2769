// Loads and stores: convert elements of any dtype to floats of a block, and back.
#include "kv/block.h"

#include <algorithm>

namespace halyard {

void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &x,
            const Elements<const float> &r, const Elements<char> &y) noexcept {
    StageCall(extents, x, r, Elements<char>{y.data, y.strides, element_bytes(dtype)})
        .join_all()
        .for_each_part(kernels.narrow[index_of(dtype)]);
}

namespace {

/// The workspace's words: the block's elements in the tensor's dtype, with the strides of its floats.
char *words_of(const Block &block) { return reinterpret_cast<char *>(block.work->spare); }

/// Copies a part's units by its function. Strides are in elements of `bytes` bytes.
void copy(const PlacedPart &part, std::int64_t bytes, const Extents &n, const Elements<const char> &from,
          const Elements<char> &to) {
    const auto units = [&]<typename T>(const Elements<T> &of) {
        return Units<T>{of.data, of.strides.element * bytes, of.strides.head * bytes, of.strides.token * bytes};
    };
    part.copy(n.n_elements, n.n_heads, n.n_tokens, units(from), units(to));
}

}  // namespace

void clear_tokens_without_slots(const KvCall &call, Block &block) noexcept {
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        if (call.slot_of(block, token) < 0) {
            std::fill_n(block.work->floats + token * block.strides.token, block.strides.token, 0.0f);
        }
    }
}

namespace {

// ---- Steps ---------------------------------------------------------------------------------------------------------

/// Loads contiguous elements.
template <Where where>
void load(const KvCall &call, Block &block) noexcept {
    for_each_part<where>(call, block, false, [&](const PlacedPart &part) {
        const ElementStrides &at = part.there.strides;
        widen(call.kernels(), call.tensor_plan(block).dtype, part.extents, {part.there.data, {1, at.head, at.token}},
              {block.work->floats + part.offset, {1, part.dense.head, part.dense.token}});
    });
}

template <Where where>
void load_scattered(const KvCall &call, Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    char *const words = words_of(block);
    for_each_part<where>(call, block, false, [&](const PlacedPart &part) {
        const ElementStrides &at = part.there.strides, &dense = part.dense;
        const Extents &n = part.extents;
        if (at.token == 1) {  // tokens are contiguous: copy takes them as units and transposes in registers
            copy(part, tensor_plan.bytes, {n.n_tokens, n.n_heads, n.n_elements},
                 {part.there.data, {1, at.head, at.element}}, {words, {dense.token, dense.head, 1}});
        } else {
            copy(part, tensor_plan.bytes, n, {part.there.data, at}, {words, dense});
        }
        widen(call.kernels(), tensor_plan.dtype, n, {words, dense}, {block.work->floats + part.offset, dense});
    });
}

template <Where where>
void store(const KvCall &call, Block &block) noexcept {
    constexpr bool is_tiled = where == Where::tiles;  // the tiles of a head have one factor
    const ElementStrides &by = block.factors.strides;
    for_each_part<where>(call, block, true, [&](const PlacedPart &part) {
        const Elements<const float> factors = {block.factors.data + part.token * by.token + part.head * by.head,
                                               {0, is_tiled ? 0 : by.head, by.token}};
        narrow(call.kernels(), call.tensor_plan(block).out_dtype, part.extents,
               {block.work->floats + part.offset, part.dense}, factors, part.there);
    });
}

/// Copies words to an output in which the elements of a head are scattered.
template <Where where>
void store_words(const KvCall &call, Block &block) noexcept {
    const std::int64_t bytes = call.tensor_plan(block).out_bytes;
    // Stretches of tokens (find_stored) are copied together if they have equal numbers of tokens and equal distances.
    std::int64_t n_groups = 1, group_stride = 0;
    const auto copy_part = [&](const PlacedPart &part) {
        const Extents &n = part.extents;
        const ElementStrides &from = part.dense, &to = part.there.strides;
        const char *const words = words_of(block) + part.offset * bytes;
        // Heads are copied one by one, and stretches are their dimension 1: a head's stretches are often contiguous.
        for (std::int64_t h = 0; h < n.n_heads; h++) {
            copy(part, bytes, {n.n_elements, n_groups, n.n_tokens},
                 {words + h * from.head * bytes, {from.element, n.n_tokens * from.token, from.token}},
                 {part.there.data + h * to.head * bytes, {to.element, group_stride, to.token}});
        }
    };
    if constexpr (where == Where::view) {
        for_each_part<where>(call, block, true, copy_part);
        return;
    }
    Stored first = {0, 0, 0, 0};
    const auto copy_groups = [&] {
        if (first.n_tokens != 0) {
            for_each_part_of<where>(first, call, block, copy_part);
        }
    };
    for_each_stored(call, block, [&](const Stored &next) {
        const std::int64_t step = next.offset - first.offset - (n_groups - 1) * group_stride;
        if (next.n_tokens == first.n_tokens && next.first == first.first + n_groups * first.n_tokens &&
            next.stride_token == first.stride_token && (n_groups == 1 || step == group_stride)) {
            group_stride = step;
            n_groups++;
            return;
        }
        copy_groups();
        first = next;
        n_groups = 1;
        group_stride = 0;
    });
    copy_groups();
}

/// Converts to dense words, because to call a kernel for every few scattered elements is too slow.
void narrow_to_words(const KvCall &call, Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    narrow(call.kernels(), tensor_plan.out_dtype, block.extents(tensor_plan.head_dim),
           {block.work->floats, block.strides}, block.factors, {words_of(block), block.strides});
}

}  // namespace

void list_load(const Listing &of) noexcept {
    constexpr RunStep *loads[][2] = {{load<Where::view>, load_scattered<Where::view>},
                                     {load<Where::cache>, load_scattered<Where::cache>},
                                     {load<Where::tiles>, load_scattered<Where::tiles>}};
    const bool is_scattered = of.from_cache() ? of.stages.cache->element_stride() != 1 : of.x_is_scattered;
    of.add_if(of.from_cache(), "clear", clear_tokens_without_slots);
    of.add_if(!loads_and_norms(of), of.from_cache() ? "load from the cache" : "load",
              loads[static_cast<int>(of.from)][is_scattered]);
}

void list_store(const Listing &of) noexcept {
    constexpr RunStep *stores[] = {store<Where::view>, store<Where::cache>, store<Where::tiles>};
    if (of.steps.scatters) {
        of.add("narrow", narrow_to_words);
        list_store_of_words(of);
        return;
    }
    of.add(of.to_cache() ? "store in the cache" : "store", stores[static_cast<int>(of.to)]);
}

void list_store_of_words(const Listing &of) noexcept {
    constexpr RunStep *stores[] = {store_words<Where::view>, store_words<Where::cache>, store_words<Where::tiles>,
                                   store_words<Where::units>};
    const bool has_units = of.to_cache() && of.stages.cache->has_units(of.tensor_plan.out_bytes);
    of.add(of.to_cache() ? "scatter to the cache" : "scatter",
           stores[static_cast<int>(has_units ? Where::units : of.to)]);
}

}  // namespace halyard
