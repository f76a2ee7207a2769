#include "base/error.h"
#include "base/versioned.h"
#include "cuda/driver.h"
#include "cuda/cuda_run.h"

#include <cstdint>

namespace halyard::cuda {

namespace {

/// Refuses slots that just the CPU reads.
halyard_status check_policy(const halyard_slots &slots, halyard_error *error) {
    if (slots.policy == HALYARD_SLOTS_CHECK) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "args.kv.slots.policy is HALYARD_SLOTS_CHECK (0), but a device "
                    "does not look for doubled slots: it must be HALYARD_SLOTS_RANGE_ONLY (1)");
    }
    return slots.consecutive == 0 ? HALYARD_OK
                                  : fail(error, HALYARD_ERROR_UNSUPPORTED, "args.kv.slots.consecutive is ",
                                         slots.consecutive, ", but a device reads every token's slot: it must be 0");
}

/// Reads a run of the CPU that has the same tensors, and the device's angles.
halyard_status read_as_on_cpu(const halyard_cuda_plan &plan, CudaRun &out, halyard_error *error) {
    const halyard_cuda_run_args &given = out.given;
    halyard_run_args checked = {};
    checked.size = sizeof(checked);
    checked.bad_position = given.bad_position;
    checked.angles = &plan.angles->device.source;
    checked.positions = given.positions;
    checked.x = given.x;
    checked.y = given.y;
    checked.kv = given.kv;
    checked.n_tensors = given.n_tensors;
    checked.reserved = given.reserved;
    HALYARD_TRY(bind(&plan.checks, &checked, HALYARD_CUDA, &out.program, error));
    HALYARD_TRY(bind_kv(out.program, checked, &out.kv, error));
    if (out.program.angles == nullptr) {
        out.program.positions.is_consecutive = false;  // nothing looks at positions, so that batch rows may be joined
    }
    out.arrays = kv_pointers(plan.checks, given.kv);
    return check_kv_memory(out.program, out.kv, out.pointers.emplace(out.program, checked).all, out.arrays, error);
}

/// Checks that all memory is the plan's device's, as the driver knows it.
halyard_status check_device_memory(const halyard_cuda_plan &plan, const CudaRun &run, halyard_error *error) {
    MemoryQueries queries(plan.queue);
    const auto check = [&](const char *name, int index, const void *memory) -> halyard_status {
        if (memory == nullptr) {
            return HALYARD_OK;
        }
        const MemoryInfo info = queries.describe(const_cast<void *>(memory));
        if (!info.is_known) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, name, "[", index,
                        "] is memory that the CUDA driver does not know");
        }
        return info.is_of_device
                   ? HALYARD_OK
                   : fail(error, HALYARD_ERROR_MISMATCH, name, "[", index, "] lies on another device than the plan's");
    };
    for (int i = 0; i < plan.checks.n_tensors; i++) {
        const ProgramTensor &tensor = run.program.tensors[i];
        if (tensor.n_heads != 0) {
            const bool writes = plan.checks.tensors[i].writes_y && !tensor.in_place;
            HALYARD_TRY(check("x", i, run.pointers->x[i]));
            HALYARD_TRY(check("args.kv.stages.cache", i, run.data(i, Array::cache)));
            HALYARD_TRY(check("y", i, writes ? run.pointers->y[i] : nullptr));
            HALYARD_TRY(check("args.kv.stages.weight", i, run.data(i, Array::weight)));
        }
    }
    if (!run.program.is_empty) {
        HALYARD_TRY(check("positions", 0, run.pointers->all.positions));
        HALYARD_TRY(check("args.kv.slots", 0, run.kv.slots.is_given ? run.arrays.slots : nullptr));
    }
    return check("error_word", 0, run.given.error_word);
}

/// The positions or slots of a batch row's tokens, on one axis.
LaunchPositions numbers_of(const TokenNumbers &numbers, Address place, std::int64_t batch) {
    return {moved(place, batch * numbers.stride_batch * numbers.element_bytes()),
            numbers.is_int64 ? 2 : 1,
            0,
            numbers.is_consecutive ? 1 : 0,
            numbers.stride_token,
            0};
}

}  // namespace

LaunchPositions CudaRun::positions(std::int64_t batch) const {
    const Positions &all = program.positions;
    LaunchPositions its = numbers_of(
        all, all.is_given ? address_of(pointers->all.positions) : counted_positions(*launch.angles), batch);
    its.stride_axis = all.stride_axis;
    return its;
}

LaunchPositions CudaRun::slots(std::int64_t batch) const {
    return kv.slots.is_given ? numbers_of(kv.slots, address_of(arrays.slots), batch) : LaunchPositions{};
}

halyard_status read_cuda_run(const halyard_cuda_plan &plan, const halyard_cuda_run_args *args, CudaRun *out,
                            halyard_error *error) noexcept {
    HALYARD_TRY(read_struct(args, "args", &out->given, error));
    const halyard_cuda_run_args &given = out->given;
    HALYARD_TRY(check_kv_args(plan.checks, given.kv, error));
    const bool has_slots = given.kv != nullptr && given.kv->slots != nullptr;
    if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr && !has_slots) {
        return fail(error, HALYARD_ERROR_MISMATCH, "error_word is given, but policy ", given.bad_position,
                    " tells of nothing");
    }
    if (reinterpret_cast<std::uintptr_t>(given.error_word) % 4 != 0) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
    }
    HALYARD_TRY(has_slots ? check_policy(*given.kv->slots, error) : HALYARD_OK);
    out->launch = {&plan.angles->device, plan.checks.sin_sign, given.bad_position == HALYARD_BAD_POSITION_CLAMP};
    HALYARD_TRY(read_as_on_cpu(plan, *out, error));
    return check_device_memory(plan, *out, error);
}

}  // namespace halyard::cuda
