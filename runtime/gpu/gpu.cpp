// The C ABI of halyard_gpu.h: objects. What a run does is in run.cpp.
#include "base/error.h"
#include "base/text.h"
#include "gpu/gpu_run.h"
#include "halyard/halyard_gpu.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

namespace halyard::gpu {

namespace {

halyard_status check_device(const char *name, std::int32_t device, halyard_error *error) {
    return device == HALYARD_CUDA || device == HALYARD_OPENCL
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, " is ", device,
                      ", but must be HALYARD_CUDA (1) or HALYARD_OPENCL (2)");
}

}  // namespace

halyard_status read_queue(const halyard_gpu_queue *queue, halyard_gpu_queue *out, halyard_error *error) noexcept {
    *out = {};
    if (const halyard_status status = read_struct(queue, sizeof(halyard_gpu_queue), "queue", out, error)) {
        return status;
    }
    if (const halyard_status status = check_device("queue.device", out->device, error)) {
        return status;
    }
    if (const halyard_status status = require_device(out->device, error)) {
        return status;
    }
    if (out->device == HALYARD_CUDA && out->context == nullptr) {
        out->context = current_cuda_context();
    }
    if (out->context == nullptr) {
        return fail_null(error, out->device == HALYARD_CUDA
                                    ? "queue.context, and no context is current in this thread: it"
                                    : "queue.context");
    }
    if (out->device == HALYARD_OPENCL && out->stream == nullptr) {
        return fail_null(error, "queue.stream");
    }
    install_handlers();
    return HALYARD_OK;
}

namespace {

struct ReleaseAngles {
    void operator()(halyard_gpu_angles *angles) const noexcept { halyard_destroy_gpu_angles(angles); }
};

halyard_status fail_memory(std::size_t n_bytes, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "the device has no memory for ", n_bytes, " bytes of angles");
}

halyard_status upload(const halyard_gpu_queue &queue, const void *data, std::size_t n_bytes, void **memory,
                      halyard_error *error) {
    *memory = allocate(queue, n_bytes);
    if (*memory == nullptr) {
        return fail_memory(n_bytes, error);
    }
    if (!copy_in(queue, *memory, data, n_bytes)) {
        return fail(error, HALYARD_ERROR_DEVICE, n_bytes, " bytes of angles could not be copied to the device");
    }
    return HALYARD_OK;
}

/// Which axis each pair reads, and a zero after them.
halyard_status upload_axes(halyard_gpu_angles &angles, halyard_error *error) {
    const PairAxes &axes = angles.device.source.axes;
    const std::int64_t n_pairs = angles.device.source.rotary_dim / 2;
    std::unique_ptr<std::int32_t[]> of_pair(new (std::nothrow) std::int32_t[static_cast<std::size_t>(n_pairs) + 1]());
    if (of_pair == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for the axes of ", n_pairs, " pairs");
    }
    std::int64_t pair = 0;
    for (std::int32_t axis = 0; axis < axes.n_axes && axes.kind == AxisMapKind::sections; axis++) {
        std::fill_n(of_pair.get() + pair, axes.counts[axis], axis);
        pair += axes.counts[axis];
    }
    for (std::int32_t axis = 1; axis < axes.n_axes && axes.kind == AxisMapKind::interleaved; axis++) {
        for (std::int64_t i = 0; i < axes.counts[axis]; i++) {
            of_pair[static_cast<std::size_t>(i * axes.n_axes + axis)] = axis;
        }
    }
    return upload(angles.queue, of_pair.get(), (static_cast<std::size_t>(n_pairs) + 1) * sizeof(std::int32_t),
                  &angles.device.axis_of_pair, error);
}

/// A given array of rows: of this device and large enough, as far as the driver can tell.
halyard_status check_rows(const halyard_gpu_angles &angles, const char *name, void *memory, std::int64_t offset,
                          halyard_error *error) {
    const halyard_angle_source &source = angles.device.source;
    const bool is_cuda = angles.queue.device == HALYARD_CUDA;
    if (offset < 0 || (is_cuda && offset != 0) || offset > INT32_MAX) {
        return fail(error, HALYARD_ERROR_OVERFLOW, name, "_offset is ", offset, ", but must be ",
                    is_cuda ? "0 with CUDA" : "0 to 2^31 - 1");
    }
    const MemoryInfo info = describe_memory(angles.queue, memory);
    const std::int64_t end = offset + (source.n_rows - 1) * source.stride_row + source.rotary_dim / 2;
    if (!info.is_of_context) {
        return fail(error, HALYARD_ERROR_MISMATCH, "the source's ", name, "_rows is no memory of the queue's device");
    }
    if (info.n_bytes / sizeof(float) < static_cast<std::uint64_t>(end)) {
        return fail(error, HALYARD_ERROR_SHAPE, "the source's ", name, "_rows end at element ", end,
                    ", but its buffer at ", info.n_bytes / sizeof(float));
    }
    return HALYARD_OK;
}

halyard_status use_rows(halyard_gpu_angles &angles, const halyard_angle_source &source, std::int64_t cos_offset,
                        std::int64_t sin_offset, halyard_error *error) {
    if (source.rows_dtype != Dtype::f32) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "the source has rows of 16 bits, but a GPU's must be float32");
    }
    angles.device.first_rows = const_cast<void *>(source.cos_rows);
    angles.device.second_rows = const_cast<void *>(source.sin_rows);
    angles.device.first_offset = cos_offset;
    angles.device.second_offset = sin_offset;
    const halyard_status status = check_rows(angles, "cos", angles.device.first_rows, cos_offset, error);
    return status != HALYARD_OK ? status : check_rows(angles, "sin", angles.device.second_rows, sin_offset, error);
}

halyard_status upload_source(halyard_gpu_angles &angles, const halyard_angle_source &source, halyard_error *error) {
    const auto n_pairs = static_cast<std::size_t>(source.rotary_dim / 2);
    DeviceAngles &device = angles.device;
    if (source.kind == AngleKind::phase) {
        const std::size_t n_bytes = n_pairs * sizeof(std::uint32_t);
        const halyard_status status = upload(angles.queue, source.turns_high.get(), n_bytes, &device.first_rows, error);
        return status != HALYARD_OK ? status
                                    : upload(angles.queue, source.turns_low.get(), n_bytes, &device.second_rows, error);
    }
    // One piece of memory: a row of cos and a row of sin for each position.
    device.second_offset = source.rotary_dim / 2;
    const halyard_status status =
        upload(angles.queue, source.owned_rows.get(),
               static_cast<std::size_t>(source.n_rows * source.stride_row) * sizeof(float), &device.first_rows, error);
    device.second_rows = device.first_rows;
    return status;
}

// ---- Plans ---------------------------------------------------------------------------------------------------------

/// All plans. Contexts hold their modules, and the last plan of a context unloads them: another may get its address.
class Plans {
public:
    void add(halyard_gpu_plan &plan) noexcept {
        const std::lock_guard lock(mutex_);
        plan.next = first_;
        first_ = &plan;
    }
    void remove(const halyard_gpu_plan &plan) noexcept {
        const std::lock_guard lock(mutex_);  // until all is unloaded: another thread may be about to load it again
        halyard_gpu_plan **link = &first_;
        while (*link != &plan) {
            link = &(*link)->next;
        }
        *link = plan.next;
        const halyard_gpu_plan *other = first_;
        while (other != nullptr && other->queue.context != plan.queue.context) {
            other = other->next;
        }
        if (other == nullptr) {
            Call call = {plan.queue.context, plan.queue.stream, ""};
            release_context(plan.queue.device == HALYARD_CUDA, call);
        }
    }

private:
    std::mutex mutex_;
    halyard_gpu_plan *first_ = nullptr;
};

Plans &plans() {
    alignas(Plans) static unsigned char memory[sizeof(Plans)];
    static Plans &all = *new (memory) Plans;  // never destroyed, because plans may outlive static objects
    return all;
}

/// A plan description for the CPU's checks, whose kernels are not called.
halyard_status read_gpu_desc(const halyard_plan_desc *desc, halyard_plan_desc *out, halyard_error *error) {
    if (const halyard_status status = read_struct(desc, sizeof(*out), "desc", out, error)) {
        return status;
    }
    if (out->target != nullptr || out->max_target != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "desc names a target, but the device decides");
    }
    out->size = sizeof(*out);
    out->target = "reference";
    return HALYARD_OK;
}

struct ReleasePlan {
    void operator()(halyard_gpu_plan *plan) const noexcept { halyard_destroy_gpu_plan(plan); }
};

/// Runs every kernel that a plan may need once, on memory of its own, so that the driver compiles it now.
halyard_status load_kernels(const halyard_gpu_plan &plan, halyard_error *error) {
    constexpr std::size_t n_bytes = 256;
    void *const scratch = allocate(plan.queue, n_bytes);
    if (scratch == nullptr) {
        return fail_memory(n_bytes, error);
    }
    const DeviceAngles &angles = plan.angles->device;
    const char zeros[n_bytes] = {};
    int status = copy_in(plan.queue, scratch, zeros, n_bytes) ? 0 : -1;
    const DevicePositions zero = {counted_positions(angles), 1, 0, 0, 0, 0};
    Call call = {plan.queue.context, plan.queue.stream, ""};
    const Launch launch = {&plan.queue, &angles, plan.part_alignment, 0, true};
    for (std::int32_t i = 0; i < plan.checks->n_tensors && status == 0; i++) {
        const TensorDesc &desc = plan.checks->tensors[i].desc;
        const bool converts = desc.pairing != desc.out_pairing;
        for (const bool in_place : {false, true}) {
            for (const std::int64_t stride_head : {std::int64_t(16), std::int64_t(17)}) {
                if (status != 0 || (in_place && converts)) {
                    continue;
                }
                // One head at position 0. The stride, never walked, decides between accesses of 128 bits and single
                // ones.
                DevicePiece piece = {};
                piece.dtype = desc.dtype;
                piece.pairing = desc.pairing;
                piece.out_pairing = desc.out_pairing;
                piece.in_place = in_place;
                piece.x = {scratch, 0};
                piece.y = {scratch, in_place ? 0 : 128};
                piece.in = piece.out = {0, 0, stride_head, 1};
                piece.rotary_dim = std::min<std::int64_t>(plan.checks->rotary_dim, 16);
                piece.n_heads = piece.n_tokens = 1;
                piece.positions = zero;
                status = rotate_on_device(launch, piece, call);
                if (status == 0 && !in_place) {
                    status = copy_on_device(launch, piece, 1, call);
                }
            }
        }
    }
    if (status == 0) {
        status = check_on_device(launch, zero, 1, {scratch, 0}, call);
    }
    char last[4];
    const bool is_done = copy_out(plan.queue, last, scratch, sizeof(last));  // waits for the launches
    release(plan.queue, scratch);
    if (status != 0 || !is_done) {
        return fail(error, HALYARD_ERROR_DEVICE,
                    "the kernels could not be loaded: ", call.message[0] != '\0' ? call.message : "the driver failed",
                    " (", status, ")");
    }
    return HALYARD_OK;
}

/// The kernels that serve a tensor, in a line each.
void explain_tensor(Text &text, Target target, const TensorDesc &tensor, bool in_place) {
    for (const GpuKernel &kernel : gpu_kernels()) {
        const bool is_fast = kernel.pairing.has_value(), converts = tensor.pairing != tensor.out_pairing;
        if (kernel.target != target || kernel.dtype != tensor.dtype || kernel.in_place != in_place ||
            (is_fast && (converts || kernel.pairing != tensor.pairing))) {
            continue;
        }
        text.add("  * ");
        text.add(kernel.name);
        text.add(kernel.with_phase != nullptr ? ": taken for angles by phase" : ": taken for rows of cos and sin");
        text.add(is_fast    ? ", where memory, strides and halves are multiples of 16 bytes\n"
                 : converts ? ", for any layout\n"
                            : ", for any other layout\n");
        text.add_schedule(kernel.schedule);
    }
}

}  // namespace

}  // namespace halyard::gpu

using namespace halyard;
using namespace halyard::gpu;

extern "C" {

halyard_status halyard_get_gpu_target_info(int32_t device, halyard_target_info *info, halyard_error *error) {
    if (const halyard_status status = check_device("device", device, error)) {
        return status;
    }
    halyard_target_info value = {};
    value.size = sizeof(value);
    halyard_get_target_info(static_cast<std::int32_t>(target_of(device)), &value, nullptr);  // there is such a target
    const char *const reason = why_not(device);
    value.built = 1;
    value.supported = reason[0] == '\0' ? 1 : 0;
    value.active = 0;
    std::snprintf(value.reason, sizeof(value.reason), "%s", reason[0] != '\0' ? reason : "serves its own memory alone");
    return write_struct(value, sizeof(halyard_target_info), "info", info, error);
}

halyard_status halyard_explain_gpu_plan(int32_t device, const halyard_plan_desc *desc, char *text, int64_t n_bytes,
                                        int64_t *n_needed, halyard_error *error) {
    if (const halyard_status status = check_device("device", device, error)) {
        return status;
    }
    if (const halyard_status status = check_text(text, n_bytes, error)) {
        return status;
    }
    halyard_plan_desc copy = {};
    if (const halyard_status status = read_gpu_desc(desc, &copy, error)) {
        return status;
    }
    halyard_plan *checked = nullptr;
    if (const halyard_status status = halyard_create_plan(&copy, &checked, error)) {
        return status;
    }
    Text lines = {text, n_bytes};
    if (const char *const reason = why_not(device); reason[0] != '\0') {
        lines.add("no kernel can be taken on this machine: ");
        lines.add(reason);
        lines.add("\n");
    }
    for (std::int32_t i = 0; i < checked->n_tensors; i++) {
        const TensorDesc &tensor = checked->tensors[i].desc;
        for (const bool in_place : {false, true}) {
            if (in_place && tensor.pairing != tensor.out_pairing) {
                continue;
            }
            char heading[64];
            std::snprintf(heading, sizeof(heading), "tensor %d, %s:\n", i, in_place ? "in place" : "out of place");
            lines.add(heading);
            explain_tensor(lines, target_of(device), tensor, in_place);
        }
    }
    lines.end(n_needed);
    halyard_destroy_plan(checked);
    return HALYARD_OK;
}

halyard_status halyard_create_gpu_angles(const halyard_gpu_queue *queue, const halyard_angle_source *source,
                                         int64_t cos_offset, int64_t sin_offset, halyard_gpu_angles **out,
                                         halyard_error *error) {
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    if (source == nullptr) {
        return fail_null(error, "source");
    }
    halyard_gpu_queue where;
    if (const halyard_status status = read_queue(queue, &where, error)) {
        return status;
    }
    if (source->kind == AngleKind::factored) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "HALYARD_ANGLES_FACTORED is for the CPU; PHASE needs less memory");
    }
    if (source->listed != nullptr) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "the source lists positions with gaps between them, and a GPU finds rows by subtraction only");
    }
    const bool is_given = source->kind == AngleKind::given, has_rows = source->kind != AngleKind::phase;
    if (has_rows && source->n_rows > INT32_MAX / source->stride_row) {
        return fail(error, HALYARD_ERROR_OVERFLOW, source->n_rows, " rows of stride ", source->stride_row,
                    " are more than the 2^31 elements that a GPU kernel can reach");
    }
    std::unique_ptr<halyard_gpu_angles, ReleaseAngles> angles(new (std::nothrow) halyard_gpu_angles{});
    if (angles == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for angles");
    }
    angles->queue = where;
    halyard_angle_source &shape = angles->device.source;
    shape.kind = source->kind;
    shape.rotary_dim = source->rotary_dim;
    shape.first = source->first;
    shape.last = source->last;
    shape.axes = source->axes;
    shape.n_rows = source->n_rows;
    shape.identity_row = source->identity_row;
    shape.stride_row = source->stride_row;
    shape.scale_high = source->scale_high;
    shape.scale_low = source->scale_low;
    if (is_given && where.device == HALYARD_CUDA) {  // addresses that outputs must not meet
        shape.cos_memory = source->cos_memory;
        shape.sin_memory = source->sin_memory;
    }
    halyard_status status = upload_axes(*angles, error);
    if (status == HALYARD_OK) {
        status = is_given ? use_rows(*angles, *source, cos_offset, sin_offset, error)
                          : upload_source(*angles, *source, error);
    }
    if (status == HALYARD_OK) {
        *out = angles.release();
    }
    return status;
}

void halyard_destroy_gpu_angles(halyard_gpu_angles *angles) {
    if (angles == nullptr) {
        return;
    }
    const DeviceAngles &device = angles->device;
    release(angles->queue, device.axis_of_pair);
    if (device.source.kind != AngleKind::given) {
        release(angles->queue, device.first_rows);
        if (device.second_rows != device.first_rows) {
            release(angles->queue, device.second_rows);
        }
    }
    delete angles;
}

halyard_status halyard_create_gpu_plan(const halyard_gpu_queue *queue, const halyard_plan_desc *desc,
                                       const halyard_gpu_angles *angles, halyard_gpu_plan **out, halyard_error *error) {
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    if (angles == nullptr) {
        return fail_null(error, "angles");
    }
    halyard_gpu_queue where;
    if (const halyard_status status = read_queue(queue, &where, error)) {
        return status;
    }
    if (where.context != angles->queue.context) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles lie in another context than queue's");
    }
    halyard_plan_desc copy = {};
    if (const halyard_status status = read_gpu_desc(desc, &copy, error)) {
        return status;
    }
    if (copy.rotary_dim != angles->device.source.rotary_dim) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles has a rotary_dim of ", angles->device.source.rotary_dim,
                    ", but the plan's is ", copy.rotary_dim);
    }
    std::unique_ptr<halyard_gpu_plan, ReleasePlan> plan(new (std::nothrow) halyard_gpu_plan{});
    if (plan == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    }
    plan->queue = where;
    plans().add(*plan);  // which its end takes back
    plan->angles = angles;
    plan->part_alignment = where.device == HALYARD_OPENCL ? part_alignment(where) : 1;
    halyard_status status = halyard_create_plan(&copy, &plan->checks, error);
    if (status == HALYARD_OK) {
        status = load_kernels(*plan, error);
    }
    if (status == HALYARD_OK) {
        *out = plan.release();
    }
    return status;
}

void halyard_destroy_gpu_plan(halyard_gpu_plan *plan) {
    if (plan == nullptr) {
        return;
    }
    plans().remove(*plan);
    halyard_destroy_plan(plan->checks);
    delete plan;
}

}  // extern "C"
