#include "read/slots.h"

#include "base/error.h"
#include "base/versioned.h"

namespace halyard {

namespace {

/// Says which two tokens have one slot: the second one, and the first before it.
halyard_status fail_doubled(const CheckedSlots &slots, std::int64_t batch, std::int64_t token, halyard_error *error) {
    const std::int64_t slot = slots.at(batch, token);
    for (std::int64_t b = 0; b <= batch; b++) {
        for (std::int64_t t = 0; t < slots.n_tokens && (b < batch || t < token); t++) {
            if (slots.at(b, t) == slot) {
                return fail(error, HALYARD_ERROR_SLOT, "slots[batch ", batch, ", token ", token, "] is ", slot,
                            ", as is slots[batch ", b, ", token ", t, "]");
            }
        }
    }
    return fail(error, HALYARD_ERROR_SLOT, "slots[batch ", batch, ", token ", token, "] is ", slot,
                ", as is another token's");
}

}  // namespace

halyard_status read_slots(const halyard_slots *slots, std::int64_t n_batch, std::int64_t n_tokens, std::int64_t n_slots,
                          CheckedSlots *out, halyard_error *error) noexcept {
    halyard_slots given = {};
    HALYARD_TRY(read_struct(slots, "slots", &given, error));
    HALYARD_TRY(read_form(given, "slots", out, error));
    if (given.policy != HALYARD_SLOTS_CHECK && given.policy != HALYARD_SLOTS_RANGE_ONLY) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "slots.policy is ", given.policy,
                    ", but it must be HALYARD_SLOTS_CHECK (0) or HALYARD_SLOTS_RANGE_ONLY (1)");
    }
    const std::int64_t n_columns = given.consecutive != 0 ? 1 : n_tokens;
    if (given.shape[0] != n_batch || given.shape[1] != n_columns) {
        return fail(error, HALYARD_ERROR_SHAPE, "slots.shape is {", given.shape[0], ", ", given.shape[1],
                    "}, but it must be {", n_batch, ", ", n_columns, "}");
    }
    out->may_be_doubled = given.policy == HALYARD_SLOTS_RANGE_ONLY;
    out->n_batch = n_batch;
    out->n_tokens = n_tokens;
    out->n_slots = n_slots;
    out->scratch = static_cast<unsigned char *>(given.scratch);
    out->memory = out->scratch_memory = {0, 0};
    HALYARD_TRY(check_given(given.data, "slots.data", error));
    const std::int64_t strides[] = {given.strides[0], given.strides[1]};
    std::int64_t n_all = 0;  // with strides of 0, nothing else bounds it
    if (__builtin_mul_overflow(n_batch, n_tokens, &n_all)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "slots.shape is {", n_batch, ", ", n_tokens,
                    "}, which are more than 2^63");
    }
    if (!find_memory_range<2>(given.data, {n_batch, n_columns}, strides, out->element_bytes(), &out->memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "slots of shape {", n_batch, ", ", n_columns, "} and strides {",
                    strides[0], ", ", strides[1], "} leave the address space");
    }
    if (out->may_be_doubled) {
        out->scratch = nullptr;
        return HALYARD_OK;
    }
    const std::int64_t n_bytes = (n_slots - 1) / 8 + 1, dense[] = {1};
    if (given.scratch == nullptr) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, "slots.scratch is NULL, but HALYARD_SLOTS_CHECK needs ", n_bytes,
                    " bytes");
    }
    if (given.scratch_bytes < n_bytes) {
        return fail(error, HALYARD_ERROR_SHAPE, "slots.scratch_bytes is ", given.scratch_bytes,
                    ", but must be at least ", n_bytes, " for ", n_slots, " slots");
    }
    if (!find_memory_range<1>(given.scratch, {n_bytes}, dense, 1, &out->scratch_memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "slots.scratch leaves the address space");
    }
    return HALYARD_OK;
}

halyard_status check_slots(const CheckedSlots &slots, halyard_error *error) noexcept {
    for (std::int64_t batch = 0; batch < slots.n_batch; batch++) {
        for (std::int64_t token = 0; token < slots.n_tokens; token++) {
            const std::int64_t slot = slots.at(batch, token);
            if (slot < -1 || slot >= slots.n_slots) {
                return fail(error, HALYARD_ERROR_SLOT, "slots[batch ", batch, ", token ", token, "] is ", slot,
                            ", but must be -1 to ", slots.n_slots - 1);
            }
            if (slot >= 0 && !slots.may_be_doubled) {
                slots.scratch[slot / 8] = 0;  // just the bytes that are looked at below
            }
        }
    }
    for (std::int64_t batch = 0; batch < slots.n_batch && !slots.may_be_doubled; batch++) {
        for (std::int64_t token = 0; token < slots.n_tokens; token++) {
            const std::int64_t slot = slots.at(batch, token);
            if (slot < 0 || slot >= slots.n_slots) {
                continue;  // -1; or another thread is writing the slots, and of_token leaves it out
            }
            const auto bit = static_cast<unsigned char>(1u << slot % 8);
            if ((slots.scratch[slot / 8] & bit) != 0) {
                return fail_doubled(slots, batch, token, error);
            }
            slots.scratch[slot / 8] = static_cast<unsigned char>(slots.scratch[slot / 8] | bit);
        }
    }
    return HALYARD_OK;
}

}  // namespace halyard
