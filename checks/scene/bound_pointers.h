// The pointers that a call of a bound run brings.
#pragma once

#include "checks/sized.h"

/// Pointers of tensors and of their stages, which may be NULL. A test may replace each; args shows them to the library.
struct BoundPointers {
    const void *x[HALYARD_MAX_TENSORS] = {}, *weights[HALYARD_MAX_TENSORS] = {}, *biases[HALYARD_MAX_TENSORS] = {};
    void *y[HALYARD_MAX_TENSORS] = {}, *caches[HALYARD_MAX_TENSORS] = {};
    const float *scales[HALYARD_MAX_TENSORS] = {}, *position_scales[HALYARD_MAX_TENSORS] = {};
    float *scales_out[HALYARD_MAX_TENSORS] = {};
    void *group_scales[HALYARD_MAX_TENSORS] = {};
    const void *from_group_scales[HALYARD_MAX_TENSORS] = {};
    halyard_bound_run_args args = sized<halyard_bound_run_args>();

    BoundPointers(const halyard_tensor *from, const halyard_tensor *to, std::int32_t n_tensors,
                  const halyard_stages *stages = nullptr) {
        args.n_tensors = n_tensors;
        args.x = x;
        args.y = y;
        if (stages != nullptr) {
            args.weights = weights;
            args.biases = biases;
            args.scales = scales;
            args.scales_out = scales_out;
            args.caches = caches;
            args.position_scales = position_scales;
            args.group_scales = group_scales;
            args.from_group_scales = from_group_scales;
        }
        for (std::int32_t i = 0; i < n_tensors; i++) {
            x[i] = from[i].data;
            y[i] = to[i].data;
            if (stages == nullptr) {
                continue;
            }
            weights[i] = stages[i].weight;
            biases[i] = stages[i].bias;
            scales[i] = stages[i].scales;
            scales_out[i] = stages[i].scales_out;
            caches[i] = stages[i].cache;
            position_scales[i] = stages[i].position_scales;
            group_scales[i] = stages[i].group_scales;
            from_group_scales[i] = stages[i].from_group_scales;
        }
    }
    BoundPointers(const BoundPointers &) = delete;
    BoundPointers &operator=(const BoundPointers &) = delete;
};
