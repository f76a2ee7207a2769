// halyard_run is bind and call. halyard_bind_run is bind, halyard_run_bound is call.
#include "base/error.h"
#include "base/versioned.h"
#include "core/call.h"
#include "kv/check_and_bind.h"

#include <memory>

using namespace halyard;

/// A program on the heap, which the caller owns.
struct halyard_bound_run {
    Program program;
    std::unique_ptr<KvProgram> kv_program;  // NULL for plain rotations
};

namespace {

// Runs with stages are not inlined, because they would make the stack frames of plain rotations large.

[[gnu::noinline]] halyard_status run_kv(const Program &program, const halyard_run_args &args, const Share &share,
                                        halyard_error *error) {
    KvProgram kv_program;
    HALYARD_TRY(bind_kv(program, args, &kv_program, error));
    return call_kv(program, kv_program, RunPointers(program, args).all, kv_pointers(*program.plan, args.kv), share,
                   error);
}

[[gnu::noinline]] halyard_status run_bound_kv(const halyard_bound_run &bound, const halyard_bound_run_args &args,
                                              const Pointers &given, const Share &share, halyard_error *error) {
    HALYARD_TRY(check_kv_args(*bound.program.plan, args.kv, error));
    return call_kv(bound.program, *bound.kv_program, given, kv_pointers(*bound.program.plan, args.kv), share, error);
}

/// Sets *out to the angles that a call of a bound run uses: the source that the run was bound with, or `given` if that
/// is set. Then both must be GIVEN sources with rows of the same form.
halyard_status read_angles(const Program &program, const halyard_angle_source *given, const halyard_angle_source **out,
                           halyard_error *error) {
    *out = program.angles;
    if (given == nullptr) {
        return HALYARD_OK;
    }
    const char *const difference = *out == nullptr ? "kind" : find_difference(**out, *given);
    if (difference != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.angles has another ", difference,
                    " than the GIVEN source that a run has to be bound with then");
    }
    *out = given;
    return HALYARD_OK;
}

}  // namespace

extern "C" {

halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    Program program;
    Share share;
    HALYARD_TRY(bind(plan, args, HALYARD_CPU, &program, error));
    HALYARD_TRY(read_part(args->part, args->n_parts, args->executor != nullptr, &share, error));
    if (plan->kv_plan != nullptr || args->kv != nullptr) {
        return run_kv(program, *args, share, error);
    }
    return call(program, RunPointers(program, *args).all, share, error);
}

halyard_status halyard_bind_run(const halyard_plan *plan, const halyard_run_args *args, halyard_bound_run **out,
                                halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(out, "out", error));
    return guard(error, "a bound run", [&] {
        auto bound = std::make_unique<halyard_bound_run>();
        Program &program = bound->program;
        Share share;
        HALYARD_TRY(bind(plan, args, HALYARD_CPU, &program, error));
        HALYARD_TRY(read_part(args->part, args->n_parts, args->executor != nullptr, &share, error));
        if (share.count > 1) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.n_parts is ", share.count,
                        ", but a bound run is whole: each call says which part it does");
        }
        const RunPointers example(program, *args);
        if (plan->kv_plan != nullptr || args->kv != nullptr) {
            bound->kv_program = std::make_unique<KvProgram>();
            HALYARD_TRY(bind_kv(program, *args, bound->kv_program.get(), error));
            HALYARD_TRY(check_kv_memory(program, *bound->kv_program, example.all, kv_pointers(*plan, args->kv), error));
        } else {
            HALYARD_TRY(check_memory(program, example.all, error));
        }
        *out = bound.release();
        return halyard_status{HALYARD_OK};
    });
}

halyard_status halyard_run_bound(const halyard_bound_run *bound, const halyard_bound_run_args *args,
                                 halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(bound, "bound", error));
    HALYARD_TRY(check_struct(args, "args", error));
    HALYARD_TRY(check_given(args->x, "args.x", error));
    HALYARD_TRY(check_given(args->y, "args.y", error));
    const Program &program = bound->program;
    if (args->n_tensors != program.plan->n_tensors) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_tensors is ", args->n_tensors, ", but the plan's is ",
                    program.plan->n_tensors);
    }
    if (bound->kv_program == nullptr && args->kv != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.kv is set, but the run was bound without");
    }
    Pointers given = {nullptr, args->positions, args->x, args->y, true};
    HALYARD_TRY(read_angles(program, args->angles, &given.angles, error));
    Share share;
    HALYARD_TRY(read_part(args->part, args->n_parts, program.executor.n_threads > 0, &share, error));
    return bound->kv_program == nullptr ? call(program, given, share, error)
                                        : run_bound_kv(*bound, *args, given, share, error);
}

void halyard_destroy_bound_run(halyard_bound_run *bound) { delete bound; }

}  // extern "C"
