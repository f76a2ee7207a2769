#include "gpu/gpu_angles.h"

#include "base/error.h"
#include "gpu/driver.h"

#include <cstddef>
#include <memory>
#include <new>

namespace halyard::gpu {

namespace {

halyard_status upload(const halyard_gpu_queue &queue, const void *data, std::size_t n_bytes, void **memory,
                      halyard_error *error) {
    *memory = allocate(queue, n_bytes);
    if (*memory == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "the device has no memory for ", n_bytes, " bytes of angles");
    }
    if (const int status = copy_in(queue, *memory, data, n_bytes)) {
        return fail(error, HALYARD_ERROR_DEVICE, n_bytes, " bytes of angles could not be copied to the device (",
                    status, ")");
    }
    return HALYARD_OK;
}

AngleForm form_of(const halyard_angle_source &source) {
    switch (source.kind) {
    case AngleKind::phase: return AngleForm::phase;
    case AngleKind::table:
    case AngleKind::given: break;
    }
    return source.rows_dtype == Dtype::f16    ? AngleForm::rows_f16
           : source.rows_dtype == Dtype::bf16 ? AngleForm::rows_bf16
                                              : AngleForm::rows_f32;
}

/// Uploads the axis that each pair reads, and a zero after them.
halyard_status upload_axes(halyard_gpu_angles &angles, const PairAxes &axes, halyard_error *error) {
    const std::int64_t n_pairs = angles.device.source.rotary_dim / 2;
    std::unique_ptr<std::int32_t[]> of_pair(new (std::nothrow) std::int32_t[static_cast<std::size_t>(n_pairs) + 1]());
    if (of_pair == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for the axes of ", n_pairs, " pairs");
    }
    for (std::int64_t pair = 0; pair < n_pairs; pair++) {
        of_pair[static_cast<std::size_t>(pair)] = axes.of(pair);
    }
    return upload(angles.queue, of_pair.get(), (static_cast<std::size_t>(n_pairs) + 1) * sizeof(std::int32_t),
                  &angles.device.axis_of_pair, error);
}

/// Checks that a given array of rows is on the queue's device.
halyard_status check_rows(const halyard_gpu_angles &angles, const char *name, void *memory, halyard_error *error) {
    const auto bytes = static_cast<std::uint64_t>(element_bytes(angles.device.source.rows_dtype));
    if (reinterpret_cast<std::uintptr_t>(memory) % bytes != 0) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "the source's ", name, "_rows is not aligned to its elements");
    }
    return MemoryQueries(angles.queue).describe(memory).is_of_device
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_MISMATCH, "the source's ", name, "_rows is no memory of the queue's device");
}

halyard_status use_rows(halyard_gpu_angles &angles, const halyard_angle_source &source, halyard_error *error) {
    angles.device.first_rows = const_cast<void *>(source.cos_rows);
    angles.device.second_rows = const_cast<void *>(source.sin_rows);
    HALYARD_TRY(check_rows(angles, "cos", angles.device.first_rows, error));
    return check_rows(angles, "sin", angles.device.second_rows, error);
}

halyard_status upload_source(halyard_gpu_angles &angles, const halyard_angle_source &source, halyard_error *error) {
    const auto n_pairs = static_cast<std::size_t>(source.rotary_dim / 2);
    DeviceAngles &device = angles.device;
    if (source.kind == AngleKind::phase) {
        const std::size_t n_bytes = n_pairs * sizeof(std::uint32_t);
        HALYARD_TRY(upload(angles.queue, source.turns_high.get(), n_bytes, &device.first_rows, error));
        return upload(angles.queue, source.turns_low.get(), n_bytes, &device.second_rows, error);
    }
    // One piece of memory, in which each row is one of cos and one of sin.
    const auto n_floats = static_cast<std::size_t>(device.n_rows * source.stride_row);
    HALYARD_TRY(
        upload(angles.queue, source.owned_rows.get(), n_floats * sizeof(float), &device.first_rows, error));
    device.second_rows = static_cast<float *>(device.first_rows) + n_pairs;
    return HALYARD_OK;
}

/// Refuses sources that no kernel of a device reads.
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

}  // namespace halyard::gpu

using namespace halyard;
using namespace halyard::gpu;

extern "C" {

halyard_status halyard_create_gpu_angles(const halyard_gpu_queue *queue, const halyard_angle_source *source,
                                         halyard_gpu_angles **out, halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(out, "out", error));
    HALYARD_TRY(check_given(source, "source", error));
    halyard_gpu_queue where;
    HALYARD_TRY(read_queue(queue, &where, error));
    if (const halyard_status refused = check_source(*source, error)) {
        return refused;
    }
    const bool is_given = source->kind == AngleKind::given;
    std::unique_ptr<halyard_gpu_angles, decltype(&halyard_destroy_gpu_angles)> angles(
        new (std::nothrow) halyard_gpu_angles{}, halyard_destroy_gpu_angles);
    if (angles == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for angles");
    }
    angles->queue = where;
    halyard_angle_source &shape = angles->device.source;
    shape.kind = source->kind;
    shape.rotary_dim = source->rotary_dim;
    shape.first = source->first;
    shape.last = source->last;
    shape.axes.n_axes = source->axes.n_axes;
    shape.n_rows = source->n_rows;
    shape.identity_row = source->identity_row;
    shape.stride_row = source->stride_row;
    shape.rows_dtype = source->rows_dtype;
    shape.scale_high = source->scale_high;
    shape.scale_low = source->scale_low;
    if (is_given) {  // addresses that outputs must not meet
        shape.cos_memory = source->cos_memory;
        shape.sin_memory = source->sin_memory;
    }
    DeviceAngles &device = angles->device;
    device.form = form_of(*source);
    device.n_rows = source->kind == AngleKind::phase ? 1 : source->n_rows;
    HALYARD_TRY(upload_axes(*angles, source->axes, error));
    HALYARD_TRY(is_given ? use_rows(*angles, *source, error) : upload_source(*angles, *source, error));
    *out = angles.release();
    return HALYARD_OK;
}

void halyard_destroy_gpu_angles(halyard_gpu_angles *angles) {
    if (angles == nullptr) {
        return;
    }
    const DeviceAngles &device = angles->device;
    release(angles->queue, device.axis_of_pair);
    if (device.source.kind != AngleKind::given) {
        release(angles->queue, device.first_rows);
        if (device.source.kind == AngleKind::phase) {  // else both are of one piece of memory
            release(angles->queue, device.second_rows);
        }
    }
    delete angles;
}

}  // extern "C"
