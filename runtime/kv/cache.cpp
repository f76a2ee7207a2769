#include "kv/cache.h"

#include "base/versioned.h"
#include "kv/stages.h"

#include <algorithm>

namespace halyard {

namespace {

/// The maximum of (i / tile) * stride_tile + (i % tile) * stride for i in 0 … count - 1. Strides are not negative, and
/// the product of each with its count does not overflow.
std::int64_t reach_of(std::int64_t count, std::int64_t tile, std::int64_t stride_tile, std::int64_t stride) {
    // It is at the last index, or at the end of the last whole tile.
    const std::int64_t last = count - 1, last_whole = std::max<std::int64_t>(count / tile * tile - 1, 0);
    return std::max(last / tile * stride_tile + last % tile * stride,
                    last_whole / tile * stride_tile + last_whole % tile * stride);
}

}  // namespace

Lattice CacheDesc::elements(const void *data, Dtype dtype, std::int64_t n_heads, std::int64_t head_dim) const noexcept {
    return {data,
            element_bytes(dtype),
            {n_slots / block_size, n_heads, (block_size - 1) / tile_tokens + 1, std::min(tile_tokens, block_size),
             (head_dim - 1) / tile_elements + 1, tile_elements},
            {stride_block, stride_head, stride_tile_tokens, stride_token, stride_tile_elements, stride_element}};
}

halyard_status read_cache(const halyard_cache_desc *cache, const char *name, std::int64_t head_dim, CacheDesc *out,
                          halyard_error *error) noexcept {
    *out = {};
    halyard_cache_desc &given = *out;
    HALYARD_TRY(read_struct(cache, name, &given, error));
    HALYARD_TRY(check_choice(name, "reserved", given.reserved, 0, error));
    given.block_size = given.block_size == 0 ? given.n_slots : given.block_size;
    given.tile_tokens = given.tile_tokens == 0 ? given.block_size : given.tile_tokens;
    given.tile_elements = given.tile_elements == 0 ? head_dim : std::min(given.tile_elements, head_dim);
    given.stride_element = given.stride_element == 0 ? 1 : given.stride_element;
    constexpr halyard_status shape = HALYARD_ERROR_SHAPE;
    const char *const least = ", but must be at least ";
    const bool is_whole = given.block_size < 1 || given.n_slots % given.block_size == 0;
    HALYARD_TRY(check_fields(
        name,
        {{given.n_slots < 1, shape, "n_slots", given.n_slots, least, 1},
         {given.block_size < 1, shape, "block_size", given.block_size, least, 1},
         {given.tile_tokens < 1, shape, "tile_tokens", given.tile_tokens, least, 1},
         {given.stride_tile_tokens < 0, shape, "stride_tile_tokens", given.stride_tile_tokens, least, 0},
         {given.stride_token < 0, shape, "stride_token", given.stride_token, least, 0},
         {given.tile_elements < 1, shape, "tile_elements", given.tile_elements, least, 1},
         {given.stride_tile_elements < 0, shape, "stride_tile_elements", given.stride_tile_elements, least, 0},
         {given.stride_element < 0, shape, "stride_element", given.stride_element, least, 0},
         {!is_whole, shape, "n_slots", given.n_slots, ", but must be a multiple of block_size, ", given.block_size}},
        error));
    const Lattice one_head = out->elements(nullptr, Dtype::f32, 1, head_dim);
    bool unused = false;
    if (!halyard::find_reach(one_head.shape, one_head.strides, 1, &out->of_one_head, &unused)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, name, " leaves the address space, with ", given.n_slots,
                    " slots in blocks that lie ", given.stride_block, " elements apart");
    }
    const std::int64_t reach =
        reach_of(given.block_size, given.tile_tokens, given.stride_tile_tokens, given.stride_token) +
        reach_of(head_dim, given.tile_elements, given.stride_tile_elements, given.stride_element);
    std::int64_t whole_reach = 0;
    for (int i = 2; i < 6; i++) {
        whole_reach += (one_head.shape[i] - 1) * one_head.strides[i];
    }
    out->of_one_head.above -= static_cast<std::uintptr_t>(whole_reach - reach);
    if (!elements_are_disjoint(one_head)) {
        return fail(error, HALYARD_ERROR_STRIDE, name, " has strides by which two of its elements could meet");
    }
    const bool are_single = given.tile_elements == 1;
    const bool are_even = are_single || given.tile_elements == head_dim ||
                          given.stride_tile_elements == given.tile_elements * given.stride_element;
    out->spacing = !are_even ? 0 : are_single && head_dim > 1 ? given.stride_tile_elements : given.stride_element;
    out->most_heads = 1;
    std::int64_t too_many = given.stride_head == 0 ? 2 : std::abs((std::int64_t{1} << 57) / given.stride_head) + 2;
    while (too_many - out->most_heads > 1) {
        const std::int64_t n = out->most_heads + (too_many - out->most_heads) / 2;
        (elements_are_disjoint(out->elements(nullptr, Dtype::f32, n, head_dim)) ? out->most_heads : too_many) = n;
    }
    return HALYARD_OK;
}

Stored find_stored(const Slots &slots, const void *data, const CacheDesc &cache, std::int64_t first,
                   std::int64_t n) noexcept {
    Stored stored = {first, 0, 0, 0};
    std::int64_t last = 0;
    for (std::int64_t token = first; token < first + n; token++) {
        const std::int64_t slot = slots.slot_of_token(data, token);
        if (slot < 0 && stored.n_tokens == 0) {
            continue;
        }
        if (slot < 0) {
            break;
        }
        const std::int64_t offset = cache.offset_of(slot), step = offset - last;
        if (stored.n_tokens == 0) {
            stored = {token, 0, offset, 0};
        } else if (step == 0 || (stored.n_tokens > 1 && step != stored.stride_token)) {
            break;  // two tokens with one slot take two calls, so that the later one is kept
        } else {
            stored.stride_token = step;
        }
        stored.n_tokens++;
        last = offset;
    }
    return stored;
}

// ---- Slots ---------------------------------------------------------------------------------------------------------

halyard_status bind_slots(const halyard_slots *given, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_slots,
                          Slots *out, halyard_error *error) noexcept {
    HALYARD_TRY(read_type_and_strides(*given, n_batch, n_tokens, "args.kv.slots", out, error));
    if (given->policy != HALYARD_SLOTS_CHECK && given->policy != HALYARD_SLOTS_RANGE_ONLY) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "args.kv.slots.policy is ", given->policy,
                    ", but it must be HALYARD_SLOTS_CHECK (0) or HALYARD_SLOTS_RANGE_ONLY (1)");
    }
    const std::int64_t shape[] = {n_batch, given->consecutive != 0 ? 1 : n_tokens};
    if (given->shape[0] != shape[0] || given->shape[1] != shape[1]) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.kv.slots.shape is {", given->shape[0], ", ", given->shape[1],
                    "}, but it must be {", shape[0], ", ", shape[1], "}");
    }
    std::int64_t n_all = 0;  // no other check bounds this product if strides are 0
    if (__builtin_mul_overflow(n_batch, n_tokens, &n_all)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "args.kv.slots.shape is {", n_batch, ", ", n_tokens,
                    "}, which are more than 2^63");
    }
    bool unused = false;
    if (!find_reach(shape, given->strides, out->element_bytes(), &out->reach, &unused)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "args.kv.slots of shape {", shape[0], ", ", shape[1],
                    "} and strides {", given->strides[0], ", ", given->strides[1], "} leave the address space");
    }
    out->n_slots = n_slots;
    out->may_be_doubled = given->policy == HALYARD_SLOTS_RANGE_ONLY;
    out->scratch_bytes = out->may_be_doubled ? 0 : (n_slots - 1) / 8 + 1;
    if (out->scratch_bytes != 0 && given->scratch == nullptr) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, "args.kv.slots.scratch is NULL, but HALYARD_SLOTS_CHECK needs ",
                    out->scratch_bytes, " bytes");
    }
    if (out->scratch_bytes != 0 && given->scratch_bytes < out->scratch_bytes) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.kv.slots.scratch_bytes is ", given->scratch_bytes,
                    ", but must be at least ", out->scratch_bytes, " for ", n_slots, " slots");
    }
    out->join_one_token_rows();
    return HALYARD_OK;
}

namespace {

/// Fails, naming the two tokens that have one slot: `token`, and the first one before it.
halyard_status fail_doubled(const Slots &slots, const void *data, std::int64_t token, halyard_error *error) {
    const std::int64_t slot = slots.slot_of_token(data, token);
    std::int64_t first = 0;
    while (first < token && slots.slot_of_token(data, first) != slot) {
        first++;
    }
    const auto name_of = [&](std::int64_t of) { return slots.name_of(of / slots.n_tokens, of % slots.n_tokens); };
    const TokenNumbers::Name name = name_of(token), other = name_of(first);
    return fail(error, HALYARD_ERROR_SLOT, "args.kv.slots[batch ", name.batch, ", token ", name.token, "] is ", slot,
                ", as is slots[batch ", other.batch, ", token ", other.token, "]");
}

}  // namespace

halyard_status check_slots(const Slots &slots, const void *data, unsigned char *scratch,
                           halyard_error *error) noexcept {
    for (std::int64_t batch = 0; batch < slots.n_batch; batch++) {
        for (std::int64_t token = 0; token < slots.n_tokens; token++) {
            const std::int64_t slot = slots.read_slot(data, batch, token);
            if (slot < -1 || slot >= slots.n_slots) {
                const TokenNumbers::Name name = slots.name_of(batch, token);
                return fail(error, HALYARD_ERROR_SLOT, "args.kv.slots[batch ", name.batch, ", token ", name.token,
                            "] is ", slot, ", but must be -1 to ", slots.n_slots - 1);
            }
            if (slot >= 0 && !slots.may_be_doubled) {
                scratch[slot / 8] = 0;  // only the bytes that are read below
            }
        }
    }
    for (std::int64_t token = 0; token < slots.count() && !slots.may_be_doubled; token++) {
        const std::int64_t slot = slots.slot_of_token(data, token);
        if (slot < 0) {
            continue;  // -1, or another thread changes the slots now
        }
        const auto bit = static_cast<unsigned char>(1u << slot % 8);
        if ((scratch[slot / 8] & bit) != 0) {
            return fail_doubled(slots, data, token, error);
        }
        scratch[slot / 8] = static_cast<unsigned char>(scratch[slot / 8] | bit);
    }
    return HALYARD_OK;
}

}  // namespace halyard
