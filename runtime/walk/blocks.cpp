// Stages work on one block after the other: some heads of some tokens in f32, dense [token][head][head_dim], which stay
// in the first-level cache.
#include "walk/blocks.h"

#include "base/transpose.h"
#include "walk/choose.h"
#include "walk/records.h"
#include "walk/rows.h"
#include "walk/run.h"
#include "walk/stages.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace halyard {

namespace {

constexpr std::int64_t block_floats = max_staged_block, head_floats = max_staged_head;
constexpr std::int64_t word_room = head_floats * std::int64_t{sizeof(float)};  // bytes
constexpr std::int64_t line_bytes = 64;                                        // of the CPU's caches

/// A thread's memory for blocks.
struct Workspace {
    alignas(64) float block[block_floats];
    alignas(64) float spare[head_floats];     // windows between two pairings, or words that are stored apart
    alignas(64) float r[head_floats];         // reciprocals of scales
    alignas(64) float widened[block_floats];  // a norm's weights, if they are no floats; in the second half its biases
    const float *weight = nullptr, *bias = nullptr;  // of the block's heads, in `widened` or where the caller has them
    RowNorm *row = nullptr;                          // the norm of a row that is longer than a block

    /// What neither windows nor scales need while records are read or written.
    RecordMemory memory_of_records() { return {reinterpret_cast<unsigned char *>(spare), r}; }
};
static_assert(head_floats * sizeof(float) >= record_room && head_floats >= numbers_of_groups * max_groups);

/// How many elements lie side by side where a tensor is stored, if that is no more than a few: 1, or those of a tile.
/// 0: so many that kernels write them there.
std::int64_t elements_of_unit(const TensorDesc &desc, const RunTensor &tensor) {
    std::int64_t stride = tensor.out.element;
    if (!desc.cache || desc.cache->is_linear(desc.out_dim(), &stride)) {
        return stride == 1 ? 0 : 1;
    }
    if (desc.cache->stride_element != 1) {
        return 1;
    }
    return is_unit(desc.cache->tile_elements * element_bytes(desc.out_dtype)) ? desc.cache->tile_elements : 0;
}

/// How many heads and tokens a block holds. A norm of rows needs all heads. Each head of a block may have an r.
Block size_of_block(const Run &run, int index, const Stretch &stretch) {
    const TensorDesc &desc = run.plan->tensors[index];
    Block block = {};
    // Weights of heads may need as much room as the heads.
    const std::int64_t head_room =
        desc.norm && desc.norm->layer && desc.norm->per_head ? block_floats / 2 : block_floats;
    block.n_heads = desc.norm && desc.norm->row ? std::min(stretch.n_heads, desc.norm->most_in_block() / desc.head_dim)
                                                : std::clamp<std::int64_t>(head_room / desc.head_dim, 1,
                                                                           std::min(stretch.n_heads, head_floats));
    const bool is_apart = elements_of_unit(desc, run.tensors[index]) != 0;
    const std::int64_t bytes = element_bytes(desc.out_dtype);
    if (is_apart && !(desc.norm && desc.norm->row)) {
        // Tokens lie side by side there, so that more of them make longer stores.
        const std::int64_t n_tokens = std::min(line_bytes / bytes, stretch.n_tokens);
        block.n_heads = std::clamp<std::int64_t>(head_room / (n_tokens * desc.head_dim), 1, block.n_heads);
    }
    const std::int64_t floats = desc.groups ? block_floats / 4 : block_floats;
    const std::int64_t room = std::min({floats / (block.n_heads * desc.head_dim), head_floats / block.n_heads,
                                        is_apart ? word_room / (desc.head_dim * bytes) : block_floats});
    block.n_tokens = std::clamp<std::int64_t>(room, 1, stretch.n_tokens);
    return block;
}

/// A norm's weights or biases if they are floats where the caller has them, else NULL.
const float *find_floats(const NormDesc &norm, const char *data) {
    const bool are_floats = norm.weight == Dtype::f32 && reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0;
    return are_floats ? reinterpret_cast<const float *>(data) : nullptr;
}

/// The caller's weights if a norm can read them as they are, else NULL.
const float *find_weight(const Run &run, int index) {
    const NormDesc &norm = *run.plan->tensors[index].norm;
    return norm.unit_offset ? nullptr : find_floats(norm, run.stages[index].data(weight_array));
}

/// Widens n of a norm's weights or biases from number `first` on. A norm that has none gets n times `neutral`.
void load_numbers(const Run &run, int index, const char *numbers, float neutral, std::int64_t first, std::int64_t n,
                  float *out) {
    if (numbers == nullptr) {
        std::fill_n(out, n, neutral);
        return;
    }
    const Dtype dtype = *run.plan->tensors[index].norm->weight;
    const char *const from = numbers + first * element_bytes(dtype);
    widen(plan_of(run).stage_kernels, dtype, {n, 1, 1}, {from, {1, 0, 0}}, {out, {1, 0, 0}});
}

void load_weight(const Run &run, int index, std::int64_t first, std::int64_t n, float *out) {
    const NormDesc &norm = *run.plan->tensors[index].norm;
    load_numbers(run, index, norm.weight ? run.stages[index].data(weight_array) : nullptr, 1.0f, first, n, out);
    for (std::int64_t i = 0; i < n && norm.unit_offset; i++) {
        out[i] = 1.0f + out[i];
    }
}

/// Finds or loads a norm's weights and biases for some heads, whose first is counted through all of the tensor.
void set_weights(const Run &run, int index, std::int64_t first_head, std::int64_t n_heads, Workspace &work) {
    const NormDesc &norm = *run.plan->tensors[index].norm;
    const std::int64_t n = norm.n_weights(n_heads), first = norm.row || norm.per_head ? first_head * norm.size : 0;
    const float *const weight = find_weight(run, index);
    if (weight == nullptr) {
        load_weight(run, index, first, n, work.widened);
    }
    work.weight = weight == nullptr ? work.widened : weight + first;
    if (!norm.layer) {
        return;
    }
    float *const second_half = work.widened + block_floats / 2;
    const char *const given = norm.has_bias ? run.stages[index].data(bias_array) : nullptr;
    const float *const bias = find_floats(norm, given);
    if (bias == nullptr) {
        load_numbers(run, index, given, -0.0f, first, n, second_half);  // not even a -0 is changed by adding that
    }
    work.bias = bias == nullptr ? second_half : bias + first;
}

Norm norm_of(const TensorDesc &desc, const float *weight, const float *bias = nullptr) {
    const std::int64_t stride_head = desc.norm->per_head ? desc.norm->size : 0;
    return {desc.norm->eps, weight, stride_head, desc.norm->rounding, desc.dtype, bias};
}

void norm_block(const Run &run, const TensorDesc &desc, const Block &block, Workspace &work) {
    if (work.row != nullptr) {
        work.row->take(norm_of(desc, work.weight, work.bias), desc.norm->count(block.n_heads), work.block);
        return;
    }
    const Extents extents = desc.norm->row ? Extents{desc.norm->count(block.n_heads), 1, block.n_tokens}
                                           : Extents{desc.norm->size, block.n_heads, block.n_tokens};
    normalise(plan_of(run).stage_kernels, norm_of(desc, work.weight, work.bias), extents,
              {work.block + desc.norm->offset, block.strides});
}

/// Elements of a block that lie evenly apart in a cache too: heads of some tokens, or the tiles of one head, which then
/// stand in the place of heads.
struct Cached {
    Extents extents;
    bool is_tiled;
    std::int64_t token, head, element, first;  // where they begin in the block; first is that in floats
    ElementStrides strides;
    std::int64_t offset;  // likewise in the cache, from slot 0 and the block's first head on
    ElementStrides cache_strides;
    std::int64_t n_runs, cache_run;  // all that n_runs times, each behind the tokens of the one before, cache_run apart
};

/// Calls function(token, stored, n_runs, stride_run) for all tokens that are stored among n from `first` on: for what
/// lies evenly apart, and for as many runs of tokens as have one shape and lie evenly apart themselves.
template <typename Function>
void for_each_run(const CheckedSlots &slots, const CacheDesc &cache, std::int64_t first, std::int64_t n,
                  const Function &function) {
    Stored one = {};
    std::int64_t first_token = 0, n_runs = 0, stride_run = 0;
    for_each_stored(slots, cache, first, n, [&](std::int64_t token, const Stored &stored) {
        const std::int64_t step = stored.offset - one.offset - (n_runs - 1) * stride_run;
        if (n_runs > 0 && token == first_token + n_runs * one.n_tokens && stored.n_tokens == one.n_tokens &&
            stored.stride_token == one.stride_token && (n_runs == 1 || step == stride_run)) {
            stride_run = step;
            n_runs++;
            return;
        }
        if (n_runs > 0) {
            function(first_token, one, n_runs, stride_run);
        }
        one = stored;
        first_token = token;
        n_runs = 1;
        stride_run = 0;
    });
    if (n_runs > 0) {
        function(first_token, one, n_runs, stride_run);
    }
}

/// Calls function(part) for all elements of a block that are stored, in as few parts as it takes.
template <typename Function>
void for_each_cached(const Run &run, const TensorDesc &desc, const Stretch &stretch, const Block &block,
                     const Function &function) {
    const CacheDesc &cache = *desc.cache;
    std::int64_t stride_element = 0;
    const bool is_linear = cache.is_linear(desc.head_dim, &stride_element);
    const std::int64_t tile = cache.tile_elements, n_tiles = desc.head_dim / tile;
    for_each_run(run.slots, cache, stretch.first + block.token, block.n_tokens,
                 [&](std::int64_t token, const Stored &stored, std::int64_t n_runs, std::int64_t stride_run) {
                     Cached part = {};
                     part.token = token;
                     part.n_runs = n_runs;
                     part.cache_run = stride_run;
                     part.first = token * block.strides.token;
                     part.offset = stored.offset;
                     if (is_linear) {
                         part.extents = {desc.head_dim, block.n_heads, stored.n_tokens};
                         part.strides = block.strides;
                         part.cache_strides = {stride_element, cache.stride_head, stored.stride_token};
                         function(part);
                         return;
                     }
                     // The rest at the end of a head is a shorter tile.
                     part.is_tiled = true;
                     part.strides = {1, tile, block.strides.token};
                     part.cache_strides = {cache.stride_element, cache.stride_tile_elements, stored.stride_token};
                     for (part.head = 0; part.head < block.n_heads; part.head++) {
                         for (const bool is_rest : {false, true}) {
                             part.element = is_rest ? n_tiles * tile : 0;
                             part.extents = is_rest ? Extents{desc.head_dim - part.element, 1, stored.n_tokens}
                                                    : Extents{tile, n_tiles, stored.n_tokens};
                             part.first = token * block.strides.token + part.head * block.strides.head + part.element;
                             part.offset = stored.offset + part.head * cache.stride_head +
                                           part.element / tile * cache.stride_tile_elements;
                             if (part.extents.n_elements > 0 && part.extents.n_heads > 0) {
                                 function(part);
                             }
                         }
                     }
                 });
}

/// Loads keys from a cache. Tokens that have no slot get zeros.
void load_by_slot(const Run &run, int index, const Stretch &stretch, const Block &block, Workspace &work) {
    const TensorDesc &desc = run.plan->tensors[index];
    const char *const from = stretch.x + block.head * desc.cache->stride_head * element_bytes(desc.dtype);
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        if (run.slots.of_token(stretch.first + block.token + token) < 0) {
            std::fill_n(work.block + token * block.strides.token, block.n_heads * block.strides.head, 0.0f);
        }
    }
    for_each_cached(run, desc, stretch, block, [&](const Cached &part) {
        for (std::int64_t i = 0; i < part.n_runs; i++) {
            widen(plan_of(run).stage_kernels, desc.dtype, part.extents,
                  {from + (part.offset + i * part.cache_run) * element_bytes(desc.dtype), part.cache_strides},
                  {work.block + part.first + i * part.extents.n_tokens * part.strides.token, part.strides});
        }
    });
}

/// Loads a block, and norms it if the norm comes before the rotation.
void load(const Run &run, int index, const Stretch &stretch, const Block &block, Workspace &work) {
    const TensorDesc &desc = run.plan->tensors[index];
    if (desc.from_groups) {
        load_records(run, index, stretch, block, work.block, work.memory_of_records());
        if (desc.norm && !desc.norm->after) {
            norm_block(run, desc, block, work);
        }
        return;
    }
    if (desc.cache && run.plan->rerotates) {
        load_by_slot(run, index, stretch, block, work);
        return;
    }
    const RunTensor::Strides &in = run.tensors[index].in;
    const Extents extents = {desc.head_dim, block.n_heads, block.n_tokens};
    const Elements<const char> x = {stretch.x + (block.token * stretch.in_token + block.head * in.head) *
                                                    element_bytes(desc.dtype),
                                    {in.element, in.head, stretch.in_token}};
    const Elements<float> floats = {work.block, block.strides};
    if (desc.norm && !desc.norm->after && !desc.norm->row && desc.norm->size == desc.head_dim) {
        widen_and_normalise(plan_of(run).stage_kernels, desc.dtype, norm_of(desc, work.weight, work.bias), extents, x,
                            floats);
        return;
    }
    widen(plan_of(run).stage_kernels, desc.dtype, extents, x, floats);
    if (desc.norm && !desc.norm->after) {
        norm_block(run, desc, block, work);
    }
}

void rotate_block(const Run &run, int index, const Rows &rows, const Block &block, Workspace &work) {
    const TensorDesc &desc = run.plan->tensors[index];
    const std::int64_t rotary_dim = run.plan->rotary_dim;
    const bool converts = desc.pairing != desc.out_pairing;
    // If the pairing changes, as many heads at a time as `spare` holds are rotated into it and copied back.
    const std::int64_t room = converts ? head_floats / rotary_dim : block.n_heads * block.n_tokens;
    const std::int64_t n_heads = std::min(block.n_heads, room);
    const std::int64_t n_tokens = std::min(block.n_tokens, room / n_heads);
    Piece piece = {};
    piece.dtype = Dtype::f32;
    piece.n_pairs = rotary_dim / 2;
    piece.within_int32 = true;
    set_pair_strides({0, 0, block.strides.head, 1}, desc.pairing, piece.n_pairs, block.strides.token, piece.in);
    for (std::int64_t token = 0; token < block.n_tokens; token += n_tokens) {
        for (std::int64_t head = 0; head < block.n_heads; head += n_heads) {
            float *const window =
                work.block + token * block.strides.token + head * block.strides.head + desc.rotary_offset;
            piece.n_heads = std::min(n_heads, block.n_heads - head);
            piece.n_tokens = std::min(n_tokens, block.n_tokens - token);
            rows.turn(piece, run.plan->sin_sign, block.token + token);
            piece.x = reinterpret_cast<const char *>(window);
            piece.y = reinterpret_cast<char *>(converts ? work.spare : window);
            piece.out = piece.in;
            if (converts) {
                set_pair_strides({0, 0, rotary_dim, 1}, desc.out_pairing, piece.n_pairs, piece.n_heads * rotary_dim,
                                 piece.out);
            }
            rotate_piece(*plan_of(run).chosen[index].in_blocks, piece);
            const float *from = work.spare;
            for (std::int64_t t = 0; t < piece.n_tokens && converts; t++) {
                for (std::int64_t h = 0; h < piece.n_heads; h++, from += rotary_dim) {
                    std::memcpy(window + t * block.strides.token + h * block.strides.head, from,
                                static_cast<std::size_t>(rotary_dim) * sizeof(float));
                }
            }
        }
    }
}

/// Transforms a block, or some heads of each of its tokens.
void transform_heads(const Run &run, const TensorDesc &desc, const Block &block, float *heads) {
    const std::int64_t n = block.n_heads * desc.head_dim;
    const bool is_dense = n == block.strides.token;
    for (std::int64_t token = 0; token < (is_dense ? 1 : block.n_tokens); token++) {
        transform(plan_of(run).stage_kernels, desc.hadamard, is_dense ? block.n_tokens * n : n,
                  heads + token * block.strides.token);
    }
}

/// Makes and writes the dynamic scales of a block, and sets r. The block of a key that moves has not been multiplied by
/// the key's old scale, so the old scale goes into the new one and into r.
void scale_dynamically(const Run &run, int index, const Stretch &stretch, const Block &block, const float *heads,
                       float *r) {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunStages &stages = run.stages[index];
    find_largest(plan_of(run).stage_kernels, {desc.head_dim, block.n_heads, block.n_tokens}, {heads, block.strides}, r);
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        const std::int64_t of_stretch = block.token + token;
        const std::int64_t row = desc.cache ? run.slots.of_token(stretch.first + of_stretch) : of_stretch;
        for (std::int64_t head = 0; head < block.n_heads; head++, r++) {
            const std::int64_t at = row * stretch.scales_token + (block.head + head) * stages.stride_head;
            char *const where = stretch.scales_out + at * std::int64_t{sizeof(float)};
            const float before = run.plan->rerotates && row >= 0 ? load_scale(where) : 1.0f;
            // The rotation may turn the longest pair into one element, for which no finite scale is large enough.
            const float scale =
                std::min(before * (*r / greatest_of(desc.out_dtype)), std::numeric_limits<float>::max());
            const float used = scale >= std::numeric_limits<float>::min() ? scale : 1.0f;  // below, it is not normal
            *r = before / used;
            if (row >= 0) {
                store_scale(where, used);
            }
        }
    }
}

/// The reciprocals of the static scales of a block's heads.
ElementStrides load_scales(const Run &run, int index, const Stretch &stretch, const Block &block, float *r) {
    const TensorDesc &desc = run.plan->tensors[index];
    const std::int64_t first = desc.scale->by_head ? stretch.first_head + block.head : 0;
    const std::int64_t n = desc.scale->count(block.n_heads);
    widen_words<F32>(run.stages[index].data(scales_array), first, n, r);
    for (std::int64_t i = 0; i < n; i++) {
        r[i] = 1.0f / r[i];
    }
    return {0, desc.scale->by_head ? 1 : 0, 0};
}

/// The scales by position of a block's heads, [token][head].
void load_position_scales(const Run &run, int index, const Stretch &stretch, const Block &block, float *s) {
    const std::int64_t stride_head = run.stages[index].position_strides[2];
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        for (std::int64_t head = 0; head < block.n_heads; head++, s++) {
            const std::int64_t at =
                (block.token + token) * stretch.position_scales_token + (block.head + head) * stride_head;
            *s = read_word<float>(stretch.position_scales + at * std::int64_t{sizeof(float)});
        }
    }
}

/// Multiplies each head of a block by a factor, [token][head].
void scale_heads(const TensorDesc &desc, const Block &block, const float *s, float *heads) {
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        for (std::int64_t head = 0; head < block.n_heads; head++, s++) {
            float *const to = heads + token * block.strides.token + head * block.strides.head;
            for (std::int64_t i = 0; i < desc.head_dim; i++) {
                to[i] *= *s;
            }
        }
    }
}

/// Stores heads of a block's tokens in a cache.
void store_by_slot(const Run &run, const TensorDesc &desc, const Stretch &stretch, const Block &block,
                   const float *heads, const Elements<const float> &r, char *y) {
    const ElementStrides &by = r.strides;
    for_each_cached(run, desc, stretch, block, [&](const Cached &part) {
        for (std::int64_t i = 0; i < part.n_runs; i++) {
            const std::int64_t token = i * part.extents.n_tokens;
            const Elements<const float> its_r = {r.data + (part.token + token) * by.token + part.head * by.head,
                                                 {0, part.is_tiled ? 0 : by.head, by.token}};
            narrow(plan_of(run).stage_kernels, desc.out_dtype, part.extents,
                   {heads + part.first + token * part.strides.token, part.strides}, its_r,
                   {y + (part.offset + i * part.cache_run) * element_bytes(desc.out_dtype), part.cache_strides});
        }
    });
}

/// Copies a part of words that lie apart in a cache. If `by_tiles`, a tile is a unit.
void copy_words(std::int64_t bytes, bool by_tiles, const Cached &part, const char *words, char *y) {
    const Extents &n = part.extents;
    const ElementStrides &from = part.strides, &to = part.cache_strides;
    const std::int64_t from_run = n.n_tokens * from.token * bytes, to_run = part.cache_run * bytes;
    if (by_tiles) {
        copy_units(bytes * n.n_elements, n.n_heads, part.n_runs, n.n_tokens,
                   {words, from.head * bytes, from_run, from.token * bytes},
                   {y, to.head * bytes, to_run, to.token * bytes});
        return;
    }
    for (std::int64_t h = 0; h < n.n_heads; h++) {  // in whose memory runs are often neighbours
        copy_units(bytes, n.n_elements, part.n_runs, n.n_tokens,
                   {words + h * from.head * bytes, from.element * bytes, from_run, from.token * bytes},
                   {y + h * to.head * bytes, to.element * bytes, to_run, to.token * bytes});
    }
}

/// Copies the words of a block, which are dense, to where its elements lie apart.
void store_words(const Run &run, int index, const Stretch &stretch, const Block &block, const char *words) {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunTensor::Strides &out = run.tensors[index].out;
    const std::int64_t bytes = element_bytes(desc.out_dtype), unit = elements_of_unit(desc, run.tensors[index]);
    if (!desc.cache) {
        char *const y = stretch.y + (block.head * out.head + block.token * stretch.out_token) * bytes;
        const ElementStrides &from = block.strides;
        copy_units(bytes, desc.head_dim, block.n_heads, block.n_tokens,
                   {words, from.element * bytes, from.head * bytes, from.token * bytes},
                   {y, out.element * bytes, out.head * bytes, stretch.out_token * bytes});
        return;
    }
    char *const y = stretch.y + block.head * desc.cache->stride_head * bytes;
    for_each_cached(run, desc, stretch, block, [&](const Cached &part) {
        const bool by_tiles = part.is_tiled && unit > 1 && part.extents.n_elements == unit;
        copy_words(bytes, by_tiles, part, words + part.first * bytes, y + part.offset * bytes);
    });
}

/// Stores heads of a block where their elements lie apart: narrowed to dense words, which are copied then. (Of kernels
/// that would write few elements each, there would be too many calls.)
void store_apart(const Run &run, int index, const Stretch &stretch, Block block, const float *heads,
                 const Elements<const float> &r, Workspace &work) {
    const TensorDesc &desc = run.plan->tensors[index];
    const Elements<const float> floats = {heads, block.strides};
    char *const words = reinterpret_cast<char *>(work.spare);
    block.strides = {1, desc.head_dim, block.n_heads * desc.head_dim};
    narrow(plan_of(run).stage_kernels, desc.out_dtype, {desc.head_dim, block.n_heads, block.n_tokens}, floats, r,
           {words, block.strides});
    store_words(run, index, stretch, block, words);
}

/// Scales and stores a block, as many heads at a time as r has room for.
void store(const Run &run, int index, const Stretch &stretch, const Block &whole, Workspace &work) {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunTensor::Strides &out = run.tensors[index].out;
    const std::int64_t out_head = desc.cache ? desc.cache->stride_head : out.head;
    const bool is_apart = !desc.groups && elements_of_unit(desc, run.tensors[index]) != 0;
    const std::int64_t of_words = word_room / (whole.n_tokens * desc.head_dim * element_bytes(desc.out_dtype));
    const std::int64_t room = is_apart ? std::min(of_words, head_floats) : head_floats;
    Block block = whole;
    for (std::int64_t head = 0; head < whole.n_heads; head += room) {
        block.head = whole.head + head;
        block.n_heads = std::min(room, whole.n_heads - head);
        float *const heads = work.block + head * block.strides.head;
        Elements<const float> r = {work.r, {0, 0, 0}};
        work.r[0] = 1.0f;
        if (desc.position_scales) {
            load_position_scales(run, index, stretch, block, work.r);
            if (desc.scale || desc.groups || desc.hadamard != 0) {
                scale_heads(desc, block, work.r, heads);
                work.r[0] = 1.0f;
            } else {
                r.strides = {0, 1, block.n_heads};  // it takes the place of a scale, without a pass of its own
            }
        }
        if (desc.hadamard != 0) {
            transform_heads(run, desc, block, heads);
        }
        if (desc.groups) {
            store_records(run, index, stretch, block, heads, work.memory_of_records());
            continue;
        }
        if (desc.scale && desc.scale->dynamic) {
            scale_dynamically(run, index, stretch, block, heads, work.r);
            r.strides = {0, 1, block.n_heads};
        } else if (desc.scale && !run.plan->rerotates) {
            r.strides = load_scales(run, index, stretch, block, work.r);
        }
        if (is_apart) {
            store_apart(run, index, stretch, block, heads, r, work);
            continue;
        }
        char *y = stretch.y + block.head * out_head * element_bytes(desc.out_dtype);
        if (desc.cache) {
            store_by_slot(run, desc, stretch, block, heads, r, y);
            continue;
        }
        y += block.token * stretch.out_token * element_bytes(desc.out_dtype);
        narrow(plan_of(run).stage_kernels, desc.out_dtype, {desc.head_dim, block.n_heads, block.n_tokens},
               {heads, block.strides}, r, {y, {out.element, out.head, stretch.out_token}});
    }
}

/// Whether one kernel can norm whole heads and rotate them, so that no block is needed.
bool is_one_stage(const TensorDesc &desc, const RunTensor &tensor, std::int64_t rotary_dim) {
    return desc.norm && !desc.norm->layer && !desc.norm->per_head && !desc.norm->after && !desc.norm->row &&
           (desc.norm->rounding == 0 || desc.dtype == Dtype::f32) && desc.norm->size == desc.head_dim && desc.rotates &&
           rotary_dim == desc.head_dim && rotary_dim / 2 % whole_vectors == 0 && desc.pairing == Pairing::half &&
           desc.out_pairing == Pairing::half && desc.dtype == desc.out_dtype && !desc.groups && !desc.position_scales &&
           desc.hadamard == 0 && !desc.scale && tensor.in.element == 1;
}

/// Whether elements of a head lie side by side in y.
bool is_dense(const TensorDesc &desc, const RunTensor &tensor) {
    std::int64_t stride_element = tensor.out.element;
    return (!desc.cache || desc.cache->is_linear(desc.head_dim, &stride_element)) && stride_element == 1;
}

/// Norms and rotates tokens that lie evenly apart by one kernel.
void norm_and_rotate_evenly(const Run &run, int index, const RunTensor &tensor, const Stretch &stretch,
                            const Rows &rows, const float *weight) {
    const TensorDesc &desc = run.plan->tensors[index];
    Piece piece = {};
    piece.dtype = desc.dtype;
    piece.n_pairs = run.plan->rotary_dim / 2;
    piece.n_heads = stretch.n_heads;
    piece.n_tokens = stretch.n_tokens;
    piece.x = stretch.x;
    piece.y = stretch.y;
    piece.within_int32 = tensor.within_int32;
    set_pair_strides(tensor.in, Pairing::half, piece.n_pairs, stretch.in_token, piece.in);
    set_pair_strides(tensor.out, Pairing::half, piece.n_pairs, stretch.out_token, piece.out);
    rows.turn(piece, run.plan->sin_sign, 0);
    norm_and_rotate(plan_of(run).stage_kernels, norm_of(desc, weight), piece);
}

/// Norms, rotates and stores a stretch by one kernel. A call does as many tokens as lie evenly apart in the cache.
void norm_and_rotate_stretch(const Run &run, int index, const Stretch &stretch, const Rows &rows, const float *weight) {
    const TensorDesc &desc = run.plan->tensors[index];
    const auto take = [&](const Stretch &part, const Rows &its) {
        norm_and_rotate_evenly(run, index, run.tensors[index], part, its, weight);
    };
    if (desc.cache) {
        for_each_part(run, desc, stretch, rows, take);
    } else {
        take(stretch, rows);
    }
}

/// The same with weights that have to be widened.
[[gnu::noinline]] void widen_norm_and_rotate_stretch(const Run &run, int index, const Stretch &stretch,
                                                     const Rows &rows) {
    alignas(64) float weight[head_floats];
    load_weight(run, index, 0, run.plan->tensors[index].head_dim, weight);
    norm_and_rotate_stretch(run, index, stretch, rows, weight);
}

/// The whole road of a block, or as far as a round of sums goes.
void take_block(const Run &run, int index, const Stretch &stretch, const Rows &rows, Block &block, Workspace &work) {
    const TensorDesc &desc = run.plan->tensors[index];
    const bool only_sums = work.row != nullptr && work.row->is_summing();
    block.strides = {1, desc.head_dim, block.n_heads * desc.head_dim};
    load(run, index, stretch, block, work);
    if (only_sums && !desc.norm->after) {
        return;
    }
    if (desc.hadamard != 0 && run.plan->rerotates) {  // as it was stored; the transform is its own inverse
        transform_heads(run, desc, block, work.block);
    }
    if (desc.rotates) {
        rotate_block(run, index, rows, block, work);
    }
    if (desc.norm && desc.norm->after) {
        norm_block(run, desc, block, work);
    }
    if (!only_sums) {
        store(run, index, stretch, block, work);
    }
}

/// The whole road, block by block.
[[gnu::noinline]] void take_blocks(const Run &run, int index, const Stretch &stretch, const Rows &rows) {
    const TensorDesc &desc = run.plan->tensors[index];
    Workspace work;
    Block block = size_of_block(run, index, stretch);
    const std::int64_t n_heads = block.n_heads, n_tokens = block.n_tokens;
    for (block.head = 0; block.head < stretch.n_heads; block.head += n_heads) {
        block.n_heads = std::min(n_heads, stretch.n_heads - block.head);
        if (desc.norm && (block.head == 0 || desc.norm->per_head)) {
            set_weights(run, index, stretch.first_head + block.head, block.n_heads, work);
        }
        for (block.token = 0; block.token < stretch.n_tokens; block.token += n_tokens) {
            block.n_tokens = std::min(n_tokens, stretch.n_tokens - block.token);
            take_block(run, index, stretch, rows, block, work);
        }
    }
}

/// Stores a stretch where its elements lie apart, if one call makes all its words: it makes them dense, and they are
/// copied.
[[gnu::noinline]] void take_words(const Run &run, int index, const Stretch &stretch, const Rows &rows) {
    const TensorDesc &desc = run.plan->tensors[index];
    const std::int64_t bytes = element_bytes(desc.dtype);
    Workspace work;
    char *const words = reinterpret_cast<char *>(work.block);
    RunTensor dense = run.tensors[index];
    Block block = size_of_block(run, index, stretch);
    const std::int64_t n_heads = block.n_heads, n_tokens = block.n_tokens;
    dense.in_place = dense.non_temporal = false;
    dense.out = {0, n_heads * desc.head_dim, desc.head_dim, 1};
    dense.kernel = desc.rotates ? &choose_kernel(run, index, dense, dense.out.token, Place::out_of_place) : nullptr;
    if (desc.norm) {
        set_weights(run, index, 0, 1, work);
    }
    Stretch part = stretch;
    Rows its = rows;
    part.y = words;
    for (block.head = 0; block.head < stretch.n_heads; block.head += n_heads) {
        part.n_heads = block.n_heads = std::min(n_heads, stretch.n_heads - block.head);
        part.out_token = block.n_heads * desc.head_dim;
        block.strides = {1, desc.head_dim, part.out_token};
        for (block.token = 0; block.token < stretch.n_tokens; block.token += n_tokens) {
            part.n_tokens = block.n_tokens = std::min(n_tokens, stretch.n_tokens - block.token);
            part.x = stretch.x + (block.head * dense.in.head + block.token * stretch.in_token) * bytes;
            its.row_of_token = desc.rotates ? rows.row_of_token + block.token : nullptr;
            if (desc.norm) {
                norm_and_rotate_evenly(run, index, dense, part, its, work.weight);
            } else {
                rotate_stretch(run, index, dense, part, its);
            }
            store_words(run, index, stretch, block, words);
        }
    }
}

/// The same with a norm of rows that are longer than a block: each round goes over all blocks of a token.
[[gnu::noinline]] void take_long_rows(const Run &run, int index, const Stretch &stretch, const Rows &rows) {
    const TensorDesc &desc = run.plan->tensors[index];
    Workspace work;
    Block block = size_of_block(run, index, stretch);
    const std::int64_t n_heads = block.n_heads;
    block.n_tokens = 1;
    for (block.token = 0; block.token < stretch.n_tokens; block.token++) {
        RowNorm row(desc.norm->layer);
        work.row = &row;
        do {
            for (block.head = 0; block.head < stretch.n_heads; block.head += n_heads) {
                block.n_heads = std::min(n_heads, stretch.n_heads - block.head);
                if (!row.is_summing()) {
                    set_weights(run, index, block.head, block.n_heads, work);
                }
                take_block(run, index, stretch, rows, block, work);
            }
        } while (row.end_round(desc.norm->eps));
    }
}

}  // namespace

bool only_lies_apart(const PlanDesc &plan, const TensorDesc &desc) noexcept {
    return desc.cache && !plan.rerotates && desc.dtype == desc.out_dtype && !is_8_bit(desc.dtype) && !desc.norm &&
           !desc.groups && !desc.from_groups && !desc.position_scales && desc.hadamard == 0 && !desc.scale &&
           elements_of_unit(desc, RunTensor{}) != 0;
}

// These but norm_and_rotate_stretch have large stack frames and are not inlined. Weights evict the stack from the
// cache, so small calls must not touch such frames.
void take_road(const Run &run, int index, const Stretch &stretch, const Rows &rows) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunTensor &tensor = run.tensors[index];
    const bool is_one = is_one_stage(desc, tensor, run.plan->rotary_dim);
    const bool is_apart = elements_of_unit(desc, tensor) != 0;
    if (desc.norm && desc.norm->row && stretch.n_heads > desc.norm->most_in_block() / desc.head_dim) {
        take_long_rows(run, index, stretch, rows);
    } else if ((is_one && is_apart) || only_lies_apart(*run.plan, desc)) {
        take_words(run, index, stretch, rows);
    } else if (!is_one || !is_dense(desc, tensor)) {
        take_blocks(run, index, stretch, rows);
    } else if (const float *weight = find_weight(run, index)) {
        norm_and_rotate_stretch(run, index, stretch, rows, weight);
    } else {
        widen_norm_and_rotate_stretch(run, index, stretch, rows);
    }
}

Stored find_stored(const CheckedSlots &slots, const CacheDesc &cache, std::int64_t first, std::int64_t n) noexcept {
    Stored stored = {0, 0, 0, 0};
    std::int64_t slot = -1;
    while (stored.first < n && (slot = slots.of_token(first + stored.first)) < 0) {
        stored.first++;
    }
    if (slot < 0) {
        return stored;
    }
    stored.offset = cache.offset_of(slot);
    std::int64_t last = stored.offset;
    for (stored.n_tokens = 1; stored.first + stored.n_tokens < n; stored.n_tokens++) {
        slot = slots.of_token(first + stored.first + stored.n_tokens);
        const std::int64_t offset = slot < 0 ? last : cache.offset_of(slot), step = offset - last;
        // Two tokens with one slot take two calls, so that the later one is kept.
        if (step == 0 || (stored.n_tokens > 1 && step != stored.stride_token)) {
            break;
        }
        stored.stride_token = step;
        last = offset;
    }
    return stored;
}

}  // namespace halyard
