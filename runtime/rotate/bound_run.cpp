// Bound runs: what is the same in each call is done once, when the run is bound.
#include "rotate/bound_run.h"

#include "base/error.h"
#include "base/versioned.h"
#include "rotate/piece.h"
#include "rotate/read_road.h"
#include "rotate/run.h"

#include <algorithm>
#include <memory>
#include <new>

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
    return out->begin <= address && out->end >= address;
}

/// Moves an array that a run brings or not to where it lies this time; false where that is not as it was bound.
bool move_if_brought(const void *data, const Reach &reach, MemoryRange *out) {
    *out = {0, 0};
    return (data != nullptr) == (reach.above != 0) && (data == nullptr || move_to(data, reach, out));
}

/// Prepares the calls, if one of each tensor's kernel does the whole run, with rows where they lie in memory.
bool prepare(halyard_bound_run &bound) {
    const Run &run = bound.run;
    if (run.plan->has_road || run.is_empty) {  // the sizes of an empty run may be more than their product can hold
        return false;
    }
    const halyard_angle_source &angles = *run.angles;
    const std::int64_t n = run.n_batch * run.n_tokens;
    if (n > max_piece_tokens || !angles.is_direct || count_tasks(run) > 1 || run.may_be_non_temporal ||
        angles.n_rows * angles.stride_row > max_offset) {
        return false;
    }
    set_dimension(bound.rows[0], n, 1);
    set_dimension(bound.row[0], angles.rotary_dim / 2, 1);
    set_dimension(bound.row[1], angles.n_rows, angles.stride_row);
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const RunTensor &tensor = run.tensors[i];
        const TensorDesc &desc = run.plan->tensors[i].desc;
        if (tensor.n_heads == 0) {
            continue;
        }
        const bool copies = !tensor.in_place && desc.head_dim != angles.rotary_dim;
        if (copies || !tensor.within_int32 || tensor.kernel->function == nullptr ||
            !tokens_are_evenly_apart(run, tensor)) {
            return false;
        }
        const bool by_batch = run.n_tokens == 1;
        Piece piece = {};
        piece.n_pairs = angles.rotary_dim / 2;
        piece.n_heads = tensor.n_heads;
        piece.n_tokens = n;
        set_pair_strides(tensor.in, desc.pairing, piece.n_pairs, by_batch ? tensor.in.batch : tensor.in.token,
                         piece.in);
        set_pair_strides(tensor.out, desc.out_pairing, piece.n_pairs, by_batch ? tensor.out.batch : tensor.out.token,
                         piece.out);
        PreparedTensor &prepared = bound.prepared[i];
        halyard_buffer unused;
        set_tensor(unused, prepared.x, *tensor.kernel, piece, nullptr, piece.in);
        set_tensor(unused, prepared.y, *tensor.kernel, piece, nullptr, piece.out);
        prepared.window = desc.rotary_offset * tensor.out.element * element_bytes(desc.dtype);
    }
    return true;
}

void set_buffer(halyard_buffer &buffer, const void *host, const halyard_dimension *dim) {
    buffer.host = static_cast<std::uint8_t *>(const_cast<void *>(host));
    buffer.dim = const_cast<halyard_dimension *>(dim);
}

/// Calls the prepared kernels.
void rotate_prepared(const halyard_bound_run &bound, const halyard_angle_source &angles,
                     const std::int32_t *row_of_token, const void *const *x, void *const *y) {
    const Run &run = bound.run;
    halyard_buffer rows, cos, sin, from, to;  // kernels read host and dim
    set_buffer(rows, row_of_token, bound.rows);
    set_buffer(cos, angles.cos_rows, bound.row);
    set_buffer(sin, angles.sin_rows, bound.row);
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const RunTensor &tensor = run.tensors[i];
        const PreparedTensor &prepared = bound.prepared[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        set_buffer(to, static_cast<char *>(y[i]) + prepared.window, prepared.y);
        if (!tensor.in_place) {
            set_buffer(from, x[i], prepared.x);
        }
        tensor.kernel->function(&rows, &cos, &sin, run.plan->sin_sign, tensor.in_place ? &to : &from, &to);
    }
}

/// Which angles this call reads: those that the run was bound with, or rows that lie elsewhere.
halyard_status read_angles(const halyard_bound_run &bound, const halyard_bound_run_args &given,
                           const halyard_angle_source **out, halyard_error *error) {
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
halyard_status read_pointers(const halyard_bound_run &bound, const halyard_bound_run_args &given, Spans &spans,
                             halyard_error *error) {
    for (int i = 0; i < bound.run.plan->n_tensors; i++) {
        const RunTensor &tensor = bound.run.tensors[i];
        if (tensor.n_heads == 0) {
            spans.x[i] = spans.y[i] = {0, 0};
            continue;
        }
        if (bound.run.plan->tensors[i].desc.cache && bound.run.plan->rerotates) {
            spans.x[i] = {0, 0};  // nor is x its input
            continue;
        }
        if (bound.run.plan->tensors[i].desc.cache) {  // its output is not y
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

/// Moves a tensor's stages to where they lie this time; false where they are not as they were bound.
bool move_stages(const StagePointers &given, const StagesReach &reach, RunTensor &tensor, RunStages &stages,
                 MemoryRange &cache) {
    stages.weight = static_cast<const char *>(given.weight);
    stages.scales = reinterpret_cast<const char *>(given.scales);
    stages.scales_out = reinterpret_cast<char *>(given.scales_out);
    if (reach.cache.above != 0) {
        tensor.y = static_cast<char *>(given.cache);
        tensor.x = tensor.in_place ? tensor.y : tensor.x;
    }
    MemoryRange none;
    return move_if_brought(given.weight, reach.weight, &stages.weight_memory) &&
           move_if_brought(given.scales, reach.scales, &stages.scales_memory) &&
           move_if_brought(given.scales_out, reach.scales_out, &stages.scales_out_memory) &&
           move_if_brought(given.cache, reach.cache, reach.cache.above != 0 ? &cache : &none);
}

/// Reads the slots that this call brings, and where its stages lie.
halyard_status read_bound_road(const halyard_bound_run &bound, const halyard_bound_run_args &given, Run &run,
                               Spans &spans, halyard_error *error) {
    const auto at = [](auto *array, int i) { return array == nullptr ? nullptr : array[i]; };
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const StagePointers pointers = {at(given.weights, i), at(given.scales, i), at(given.scales_out, i),
                                        at(given.caches, i)};
        if (run.tensors[i].n_heads == 0) {
            continue;
        }
        if (!move_stages(pointers, bound.stages_reach[i], run.tensors[i], run.stages[i], spans.y[i])) {
            return place_stages(pointers, i, run, spans, error);  // which says what is wrong
        }
        if (run.stages[i].scales != nullptr) {
            if (const halyard_status status = check_static_scales(run, i, error)) {
                return status;
            }
        }
    }
    CheckedSlots &slots = run.slots;
    if (slots.data == nullptr) {
        return HALYARD_OK;
    }
    if (given.slots == nullptr) {
        return fail_null(error, "args.slots");
    }
    slots.data = given.slots;
    if (!move_to(slots.data, bound.slots_reach, &slots.memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "args.slots leaves the address space");
    }
    if (!slots.may_be_doubled) {
        if (given.slots_scratch == nullptr) {
            return fail_null(error, "args.slots_scratch");
        }
        const Reach reach = {0, slots.scratch_memory.n_bytes()};
        slots.scratch = static_cast<unsigned char *>(given.slots_scratch);
        if (!move_to(slots.scratch, reach, &slots.scratch_memory)) {
            return fail(error, HALYARD_ERROR_OVERFLOW, "args.slots_scratch leaves the address space");
        }
    }
    return HALYARD_OK;
}

/// The positions that this call brings, with their range of memory.
halyard_status read_positions(const halyard_bound_run &bound, const void *data, const char *name, const Reach &reach,
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

/// Ranges of memory, those that are empty left out.
struct Ranges {
    MemoryRange list[3 * HALYARD_MAX_TENSORS + 6];
    int n = 0;

    void add(const MemoryRange &range) {
        list[n] = range;
        n += range.begin != range.end ? 1 : 0;
    }
};

/// Whether one of the first n ranges overlaps another one. (No branches, for the cost of a run.)
bool overlaps_any(const MemoryRange &range, const Ranges &ranges, int n) {
    unsigned found = 0;
    for (int i = 0; i < n; i++) {
        const MemoryRange &other = ranges.list[i];
        found |= static_cast<unsigned>(range.begin < other.end) & static_cast<unsigned>(other.begin < range.end);
    }
    return found != 0;
}

/// Whether any span that is written overlaps another that it could share an element with.
bool any_overlap(const Run &run, const halyard_angle_source *angles, const CheckedPositions &positions,
                 const Spans &spans) {
    Ranges read, written;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        if (run.tensors[i].n_heads == 0) {
            continue;
        }
        written.add(spans.y[i]);
        if (!run.tensors[i].in_place) {
            read.add(spans.x[i]);
        }
        if (run.plan->has_road) {
            read.add(run.stages[i].weight_memory);
            read.add(run.stages[i].scales_memory);
            written.add(run.stages[i].scales_out_memory);
        }
    }
    read.add(positions.memory);
    if (run.plan->rerotates) {
        read.add(run.from_positions.memory);
    }
    if (angles != nullptr) {
        read.add(angles->cos_memory);
        read.add(angles->sin_memory);
        read.add(angles->index_memory);
    }
    if (run.slots.data != nullptr) {
        read.add(run.slots.memory);
        written.add(run.slots.scratch_memory);
    }
    bool found = false;
    for (int i = 0; i < written.n && !found; i++) {
        found = overlaps_any(written.list[i], read, read.n) || overlaps_any(written.list[i], written, i);
    }
    return found;
}

/// Looks closer where spans overlap: elements may still be apart, as those of a packed buffer's slices are.
halyard_status check_elements(const halyard_bound_run &bound, const halyard_bound_run_args &given, const Run &run,
                              const Spans &spans, halyard_error *error) {
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
    for (int i = 0; i < run.plan->n_tensors; i++) {
        x[i] = bound.x[i];
        y[i] = bound.y[i];
        x[i].data = const_cast<void *>(given.x[i]);
        y[i].data = given.y[i];
    }
    return run.plan->has_road ? check_road_overlaps(run, x, y, spans, error) : check_overlaps(run, x, y, spans, error);
}

}  // namespace

}  // namespace halyard

using namespace halyard;

extern "C" {

halyard_status halyard_bind_run(const halyard_plan *plan, const halyard_run_args *args, halyard_bound_run **out,
                                halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    std::unique_ptr<halyard_bound_run> bound(new (std::nothrow) halyard_bound_run{});
    if (bound == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a bound run of ", sizeof(halyard_bound_run),
                    " bytes");
    }
    Run &run = bound->run;
    Spans spans;
    if (const halyard_status status = read_run(plan, args, HALYARD_CPU, &run, &spans, error)) {
        return status;
    }
    if (run.share.count > 1) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.n_parts is ", run.share.count,
                    ", but a bound run is whole: each call says which part it does");
    }
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const RunTensor &tensor = run.tensors[i];
        bound->x[i] = args->x[i];
        bound->y[i] = args->y[i];
        bound->x_reach[i] = tensor.n_heads == 0 ? Reach{0, 0} : reach_of(spans.x[i], args->x[i].data);
        bound->y_reach[i] = tensor.n_heads == 0 ? Reach{0, 0} : reach_of(spans.y[i], tensor.y);
        bound->stages_reach[i] = {};
        if (run.plan->has_road && tensor.n_heads != 0) {
            const RunStages &stages = run.stages[i];
            const auto reach = [](const MemoryRange &range, const void *data) {
                return data == nullptr ? Reach{0, 0} : reach_of(range, data);
            };
            bound->stages_reach[i] = {reach(stages.weight_memory, stages.weight),
                                      reach(stages.scales_memory, stages.scales),
                                      reach(stages.scales_out_memory, stages.scales_out),
                                      run.plan->tensors[i].desc.cache ? bound->y_reach[i] : Reach{0, 0}};
        }
    }
    bound->slots_reach = run.slots.data == nullptr ? Reach{0, 0} : reach_of(run.slots.memory, run.slots.data);
    const auto reach_of_positions = [&](const CheckedPositions &positions) {
        return positions.data == nullptr || run.is_empty ? Reach{0, 0} : reach_of(positions.memory, positions.data);
    };
    bound->positions_reach = reach_of_positions(run.positions);
    bound->from_positions_reach = run.plan->rerotates ? reach_of_positions(run.from_positions) : Reach{0, 0};
    bound->is_prepared = prepare(*bound);
    *out = bound.release();
    return HALYARD_OK;
}

halyard_status halyard_run_bound(const halyard_bound_run *bound, const halyard_bound_run_args *args,
                                 halyard_error *error) {
    if (const halyard_status status = check_error(error)) {
        return status;
    }
    if (bound == nullptr) {
        return fail_null(error, "bound");
    }
    halyard_bound_run_args copy;
    const halyard_bound_run_args *view = nullptr;
    if (const halyard_status status = view_struct(args, "args", &copy, &view, error)) {
        return status;
    }
    const halyard_bound_run_args &given = *view;
    // NOLINTNEXTLINE(*UndefinedBinaryOperatorResult): a copy that was not made has returned above
    if (given.x == nullptr || given.y == nullptr) {
        return fail_null(error, given.x == nullptr ? "args.x" : "args.y");
    }
    if (given.n_tensors != bound->run.plan->n_tensors) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_tensors is ", given.n_tensors, ", but the plan's is ",
                    bound->run.plan->n_tensors);
    }
    if (given.from_positions != nullptr && !bound->run.plan->rerotates) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.from_positions is set, but the plan does not rerotate");
    }
    Spans spans;
    CheckedPositions positions = bound->run.positions;
    const halyard_angle_source *angles = nullptr;
    halyard_status status = read_angles(*bound, given, &angles, error);
    if (status == HALYARD_OK) {
        status = read_pointers(*bound, given, spans, error);
    }
    if (status == HALYARD_OK) {
        status = read_positions(*bound, given.positions, "args.positions", bound->positions_reach, positions, error);
    }
    if (status != HALYARD_OK) {
        return status;
    }
    const bool has_road = bound->run.plan->has_road;
    bool is_apart = !has_road && !any_overlap(bound->run, angles, positions, spans);
    std::int32_t rows[max_piece_tokens];
    if (is_apart && bound->is_prepared && given.part == 0 && (given.n_parts == 0 || given.n_parts == 1) &&
        find_rows(bound->run, positions, 0, bound->rows[0].extent, rows)) {
        rotate_prepared(*bound, *angles, rows, given.x, given.y);
        return HALYARD_OK;
    }
    Run run;
    static_cast<RunFrame &>(run) = bound->run;  // and of tensors just those that there are
    run.angles = angles;
    run.positions = positions;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        run.tensors[i] = bound->run.tensors[i];
        if (has_road) {
            run.stages[i] = bound->run.stages[i];
        }
        run.tensors[i].x = static_cast<const char *>(given.x[i]);
        run.tensors[i].y = static_cast<char *>(given.y[i]);
    }
    status = read_part(given.part, given.n_parts, run.executor.n_threads > 0, &run.share, error);
    if (status == HALYARD_OK && run.plan->rerotates) {
        status = read_positions(*bound, given.from_positions, "args.from_positions", bound->from_positions_reach,
                                run.from_positions, error);
    }
    if (status == HALYARD_OK && has_road) {
        status = read_bound_road(*bound, given, run, spans, error);
        is_apart = status == HALYARD_OK && !any_overlap(run, angles, positions, spans);
    }
    if (status == HALYARD_OK && !is_apart) {
        status = check_elements(*bound, given, run, spans, error);
    }
    if (status != HALYARD_OK) {
        return status;
    }
    if (run.may_be_non_temporal) {
        choose_non_temporal(run);
    }
    return do_run(run, error);
}

void halyard_destroy_bound_run(halyard_bound_run *bound) { delete bound; }

}  // extern "C"
