// All that a call says, and where the elements lie that it describes: worked out from halyard.h alone.
#pragma once

#include "checks/record_oracle.h"
#include "checks/road_oracle.h"
#include "checks/sized.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace scenes {

/// The structs that a run brings, each pointing to the others: in a copy, to its own. What is left out is NULL or 0.
struct RunStructs {
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    halyard_stages stages[HALYARD_MAX_TENSORS];
    halyard_slots slots = sized<halyard_slots>();
    halyard_positions positions = sized<halyard_positions>(), from_positions = positions;
    halyard_kv_args brought = sized<halyard_kv_args>();  // args.kv, unless nothing is brought
    halyard_run_args args = sized<halyard_run_args>();

    RunStructs() {
        std::fill_n(x, HALYARD_MAX_TENSORS, sized<halyard_tensor>());
        std::fill_n(y, HALYARD_MAX_TENSORS, sized<halyard_tensor>());
        std::fill_n(stages, HALYARD_MAX_TENSORS, sized<halyard_stages>());
        args.x = x;
        args.y = y;
    }
    RunStructs(const RunStructs &other) {
        std::memcpy(static_cast<void *>(this), &other, sizeof(other));
        const auto lead = [](auto &pointer, auto *to) { pointer = pointer != nullptr ? to : nullptr; };
        lead(args.x, x);
        lead(args.y, y);
        lead(args.positions, &positions);
        lead(args.kv, &brought);
        lead(brought.stages, stages);
        lead(brought.slots, &slots);
        lead(brought.from_positions, &from_positions);
    }
    RunStructs &operator=(const RunStructs &) = delete;
};

/// All that a call says, its plan and its run.
struct Call : RunStructs {
    halyard_plan_desc plan = sized<halyard_plan_desc>();
    halyard_tensor_desc tensors[HALYARD_MAX_TENSORS];
    halyard_kv_desc kv[HALYARD_MAX_TENSORS];
    halyard_norm_desc norms[HALYARD_MAX_TENSORS];
    halyard_scale_desc scales[HALYARD_MAX_TENSORS];
    halyard_cache_desc caches[HALYARD_MAX_TENSORS];
    halyard_groups_desc groups[HALYARD_MAX_TENSORS], from_groups[HALYARD_MAX_TENSORS];

    Call() {
        for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
            tensors[i] = sized<halyard_tensor_desc>();
            kv[i] = sized<halyard_kv_desc>();
            tensors[i].kv = &kv[i];
            norms[i] = sized<halyard_norm_desc>();
            scales[i] = sized<halyard_scale_desc>();
            caches[i] = sized<halyard_cache_desc>();
            groups[i] = from_groups[i] = sized<halyard_groups_desc>();
        }
        plan.tensors = tensors;
    }
    Call(const Call &) = delete;

    int n() const { return plan.n_tensors; }
    /// How the output is kept in records, or the input, which of keys that move is the same.
    const halyard_groups_desc *groups_of(int i, bool is_input) const {
        return is_input && plan.rerotates == 0 ? kv[i].from_groups : kv[i].groups;
    }
    std::int32_t in_dtype(int i) const { return groups_of(i, true) != nullptr ? HALYARD_UINT8 : tensors[i].dtype; }
    std::int32_t out_dtype(int i) const {
        return groups_of(i, false) != nullptr ? HALYARD_UINT8
               : kv[i].out_dtype != 0    ? kv[i].out_dtype
                                              : tensors[i].dtype;
    }
    /// What stages round to where they round to the input's dtype; of records that is f32.
    std::int32_t dtype_of_stages(int i) const { return in_dtype(i) == HALYARD_UINT8 ? HALYARD_F32 : in_dtype(i); }
    oracle::Record record_of(int i, bool is_input) const {
        return oracle::record_of(*groups_of(i, is_input), tensors[i].head_dim);
    }
    /// Elements or bytes of a head where it lies.
    std::int64_t width_of(int i, bool is_input) const {
        return groups_of(i, is_input) != nullptr ? record_of(i, is_input).bytes : tensors[i].head_dim;
    }
    std::int32_t out_pairing(int i) const {
        return tensors[i].out_pairing != 0 ? tensors[i].out_pairing : tensors[i].pairing;
    }
    std::int64_t n_batch() const { return x[0].shape[0]; }
    std::int64_t n_tokens() const { return x[0].shape[1]; }
    bool is_dynamic(int i) const {
        return kv[i].scale != nullptr && kv[i].scale->kind == HALYARD_SCALE_DYNAMIC;
    }
    bool rotates() const {
        return std::any_of(kv, kv + n(), [](const auto &each) { return each.no_rotation == 0; });
    }
    /// Whether a tensor has no elements.
    bool is_empty(int i) const { return std::count(x[i].shape, x[i].shape + 4, 0) > 0; }
    /// Whether a run puts anything into a cache, or moves what is there.
    bool stores() const {
        for (int i = 0; i < n(); i++) {
            if (kv[i].cache != nullptr && !is_empty(i)) {
                return true;
            }
        }
        return false;
    }
    /// NULL where a run has no use for it.
    void *scratch() const {
        return brought.slots != nullptr && slots.policy == HALYARD_SLOTS_CHECK && stores() ? slots.scratch : nullptr;
    }
    /// A bit for each slot of the smallest cache; there may be more bytes, which are left alone.
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
    /// Whether a tensor is rotated, or copied, and nothing else is done to it; but that f32 may be multiplied by
    /// scales.
    bool is_plain(int i) const {
        const bool has_scales = kv[i].scale != nullptr || kv[i].position_scales != 0;
        return plan.rerotates == 0 && kv[i].norm == nullptr && kv[i].hadamard == 0 && !is_dynamic(i) &&
               groups_of(i, true) == nullptr && out_dtype(i) == tensors[i].dtype &&
               (!has_scales || tensors[i].dtype == HALYARD_F32);
    }
};

/// Of any dtype; 4 where it is none.
inline std::int64_t bytes_of(std::int32_t dtype) {
    return dtype >= HALYARD_F32 && dtype <= HALYARD_UINT8 ? oracle::element_bytes(dtype) : 4;
}

/// What an array reaches, in bytes from its first element on.
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
    /// No machine has such memory, so that it has to be refused.
    bool is_absurd() const { return high - low > __int128{1} << 60; }
};

Extent extent_of(const halyard_tensor &tensor);
Extent extent_of(const halyard_slots &slots);
Extent extent_of(const halyard_positions &positions);
Extent extent_of_cache(const Call &call, int i);
Extent extent_of_scales_out(const Call &call, int i);
Extent extent_of_position_scales(const Call &call, int i);
Extent extent_of_group_scales(const Call &call, int i, bool is_input);

/// Token t of batch row b: its position on an axis, and its slot, -1 if it has none.
std::int64_t position_of(const halyard_positions *positions, std::int64_t axis, std::int64_t b, std::int64_t t);
std::int64_t slot_of(const Call &call, std::int64_t b, std::int64_t t);
/// Where one of those is held.
char *place_of_number(const halyard_positions &positions, std::int64_t axis, std::int64_t b, std::int64_t t);
char *place_of_number(const halyard_slots &slots, std::int64_t b, std::int64_t t);
void write_number(std::int32_t type, char *at, std::int64_t value);
std::int64_t read_number(std::int32_t type, const char *at);

struct Head {
    std::int64_t batch, token, head;
};

char *place_in(const halyard_tensor &tensor, const Head &at, std::int64_t d);
/// Where an element of a tensor's output lies, or a byte of a record, and its dynamic scale. NULL where its token has
/// no slot.
char *place_of_output(const Call &call, int i, const Head &at, std::int64_t d);
char *place_of_scale(const Call &call, int i, const Head &at);
/// Where the scale by position lies that a run brings.
char *place_of_position_scale(const Call &call, int i, const Head &at);
/// Where the scales of a head begin that lie apart from its record.
char *place_of_group_scales(const Call &call, int i, const Head &at, bool is_input);
/// Where an element of the input lies, or a byte of a record.
inline char *place_of_input(const Call &call, int i, const Head &at, std::int64_t d) {
    const bool is_cached = call.plan.rerotates != 0 && call.kv[i].cache != nullptr;
    return is_cached ? place_of_output(call, i, at, d) : place_in(call.x[i], at, d);
}
/// Any NaN equals any other.
inline bool are_equal(std::int32_t dtype, std::uint32_t a, std::uint32_t b) {
    return a == b || (oracle::is_nan(dtype, a) && oracle::is_nan(dtype, b));
}
/// The static scale of a head, if there is one.
std::optional<float> scale_of(const Call &call, int i, const Head &at);

template <typename Function>
void for_each_head(const Call &call, int i, Function function) {
    const std::int64_t *shape = call.x[i].shape;
    for (std::int64_t n = 0; std::count(shape, shape + 3, 0) == 0 && n < shape[0] * shape[1] * shape[2]; n++) {
        function(Head{n / shape[2] / shape[1], n / shape[2] % shape[1], n % shape[2]});
    }
}

/// Calls function(at, dtype) with the address of each element that a run writes; of records, of each byte that holds
/// something, and of raw elements.
template <typename Function>
void for_each_output(const Call &call, Function function) {
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
                    place.is_apart ? place_of_group_scales(call, i, at, false) : place_of_output(call, i, at, 0);
                for (std::int64_t byte = 0; byte < place.bytes; byte += bytes_of(place.dtype)) {
                    function(first + place.offset + byte, place.dtype);
                }
            }
        });
    }
}

}  // namespace scenes
