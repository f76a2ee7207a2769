#include "read/read_run.h"

#include "base/error.h"
#include "base/overlap.h"
#include "base/versioned.h"
#include "read/areas.h"
#include "read/read_stages.h"

#include <cstdio>
#include <cstring>
#include <optional>

namespace halyard {

namespace {

/// What a tensor's description and its partners ask of it.
struct Asked {
    Dtype dtype;
    std::int32_t device;
    std::int64_t shape[4];
};

/// Whether a tensor is what is asked. The shape of `asked` but for the heads is not negative.
bool fits(const halyard_tensor &tensor, const Asked &asked) {
    return tensor.dtype == static_cast<std::int32_t>(asked.dtype) && tensor.device == asked.device &&
           tensor.reserved == 0 && tensor.shape[0] == asked.shape[0] && tensor.shape[1] == asked.shape[1] &&
           tensor.shape[2] == asked.shape[2] && asked.shape[2] >= 0 && tensor.shape[3] == asked.shape[3];
}

/// Says why a tensor does not fit.
halyard_status fail_fit(const halyard_tensor &tensor, const char *name, int index, const Asked &asked,
                        halyard_error *error) {
    if (tensor.size != sizeof(halyard_tensor)) {
        char what[24];
        std::snprintf(what, sizeof(what), "%s[%d]", name, index);
        return fail_size(tensor, what, error);
    }
    if (tensor.reserved != 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, "[", index, "].reserved is ", tensor.reserved,
                    ", but must be 0");
    }
    if (!to_dtype(tensor.dtype)) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, "[", index, "].dtype is ", tensor.dtype,
                    ", which is no dtype");
    }
    if (tensor.dtype != static_cast<std::int32_t>(asked.dtype)) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, "[", index, "].dtype is ", name_of_dtype(tensor.dtype),
                    ", but the plan's is ", name_of(asked.dtype));
    }
    if (tensor.device < HALYARD_CPU || tensor.device > HALYARD_CUDA) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, "[", index, "].device is ", tensor.device,
                    ", which is no device");
    }
    if (tensor.device != asked.device) {
        const auto name_of_device = [](std::int32_t device) { return device == HALYARD_CPU ? "CPU" : "CUDA"; };
        return fail(error, HALYARD_ERROR_UNSUPPORTED, name, "[", index, "].device is HALYARD_",
                    name_of_device(tensor.device), " (", tensor.device, "), but this call runs on HALYARD_",
                    name_of_device(asked.device), " only");
    }
    for (int i = 0; i < 4; i++) {
        if (tensor.shape[i] < 0) {
            return fail(error, HALYARD_ERROR_SHAPE, name, "[", index, "].shape[", i, "] is ", tensor.shape[i],
                        ", but must not be negative");
        }
    }
    if (tensor.shape[3] != asked.shape[3]) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, "[", index, "].shape[3] is ", tensor.shape[3],
                    asked.dtype == Dtype::uint8 ? ", but a record of the plan's has " : ", but the plan's head_dim is ",
                    asked.shape[3], asked.dtype == Dtype::uint8 ? " bytes" : "");
    }
    int i = 0;
    while (i < 2 && tensor.shape[i] == asked.shape[i]) {
        i++;
    }
    return fail(error, HALYARD_ERROR_SHAPE, name, "[", index, "].shape[", i, "] is ", tensor.shape[i], ", but must be ",
                asked.shape[i], " as in ", i < 2 ? "x[0]" : "its input");
}

/// A tensor's strides, but 0 for those that are never walked and may be anything.
void read_strides(const halyard_tensor &tensor, RunTensor::Strides &strides) {
    strides.batch = tensor.shape[0] > 1 ? tensor.strides[0] : 0;
    strides.token = tensor.shape[1] > 1 ? tensor.strides[1] : 0;
    strides.head = tensor.shape[2] > 1 ? tensor.strides[2] : 0;
    strides.element = tensor.shape[3] > 1 ? tensor.strides[3] : 1;  // as if dense
}

bool same_strides(const RunTensor &tensor) {
    return tensor.in.batch == tensor.out.batch && tensor.in.token == tensor.out.token &&
           tensor.in.head == tensor.out.head && tensor.in.element == tensor.out.element;
}

halyard_status fail_range(const halyard_tensor &tensor, const char *name, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERFLOW, name, "[", index, "] leaves the address space: shape {", tensor.shape[0],
                ", ", tensor.shape[1], ", ", tensor.shape[2], ", ", tensor.shape[3], "}, strides {", tensor.strides[0],
                ", ", tensor.strides[1], ", ", tensor.strides[2], ", ", tensor.strides[3], "}");
}

halyard_status fail_record_stride(const halyard_tensor &tensor, const char *name, int index, halyard_error *error) {
    return fail(error, HALYARD_ERROR_STRIDE, name, "[", index, "].strides[3] is ", tensor.strides[3],
                ", but the bytes of a record lie one after the other");
}

/// Reads where the output of a tensor lies whose input was read. is_same: it is the input in every field. (Inline for
/// the cost of a run.)
[[gnu::always_inline]] inline halyard_status read_output(const halyard_tensor &x, const halyard_tensor &y, int i,
                                                         bool is_same, Run &run, Spans &spans, halyard_error *error) {
    const TensorDesc &desc = run.plan->tensors[i];
    RunTensor &tensor = run.tensors[i];
    spans.y[i].begin = spans.x[i].begin;
    spans.y[i].end = spans.x[i].end;
    if (!is_same && !find_memory_range(y.data, y.shape, y.strides, element_bytes(desc.out_dtype), &spans.y[i])) {
        return fail_range(y, "y", i, error);
    }
    if (!elements_are_apart(y)) {
        return fail(error, HALYARD_ERROR_STRIDE, "y[", i, "] has strides ", y.strides[0], ", ", y.strides[1], ", ",
                    y.strides[2], ", ", y.strides[3], ", by which two of its elements could meet");
    }
    if (desc.groups && y.strides[3] != 1) {
        return fail_record_stride(y, "y", i, error);
    }
    tensor.y = static_cast<char *>(y.data);
    read_strides(y, tensor.out);
    tensor.in_place = desc.pairing == desc.out_pairing && desc.dtype == desc.out_dtype &&
                      desc.in_dim() == desc.out_dim() && (is_same || (x.data == y.data && same_strides(tensor)));
    tensor.within_int32 = spans.x[i].n_bytes() <= INT32_MAX && spans.y[i].n_bytes() <= INT32_MAX;
    return HALYARD_OK;
}

/// Checks the sizes of all tensors that are read. Of one whose size is not set nothing else may be there to read.
halyard_status check_sizes(const PlanDesc &plan, const halyard_tensor *x, const halyard_tensor *y,
                           halyard_error *error) {
    for (int i = 0; i < plan.n_tensors; i++) {
        const bool has_cache = !plan.only_rotates && plan.tensors[i].cache;
        if (x[i].size != sizeof(halyard_tensor)) {
            return fail_fit(x[i], "x", i, {}, error);
        }
        if (y[i].size != sizeof(halyard_tensor) && !has_cache) {
            return fail_fit(y[i], "y", i, {}, error);
        }
    }
    return HALYARD_OK;
}

/// Reads tensors, and checks each by itself and against its partner.
halyard_status read_tensors(const halyard_tensor *given_x, const halyard_tensor *given_y, std::int32_t device, Run &run,
                            Spans &spans, halyard_error *error) {
    HALYARD_TRY(check_sizes(*run.plan, given_x, given_y, error));
    run.n_batch = given_x[0].shape[0];
    run.n_tokens = given_x[0].shape[1];
    run.is_empty = true;
    run.written_apart = 0;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        const halyard_tensor &x = given_x[i], &y = given_y[i];
        const bool has_cache = !run.plan->only_rotates && desc.cache;
        const std::int64_t heads = x.shape[2];
        Asked asked = {desc.dtype, device, {run.n_batch, run.n_tokens, heads, desc.in_dim()}};
        if (run.n_batch < 0 || run.n_tokens < 0 || !fits(x, asked)) {
            return fail_fit(x, "x", i, asked, error);
        }
        asked.dtype = desc.out_dtype;
        asked.shape[3] = desc.out_dim();
        // In place the output mostly is its input in every field, and there is nothing new to check.
        const bool is_same = !has_cache && desc.dtype == desc.out_dtype && desc.in_dim() == desc.out_dim() &&
                             (&y == &x || std::memcmp(&y, &x, sizeof(halyard_tensor)) == 0);
        if (!is_same && !has_cache && !fits(y, asked)) {
            return fail_fit(y, "y", i, asked, error);
        }
        RunTensor &tensor = run.tensors[i];
        tensor.n_heads = run.n_batch == 0 || run.n_tokens == 0 ? 0 : heads;
        if (tensor.n_heads == 0) {
            spans.x[i] = spans.y[i] = {0, 0};
            continue;
        }
        run.is_empty = false;
        if (has_cache && run.plan->rerotates) {
            spans.x[i] = spans.y[i] = {0, 0};
            tensor.in_place = true;
            continue;  // it is read in the cache too
        }
        if (x.data == nullptr || (y.data == nullptr && !has_cache)) {
            return fail(error, HALYARD_ERROR_NULL_POINTER, x.data == nullptr ? "x" : "y", "[", i, "].data is NULL");
        }
        if (!find_memory_range(x.data, x.shape, x.strides, element_bytes(desc.dtype), &spans.x[i])) {
            return fail_range(x, "x", i, error);
        }
        if (desc.from_groups && x.strides[3] != 1) {
            return fail_record_stride(x, "x", i, error);
        }
        tensor.x = static_cast<const char *>(x.data);
        read_strides(x, tensor.in);
        if (has_cache) {
            tensor.in_place = false;
            spans.y[i] = {0, 0};
            continue;  // read_stages does the rest
        }
        HALYARD_TRY(read_output(x, y, i, is_same, run, spans, error));
        run.written_apart += tensor.in_place ? 0 : spans.y[i].n_bytes();
    }
    return HALYARD_OK;
}

/// Checks that it is clear which of the caller's rows a token reads. Rows by token belong to one shape of
/// run. Others are found by position: without positions several batch rows would all read the same rows, which is not
/// what a caller of rows for [batch, 1] tokens means.
halyard_status check_given_rows(const halyard_angle_source &angles, bool has_positions, Run &run,
                                halyard_error *error) {
    if (!angles.by_token) {
        if (!has_positions && run.n_batch > 1 && !run.is_empty) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.positions is NULL, but ", run.n_batch,
                        " batch rows need positions to find given rows by, or rows that are given by_token");
        }
        return HALYARD_OK;
    }
    if (has_positions) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.positions is set, but the angle source's rows are by_token");
    }
    const std::int64_t n_batch = angles.is_shared ? 1 : run.n_batch;
    if (!run.is_empty && (angles.n_rows % n_batch != 0 || angles.n_rows / n_batch != run.n_tokens)) {
        return fail(error, HALYARD_ERROR_SHAPE, "the angle source has ", angles.n_rows, " rows by_token",
                    angles.is_shared ? " that batch rows share" : "", ", but the run ", run.n_batch, " x ",
                    run.n_tokens, " tokens");
    }
    run.positions.stride_batch = angles.is_shared ? 0 : run.n_tokens;
    return HALYARD_OK;
}

/// Reads where the keys of a plan that rerotates come from, where positions were read; refuses it for other plans.
halyard_status read_moves(const halyard_run_args &args, Run &run, halyard_error *error) {
    if (!run.plan->rerotates) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.from_",
                    args.from_positions != nullptr ? "positions" : "angles", " is set, but the plan does not rerotate");
    }
    HALYARD_TRY(check_given(args.from_positions, "args.from_positions", error));
    if (run.bad_position != BadPosition::error) {
        return fail(error, HALYARD_ERROR_MISMATCH, "bad_position is ", args.bad_position,
                    ", but keys move from and to every position of 32 bits, so that it must be 0");
    }
    run.from_angles = args.from_angles != nullptr ? args.from_angles : run.angles;
    HALYARD_TRY(check_source_of_moves(*run.angles, "angles", run.plan->rotary_dim, error));
    HALYARD_TRY(check_source_of_moves(*run.from_angles, "from_angles", run.plan->rotary_dim, error));
    return read_positions(args.from_positions, run.n_batch, run.n_tokens, run.from_angles->axes.n_axes,
                          &run.from_positions, error, "from_positions");
}

/// Reads the positions that a run rotates by, or from and to.
halyard_status read_tokens(const halyard_run_args &given, Run &run, halyard_error *error) {
    if (!run.plan->rotates) {
        run.positions = {};
    } else if (given.positions == nullptr && (run.is_empty || given.angles->kind == AngleKind::given)) {
        run.positions = positions_in_order;
    } else {
        HALYARD_TRY(read_positions(given.positions, run.n_batch, run.n_tokens, given.angles->axes.n_axes,
                                   &run.positions, error));
    }
    if (run.plan->rotates && given.angles->kind == AngleKind::given) {
        HALYARD_TRY(check_given_rows(*given.angles, given.positions != nullptr, run, error));
    }
    const bool moves = run.plan->rerotates || given.from_positions != nullptr || given.from_angles != nullptr;
    return moves ? read_moves(given, run, error) : HALYARD_OK;
}

halyard_status read_executor(const halyard_executor *executor, halyard_executor *out, halyard_error *error) {
    *out = {};
    HALYARD_TRY(read_struct(executor, "executor", out, error));
    HALYARD_TRY(check_given(out->parallel_for, "executor.parallel_for", error));
    if (out->n_threads < 1 || out->n_threads > 1024) {
        return fail(error, HALYARD_ERROR_THREADS, "executor.n_threads is ", out->n_threads, ", but must be 1 to 1024");
    }
    return HALYARD_OK;
}

/// Checks that a caller who says how many tensors there are, not 0, has as many as the plan; and that reserved is 0.
halyard_status check_n_tensors(const PlanDesc &plan, std::int32_t n_tensors, std::int32_t reserved,
                               halyard_error *error) {
    if (n_tensors != 0 && n_tensors != plan.n_tensors) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_tensors is ", n_tensors, ", but the plan's is ",
                    plan.n_tensors);
    }
    if (reserved != 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "args.reserved is ", reserved, ", but must be 0");
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_run(const PlanDesc *plan, const halyard_run_args *args, std::int32_t device, Run *run, Spans *spans,
                        halyard_error *error) noexcept {
    HALYARD_TRY(check_given(plan, "plan", error));
    HALYARD_TRY(check_struct(args, "args", error));
    const halyard_run_args &given = *args;
    if (given.angles == nullptr && plan->rotates) {
        return fail_null(error, "args.angles");
    }
    HALYARD_TRY(check_given(given.x, "args.x", error));
    HALYARD_TRY(check_given(given.y, "args.y", error));
    HALYARD_TRY(check_n_tensors(*plan, given.n_tensors, given.reserved, error));
    const std::optional<BadPosition> bad_position = to_bad_position(given.bad_position);
    if (!bad_position) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "bad_position is ", given.bad_position, ", which is no policy");
    }
    if (plan->rotates && given.angles->rotary_dim != plan->rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has a rotary_dim of ", given.angles->rotary_dim,
                    ", but the plan's is ", plan->rotary_dim);
    }
    run->plan = plan;
    run->angles = plan->rotates ? given.angles : nullptr;
    run->slots.data = nullptr;
    run->bad_position = *bad_position;
    run->is_bound = false;
    run->executor.n_threads = 0;
    HALYARD_TRY(read_part(given.part, given.n_parts, given.executor != nullptr, &run->share, error));
    HALYARD_TRY(read_tensors(given.x, given.y, device, *run, *spans, error));
    HALYARD_TRY(read_tokens(given, *run, error));
    if (!plan->only_rotates || given.slots != nullptr || given.stages != nullptr) {
        HALYARD_TRY(read_stages(given.slots, given.stages, *run, *spans, error));
    }
    const Areas areas(*run, run->angles, run->positions, *spans);
    if (areas.any_spans_meet()) {
        HALYARD_TRY(areas.check(given.x, given.y, error));
    }
    return given.executor != nullptr ? read_executor(given.executor, &run->executor, error) : HALYARD_OK;
}

}  // namespace halyard
