#include "cuda/cuda_plan.h"

#include "base/error.h"
#include "base/text.h"
#include "base/versioned.h"
#include "cuda/driver.h"
#include "cuda/halide_runtime.h"
#include "cuda/launch.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace halyard::cuda {

namespace {

/// The list of all plans, which tells whether a plan is its context's last. Halide keeps loaded kernels by the
/// context's address, which a later context may have too; so a context's last plan unloads them. (These variables have
/// no destructors, because plans may outlive static objects.)
std::mutex plans_mutex;
halyard_cuda_plan *first_plan = nullptr;

void add_to_plans(halyard_cuda_plan &plan) noexcept {
    const std::lock_guard lock(plans_mutex);
    plan.next = std::exchange(first_plan, &plan);
}

void remove_from_plans(const halyard_cuda_plan &plan) noexcept {
    const std::lock_guard lock(plans_mutex);  // until all is unloaded, since another thread may load it again
    bool is_last = true;
    for (halyard_cuda_plan **link = &first_plan; *link != nullptr;) {
        if (*link == &plan) {
            *link = plan.next;
        } else {
            is_last = is_last && (*link)->queue.context != plan.queue.context;
            link = &(*link)->next;
        }
    }
    if (is_last) {
        Call call = {plan.queue.context, plan.queue.stream, ""};
        unload_modules(call);
    }
}

/// Checks a description and fills in *out, for a device, which decides the target.
halyard_status read_cuda_desc(const halyard_plan_desc *desc, halyard_plan *out, halyard_error *error) {
    PlanReading given;
    std::shared_ptr<KvPlan> kv_plan;
    HALYARD_TRY(read_plan(desc, out, &given, error));
    HALYARD_TRY(read_kv_plan(given, out, &kv_plan, error));
    out->kv_plan = kv_plan;
    if (given.desc.target != nullptr || given.desc.max_target != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, given.desc.target != nullptr ? "desc.target" : "desc.max_target",
                    " is set, but must be NULL: the device decides which kernels run");
    }
    if (out->kv_plan != nullptr && kv_plan->rerotates) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "rerotates is 1, but on a device this version moves no keys from position to position");
    }
    for (int i = 0; i < out->n_tensors; i++) {
        if (out->tensors[i].head_dim > most_blocks) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", i, "].head_dim is ", out->tensors[i].head_dim,
                        ", but heads on a device have at most 65535 elements");
        }
        if (const char *const reason = why_never(*out, i)) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", i, "].kv.", reason,
                        ", which no kernel of a device takes");
        }
    }
    return HALYARD_OK;
}

/// Device memory for a first run of each kernel, which makes the driver load the kernel.
struct Scratch {
    static constexpr std::size_t n_bytes = 4096;
    Address memory;
    LaunchPositions position_0;
};

/// Runs each rotation and copy kernel that a plan may need, on one head at position 0. The stride between heads is
/// never used but decides the width of copies: 16 is aligned and 17 is not.
int load_rotation_kernels(const halyard_cuda_plan &plan, const Launch &launch, const Scratch &scratch, Call &call) {
    return until_error(std::int64_t{2} * plan.checks.n_tensors, [&](std::int64_t i) {
        const bool in_place = i % 2 != 0;
        const TensorPlan &tensor_plan = plan.checks.tensors[i / 2];
        if (in_place && tensor_plan.pairing != tensor_plan.out_pairing) {
            return 0;
        }
        const Address y = moved(scratch.memory, in_place ? 0 : 128);
        Heads heads = {&tensor_plan, scratch.memory, y, {0, 16, 1}, {0, 16, 1}, 1, in_place};
        const std::int64_t rotary_dim = std::min<std::int64_t>(plan.checks.rotary_dim, 16);
        const DevicePiece piece = {heads, rotary_dim, rotary_dim / 2, 1, scratch.position_0};
        int status = 0;
        for (const CudaKernel &kernel : cuda_kernels()) {
            status = status == 0 && takes(kernel, piece) ? launch_rotation(kernel, launch, piece, call) : status;
        }
        for (const std::int64_t stride_head : {16, 17}) {
            heads.in.head = stride_head;
            status = status == 0 && !in_place ? copy_on_device({heads, 0, 16, 1, {}}, call) : status;
        }
        return status;
    });
}

/// Runs each kernel of a plan with stages, on one head that is neither normed nor rotated.
int load_kv_kernels(const halyard_cuda_plan &plan, const Launch &launch, const Scratch &scratch, Call &call) {
    const KvTensorPlan no_stages = {};
    return until_error(plan.n_launches, [&](std::int64_t i) {
        TensorPlan tensor_plan = plan.checks.tensors[plan.launches[i].tensors[0]];
        tensor_plan.rotates = false;
        KvPieces pieces = {};
        pieces.kernel = plan.launches[i].kernel;
        pieces.n_tensors = 1;
        pieces.n_tokens = 1;
        pieces.positions = scratch.position_0;
        pieces.tensors[0] = {
            {&tensor_plan, scratch.memory, moved(scratch.memory, Scratch::n_bytes / 2), {}, {}, 1, false},
            &no_stages,
            0,
            1.0f};
        return launch_kv(launch, pieces, call);
    });
}

/// Runs every kernel that a plan may need once, on scratch memory, so that the driver compiles it now.
halyard_status load_kernels(const halyard_cuda_plan &plan, halyard_error *error) {
    const DeviceAngles &angles = plan.angles->device;
    void *const memory = allocate(plan.queue, Scratch::n_bytes);
    if (memory == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "the device has no memory for ", Scratch::n_bytes,
                    " bytes that kernels are tried on");
    }
    const Scratch scratch = {address_of(memory), {address_of_zero_position(angles), 1, 0, 0, 0, 0}};
    char bytes[Scratch::n_bytes] = {};
    Call call = {plan.queue.context, plan.queue.stream, ""};
    const Launch launch = {&angles, 0, true};
    int status = copy_in(plan.queue, memory, bytes, sizeof(bytes));
    if (status == 0) {
        status =
            (plan.checks.kv_plan == nullptr ? load_rotation_kernels : load_kv_kernels)(plan, launch, scratch, call);
    }
    if (status == 0) {
        status = check_on_device(scratch.position_0, {}, 1, positions_of_source(angles), HALYARD_ERROR_POSITION,
                                 scratch.memory, call);
    }
    const int done = copy_out(plan.queue, bytes, memory, 4);  // returns the launches' errors too
    release(plan.queue, memory);
    status = status != 0 ? status : done;
    return status == 0 ? HALYARD_OK
                       : fail(error, HALYARD_ERROR_DEVICE, "the kernels could not be loaded: ",
                              call.message[0] != '\0' ? call.message : "the driver failed", " (", status, ")");
}

/// Appends a line for each kernel that serves a tensor.
void explain_tensor(Text &text, const TensorPlan &tensor, bool in_place) {
    for (const CudaKernel &kernel : cuda_kernels()) {
        if (kernel.serves(tensor.dtype, tensor.pairing, tensor.out_pairing, in_place)) {
            text.add("  * ", kernel.name, ": taken ",
                     kernel.layout == any_layout ? "for any other layout"
                     : kernel.layout.bytes == 16 ? "where memory, strides and halves are multiples of 16 bytes"
                                                 : "where memory, strides and halves are multiples of 4 bytes",
                     "\n");
        }
    }
}

/// Appends a line for each kernel of the KV path: "fits", or why it cannot serve tensor `index`. (Only runs know the
/// alignment of memory, and check it.)
void explain_kv(Text &text, const halyard_plan &plan, std::int32_t index) {
    for (const KvKernel &kernel : kv_kernels()) {
        const char *const reason = why_not(kernel, plan, index, compute_capability());
        text.add(reason == nullptr ? "  * " : "    ", kernel.name, ": ", reason == nullptr ? "fits" : reason, "\n");
    }
}

}  // namespace

}  // namespace halyard::cuda

using namespace halyard;
using namespace halyard::cuda;

extern "C" {

halyard_status halyard_get_cuda_target_info(int32_t device, halyard_target_info *info, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_is_cuda("device", device, error));
    halyard_target_info value = {};
    value.size = sizeof(value);
    const Target target = compute_capability() >= 89 ? Target::cuda_sm89 : Target::cuda_sm80;
    halyard_get_target_info(static_cast<std::int32_t>(target), &value, nullptr);  // there is such a target
    const char *const reason = why_no_cuda();
    value.built = 1;
    value.supported = reason[0] == '\0' ? 1 : 0;
    value.active = 0;
    std::snprintf(value.reason, sizeof(value.reason), "%s", reason[0] != '\0' ? reason : "serves its own memory alone");
    return write_struct(value, "info", info, error);
}

halyard_status halyard_explain_cuda_plan(int32_t device, const halyard_plan_desc *desc, char *text, int64_t n_bytes,
                                         int64_t *n_needed, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_is_cuda("device", device, error));
    HALYARD_TRY(check_text(text, n_bytes, error));
    halyard_plan checked;
    HALYARD_TRY(read_cuda_desc(desc, &checked, error));
    Text lines = {text, n_bytes};
    if (const char *const reason = why_no_cuda(); reason[0] != '\0') {
        lines.add("no kernel can be taken on this machine: ", reason, "\n");
    }
    for (std::int32_t i = 0; i < checked.n_tensors; i++) {
        const TensorPlan &tensor = checked.tensors[i];
        if (checked.kv_plan != nullptr) {
            lines.add("tensor ", i, ":\n");
            explain_kv(lines, checked, i);
            continue;
        }
        for (const bool in_place : {false, true}) {
            if (!in_place || tensor.pairing == tensor.out_pairing) {
                lines.add("tensor ", i, in_place ? ", in place:\n" : ", out of place:\n");
                explain_tensor(lines, tensor, in_place);
            }
        }
    }
    lines.end(n_needed);
    return HALYARD_OK;
}

halyard_status halyard_create_cuda_plan(const halyard_cuda_queue *queue, const halyard_plan_desc *desc,
                                        const halyard_cuda_angles *angles, halyard_cuda_plan **out,
                                        halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(out, "out", error));
    HALYARD_TRY(check_given(angles, "angles", error));
    halyard_cuda_queue where;
    HALYARD_TRY(read_queue(queue, &where, error));
    if (where.context != angles->queue.context) {
        return fail(error, HALYARD_ERROR_MISMATCH, "angles lie in another context than queue's");
    }
    std::unique_ptr<halyard_cuda_plan, decltype(&halyard_destroy_cuda_plan)> plan(
        new (std::nothrow) halyard_cuda_plan{}, halyard_destroy_cuda_plan);
    if (plan == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a plan");
    }
    plan->queue = where;
    add_to_plans(*plan);  // halyard_destroy_cuda_plan removes it
    plan->angles = angles;
    HALYARD_TRY(read_cuda_desc(desc, &plan->checks, error));
    if (plan->checks.rotary_dim != 0) {
        HALYARD_TRY(check_rotary_dim(angles->device.source, "angles", plan->checks.rotary_dim, error));
    }
    if (plan->checks.kv_plan != nullptr) {
        HALYARD_TRY(choose_kv_launches(plan->checks, compute_capability(), plan->launches, &plan->n_launches, error));
    }
    HALYARD_TRY(load_kernels(*plan, error));
    *out = plan.release();
    return HALYARD_OK;
}

void halyard_destroy_cuda_plan(halyard_cuda_plan *plan) {
    if (plan != nullptr) {
        remove_from_plans(*plan);
        delete plan;
    }
}

}  // extern "C"
