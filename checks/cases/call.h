// The structs of a call, and the addresses of the elements that they describe, computed from halyard.h's words alone.
#pragma once

#include "checks/oracle.h"
#include "checks/record_oracle.h"
#include "checks/sized.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

namespace cases {

inline std::int64_t or_else(std::int64_t value, std::int64_t other) { return value != 0 ? value : other; }

/// A struct of the C ABI whose size field is set and whose other fields are zero.
template <typename Struct>
struct Sized : Struct {
    Sized() : Struct(sized<Struct>()) {}
    using Struct::operator=;
};

/// A run's structs, which point to each other; in a copy, they point to the copy's. Omitted fields are NULL or 0.
struct RunStructs {
    Sized<halyard_tensor> x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    Sized<halyard_stages> stages[HALYARD_MAX_TENSORS];
    Sized<halyard_slots> slots;
    Sized<halyard_positions> positions, from_positions;
    Sized<halyard_kv_args> kv_args;  // args.kv points here, or is NULL if the run has no KV arguments
    Sized<halyard_run_args> args;

    RunStructs() {
        args.x = x;
        args.y = y;
    }
    RunStructs(const RunStructs &other) {
        std::memcpy(static_cast<void *>(this), &other, sizeof(other));
        const auto redirect = [](auto &pointer, auto *to) { pointer = pointer != nullptr ? to : nullptr; };
        redirect(args.x, x);
        redirect(args.y, y);
        redirect(args.positions, &positions);
        redirect(args.kv, &kv_args);
        redirect(kv_args.stages, stages);
        redirect(kv_args.slots, &slots);
        redirect(kv_args.from_positions, &from_positions);
    }
    RunStructs &operator=(const RunStructs &) = delete;
};

/// The structs that describe a call: those of its plan and those of its run.
struct Call : RunStructs {
    Sized<halyard_plan_desc> plan;
    Sized<halyard_tensor_desc> tensors[HALYARD_MAX_TENSORS];
    Sized<halyard_kv_desc> kv[HALYARD_MAX_TENSORS];
    Sized<halyard_norm_desc> norms[HALYARD_MAX_TENSORS];
    Sized<halyard_scale_desc> scales[HALYARD_MAX_TENSORS];
    Sized<halyard_cache_desc> caches[HALYARD_MAX_TENSORS];
    Sized<halyard_groups_desc> groups[HALYARD_MAX_TENSORS], from_groups[HALYARD_MAX_TENSORS];

    Call() {
        plan.tensors = tensors;
        for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
            tensors[i].kv = &kv[i];
        }
    }
    Call(const Call &) = delete;

    int n() const { return plan.n_tensors; }
    /// The quantisation groups of the input or of the output; NULL if it has none. A re-rotation has the same for both.
    const halyard_groups_desc *groups_of(int i, bool is_input) const {
        return is_input && plan.rerotates == 0 ? kv[i].from_groups : kv[i].groups;
    }
    std::int32_t in_dtype(int i) const { return groups_of(i, true) != nullptr ? HALYARD_UINT8 : tensors[i].dtype; }
    std::int32_t out_dtype(int i) const {
        return groups_of(i, false) != nullptr ? HALYARD_UINT8
               : kv[i].out_dtype != 0         ? kv[i].out_dtype
                                              : tensors[i].dtype;
    }
    /// The dtype of stages of tensor i that round to the input's dtype. If the input consists of records, it is f32.
    std::int32_t dtype_of_stages(int i) const { return in_dtype(i) == HALYARD_UINT8 ? HALYARD_F32 : in_dtype(i); }
    oracle::Record record_of(int i, bool is_input) const {
        return oracle::record_of(*groups_of(i, is_input), tensors[i].head_dim);
    }
    /// The size of a head in memory: head_dim elements, or the bytes of its record.
    std::int64_t elements_per_head(int i, bool is_input) const {
        return groups_of(i, is_input) != nullptr ? record_of(i, is_input).bytes : tensors[i].head_dim;
    }
    std::int32_t out_pairing(int i) const {
        return tensors[i].out_pairing != 0 ? tensors[i].out_pairing : tensors[i].pairing;
    }
    /// Over how many elements tensor i's norm takes the mean: those of all heads, of one head, or of a window of it.
    std::int64_t norm_size(int i) const {
        const halyard_norm_desc &norm = *kv[i].norm;
        return norm.width == HALYARD_NORM_ROW ? x[i].shape[2] * tensors[i].head_dim
                                              : or_else(norm.window_size, tensors[i].head_dim - norm.window_offset);
    }
    std::int64_t n_batch() const { return x[0].shape[0]; }
    std::int64_t n_tokens() const { return x[0].shape[1]; }
    bool is_dynamic(int i) const { return kv[i].scale != nullptr && kv[i].scale->kind == HALYARD_SCALE_DYNAMIC; }
    bool rotates() const {
        return std::any_of(kv, kv + n(), [](const auto &each) { return each.no_rotation == 0; });
    }
    /// Whether a tensor has no elements.
    bool is_empty(int i) const { return std::count(x[i].shape, x[i].shape + 4, 0) > 0; }
    /// Whether a run writes into a cache, be it to store or to re-rotate.
    bool stores() const {
        for (int i = 0; i < n(); i++) {
            if (kv[i].cache != nullptr && !is_empty(i)) {
                return true;
            }
        }
        return false;
    }
    /// The scratch that a run uses; NULL if it uses none.
    void *scratch() const {
        return kv_args.slots != nullptr && slots.policy == HALYARD_SLOTS_CHECK && stores() ? slots.scratch : nullptr;
    }
    /// How many bytes of scratch a run may write: a bit for each slot of the smallest cache.
    std::int64_t scratch_bytes() const {
        std::int64_t n_slots = std::numeric_limits<std::int64_t>::max();
        for (int i = 0; i < n(); i++) {
            n_slots = kv[i].cache != nullptr ? std::min(n_slots, kv[i].cache->n_slots) : n_slots;
        }
        return (n_slots - 1) / 8 + 1;
    }
    bool has_cache() const {
        return std::any_of(kv, kv + n(), [](const auto &each) { return each.cache != nullptr; });
    }
    /// Whether a tensor's error bounds hold for any input bits. They do not if elements affect others, as in a norm.
    bool bounds_hold_for_any_bits(int i) const {
        return plan.rerotates == 0 && kv[i].norm == nullptr && !is_dynamic(i) && groups_of(i, true) == nullptr;
    }
};

/// The size of an element; 4 for an invalid dtype.
inline std::int64_t bytes_of(std::int32_t dtype) {
    return dtype >= HALYARD_F32 && dtype <= HALYARD_UINT8 ? oracle::element_bytes(dtype) : 4;
}

/// The span of an array's memory: from `low` to `high`, in bytes relative to its first element.
struct Extent {
    std::int64_t bytes;  // of an element
    __int128 low = 0, high = bytes;

    explicit Extent(std::int64_t of_element, std::int64_t count = 1) : bytes(of_element) { add(count, 1); }
    Extent &add(std::int64_t count, std::int64_t stride) {
        constexpr __int128 far_away = __int128{1} << 80;
        const __int128 reach = __int128{std::max<std::int64_t>(count, 1) - 1} * stride;
        (reach < 0 ? low : high) += std::clamp(reach, -far_away, far_away) * bytes;
        return *this;
    }
    /// Whether the span is larger than any machine's memory, so that the library must refuse the array.
    bool is_absurd() const { return high - low > __int128{1} << 60; }
};

// ---- Where arrays lie ----------------------------------------------------------------------------------------------

/// A product that wraps around, because products of fuzzers' numbers may overflow, and so may products of the stride of
/// a dimension of size 0 or 1.
inline std::int64_t wrapping_product(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

/// The first element of an array, and the size and stride (in elements) of each dimension.
struct Array {
    struct Dimension {
        std::int64_t count, stride;
    };
    const void *first;
    std::int64_t bytes;  // of an element
    std::array<Dimension, 6> dimensions;

    Extent extent() const {
        Extent extent(bytes);
        for (const Dimension &each : dimensions) {
            extent.add(each.count, each.stride);
        }
        return extent;
    }
    /// The address of the element with these indices. If no call reads or writes the array, its
    /// strides may lead outside of its memory.
    char *at(const std::array<std::int64_t, 6> &index) const {
        auto address = reinterpret_cast<std::uintptr_t>(first);
        for (std::size_t i = 0; i < index.size(); i++) {
            address +=
                static_cast<std::uintptr_t>(wrapping_product(wrapping_product(index[i], dimensions[i].stride), bytes));
        }
        return reinterpret_cast<char *>(address);
    }
};

inline std::int64_t bytes_of_number(std::int32_t type) { return type == HALYARD_INT64 ? 8 : 4; }

inline Array array_of(const halyard_tensor &t) {
    return {t.data,
            bytes_of(t.dtype),
            {{{t.shape[0], t.strides[0]},
              {t.shape[1], t.strides[1]},
              {t.shape[2], t.strides[2]},
              {t.shape[3], t.strides[3]}}}};
}
inline Array array_of(const halyard_slots &slots) {
    return {slots.data,
            bytes_of_number(slots.type),
            {{{slots.shape[0], slots.strides[0]}, {slots.shape[1], slots.strides[1]}}}};
}
inline Array array_of(const halyard_positions &p) {
    return {p.data,
            bytes_of_number(p.type),
            {{{p.shape[0], p.strides[0]}, {p.shape[1], p.strides[1]}, {p.n_axes, p.stride_axis}}}};
}
Extent extent_of(const auto &view) { return array_of(view).extent(); }

inline void write_number(std::int32_t type, char *at, std::int64_t value) {
    const auto narrow = static_cast<std::int32_t>(value);
    type == HALYARD_INT64 ? std::memcpy(at, &value, 8) : std::memcpy(at, &narrow, 4);
}
inline std::int64_t read_number(std::int32_t type, const char *at) {
    std::int64_t value = 0;
    std::int32_t narrow = 0;
    type == HALYARD_INT64 ? std::memcpy(&value, at, 8) : std::memcpy(&narrow, at, 4);
    return type == HALYARD_INT64 ? value : narrow;
}
inline float read_real(std::int32_t dtype, const void *at) {
    return oracle::widen(dtype, oracle::read_word(dtype, at));
}
inline void write_real(std::int32_t dtype, const void *at, float value) {
    oracle::write_word(dtype, const_cast<void *>(at), oracle::narrow(dtype, value));
}

/// The address of a position on an axis, or of a slot: that of token t of batch row b.
inline char *place_of_number(const halyard_positions &p, std::int64_t axis, std::int64_t b, std::int64_t t) {
    return array_of(p).at({p.shape[0] > 1 ? b : 0, p.consecutive != 0 ? 0 : t, p.n_axes > 1 ? axis : 0});
}
inline char *place_of_number(const halyard_slots &slots, std::int64_t b, std::int64_t t) {
    return array_of(slots).at({b, slots.consecutive != 0 ? 0 : t});
}
inline std::int64_t position_of(const halyard_positions *positions, std::int64_t axis, std::int64_t b, std::int64_t t) {
    if (positions == nullptr) {
        return t;
    }
    const std::int64_t number = read_number(positions->type, place_of_number(*positions, axis, b, t));
    const std::int64_t later = positions->consecutive != 0 ? t : 0;
    return number > INT64_MAX - later ? INT64_MAX : number + later;  // a bad start may be as large as INT64_MAX
}
/// The slot of a token; -1 if it has none.
inline std::int64_t slot_of(const Call &call, std::int64_t b, std::int64_t t) {
    const std::int64_t slot = read_number(call.slots.type, place_of_number(call.slots, b, t));
    const auto later = static_cast<std::uint64_t>(slot) + static_cast<std::uint64_t>(t);  // slot may be huge
    return call.slots.consecutive == 0 || slot == -1 ? slot : static_cast<std::int64_t>(later);
}

struct Head {
    std::int64_t batch, token, head;
};

inline char *place_in(const halyard_tensor &tensor, const Head &at, std::int64_t d) {
    return array_of(tensor).at({at.batch, at.token, at.head, d});
}

/// A tensor's cache as an array [block, head, tile of tokens, token in tile, tile of elements, element in tile].
struct Cache : Array {
    std::int64_t block, tile_tokens, tile_elements;  // the tokens of a block and of a tile, the elements of a tile

    Cache(const Call &call, int i) {
        const halyard_cache_desc &cache = *call.kv[i].cache;
        const std::int64_t width = std::max<std::int64_t>(call.elements_per_head(i, false), 1);
        block = std::max<std::int64_t>(or_else(cache.block_size, cache.n_slots), 1);
        tile_tokens = std::max<std::int64_t>(or_else(cache.tile_tokens, block), 1);
        tile_elements = std::max<std::int64_t>(or_else(cache.tile_elements, width), 1);
        first = call.stages[i].cache;
        bytes = bytes_of(call.out_dtype(i));
        dimensions = {{{cache.n_slots / block, cache.stride_block},
                       {call.x[i].shape[2], cache.stride_head},
                       {(block - 1) / tile_tokens + 1, cache.stride_tile_tokens},
                       {std::min(tile_tokens, block), cache.stride_token},
                       {(width - 1) / tile_elements + 1, cache.stride_tile_elements},
                       {std::min(tile_elements, width), or_else(cache.stride_element, 1)}}};
    }
    char *place(std::int64_t slot, std::int64_t head, std::int64_t d) const {
        const std::int64_t t = slot % block;
        return at({slot / block, head, t / tile_tokens, t % tile_tokens, d / tile_elements, d % tile_elements});
    }
};
inline Extent extent_of_cache(const Call &call, int i) { return Cache(call, i).extent(); }

/// The address of element d of a tensor's output, or of byte d of a record. NULL if the token has no slot.
inline char *place_of_output(const Call &call, int i, const Head &at, std::int64_t d) {
    if (call.kv[i].cache == nullptr) {
        return place_in(call.y[i], at, d);
    }
    const std::int64_t slot = slot_of(call, at.batch, at.token);
    return slot < 0 ? nullptr : Cache(call, i).place(slot, at.head, d);
}
/// The same for the input. The input of a re-rotated tensor with a cache is the cache.
inline char *place_of_input(const Call &call, int i, const Head &at, std::int64_t d) {
    const bool is_cached = call.plan.rerotates != 0 && call.kv[i].cache != nullptr;
    return is_cached ? place_of_output(call, i, at, d) : place_in(call.x[i], at, d);
}

/// The array of dynamic scales: [batch, tokens, heads], or with a cache [1, slots, heads].
inline Array scales_out_of(const Call &call, int i) {
    const halyard_cache_desc *const cache = call.kv[i].cache;
    const std::int64_t *strides = call.stages[i].stride_scales, *shape = call.x[i].shape;
    return {call.stages[i].scales_out,
            4,
            {{{cache != nullptr ? 1 : shape[0], strides[0]},
              {cache != nullptr ? cache->n_slots : shape[1], strides[1]},
              {shape[2], strides[2]}}}};
}
inline Extent extent_of_scales_out(const Call &call, int i) { return scales_out_of(call, i).extent(); }
inline char *place_of_scale(const Call &call, int i, const Head &at) {
    const bool has_cache = call.kv[i].cache != nullptr;
    return scales_out_of(call, i).at(
        {has_cache ? 0 : at.batch, has_cache ? slot_of(call, at.batch, at.token) : at.token, at.head});
}
inline Array position_scales_of(const Call &call, int i) {
    const std::int64_t *strides = call.stages[i].stride_position_scales, *shape = call.x[i].shape;
    return {
        call.stages[i].position_scales, 4, {{{shape[0], strides[0]}, {shape[1], strides[1]}, {shape[2], strides[2]}}}};
}
inline Extent extent_of_position_scales(const Call &call, int i) { return position_scales_of(call, i).extent(); }
inline char *place_of_position_scale(const Call &call, int i, const Head &at) {
    return position_scales_of(call, i).at({at.batch, at.token, at.head});
}

/// Group scales that are stored outside the records. Strides are in bytes. By slot, the dimensions are block, slot,
/// head and group; by token, they are batch row, token, head and group.
struct GroupScales : Array {
    std::int64_t block = 0;  // slots of a block; 0 if the scales are indexed by token

    GroupScales(const Call &call, int i, bool is_input) {
        const oracle::Record record = call.record_of(i, is_input);
        const halyard_groups_desc &groups = *call.groups_of(i, is_input);
        const bool is_from = is_input && call.plan.rerotates == 0;
        const halyard_cache_desc *const cache = is_from ? nullptr : call.kv[i].cache;
        const std::int64_t *const shape = call.x[i].shape;
        const std::int64_t given[] = {groups.scales_stride_block, groups.scales_stride_token,
                                      groups.scales_stride_head};
        block = cache != nullptr ? std::max<std::int64_t>(or_else(cache->block_size, cache->n_slots), 1) : 0;
        const std::int64_t tokens = cache != nullptr ? block : shape[1];
        const std::int64_t head = record.dense_scales_bytes(), token = wrapping_product(shape[2], head);
        const std::int64_t dense[] = {wrapping_product(tokens, token), token, head};
        const std::int64_t *const strides = given[0] == 0 && given[1] == 0 && given[2] == 0 ? dense : given;
        first = is_from ? call.stages[i].from_group_scales : call.stages[i].group_scales;
        bytes = 1;
        dimensions = {{{cache != nullptr ? cache->n_slots / block : shape[0], strides[0]},
                       {tokens, strides[1]},
                       {shape[2], strides[2]},
                       {record.n_groups(), record.scale_stride},
                       {record.scale_bytes(), 1}}};
    }
};
inline Extent extent_of_group_scales(const Call &call, int i, bool is_input) {
    return GroupScales(call, i, is_input).extent();
}
/// The address of a head's first group scale.
inline char *place_of_group_scales(const Call &call, int i, const Head &at, bool is_input) {
    const GroupScales scales(call, i, is_input);
    const std::int64_t slot = scales.block != 0 ? slot_of(call, at.batch, at.token) : 0;
    return scales.block != 0 ? scales.at({slot / scales.block, slot % scales.block, at.head})
                             : scales.at({at.batch, at.token, at.head});
}

// ---- The elements of a call ----------------------------------------------------------------------------------------

/// Whether two words are equal; any NaN equals any other.
inline bool are_equal(std::int32_t dtype, std::uint32_t a, std::uint32_t b) {
    return a == b || (oracle::is_nan(dtype, a) && oracle::is_nan(dtype, b));
}

/// Whether predicate(batch, token) holds for at least one token. The tokens after the first such one are not visited.
template <typename Predicate>
bool any_token(const Call &call, Predicate predicate) {
    for (std::int64_t i = 0; call.n_tokens() > 0 && i < call.n_batch() * call.n_tokens(); i++) {
        if (predicate(i / call.n_tokens(), i % call.n_tokens())) {
            return true;
        }
    }
    return false;
}

template <typename Function>
void for_each_head(const Call &call, int i, Function function) {
    const std::int64_t *shape = call.x[i].shape;
    for (std::int64_t n = 0; std::count(shape, shape + 3, 0) == 0 && n < shape[0] * shape[1] * shape[2]; n++) {
        function(Head{n / shape[2] / shape[1], n / shape[2] % shape[1], n % shape[2]});
    }
}

/// Calls function(at, dtype) with the address of each element that a run writes. The elements of a quantised record are
/// the bytes of its data, scales and zero points, and its unquantised elements; padding is skipped.
template <typename Function>
void for_each_output_element(const Call &call, Function function) {
    for (int i = 0; i < call.n(); i++) {
        const bool are_records = call.groups_of(i, false) != nullptr;
        const std::int64_t n_elements = are_records ? 0 : call.tensors[i].head_dim;
        const auto places = are_records ? places_of(call.record_of(i, false)) : std::vector<oracle::Place>();
        for_each_head(call, i, [&](const Head &at) {
            if (place_of_output(call, i, at, 0) == nullptr) {
                return;
            }
            if (call.is_dynamic(i)) {
                function(place_of_scale(call, i, at), HALYARD_F32);
            }
            for (std::int64_t d = 0; d < n_elements; d++) {
                function(place_of_output(call, i, at, d), call.out_dtype(i));
            }
            for (const oracle::Place &place : places) {
                char *const first =
                    place.in_scales ? place_of_group_scales(call, i, at, false) : place_of_output(call, i, at, 0);
                for (std::int64_t byte = 0; byte < place.bytes; byte += bytes_of(place.dtype)) {
                    function(first + place.offset + byte, place.dtype);
                }
            }
        });
    }
}

}  // namespace cases
