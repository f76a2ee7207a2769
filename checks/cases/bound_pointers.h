// The arguments of a call of a bound run.
#pragma once

#include "checks/sized.h"

/// The pointers of a run's tensors, stages, slots and positions, as arguments of halyard_run_bound. A test may replace
/// each. Of these structs the library reads only the pointers, so their counts are wrong on purpose, or 0.
struct BoundPointers {
    const void *x[HALYARD_MAX_TENSORS] = {};
    void *y[HALYARD_MAX_TENSORS] = {};
    halyard_stages stages[HALYARD_MAX_TENSORS] = {};
    halyard_slots slots = sized<halyard_slots>();
    halyard_positions from_positions = sized<halyard_positions>();
    halyard_kv_args kv = sized<halyard_kv_args>();
    halyard_bound_run_args args = sized<halyard_bound_run_args>();

    BoundPointers(const halyard_plan_desc &plan, const halyard_run_args &run) {
        args.n_tensors = plan.n_tensors;
        args.x = x;
        args.y = y;
        args.positions = run.positions != nullptr ? run.positions->data : nullptr;
        args.kv = run.kv != nullptr ? &kv : nullptr;
        for (std::int32_t i = 0; i < plan.n_tensors; i++) {
            x[i] = run.x[i].data;
            y[i] = plan.tensors[i].kv != nullptr && plan.tensors[i].kv->cache != nullptr ? nullptr : run.y[i].data;
            if (run.kv != nullptr && run.kv->stages != nullptr) {
                stages[i] = run.kv->stages[i];
                stages[i].n_weights = stages[i].n_scales = -1;
                kv.stages = stages;
            }
        }
        if (run.kv != nullptr && run.kv->slots != nullptr) {
            slots.data = run.kv->slots->data;
            slots.scratch = run.kv->slots->scratch;
            kv.slots = &slots;
        }
        if (run.kv != nullptr && run.kv->from_positions != nullptr) {
            from_positions.data = run.kv->from_positions->data;
            kv.from_positions = &from_positions;
        }
    }
    BoundPointers(const BoundPointers &) = delete;
    BoundPointers &operator=(const BoundPointers &) = delete;
};
