#include "gpu/read_gpu_run.h"

#include "base/error.h"
#include "base/versioned.h"
#include "gpu/driver.h"

#include <cstdint>

namespace halyard::gpu {

namespace {

/// Refuses slots that just the CPU reads.
halyard_status check_policy(const halyard_slots *given, halyard_error *error) {
    halyard_slots slots = {};
    HALYARD_TRY(read_struct(given, "args.kv.slots", &slots, error));
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
halyard_status read_as_on_cpu(const halyard_gpu_plan &plan, GpuRun &out, halyard_error *error) {
    const halyard_gpu_run_args &given = out.given;
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

/// Checks that memory is the plan's device's, as the driver knows it.
class MemoryCheck {
public:
    explicit MemoryCheck(const halyard_gpu_plan &plan) : queries_(plan.queue) {}

    /// touched: what is there; NULL where nothing is touched.
    halyard_status check(const char *name, int index, const void *touched, halyard_error *error) {
        if (touched == nullptr) {
            return HALYARD_OK;
        }
        const MemoryInfo info = queries_.describe(const_cast<void *>(touched));
        if (!info.is_known) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, name, "[", index,
                        "] is memory that the CUDA driver does not know");
        }
        return info.is_of_device
                   ? HALYARD_OK
                   : fail(error, HALYARD_ERROR_MISMATCH, name, "[", index, "] lies on another device than the plan's");
    }

private:
    MemoryQueries queries_;
};

halyard_status check_device_memory(const halyard_gpu_plan &plan, const GpuRun &run, halyard_error *error) {
    MemoryCheck memory(plan);
    for (int i = 0; i < plan.checks.n_tensors; i++) {
        const ProgramTensor &tensor = run.program.tensors[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        HALYARD_TRY(memory.check("x", i, run.pointers->x[i], error));
        HALYARD_TRY(memory.check("args.kv.stages.cache", i, run.data(i, Array::cache), error));
        if (plan.checks.tensors[i].writes_y && !tensor.in_place) {
            HALYARD_TRY(memory.check("y", i, run.pointers->y[i], error));
        }
        HALYARD_TRY(memory.check("args.kv.stages.weight", i, run.data(i, Array::weight), error));
    }
    if (!run.program.is_empty) {
        HALYARD_TRY(memory.check("positions", 0, run.pointers->all.positions, error));
        HALYARD_TRY(memory.check("args.kv.slots", 0, run.kv.slots.is_given ? run.arrays.slots : nullptr, error));
    }
    return memory.check("error_word", 0, run.given.error_word, error);
}

}  // namespace

halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept {
    HALYARD_TRY(read_struct(args, "args", &out->given, error));
    const halyard_gpu_run_args &given = out->given;
    HALYARD_TRY(check_kv_args(plan.checks, given.kv, error));
    const bool has_slots = given.kv != nullptr && given.kv->slots != nullptr;
    if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr && !has_slots) {
        return fail(error, HALYARD_ERROR_MISMATCH, "error_word is given, but policy ", given.bad_position,
                    " tells of nothing");
    }
    if (reinterpret_cast<std::uintptr_t>(given.error_word) % 4 != 0) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
    }
    if (has_slots) {
        HALYARD_TRY(check_policy(given.kv->slots, error));
    }
    out->launch = {&plan.angles->device, plan.checks.sin_sign, given.bad_position == HALYARD_BAD_POSITION_CLAMP};
    HALYARD_TRY(read_as_on_cpu(plan, *out, error));
    return check_device_memory(plan, *out, error);
}

}  // namespace halyard::gpu
