// Bound runs: binding does once what is the same in each call.
#include "walk/bound_run.h"

#include "base/error.h"
#include "base/versioned.h"
#include "read/areas.h"
#include "walk/choose.h"
#include "walk/piece.h"
#include "walk/run.h"

#include <algorithm>
#include <memory>
#include <new>

namespace halyard {

namespace {

/// Prepares the kernels' calls where each tensor needs just one, and reads its rows where they lie in memory.
bool prepare(halyard_bound_run &bound) {
    const Run &run = bound.run;
    if (!run.plan->only_rotates || run.is_empty) {  // the sizes of an empty run may have a product beyond int64
        return false;
    }
    const halyard_angle_source &angles = *run.angles;
    const std::int64_t n = run.n_batch * run.n_tokens;
    if (n > max_piece_tokens || !angles.is_direct || count_tasks(run) > 1 || may_be_non_temporal(run) ||
        angles.n_rows * angles.stride_row > max_offset) {
        return false;
    }
    set_dimension(bound.rows[0], n, 1);
    set_dimension(bound.row[0], angles.rotary_dim / 2, 1);
    set_dimension(bound.row[1], angles.n_rows, angles.stride_row);
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const RunTensor &tensor = run.tensors[i];
        const TensorDesc &desc = run.plan->tensors[i];
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

/// Calls the prepared kernels.
void rotate_prepared(const halyard_bound_run &bound, const halyard_angle_source &angles,
                     const std::int32_t *row_of_token, const void *const *x, void *const *y) {
    const Run &run = bound.run;
    halyard_buffer rows, cos, sin, from, to;
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

/// Does a call as an unbound run would: the run is not prepared, or the call has a part or positions of its own.
halyard_status run_with(Brought &brought, const Bound &bound, const halyard_bound_run_args &given,
                        halyard_error *error) {
    Run run;
    static_cast<RunFrame &>(run) = bound.run;  // copies only the tensors that exist
    run.angles = brought.angles;
    run.positions = brought.positions;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        run.tensors[i] = bound.run.tensors[i];
        if (!run.plan->only_rotates) {
            run.stages[i] = bound.run.stages[i];
        }
        run.tensors[i].x = static_cast<const char *>(given.x[i]);
        run.tensors[i].y = static_cast<char *>(given.y[i]);
    }
    HALYARD_TRY(read_part(given.part, given.n_parts, run.executor.n_threads > 0, &run.share, error));
    if (!run.plan->only_rotates) {
        HALYARD_TRY(read_bound_stages(bound, given, run, brought.spans, error));
        brought.is_apart = !Areas(run, run.angles, run.positions, brought.spans).any_spans_meet();
    }
    if (!brought.is_apart) {
        HALYARD_TRY(check_bound_elements(bound, given, run, brought.spans, error));
    }
    if (may_be_non_temporal(run)) {
        choose_non_temporal(run);
    }
    return do_run(run, error);
}

}  // namespace

}  // namespace halyard

using namespace halyard;

extern "C" {

halyard_status halyard_bind_run(const halyard_plan *plan, const halyard_run_args *args, halyard_bound_run **out,
                                halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(out, "out", error));
    std::unique_ptr<halyard_bound_run> bound(new (std::nothrow) halyard_bound_run{});
    if (bound == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a bound run of ", sizeof(halyard_bound_run),
                    " bytes");
    }
    Run &run = bound->run;
    Spans spans;
    HALYARD_TRY(read_run(plan, args, HALYARD_CPU, &run, &spans, error));
    choose_kernels(run);
    if (run.share.count > 1) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.n_parts is ", run.share.count,
                    ", but a bound run is whole: each call says which part it does");
    }
    note_reaches(*args, spans, *bound);
    run.is_bound = true;
    bound->is_prepared = prepare(*bound);
    *out = bound.release();
    return HALYARD_OK;
}

halyard_status halyard_run_bound(const halyard_bound_run *bound, const halyard_bound_run_args *args,
                                 halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(bound, "bound", error));
    HALYARD_TRY(check_struct(args, "args", error));
    const halyard_bound_run_args &given = *args;
    HALYARD_TRY(check_given(given.x, "args.x", error));
    HALYARD_TRY(check_given(given.y, "args.y", error));
    if (given.n_tensors != bound->run.plan->n_tensors) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_tensors is ", given.n_tensors, ", but the plan's is ",
                    bound->run.plan->n_tensors);
    }
    if (given.from_positions != nullptr && !bound->run.plan->rerotates) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.from_positions is set, but the plan does not rerotate");
    }
    Brought brought;
    HALYARD_TRY(read_bound(*bound, given, &brought, error));
    std::int32_t rows[max_piece_tokens];
    if (brought.is_apart && bound->is_prepared && given.part == 0 && (given.n_parts == 0 || given.n_parts == 1) &&
        find_rows(bound->run, brought.positions, 0, bound->rows[0].extent, rows)) {
        rotate_prepared(*bound, *brought.angles, rows, given.x, given.y);
        return HALYARD_OK;
    }
    return run_with(brought, *bound, given, error);
}

void halyard_destroy_bound_run(halyard_bound_run *bound) { delete bound; }

}  // extern "C"
