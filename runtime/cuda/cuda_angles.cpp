#include "cuda/cuda_angles.h"

#include "base/error.h"
#include "cuda/driver.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace halyard::cuda {

namespace {

/// Fills in the properties of a device's copy of a source, without memory.
void describe(const halyard_angle_source &source, DeviceAngles &out) {
    AngleShape &shape = out.source;
    shape = source;
    out.source.axes.n_axes = source.axes.n_axes;
    shape.is_direct = false;  // that is for kernels of the CPU
    if (source.kind != AngleKind::given) {
        shape.cos_memory = shape.sin_memory = {0, 0};  // host memory, which a device's outputs cannot overlap
    }
    out.form = source.kind == AngleKind::phase    ? AngleForm::phase
               : source.rows_dtype == Dtype::f16  ? AngleForm::rows_f16
               : source.rows_dtype == Dtype::bf16 ? AngleForm::rows_bf16
                                                  : AngleForm::rows_f32;
    out.n_rows = source.kind == AngleKind::phase ? 1 : source.n_rows;
}

/// Uploads to one allocation: the axis of each pair, then a zero, then the rows or frequencies that a source owns.
halyard_status upload(halyard_cuda_angles &angles, const halyard_angle_source &source, halyard_error *error) {
    const auto n_pairs = static_cast<std::size_t>(source.rotary_dim / 2), axes_bytes = (n_pairs + 1) * 4;
    std::unique_ptr<std::int32_t[]> axes(new (std::nothrow) std::int32_t[n_pairs + 1]());
    if (axes == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for the axes of ", n_pairs, " pairs");
    }
    for (std::size_t pair = 0; pair < n_pairs; pair++) {
        axes[pair] = source.axes.of(static_cast<std::int64_t>(pair));
    }
    const bool is_table = source.kind == AngleKind::table, is_phase = source.kind == AngleKind::phase;
    const struct Part {
        const void *data;
        std::size_t n_bytes;
    } parts[] = {{axes.get(), axes_bytes},
                 {source.owned_rows.get(),
                  is_table ? static_cast<std::size_t>(source.n_rows * source.stride_row) * sizeof(float) : 0},
                 {source.turns_high.get(), is_phase ? n_pairs * 4 : 0},
                 {source.turns_low.get(), is_phase ? n_pairs * 4 : 0}};
    std::size_t begins[5] = {};
    for (int i = 0; i < 4; i++) {
        begins[i + 1] = begins[i] + (parts[i].n_bytes + 63) / 64 * 64;  // each on 64 bytes
    }
    begins[4] = std::max<std::size_t>(begins[4], 256 * sizeof(float));  // launch_kv reads it in place of weights
    DeviceAngles &device = angles.device;
    auto *const memory = static_cast<char *>(allocate(angles.queue, begins[4]));
    device.axis_of_pair = memory;
    if (memory == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "the device has no memory for ", begins[4], " bytes of angles");
    }
    for (int i = 0; i < 4; i++) {
        const int status =
            parts[i].n_bytes == 0 ? 0 : copy_in(angles.queue, memory + begins[i], parts[i].data, parts[i].n_bytes);
        if (status != 0) {
            return fail(error, HALYARD_ERROR_DEVICE, parts[i].n_bytes,
                        " bytes of angles could not be copied to the device (", status, ")");
        }
    }
    device.first_rows = memory + begins[is_table ? 1 : 2];  // a table's rows have cos first, and then sin
    device.second_rows = is_table ? memory + begins[1] + n_pairs * sizeof(float) : memory + begins[3];
    return HALYARD_OK;
}

/// Sets *out to a caller's array of rows, after checking that it is on the queue's device.
halyard_status use_rows(const halyard_cuda_angles &angles, const char *name, const void *rows, void **out,
                        halyard_error *error) {
    *out = const_cast<void *>(rows);
    const auto bytes = static_cast<std::uint64_t>(element_bytes(angles.device.source.rows_dtype));
    if (reinterpret_cast<std::uintptr_t>(rows) % bytes != 0) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "the source's ", name, "_rows is not aligned to its elements");
    }
    return MemoryQueries(angles.queue).describe(*out).is_of_device
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_MISMATCH, "the source's ", name, "_rows is no memory of the queue's device");
}

/// Refuses sources that no kernel of a device can read.
halyard_status check_source(const halyard_angle_source &source, halyard_error *error) {
    if (source.by_token) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "the source's rows are by_token, but a GPU finds them by position");
    }
    if (source.kind != AngleKind::phase && source.n_rows > INT32_MAX / source.stride_row) {
        return fail(error, HALYARD_ERROR_OVERFLOW, source.n_rows, " rows of stride ", source.stride_row,
                    " are more than the 2^31 elements that a GPU kernel can reach");
    }
    return HALYARD_OK;
}

}  // namespace

}  // namespace halyard::cuda

using namespace halyard;
using namespace halyard::cuda;

extern "C" {

halyard_status halyard_create_cuda_angles(const halyard_cuda_queue *queue, const halyard_angle_source *source,
                                          halyard_cuda_angles **out, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(out, "out", error));
    HALYARD_TRY(check_given(source, "source", error));
    halyard_cuda_queue where;
    HALYARD_TRY(read_queue(queue, &where, error));
    HALYARD_TRY(check_source(*source, error));
    std::unique_ptr<halyard_cuda_angles, decltype(&halyard_destroy_cuda_angles)> angles(
        new (std::nothrow) halyard_cuda_angles{}, halyard_destroy_cuda_angles);
    if (angles == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for angles");
    }
    angles->queue = where;
    describe(*source, angles->device);
    HALYARD_TRY(upload(*angles, *source, error));
    if (source->kind == AngleKind::given) {
        HALYARD_TRY(use_rows(*angles, "cos", source->cos_rows, &angles->device.first_rows, error));
        HALYARD_TRY(use_rows(*angles, "sin", source->sin_rows, &angles->device.second_rows, error));
    }
    *out = angles.release();
    return HALYARD_OK;
}

void halyard_destroy_cuda_angles(halyard_cuda_angles *angles) {
    if (angles != nullptr) {
        release(angles->queue, angles->device.axis_of_pair);
        delete angles;
    }
}

}  // extern "C"
