// All that a call says, and where the elements lie that it describes: worked out from halyard.h alone.
#pragma once

#include "checks/road_oracle.h"
#include "checks/sized.h"

#include <algorithm>
#include <optional>

namespace scenes {

/// The structs of a run, each pointing to the others. What they leave out is NULL or 0.
struct Call {
    halyard_plan_desc plan = sized<halyard_plan_desc>();
    halyard_tensor_desc tensors[HALYARD_MAX_TENSORS];
    halyard_norm_desc norms[HALYARD_MAX_TENSORS];
    halyard_scale_desc scales[HALYARD_MAX_TENSORS];
    halyard_cache_desc caches[HALYARD_MAX_TENSORS];
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    halyard_stages stages[HALYARD_MAX_TENSORS];
    halyard_slots slots = sized<halyard_slots>();
    halyard_positions positions = sized<halyard_positions>(), from_positions = positions;
    halyard_run_args args = sized<halyard_run_args>();

    Call() {
        for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
            tensors[i] = sized<halyard_tensor_desc>();
            norms[i] = sized<halyard_norm_desc>();
            scales[i] = sized<halyard_scale_desc>();
            caches[i] = sized<halyard_cache_desc>();
            x[i] = y[i] = sized<halyard_tensor>();
            stages[i] = sized<halyard_stages>();
        }
        plan.tensors = tensors;
        args.x = x;
        args.y = y;
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    int n() const { return plan.n_tensors; }
    std::int32_t out_dtype(int i) const { return tensors[i].out_dtype != 0 ? tensors[i].out_dtype : tensors[i].dtype; }
    std::int32_t out_pairing(int i) const {
        return tensors[i].out_pairing != 0 ? tensors[i].out_pairing : tensors[i].pairing;
    }
    std::int64_t n_batch() const { return x[0].shape[0]; }
    std::int64_t n_tokens() const { return x[0].shape[1]; }
    bool is_dynamic(int i) const {
        return tensors[i].scale != nullptr && tensors[i].scale->kind == HALYARD_SCALE_DYNAMIC;
    }
    bool rotates() const {
        return std::any_of(tensors, tensors + n(), [](const auto &tensor) { return tensor.no_rotation == 0; });
    }
    /// NULL where a run has no use for it.
    void *scratch() const {
        return args.slots != nullptr && slots.policy == HALYARD_SLOTS_CHECK ? slots.scratch : nullptr;
    }
    bool has_cache() const {
        return std::any_of(tensors, tensors + n(), [](const auto &tensor) { return tensor.cache != nullptr; });
    }
    /// Whether a tensor is rotated, or copied, and nothing else is done to it.
    bool is_plain(int i) const {
        return plan.rerotates == 0 && tensors[i].norm == nullptr && tensors[i].scale == nullptr &&
               tensors[i].position_scales == 0 && tensors[i].hadamard == 0 && out_dtype(i) == tensors[i].dtype;
    }
};

/// Of any dtype; 4 where it is none.
inline std::int64_t bytes_of(std::int32_t dtype) {
    return dtype >= HALYARD_F32 && dtype <= HALYARD_INT8 ? oracle::stored_bytes(dtype) : 4;
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
/// Where an element of a tensor's output lies, and its dynamic scale. NULL where its token has no slot.
char *place_of_output(const Call &call, int i, const Head &at, std::int64_t d);
char *place_of_scale(const Call &call, int i, const Head &at);
/// Where the scale by position lies that a run brings.
char *place_of_position_scale(const Call &call, int i, const Head &at);
/// Where an element of the input lies.
inline char *place_of_input(const Call &call, int i, const Head &at, std::int64_t d) {
    const bool is_cached = call.plan.rerotates != 0 && call.tensors[i].cache != nullptr;
    return is_cached ? place_of_output(call, i, at, d) : place_in(call.x[i], at, d);
}
std::uint32_t word_at(std::int32_t dtype, const char *at);
/// The static scale of an element, if there is one.
std::optional<float> scale_of(const Call &call, int i, const Head &at, std::int64_t d);

template <typename Function>
void for_each_head(const Call &call, int i, Function function) {
    const std::int64_t *shape = call.x[i].shape;
    for (std::int64_t n = 0; std::count(shape, shape + 3, 0) == 0 && n < shape[0] * shape[1] * shape[2]; n++) {
        function(Head{n / shape[2] / shape[1], n / shape[2] % shape[1], n % shape[2]});
    }
}

/// Calls function(at, dtype) with the address of each element that a run writes.
template <typename Function>
void for_each_output(const Call &call, Function function) {
    for (int i = 0; i < call.n(); i++) {
        for_each_head(call, i, [&](const Head &at) {
            if (place_of_output(call, i, at, 0) == nullptr) {
                return;
            }
            if (call.is_dynamic(i)) {
                function(place_of_scale(call, i, at), HALYARD_F32);
            }
            for (std::int64_t d = 0; d < call.tensors[i].head_dim; d++) {
                function(place_of_output(call, i, at, d), call.out_dtype(i));
            }
        });
    }
}

}  // namespace scenes
