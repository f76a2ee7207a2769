// The pointers that a call of a bound run brings.
#pragma once

#include "checks/sized.h"

/// Pointers of tensors and of what they bring. A test may replace each; args shows them to the library. Nothing else is
/// read, so that counts and forms are not those of the run.
struct BoundPointers {
    const void *x[HALYARD_MAX_TENSORS] = {};
    void *y[HALYARD_MAX_TENSORS] = {};
    halyard_stages stages[HALYARD_MAX_TENSORS] = {};
    halyard_slots slots = sized<halyard_slots>();
    halyard_positions from_positions = sized<halyard_positions>();
    halyard_kv_args kv = sized<halyard_kv_args>();
    halyard_bound_run_args args = sized<halyard_bound_run_args>();

    BoundPointers(const halyard_tensor *from, const halyard_tensor *to, std::int32_t n_tensors,
                  const halyard_kv_args *given = nullptr) {
        args.n_tensors = n_tensors;
        args.x = x;
        args.y = y;
        args.kv = given != nullptr ? &kv : nullptr;
        for (std::int32_t i = 0; i < n_tensors; i++) {
            x[i] = from[i].data;
            y[i] = to[i].data;
            if (given != nullptr && given->stages != nullptr) {
                stages[i] = given->stages[i];
                stages[i].n_weights = stages[i].n_scales = -1;
                kv.stages = stages;
            }
        }
        if (given != nullptr && given->slots != nullptr) {
            slots.data = given->slots->data;
            slots.scratch = given->slots->scratch;
            kv.slots = &slots;
        }
        if (given != nullptr && given->from_positions != nullptr) {
            from_positions.data = given->from_positions->data;
            kv.from_positions = &from_positions;
        }
    }
    BoundPointers(const BoundPointers &) = delete;
    BoundPointers &operator=(const BoundPointers &) = delete;
};
