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
    HALYARD_TRY(read_struct(given, "slots", &slots, error));
    if (slots.policy == HALYARD_SLOTS_CHECK) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED,
                    "args.slots->policy is HALYARD_SLOTS_CHECK (0), but a device "
                    "does not look for doubled slots: it must be HALYARD_SLOTS_RANGE_ONLY (1)");
    }
    return slots.consecutive == 0 ? HALYARD_OK
                                  : fail(error, HALYARD_ERROR_UNSUPPORTED, "args.slots->consecutive is ",
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
    checked.slots = given.slots;
    checked.stages = given.stages;
    checked.n_tensors = given.n_tensors;
    checked.reserved = given.reserved;
    return read_run(&plan.checks, &checked, HALYARD_CUDA, &out.run, &out.spans, error);
}

/// Checks that memory is the plan's device's, as the driver knows it.
class MemoryCheck {
public:
    explicit MemoryCheck(const halyard_gpu_plan &plan) : queries_(plan.queue) {}

    /// What is not touched has an empty range.
    halyard_status check(const char *name, int index, const void *first, const MemoryRange &touched,
                         halyard_error *error) {
        if (touched.begin == touched.end) {
            return HALYARD_OK;
        }
        const MemoryInfo info = queries_.describe(const_cast<void *>(first));
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

halyard_status check_memory(const halyard_gpu_plan &plan, const GpuRun &arguments, halyard_error *error) {
    const Run &run = arguments.run;
    MemoryCheck memory(plan);
    for (int i = 0; i < plan.checks.n_tensors; i++) {
        const RunTensor &tensor = run.tensors[i];
        const RunStages &stages = run.stages[i];
        HALYARD_TRY(memory.check("x", i, tensor.x, arguments.spans.x[i], error));
        HALYARD_TRY(memory.check(plan.checks.tensors[i].cache ? "stages.cache" : "y", i, tensor.y,
                                 tensor.in_place ? MemoryRange{} : arguments.spans.y[i], error));
        HALYARD_TRY(memory.check("stages.weight", i, stages.data(weight_array), stages.memory(weight_array), error));
        HALYARD_TRY(memory.check("stages.group_scales", i, stages.data(group_scales_array),
                                 stages.memory(group_scales_array), error));
    }
    HALYARD_TRY(
        memory.check("positions", 0, run.positions.data, run.is_empty ? MemoryRange{} : run.positions.memory, error));
    HALYARD_TRY(memory.check("slots", 0, run.slots.data, run.slots.memory, error));
    const std::int32_t *const word = arguments.given.error_word;
    const auto begin = reinterpret_cast<std::uintptr_t>(word);
    return memory.check("error_word", 0, word, {begin, word != nullptr ? begin + 4 : begin}, error);
}

}  // namespace

halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept {
    HALYARD_TRY(read_struct(args, "args", &out->given, error));
    const halyard_gpu_run_args &given = out->given;
    if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr && given.slots == nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "error_word is given, but policy ", given.bad_position,
                    " tells of nothing");
    }
    if (reinterpret_cast<std::uintptr_t>(given.error_word) % 4 != 0) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
    }
    if (given.slots != nullptr) {
        HALYARD_TRY(check_policy(given.slots, error));
    }
    out->launch = {&plan.angles->device, plan.checks.sin_sign, given.bad_position == HALYARD_BAD_POSITION_CLAMP};
    HALYARD_TRY(read_as_on_cpu(plan, *out, error));
    return check_memory(plan, *out, error);
}

}  // namespace halyard::gpu
