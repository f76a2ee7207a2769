#include "kv/slots.h"

#include "base/versioned.h"

namespace halyard {

halyard_status bind_slots(const halyard_slots *given, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_slots,
                          Slots *out, halyard_error *error) noexcept {
    HALYARD_TRY(check_struct(given, "args.kv.slots", error));
    HALYARD_TRY(read_form(*given, n_batch, n_tokens, "args.kv.slots", out, error));
    if (given->policy != HALYARD_SLOTS_CHECK && given->policy != HALYARD_SLOTS_RANGE_ONLY) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "args.kv.slots.policy is ", given->policy,
                    ", but it must be HALYARD_SLOTS_CHECK (0) or HALYARD_SLOTS_RANGE_ONLY (1)");
    }
    const std::int64_t shape[] = {n_batch, given->consecutive != 0 ? 1 : n_tokens};
    if (given->shape[0] != shape[0] || given->shape[1] != shape[1]) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.kv.slots.shape is {", given->shape[0], ", ", given->shape[1],
                    "}, but it must be {", shape[0], ", ", shape[1], "}");
    }
    std::int64_t n_all = 0;  // with strides of 0, nothing else bounds it
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

/// Says which two tokens have one slot: the second one, and the first before it.
halyard_status fail_doubled(const Slots &slots, const void *data, std::int64_t token, halyard_error *error) {
    const std::int64_t slot = slots.of_token(data, token);
    std::int64_t first = 0;
    while (first < token && slots.of_token(data, first) != slot) {
        first++;
    }
    const auto name_of = [&](std::int64_t of) { return slots.name_of(of / slots.n_tokens, of % slots.n_tokens); };
    const TokenNumbers::Name name = name_of(token), other = name_of(first);
    if (first == token) {
        return fail(error, HALYARD_ERROR_SLOT, "args.kv.slots[batch ", name.batch, ", token ", name.token, "] is ",
                    slot, ", as is another token's");
    }
    return fail(error, HALYARD_ERROR_SLOT, "args.kv.slots[batch ", name.batch, ", token ", name.token, "] is ", slot,
                ", as is slots[batch ", other.batch, ", token ", other.token, "]");
}

}  // namespace

halyard_status check_slots(const Slots &slots, const void *data, unsigned char *scratch,
                           halyard_error *error) noexcept {
    for (std::int64_t batch = 0; batch < slots.n_batch; batch++) {
        for (std::int64_t token = 0; token < slots.n_tokens; token++) {
            const std::int64_t slot = slots.at(data, batch, token);
            if (slot < -1 || slot >= slots.n_slots) {
                const TokenNumbers::Name name = slots.name_of(batch, token);
                return fail(error, HALYARD_ERROR_SLOT, "args.kv.slots[batch ", name.batch, ", token ", name.token,
                            "] is ", slot, ", but must be -1 to ", slots.n_slots - 1);
            }
            if (slot >= 0 && !slots.may_be_doubled) {
                scratch[slot / 8] = 0;  // just the bytes that are looked at below
            }
        }
    }
    for (std::int64_t token = 0; token < slots.count() && !slots.may_be_doubled; token++) {
        const std::int64_t slot = slots.of_token(data, token);
        if (slot < 0) {
            continue;  // -1; or another thread is writing the slots
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
