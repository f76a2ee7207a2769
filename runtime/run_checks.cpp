#include "error.h"
#include "run.h"
#include "tensor.h"

#include <cstring>

namespace halyard {

namespace {

/// Copies a tensor, and checks it against its description and the shape that it has to have.
halyard_status read_tensor(const halyard_tensor &given, const char *name, int index, const halyard_tensor_desc &desc,
                           const std::int64_t *shape, halyard_tensor *out, halyard_error *error) {
    *out = given;
    if (element_bytes(out->dtype) == 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "%s[%d].dtype is %d, which is no dtype", name, index,
                    out->dtype);
    }
    if (out->dtype != desc.dtype) {
        return fail(error, HALYARD_ERROR_MISMATCH, "%s[%d].dtype is %d, but the plan's is %d", name, index, out->dtype,
                    desc.dtype);
    }
    if (out->device != HALYARD_CPU) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "%s[%d].device is %d, but this library runs on the CPU (%d) only",
                    name, index, out->device, HALYARD_CPU);
    }
    for (int i = 0; i < 4; i++) {
        if (out->shape[i] < 0) {
            return fail(error, HALYARD_ERROR_SHAPE, "%s[%d].shape[%d] is %lld, but must not be negative", name, index,
                        i, static_cast<long long>(out->shape[i]));
        }
        if (out->shape[i] == 1) {
            out->strides[i] = 0;  // never walked, and may be anything
        }
    }
    if (out->shape[3] != desc.head_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "%s[%d].shape[3] is %lld, but the plan's head_dim is %lld", name,
                    index, static_cast<long long>(out->shape[3]), static_cast<long long>(desc.head_dim));
    }
    for (int i = 0; i < 3; i++) {
        if (out->shape[i] != shape[i]) {
            return fail(error, HALYARD_ERROR_SHAPE, "%s[%d].shape[%d] is %lld, but must be %lld as in %s", name, index,
                        i, static_cast<long long>(out->shape[i]), static_cast<long long>(shape[i]),
                        i < 2 ? "x[0]" : "its input");
        }
    }
    return HALYARD_OK;
}

bool same_strides(const halyard_tensor &a, const halyard_tensor &b) {
    return a.strides[0] == b.strides[0] && a.strides[1] == b.strides[1] && a.strides[2] == b.strides[2] &&
           a.strides[3] == b.strides[3];
}

halyard_status fail_range(const halyard_tensor &tensor, const char *name, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERFLOW,
                "%s[%d] leaves the address space: shape {%lld, %lld, %lld, %lld}, strides {%lld, %lld, %lld, %lld}",
                name, index, static_cast<long long>(tensor.shape[0]), static_cast<long long>(tensor.shape[1]),
                static_cast<long long>(tensor.shape[2]), static_cast<long long>(tensor.shape[3]),
                static_cast<long long>(tensor.strides[0]), static_cast<long long>(tensor.strides[1]),
                static_cast<long long>(tensor.strides[2]), static_cast<long long>(tensor.strides[3]));
}

halyard_status fail_overlap(const char *name, int index, int output, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERLAP, "y[%d] shares elements with %s[%d]", output, name, index);
}

/// Reads each tensor, checks it by itself and against its partner, and finds which pairs are in place.
halyard_status read_tensors(const halyard_tensor *given_x, const halyard_tensor *given_y, Run &run,
                            MemoryRange *x_memory, MemoryRange *y_memory, halyard_error *error) {
    run.is_empty = true;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const halyard_tensor_desc &desc = run.plan->tensors[i].desc;
        halyard_tensor &x = run.x[i], &y = run.y[i];
        // All tensors have one batch and one tokens; x[i] brings its own heads.
        const std::int64_t shape[] = {given_x[0].shape[0], given_x[0].shape[1], given_x[i].shape[2]};
        if (const halyard_status status = read_tensor(given_x[i], "x", i, desc, shape, &x, error)) {
            return status;
        }
        if (std::memcmp(&given_y[i], &given_x[i], sizeof(halyard_tensor)) == 0) {
            y = x;  // in place, as it mostly is: nothing new to check
        } else if (const halyard_status status = read_tensor(given_y[i], "y", i, desc, shape, &y, error)) {
            return status;
        }
        run.in_place[i] = x.data == y.data && same_strides(x, y) && desc.pairing == desc.out_pairing;
        if (x.shape[0] == 0 || x.shape[1] == 0 || x.shape[2] == 0) {
            continue;
        }
        run.is_empty = false;
        if (x.data == nullptr || y.data == nullptr) {
            return fail(error, HALYARD_ERROR_NULL_POINTER, "%s[%d].data is NULL", x.data == nullptr ? "x" : "y", i);
        }
        const std::int64_t bytes = element_bytes(desc.dtype);
        if (!find_memory_range(x.data, x.shape, x.strides, bytes, &x_memory[i])) {
            return fail_range(x, "x", i, error);
        }
        y_memory[i] = x_memory[i];
        if (!run.in_place[i] && !find_memory_range(y.data, y.shape, y.strides, bytes, &y_memory[i])) {
            return fail_range(y, "y", i, error);
        }
        if (!elements_are_apart(y)) {
            return fail(error, HALYARD_ERROR_STRIDE,
                        "y[%d] has strides %lld, %lld, %lld, %lld, by which two of its elements could meet", i,
                        static_cast<long long>(y.strides[0]), static_cast<long long>(y.strides[1]),
                        static_cast<long long>(y.strides[2]), static_cast<long long>(y.strides[3]));
        }
    }
    run.n_batch = run.x[0].shape[0];
    run.n_tokens = run.x[0].shape[1];
    return HALYARD_OK;
}

/// Checks that no output shares elements with any other argument, other than in place. Empty tensors have empty ranges.
/// Between outputs and positions or rows, spans are compared.
halyard_status check_overlaps(const Run &run, const MemoryRange *x_memory, const MemoryRange *y_memory,
                              halyard_error *error) {
    for (int i = 0; i < run.plan->n_tensors; i++) {
        if (y_memory[i].overlaps(run.positions.memory)) {
            return fail(error, HALYARD_ERROR_OVERLAP, "y[%d] shares memory with positions.data", i);
        }
        if (y_memory[i].overlaps(run.angles->cos_memory) || y_memory[i].overlaps(run.angles->sin_memory)) {
            return fail(error, HALYARD_ERROR_OVERLAP, "y[%d] shares memory with the rows of the angle source", i);
        }
        for (int j = 0; j < run.plan->n_tensors; j++) {
            if (!(i == j && run.in_place[i]) && y_memory[i].overlaps(x_memory[j]) && may_share_bytes(run.y[i], run.x[j])) {
                return fail_overlap("x", j, i, error);
            }
            if (j < i && y_memory[i].overlaps(y_memory[j]) && may_share_bytes(run.y[i], run.y[j])) {
                return fail_overlap("y", j, i, error);
            }
        }
    }
    return HALYARD_OK;
}

/// The kernel of a pair of tensors, by how they lie in memory.
const Kernel *find_kernel(const halyard_plan::Tensor &planned, const halyard_tensor &x, const halyard_tensor &y,
                          bool in_place) {
    const auto dense = [](const halyard_tensor &t) { return t.strides[3] == 1; };
    // Words of two are read at any address, so only what steps from head to head has to be even.
    const auto even = [](const halyard_tensor &t) { return ((t.strides[0] | t.strides[1] | t.strides[2]) & 1) == 0; };
    const Layout layout = !dense(x) || !dense(y) ? Layout::strided
                          : even(x) && even(y)   ? Layout::even
                                                 : Layout::dense;
    return planned.kernels[in_place ? 1 : 0][static_cast<int>(layout)];
}

halyard_status read_executor(const halyard_executor *executor, halyard_executor *out, halyard_error *error) {
    *out = {};
    if (const halyard_status status = read_struct(executor, sizeof(halyard_executor), "executor", out, error)) {
        return status;
    }
    if (out->parallel_for == nullptr) {
        return fail_null(error, "executor.parallel_for");
    }
    if (out->n_threads < 1 || out->n_threads > 1024) {
        return fail(error, HALYARD_ERROR_THREADS, "executor.n_threads is %d, but must be 1 to 1024", out->n_threads);
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_run(const halyard_plan *plan, const halyard_run_args *args, Run *run,
                        halyard_error *error) noexcept {
    if (plan == nullptr) {
        return fail_null(error, "plan");
    }
    halyard_run_args given = {};
    if (const halyard_status status = read_struct(args, sizeof(halyard_run_args), "args", &given, error)) {
        return status;
    }
    if (given.angles == nullptr) {
        return fail_null(error, "args.angles");
    }
    if (given.x == nullptr) {
        return fail_null(error, "args.x");
    }
    if (given.y == nullptr) {
        return fail_null(error, "args.y");
    }
    if (given.bad_position < HALYARD_BAD_POSITION_ERROR || given.bad_position > HALYARD_BAD_POSITION_IDENTITY) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "bad_position is %d, which is no policy", given.bad_position);
    }
    if (given.angles->rotary_dim != plan->rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has a rotary_dim of %lld, but the plan's is %lld",
                    static_cast<long long>(given.angles->rotary_dim), static_cast<long long>(plan->rotary_dim));
    }
    run->plan = plan;
    run->angles = given.angles;
    run->bad_position = given.bad_position;
    run->executor.n_threads = 0;
    MemoryRange x_memory[HALYARD_MAX_TENSORS], y_memory[HALYARD_MAX_TENSORS];
    halyard_status status = read_tensors(given.x, given.y, *run, x_memory, y_memory, error);
    if (status == HALYARD_OK) {
        status = read_positions(given.positions, run->n_batch, run->n_tokens, &run->positions, error);
    }
    if (status == HALYARD_OK) {
        status = check_overlaps(*run, x_memory, y_memory, error);
    }
    if (status == HALYARD_OK && given.executor != nullptr) {
        status = read_executor(given.executor, &run->executor, error);
    }
    if (status != HALYARD_OK) {
        return status;
    }
    for (int i = 0; i < plan->n_tensors; i++) {
        run->kernels[i] = find_kernel(plan->tensors[i], run->x[i], run->y[i], run->in_place[i]);
    }
    return HALYARD_OK;
}

}  // namespace halyard
