#include "read/read_bound.h"

#include "base/error.h"
#include "read/areas.h"
#include "read/read_stages.h"

namespace halyard {

namespace {

Reach reach_of(const MemoryRange &range, const void *data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return {address - range.begin, range.end - address};
}

/// The range of an array that begins at data; false where it leaves the address space.
bool move_to(const void *data, const Reach &reach, MemoryRange *out) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    out->begin = address - reach.below;
    out->end = address + reach.above;
    return out->begin <= out->end && out->end >= address;  // it may begin behind data, as scales in their memory do
}

/// Moves an array that a call brings or not to where it lies this time; false where that is not as it was bound.
bool move_if_brought(const void *data, const Reach &reach, MemoryRange *out) {
    return (data != nullptr) == (reach.above != 0) && move_to(data, reach, out);
}

/// Moves a tensor's stages to where they lie this time; false where they are not as they were bound.
bool move_stages(const StagePointers &given, const Reach (&reach)[n_stage_arrays], RunTensor &tensor, RunStages &stages,
                 MemoryRange &cache) {
    for (int array = 0; array < n_stage_arrays; array++) {
        stages.arrays[array].data = static_cast<char *>(const_cast<void *>(given[array]));
        if (!move_if_brought(given[array], reach[array], &stages.arrays[array].range)) {
            return false;
        }
    }
    if (reach[cache_array].above != 0) {
        tensor.y = stages.data(cache_array);
        tensor.x = tensor.in_place ? tensor.y : tensor.x;
        cache = stages.memory(cache_array);
    }
    return true;
}

/// Which angles this call reads: those that the run was bound with, or rows that lie elsewhere.
halyard_status read_angles(const Bound &bound, const halyard_bound_run_args &given, const halyard_angle_source **out,
                           halyard_error *error) {
    *out = bound.run.angles;
    if (given.angles == nullptr) {
        return HALYARD_OK;
    }
    const char *const difference = *out == nullptr ? "kind" : find_difference(**out, *given.angles);
    if (difference != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.angles has another ", difference,
                    " than the GIVEN source that a run has to be bound with then");
    }
    *out = given.angles;
    return HALYARD_OK;
}

/// Reads where the tensors lie this time, and checks that.
halyard_status read_tensors(const Bound &bound, const halyard_bound_run_args &given, Spans &spans,
                            halyard_error *error) {
    for (int i = 0; i < bound.run.plan->n_tensors; i++) {
        const RunTensor &tensor = bound.run.tensors[i];
        if (tensor.n_heads == 0) {
            spans.x[i] = spans.y[i] = {0, 0};
            continue;
        }
        if (bound.run.plan->tensors[i].cache && bound.run.plan->rerotates) {
            spans.x[i] = {0, 0};  // nor is x its input
            continue;
        }
        if (bound.run.plan->tensors[i].cache) {  // its output is not y
            if (given.x[i] == nullptr) {
                return fail(error, HALYARD_ERROR_NULL_POINTER, "args.x[", i, "] is NULL");
            }
            if (!move_to(given.x[i], bound.x_reach[i], &spans.x[i])) {
                return fail(error, HALYARD_ERROR_OVERFLOW, "args.x[", i, "] leaves the address space");
            }
            continue;
        }
        if (given.x[i] == nullptr || given.y[i] == nullptr) {
            return fail(error, HALYARD_ERROR_NULL_POINTER, "args.", given.x[i] == nullptr ? "x" : "y", "[", i,
                        "] is NULL");
        }
        if (tensor.in_place && given.x[i] != given.y[i]) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.y[", i, "] is not args.x[", i,
                        "], but the tensor was bound in place");
        }
        if (!move_to(given.x[i], bound.x_reach[i], &spans.x[i]) ||
            !move_to(given.y[i], bound.y_reach[i], &spans.y[i])) {
            return fail(error, HALYARD_ERROR_OVERFLOW, "args.x[", i, "] or args.y[", i, "] leaves the address space");
        }
    }
    return HALYARD_OK;
}

/// The positions that this call brings, with their range of memory.
halyard_status read_positions(const Bound &bound, const void *data, const char *name, const Reach &reach,
                              CheckedPositions &positions, halyard_error *error) {
    if (bound.run.is_empty || !bound.run.plan->rotates) {
        return HALYARD_OK;  // nothing is read, and the positions may be none
    }
    if ((data != nullptr) != (positions.data != nullptr)) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, " is ", data == nullptr ? "NULL" : "set",
                    ", but the run was bound ", data == nullptr ? "with" : "without", " positions");
    }
    if (data != nullptr) {
        positions.data = data;
        if (!move_to(data, reach, &positions.memory)) {
            return fail(error, HALYARD_ERROR_OVERFLOW, name, " leaves the address space");
        }
    }
    return HALYARD_OK;
}

}  // namespace

void note_reaches(const halyard_run_args &args, const Spans &spans, Bound &bound) noexcept {
    const Run &run = bound.run;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const RunTensor &tensor = run.tensors[i];
        bound.x[i] = args.x[i];
        bound.y[i] = args.y[i];
        bound.x_reach[i] = tensor.n_heads == 0 ? Reach{0, 0} : reach_of(spans.x[i], args.x[i].data);
        bound.y_reach[i] = tensor.n_heads == 0 ? Reach{0, 0} : reach_of(spans.y[i], tensor.y);
        for (int array = 0; array < n_stage_arrays; array++) {
            const StageMemory &memory = run.stages[i].arrays[array];
            const bool is_there = !run.plan->only_rotates && tensor.n_heads != 0 && memory.data != nullptr;
            bound.stages_reach[i][array] = is_there ? reach_of(memory.range, memory.data) : Reach{0, 0};
        }
    }
    bound.slots_reach = run.slots.data == nullptr ? Reach{0, 0} : reach_of(run.slots.memory, run.slots.data);
    const auto reach_of_positions = [&](const CheckedPositions &positions) {
        return positions.data == nullptr || run.is_empty ? Reach{0, 0} : reach_of(positions.memory, positions.data);
    };
    bound.positions_reach = reach_of_positions(run.positions);
    bound.from_positions_reach = run.plan->rerotates ? reach_of_positions(run.from_positions) : Reach{0, 0};
}

halyard_status read_bound(const Bound &bound, const halyard_bound_run_args &given, Brought *out,
                          halyard_error *error) noexcept {
    HALYARD_TRY(read_angles(bound, given, &out->angles, error));
    HALYARD_TRY(read_tensors(bound, given, out->spans, error));
    out->positions = bound.run.positions;
    HALYARD_TRY(read_positions(bound, given.positions, "args.positions", bound.positions_reach, out->positions, error));
    out->is_apart =
        bound.run.plan->only_rotates && !Areas(bound.run, out->angles, out->positions, out->spans).any_spans_meet();
    return HALYARD_OK;
}

halyard_status read_bound_stages(const Bound &bound, const halyard_bound_run_args &given, Run &run, Spans &spans,
                                 halyard_error *error) noexcept {
    if (run.plan->rerotates) {
        HALYARD_TRY(read_positions(bound, given.from_positions, "args.from_positions", bound.from_positions_reach,
                                   run.from_positions, error));
    }
    const auto at = [](auto *array, int i) { return array == nullptr ? nullptr : array[i]; };
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const StagePointers pointers = {at(given.weights, i),      at(given.biases, i),
                                        at(given.scales, i),       at(given.scales_out, i),
                                        at(given.caches, i),       at(given.position_scales, i),
                                        at(given.group_scales, i), at(given.from_group_scales, i)};
        if (run.tensors[i].n_heads == 0) {
            continue;
        }
        if (!move_stages(pointers, bound.stages_reach[i], run.tensors[i], run.stages[i], spans.y[i])) {
            HALYARD_TRY(place_stages(pointers, i, run, spans, error));  // which says what is wrong
        }
        HALYARD_TRY(check_static_scales(run, i, error));
        HALYARD_TRY(check_position_scales(run, i, error));
    }
    CheckedSlots &slots = run.slots;
    if (slots.data == nullptr) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_given(given.slots, "args.slots", error));
    slots.data = given.slots;
    if (!move_to(slots.data, bound.slots_reach, &slots.memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "args.slots leaves the address space");
    }
    if (!slots.may_be_doubled) {
        HALYARD_TRY(check_given(given.slots_scratch, "args.slots_scratch", error));
        const Reach reach = {0, slots.scratch_memory.n_bytes()};
        slots.scratch = static_cast<unsigned char *>(given.slots_scratch);
        if (!move_to(slots.scratch, reach, &slots.scratch_memory)) {
            return fail(error, HALYARD_ERROR_OVERFLOW, "args.slots_scratch leaves the address space");
        }
    }
    return HALYARD_OK;
}

halyard_status check_bound_elements(const Bound &bound, const halyard_bound_run_args &given, const Run &run,
                                    const Spans &spans, halyard_error *error) noexcept {
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    for (int i = 0; i < run.plan->n_tensors; i++) {
        x[i] = bound.x[i];
        y[i] = bound.y[i];
        x[i].data = const_cast<void *>(given.x[i]);
        y[i].data = given.y[i];
    }
    return Areas(run, run.angles, run.positions, spans).check(x, y, error);
}

}  // namespace halyard
