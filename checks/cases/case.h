// A random case: the plan, tensors, stages, slots, caches, angles and positions of one call, the memory of all of them,
// and the check of everything that the call wrote.
#pragma once

#include "checks/cases/angles.h"

namespace cases {

struct Case {
    /// Draws the whole case and makes its angle source.
    Case(Draw &from, const Choice &fixed);
    /// Draws nothing: the caller calls draw_plan, draw_run and create_angles. In between, a fuzzer changes some fields.
    struct InSteps {};
    Case(Draw &from, const Choice &fixed, InSteps) : draw(from), choice(fixed) {}
    void draw_plan();
    void draw_run();
    std::string create_angles();  // returns an error message, or an empty string

    Draw &draw;
    const Choice choice;
    Call call;
    Angles angles;
    Memory memory;
    Images before;  // the contents of memory before a run
    std::int64_t n_slots = 0;
    bool are_inputs_finite = true;
    bool in_place[HALYARD_MAX_TENSORS] = {};
    bool is_packed[HALYARD_MAX_TENSORS] = {};            // its cache is the second half of the previous tensor's rows
    int position_scales[HALYARD_MAX_TENSORS] = {};       // the level of of_position_scales
    std::int64_t page_scales[HALYARD_MAX_TENSORS] = {};  // byte offset of group scales in a cache block; 0 if outside

    bool has_bad_position(std::int64_t batch, std::int64_t token) const;
    bool has_bad_slot(std::int64_t batch, std::int64_t token) const;
    /// Whether halyard_run must refuse the run for its positions or slots.
    bool is_refused() const;
    /// Whether a run writes a token: the token has a slot, even a bad one, or some tensor with heads has no cache.
    bool is_written(std::int64_t batch, std::int64_t token) const;
    /// Whether a token's stored elements survive the run: it has a slot, and no later token has the same one.
    bool is_kept(std::int64_t batch, std::int64_t token) const;

    /// Checks the memory that a run left: each output is within the bounds of halyard.h, quantised records are exact to
    /// the byte, and nothing else was written. Returns a message, or an empty string.
    std::string fault(const Images &after) const;
    /// Names the first output in which two runs differ, or returns an empty string. Any NaN equals any other.
    std::string difference(const Images &expected, const Images &result) const;
    /// Describes the drawn case for a message.
    std::string text() const;

    /// A tensor's level of a factor: the fixed one, or a random one. Half of the time an optional factor is 0 (none).
    int level(Factor factor, int tensor = 0) {
        const int fixed = choice.level[factor];
        const bool is_optional = all_factors[factor].is_optional;
        if (fixed >= 0 && (tensor == 0 || (is_optional && fixed == 0))) {  // tests fix only the first tensor's levels
            return fixed;
        }
        return is_optional && draw.one_in(2) ? 0 : static_cast<int>(draw.in(0, choice.levels()[factor] - 1));
    }
};

/// The arguments of a run of one single token of a case's call.
struct TokenRun : RunStructs {
    TokenRun(const Case &drawn, std::int64_t batch, std::int64_t token) : RunStructs(drawn.call) {
        const Call &call = drawn.call;
        if (kv_args.slots != nullptr && slots.data != nullptr) {  // without heads no run reads slots.data
            slot_ = slot_of(call, batch, token);
            slots.data = &slot_;
            slots.type = HALYARD_INT64;
            slots.consecutive = 0;
            slots.shape[0] = slots.shape[1] = 1;
        }
        for (std::int64_t axis = 0; axis < drawn.angles.n_axes(); axis++) {
            to_[axis] = position_of(call.args.positions, axis, batch, token);
            from_[axis] = position_of(call.kv_args.from_positions, axis, batch, token);
        }
        for (const auto &[view, numbers] : {std::pair(&positions, to_), std::pair(&from_positions, from_)}) {
            *view = halyard::positions(numbers, {1, 1});
            view->n_axes = drawn.angles.n_axes();
            view->stride_axis = 1;
        }
        args.positions = &positions;
        if (drawn.angles.desc.by_token != 0) {
            row_ = drawn.angles.of_row(drawn.angles.row_of(call, batch, token));
            args.positions = nullptr;
            args.angles = row_.get();
        }
        for (int i = 0; i < call.n(); i++) {
            point_at_token(call, i, {batch, token, 0});
        }
    }

private:
    std::int64_t slot_ = -1, to_[HALYARD_MAX_AXES], from_[HALYARD_MAX_AXES];
    halyard::angle_source row_;

    void point_at_token(const Call &call, int i, const Head &first) {
        for (halyard_tensor *const tensor : {&x[i], &y[i]}) {
            tensor->data = tensor->data != nullptr ? place_in(*tensor, first, 0) : nullptr;
            tensor->shape[0] = tensor->shape[1] = 1;
        }
        const bool has_cache = call.kv[i].cache != nullptr;
        const auto take = [&](auto &pointer, char *place) { pointer = reinterpret_cast<decltype(+pointer)>(place); };
        if (stages[i].position_scales != nullptr) {
            take(stages[i].position_scales, place_of_position_scale(call, i, first));
        }
        if (stages[i].scales_out != nullptr && !has_cache) {
            take(stages[i].scales_out, place_of_scale(call, i, first));
        }
        if (stages[i].group_scales != nullptr && !has_cache) {
            take(stages[i].group_scales, place_of_group_scales(call, i, first, false));
        }
        if (stages[i].from_group_scales != nullptr) {
            take(stages[i].from_group_scales, place_of_group_scales(call, i, first, true));
        }
    }
};

}  // namespace cases
