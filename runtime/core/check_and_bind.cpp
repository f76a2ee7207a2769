#include "core/check_and_bind.h"

#include "base/error.h"
#include "base/versioned.h"
#include "core/rotate.h"
#include "core/rows.h"

#include <algorithm>

namespace halyard {

namespace {

// ---- Tensors: dtypes and shapes ------------------------------------------------------------------------------------

/// What a tensor must be, by its plan and by the run's other tensors.
struct Expected {
    Dtype dtype;
    std::int32_t device;
    std::int64_t shape[4];
};

bool fits(const halyard_tensor &tensor, const Expected &expected) {
    return tensor.dtype == static_cast<std::int32_t>(expected.dtype) && tensor.device == expected.device &&
           tensor.reserved == 0 && tensor.shape[0] == expected.shape[0] && tensor.shape[1] == expected.shape[1] &&
           tensor.shape[2] == expected.shape[2] && tensor.shape[3] == expected.shape[3] &&
           (expected.shape[0] | expected.shape[1] | expected.shape[2]) >= 0;
}

/// Fails, saying why a tensor is not as expected.
[[gnu::cold]] halyard_status fail_unexpected(const halyard_tensor &tensor, const char *array, int index,
                                             const Expected &expected, halyard_error *error) {
    const auto &is = tensor.shape, &must = expected.shape;
    const bool is_on_cpu = tensor.device == HALYARD_CPU;
    const bool is_record = expected.dtype == Dtype::uint8;
    const char *const not_negative = ", but must not be negative";
    return check_fields(
        ElementName(array, index).text,
        {{tensor.reserved != 0, HALYARD_ERROR_UNKNOWN_VALUE, "reserved", tensor.reserved, ", but must be 0"},
         {!to_dtype(tensor.dtype), HALYARD_ERROR_UNKNOWN_VALUE, "dtype", tensor.dtype, ", which is no dtype"},
         {tensor.dtype != static_cast<std::int32_t>(expected.dtype), "dtype", name_of_dtype(tensor.dtype),
          ", but the plan's is ", name_of(expected.dtype)},
         {!is_on_cpu && tensor.device != HALYARD_CUDA, HALYARD_ERROR_UNKNOWN_VALUE, "device", tensor.device,
          ", which is no device"},
         {tensor.device != expected.device, HALYARD_ERROR_UNSUPPORTED, "device",
          is_on_cpu ? "HALYARD_CPU (0)" : "HALYARD_CUDA (1)", ", but this call runs on ",
          is_on_cpu ? "HALYARD_CUDA only" : "HALYARD_CPU only"},
         {is[0] < 0, HALYARD_ERROR_SHAPE, "shape[0]", is[0], not_negative},
         {is[1] < 0, HALYARD_ERROR_SHAPE, "shape[1]", is[1], not_negative},
         {is[2] < 0, HALYARD_ERROR_SHAPE, "shape[2]", is[2], not_negative},
         {is[3] < 0, HALYARD_ERROR_SHAPE, "shape[3]", is[3], not_negative},
         {is[3] != must[3], "shape[3]", is[3],
          is_record ? ", but a record of the plan's has " : ", but the plan's head_dim is ", must[3],
          is_record ? " bytes" : ""},
         {is[0] != must[0], HALYARD_ERROR_SHAPE, "shape[0]", is[0], ", but must be ", must[0], " as in x[0]"},
         {is[1] != must[1], HALYARD_ERROR_SHAPE, "shape[1]", is[1], ", but must be ", must[1], " as in x[0]"},
         {is[2] != must[2], HALYARD_ERROR_SHAPE, "shape[2]", is[2], ", but must be ", must[2], " as in its input"}},
        error);
}

/// Checks the `size` of all halyard_tensor structs that are read. Nothing else of a struct may be read before.
halyard_status check_struct_sizes(const halyard_plan &plan, const halyard_run_args &given, halyard_error *error) {
    for (int i = 0; i < plan.n_tensors; i++) {
        const bool is_x = given.x[i].size != sizeof(halyard_tensor);
        if (is_x || (plan.tensors[i].writes_y && given.y[i].size != sizeof(halyard_tensor))) {
            return fail_size(is_x ? given.x[i] : given.y[i], ElementName(is_x ? "x" : "y", i).text, error);
        }
    }
    return HALYARD_OK;
}

// ---- Tensors: strides ----------------------------------------------------------------------------------------------

[[gnu::always_inline]] inline void set_strides(const halyard_tensor &tensor, Side &side) {
    const auto &shape = tensor.shape, &strides = tensor.strides;
    const std::int64_t batch = shape[0] > 1 ? strides[0] : 0;
    side.batch = shape[1] == 1 ? 0 : batch;  // batch rows of one token become tokens of one row, see TokenNumbers
    side.token = shape[1] == 1 ? batch : strides[1];
    side.head = shape[2] > 1 ? strides[2] : 0;
    side.element = shape[3] > 1 ? strides[3] : 1;  // one element counts as dense
}

halyard_status fail_outside_address_space(const halyard_tensor &tensor, const char *name, int index,
                                          halyard_error *error) {
    const auto &shape = tensor.shape, &strides = tensor.strides;
    return fail(error, HALYARD_ERROR_OVERFLOW, name, "[", index, "] leaves the address space: shape {", shape[0], ", ",
                shape[1], ", ", shape[2], ", ", shape[3], "}, strides {", strides[0], ", ", strides[1], ", ",
                strides[2], ", ", strides[3], "}");
}

bool have_equal_strides(const Side &a, const Side &b) {
    return ((a.batch ^ b.batch) | (a.token ^ b.token) | (a.head ^ b.head) | (a.element ^ b.element)) == 0;
}

Layout layout_of(const TensorProgram &tensor) {
    const Side &out = tensor.y, &in = tensor.in();
    const std::int64_t steps = in.batch | in.token | in.head | out.batch | out.token | out.head;
    return choose_layout(in.element, out.element, steps);
}

/// Chooses the kernel of a plain tensor whose n_together is set, and fills in the dims that it reads.
[[gnu::always_inline]] inline void bind_kernel(const halyard_plan &plan, const TensorPlan &tensor_plan,
                                               const Positions &positions, TensorProgram &tensor) {
    const std::int64_t n_pairs = plan.rotary_dim / 2;
    const std::int64_t n_together = tensor.n_together;
    tensor.kernel = &tensor_plan.kernel(tensor.in_place ? Place::in_place : Place::out_of_place, layout_of(tensor));
    tensor.halve = tensor.kernel->packed ? 1 : 0;
    set_kernel_dims(tensor.halve, tensor_plan.out_pairing, n_pairs, tensor.n_heads, n_together, tensor.y);
    if (!tensor.in_place) {
        set_kernel_dims(tensor.halve, tensor_plan.pairing, n_pairs, tensor.n_heads, n_together, tensor.x);
    }
    choose_rotation(plan, tensor_plan, tensor.in().token, tensor.y.token, tensor);
    tensor.is_one_call = n_together == positions.count() && n_together <= max_block_tokens && tensor.within_int32 &&
                         (tensor.in_place || tensor_plan.head_dim == plan.rotary_dim) &&
                         count_heads_at_once(tensor, tensor.n_heads, n_together) == tensor.n_heads &&
                         tensor.kernel->function != nullptr;
}

/// Fills in strides and reaches of a tensor's x and y, and whether it is in place.
[[gnu::always_inline]] inline halyard_status bind_sides(const halyard_tensor &x, const halyard_tensor &y, int index,
                                                        const TensorPlan &tensor_plan, TensorProgram &tensor,
                                                        halyard_error *error) {
    bool is_descending = false, unused = false, are_alike = false;
    Reach reach_of_x = {0, 0}, reach_of_y = {0, 0};  // locals, since reading back a struct just stored would be slow
    // A re-rotation in a cache, which it reads and writes, is in place too.
    tensor.in_place = !tensor_plan.reads_x && !tensor_plan.writes_y;
    if (tensor_plan.writes_y) {
        set_strides(y, tensor.y);
        if (!find_reach(y.shape, y.strides, tensor_plan.out_bytes, &reach_of_y, &is_descending)) {
            const bool is_of_both = tensor_plan.reads_x && std::equal(x.strides, x.strides + 4, y.strides);
            return fail_outside_address_space(is_of_both ? x : y, is_of_both ? "x" : "y", index, error);
        }
        if (!is_descending && !elements_are_disjoint(lattice_of(y))) {
            return fail(error, HALYARD_ERROR_STRIDE, "y[", index, "] has strides ", y.strides[0], ", ", y.strides[1],
                        ", ", y.strides[2], ", ", y.strides[3], ", by which two of its elements could meet");
        }
        tensor.y.window = tensor_plan.rotary_offset * tensor.y.element * tensor_plan.out_bytes;
    }
    if (tensor_plan.reads_x) {
        set_strides(x, tensor.x);
        are_alike = tensor_plan.writes_y && have_equal_strides(tensor.x, tensor.y) &&
                    tensor_plan.bytes == tensor_plan.out_bytes && tensor_plan.in_dim == tensor_plan.out_dim;
        reach_of_x = reach_of_y;
        if (!are_alike && !find_reach(x.shape, x.strides, tensor_plan.bytes, &reach_of_x, &unused)) {
            return fail_outside_address_space(x, "x", index, error);
        }
        tensor.x.window = tensor_plan.rotary_offset * tensor.x.element * tensor_plan.bytes;
        tensor.in_place = are_alike && x.data == y.data && tensor_plan.pairing == tensor_plan.out_pairing &&
                          tensor_plan.dtype == tensor_plan.out_dtype;
    }
    tensor.x.reach = reach_of_x;
    tensor.y.reach = reach_of_y;
    tensor.within_int32 =
        std::max(reach_of_x.n_bytes(), reach_of_y.n_bytes()) <= static_cast<std::uintptr_t>(max_offset);
    return HALYARD_OK;
}

halyard_status bind_tensors(const halyard_run_args &given, std::int32_t device, Program &program,
                            halyard_error *error) {
    const halyard_plan &plan = *program.plan;
    HALYARD_TRY(check_struct_sizes(plan, given, error));
    const std::int64_t *const first = given.x[0].shape;
    // Batch rows of one token become tokens of one row, as in TokenNumbers.
    program.positions.n_batch = first[1] == 1 ? 1 : first[0];
    program.positions.n_tokens = first[1] == 1 ? first[0] : first[1];
    program.is_empty = true;
    for (int i = 0; i < plan.n_tensors; i++) {
        const TensorPlan &tensor_plan = plan.tensors[i];
        const halyard_tensor &x = given.x[i], &y = given.y[i];
        Expected expected = {tensor_plan.dtype, device, {first[0], first[1], x.shape[2], tensor_plan.in_dim}};
        if (!fits(x, expected)) {
            return fail_unexpected(x, "x", i, expected, error);
        }
        expected.dtype = tensor_plan.out_dtype;
        expected.shape[3] = tensor_plan.out_dim;
        if (tensor_plan.writes_y && !fits(y, expected)) {
            return fail_unexpected(y, "y", i, expected, error);
        }
        TensorProgram &tensor = program.tensors[i];
        tensor.n_heads = first[0] != 0 && first[1] != 0 ? x.shape[2] : 0;
        tensor.lists_x = tensor.lists_y = false;
        if (tensor.n_heads == 0) {
            continue;
        }
        program.is_empty = false;
        HALYARD_TRY(bind_sides(x, y, i, tensor_plan, tensor, error));
        tensor.lists_x = tensor_plan.reads_x && !tensor.in_place;
        tensor.lists_y = tensor_plan.writes_y;
        tensor.kernel = tensor.large = nullptr;
        tensor.is_one_call = false;
        if (tensor_plan.is_plain) {
            const std::int64_t n_tokens = program.positions.n_tokens;
            const bool is_one_row =
                tensor.x.batch == n_tokens * tensor.x.token && tensor.y.batch == n_tokens * tensor.y.token;
            tensor.n_together = is_one_row ? program.positions.count() : n_tokens;
        }
        if (tensor_plan.is_plain && device == HALYARD_CPU) {
            bind_kernel(plan, tensor_plan, program.positions, tensor);
        }
    }
    return HALYARD_OK;
}

// ---- Large outputs -------------------------------------------------------------------------------------------------

/// Whether every head, and each half of it, begins on a cache line, provided that y does. A kernel can then store whole
/// lines.
bool is_on_cache_lines(const TensorPlan &tensor_plan, const Side &y, std::int64_t rotary_dim) {
    const std::int64_t half = tensor_plan.out_pairing == Pairing::half ? rotary_dim / 2 : 0;
    const std::int64_t steps = y.batch | y.token | y.head | half;
    return (steps * tensor_plan.bytes & 63) == 0;
}

/// Sets a tensor's `large` to its non-temporal kernel if the run's outputs together have the kernel's non_temporal_mib.
/// Such outputs would evict each other from the CPU's caches anyway, and a non-temporal store does not read the line
/// that it overwrites. Time relative to normal stores (half pairing, f32, AVX2; Zen 4, 32 MiB of L3 cache, 2026-11):
/// 0.72 for 4096 tokens of 40 heads of 128; if all output is read afterwards, 1.11 at 8 MiB, 0.89 at 16, 0.87 at 32 and
/// 0.76 at 128 MiB.
void choose_large_kernels(Program &program) {
    const halyard_plan &plan = *program.plan;
    std::uint64_t written = 0;  // bytes; may wrap, since inputs of stride 0 may have more elements than int64 can count
    for (int i = 0; i < plan.n_tensors; i++) {
        const TensorProgram &tensor = program.tensors[i];
        const TensorPlan &tensor_plan = plan.tensors[i];
        if (tensor.n_heads != 0 && !tensor.in_place) {
            std::uint64_t n_bytes = static_cast<std::uint64_t>(tensor_plan.out_bytes);
            for (const std::int64_t n :
                 {program.positions.n_batch, program.positions.n_tokens, tensor.n_heads, tensor_plan.out_dim}) {
                n_bytes *= static_cast<std::uint64_t>(n);
            }
            written += n_bytes;
        }
    }
    const std::uint64_t n_mib = written >> 20;
    for (int i = 0; n_mib >= std::uint64_t{least_non_temporal_mib} && i < plan.n_tensors; i++) {
        TensorProgram &tensor = program.tensors[i];
        const TensorPlan &tensor_plan = plan.tensors[i];
        if (tensor.in_place || tensor.kernel == nullptr) {
            continue;
        }
        const Kernel &large = tensor_plan.kernel(Place::non_temporal, layout_of(tensor));
        // The dims were set for the normal kernel, so both kernels must be packed, or neither.
        if (large.place == Place::non_temporal && n_mib >= static_cast<std::uint64_t>(large.non_temporal_mib) &&
            large.packed == tensor.kernel->packed && tensor_plan.head_dim == plan.rotary_dim &&
            is_on_cache_lines(tensor_plan, tensor.y, plan.rotary_dim)) {
            tensor.large = &large;
            tensor.is_one_call = false;
        }
    }
}

// ---- Angles and threads --------------------------------------------------------------------------------------------

/// Checks, for a GIVEN source, that each token has a row. Rows by_token fit runs of one shape only. Other rows are
/// found by position: without positions all batch rows would read the same rows, and no caller with [batch, 1] tokens
/// means that.
halyard_status bind_given_rows(const halyard_angle_source &angles, std::int64_t n_batch, std::int64_t n_tokens,
                               Program &program, halyard_error *error) {
    const bool has_positions = program.positions.is_given;
    if (!angles.by_token && !has_positions && n_batch > 1 && !program.is_empty) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.positions is NULL, but ", n_batch,
                    " batch rows need positions to find given rows by, or rows that are given by_token");
    }
    if (!angles.by_token) {
        return HALYARD_OK;
    }
    if (has_positions) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.positions is set, but the angle source's rows are by_token");
    }
    const std::int64_t n_own = angles.is_shared ? 1 : n_batch;
    if (!program.is_empty && (angles.n_rows % n_own != 0 || angles.n_rows / n_own != n_tokens)) {
        return fail(error, HALYARD_ERROR_SHAPE, "the angle source has ", angles.n_rows, " rows by_token",
                    angles.is_shared ? " that batch rows share" : "", ", but the run ", n_batch, " x ", n_tokens,
                    " tokens");
    }
    set_positions_to_rows(angles.is_shared, program.positions);
    return HALYARD_OK;
}

/// The least data for each thread; with less, handing work over (2.5 us) costs more than it saves. Speed of two threads
/// of a spinning pool relative to one (in place, heads of 128, in the L2 cache; Zen 4, x86_avx2, 2026-11): f32 0.78
/// with 128 KiB for each thread and 1.12 with 256 KiB; bf16 0.9 with 16 KiB and 1.5 with 64 KiB; f16 0.8 and 1.3.
constexpr std::int64_t bytes_worth_a_thread(Dtype dtype) { return (dtype == Dtype::f32 ? 256 : 48) << 10; }

halyard_status bind_executor(const halyard_executor *executor, Program &program, halyard_error *error) {
    HALYARD_TRY(read_struct(executor, "executor", &program.executor, error));
    HALYARD_TRY(check_given(executor->parallel_for, "executor.parallel_for", error));
    if (executor->n_threads < 1 || executor->n_threads > 1024) {
        return fail(error, HALYARD_ERROR_THREADS, "executor.n_threads is ", executor->n_threads,
                    ", but must be 1 to 1024");
    }
    const auto n_tokens =
        static_cast<double>(program.positions.n_batch) * static_cast<double>(program.positions.n_tokens);
    double threads = 0.0;
    for (int i = 0; i < program.plan->n_tensors && !program.is_empty; i++) {
        const TensorPlan &tensor_plan = program.plan->tensors[i];
        const std::int64_t width = tensor_plan.is_plain ? program.plan->rotary_dim : tensor_plan.head_dim;
        threads += n_tokens * static_cast<double>(program.tensors[i].n_heads * width * tensor_plan.bytes) /
                   static_cast<double>(bytes_worth_a_thread(tensor_plan.dtype));
    }
    program.n_tasks = std::clamp(static_cast<std::int64_t>(std::min(threads, 1024.0)), std::int64_t{1},
                                 std::int64_t{executor->n_threads});
    return HALYARD_OK;
}

/// Checks the fields of args other than tensors and positions.
halyard_status check_args(const halyard_plan &plan, const halyard_run_args &given, halyard_error *error) {
    const bool rotates = plan.rotary_dim != 0;
    if (rotates) {
        HALYARD_TRY(check_given(given.angles, "args.angles", error));
    }
    HALYARD_TRY(check_given(given.x, "args.x", error));
    HALYARD_TRY(check_given(given.y, "args.y", error));
    if (given.n_tensors != 0 && given.n_tensors != plan.n_tensors) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_tensors is ", given.n_tensors, ", but the plan's is ",
                    plan.n_tensors);
    }
    HALYARD_TRY(check_choice("args", "reserved", given.reserved, 0, error));
    if (!to_bad_position(given.bad_position)) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "bad_position is ", given.bad_position, ", which is no policy");
    }
    return rotates ? check_rotary_dim(*given.angles, "angles", plan.rotary_dim, error) : HALYARD_OK;
}

/// Reads the positions of a run that rotates, and decides whether kernels read the source's rows.
halyard_status bind_angles(const halyard_run_args &given, Program &program, halyard_error *error) {
    const halyard_angle_source &angles = *given.angles;
    const std::int64_t n_batch = given.x->shape[0], n_tokens = given.x->shape[1];
    program.reads_rows = angles.is_direct && angles.n_rows * angles.stride_row <= max_offset;
    if (given.positions == nullptr && (program.is_empty || angles.kind == AngleKind::given)) {
        program.positions = positions_in_order(n_batch, n_tokens);
    } else {
        HALYARD_TRY(bind_positions(given.positions, n_batch, n_tokens, angles.axes.n_axes, "positions",
                                   &program.positions, error));
    }
    return angles.kind == AngleKind::given ? bind_given_rows(angles, n_batch, n_tokens, program, error) : HALYARD_OK;
}

}  // namespace

halyard_status bind(const halyard_plan *plan, const halyard_run_args *args, std::int32_t device, Program *program,
                    halyard_error *error) noexcept {
    HALYARD_TRY(check_given(plan, "plan", error));
    HALYARD_TRY(check_struct(args, "args", error));
    HALYARD_TRY(check_args(*plan, *args, error));
    program->plan = plan;
    program->angles = plan->rotary_dim != 0 ? args->angles : nullptr;
    program->bad_position = to_bad_position(args->bad_position).value_or(BadPosition::error);
    program->reads_rows = false;
    program->executor.n_threads = 0;
    program->n_tasks = 1;
    HALYARD_TRY(bind_tensors(*args, device, *program, error));
    if (program->angles != nullptr) {
        HALYARD_TRY(bind_angles(*args, *program, error));
    } else {
        program->positions = positions_in_order(args->x->shape[0], args->x->shape[1]);
    }
    if (!program->is_empty) {
        choose_large_kernels(*program);
    }
    return args->executor == nullptr ? HALYARD_OK : bind_executor(args->executor, *program, error);
}

}  // namespace halyard
