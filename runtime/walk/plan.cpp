#include "walk/plan.h"

#include "base/error.h"
#include "base/text.h"
#include "walk/blocks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

namespace halyard {

namespace {

Task task_for(const TensorDesc &tensor, Dtype dtype, std::int64_t rotary_dim, Place place, Layout layout) {
    // Kernels may read words of two elements. choose_kernels checks strides; the distance of a pair's members is known
    // here.
    const bool even_halves = tensor.pairing == Pairing::interleaved || rotary_dim % 4 == 0;
    const bool is_even = layout == Layout::even && even_halves;
    return {dtype, tensor.pairing, tensor.out_pairing, place,
            is_even || layout == Layout::strided ? layout : Layout::dense};
}

/// The kernel that rotates a tensor in blocks of f32, where heads follow each other.
Task block_task_for(const TensorDesc &tensor, std::int64_t rotary_dim) {
    const bool converts = tensor.pairing != tensor.out_pairing;
    const bool is_even = tensor.head_dim % 2 == 0 && rotary_dim % 2 == 0;
    return task_for(tensor, Dtype::f32, rotary_dim, converts ? Place::out_of_place : Place::in_place,
                    is_even ? Layout::even : Layout::dense);
}

const char *words_for(Place place) {
    switch (place) {
    case Place::out_of_place: return "out of place";
    case Place::in_place: return "in place";
    case Place::non_temporal: return "out of place past the caches";
    }
    return nullptr;
}

void explain_tensor(Text &text, const Task &task, TargetSet allowed) {
    const Kernel &taken = select(task, allowed);
    for (const Kernel &kernel : kernels()) {
        const bool is_reference = kernel.function == nullptr;
        if (!is_reference &&
            (kernel.dtype != task.dtype || (kernel.place == Place::in_place) != (task.place == Place::in_place))) {
            continue;  // no candidate, so explaining it would say nothing
        }
        const char *reason = why_not(kernel, task);
        text.add(&kernel == &taken ? "  * " : "    ");
        text.add(kernel.name);
        text.add(": ");
        if (&kernel == &taken) {
            text.add("taken");
        } else if (reason != nullptr) {
            text.add(reason);
        } else if ((allowed & bit(kernel.target)) == 0) {
            text.add(why_not(kernel.target));
        } else {
            text.add("comes after the one that is taken");
        }
        text.add("\n");
        text.add_schedule(kernel.schedule);
    }
}

}  // namespace

}  // namespace halyard

using namespace halyard;

extern "C" {

halyard_status halyard_create_plan(const halyard_plan_desc *desc, halyard_plan **out, halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(out, "out", error));
    PlanDesc checked;
    halyard_plan_desc given;
    HALYARD_TRY(read_plan_desc(desc, &checked, &given, error));
    TargetSet allowed = 0;
    HALYARD_TRY(allowed_targets(given.target, given.max_target, &allowed, error));
    auto *plan = new (std::nothrow) halyard_plan{};
    if (plan == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a plan of ", sizeof(halyard_plan), " bytes");
    }
    static_cast<PlanDesc &>(*plan) = checked;
    plan->target = best_of(allowed);
    plan->row_kernels = select_row_kernels(allowed);
    plan->stage_kernels = select_stage_kernels(allowed);
    for (int i = 0; i < plan->n_tensors; i++) {
        const TensorDesc &tensor = plan->tensors[i];
        halyard_plan::Chosen &chosen = plan->chosen[i];
        chosen.in_blocks = &select(block_task_for(tensor, plan->rotary_dim), allowed);
        for (std::int32_t place = 0; place < n_places; place++) {
            for (std::int32_t layout = 0; layout < n_layouts; layout++) {
                chosen.kernels[place][layout] =
                    &select(task_for(tensor, tensor.dtype, plan->rotary_dim, Place(place), Layout(layout)), allowed);
            }
        }
    }
    *out = plan;
    return HALYARD_OK;
}

const char *halyard_get_plan_target(const halyard_plan *plan) {
    return plan == nullptr ? nullptr : name_of(plan->target);
}

void halyard_destroy_plan(halyard_plan *plan) { delete plan; }

halyard_status halyard_explain_plan(const halyard_plan_desc *desc, char *text, int64_t n_bytes, int64_t *n_needed,
                                    halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_text(text, n_bytes, error));
    PlanDesc checked;
    halyard_plan_desc given;
    HALYARD_TRY(read_plan_desc(desc, &checked, &given, error));
    TargetSet allowed = 0;
    halyard_error reason = {sizeof(halyard_error), HALYARD_OK, ""};
    Text lines = {text, n_bytes};
    const halyard_status status = allowed_targets(given.target, given.max_target, &allowed, &reason);
    if (status == HALYARD_ERROR_MISMATCH) {
        return fail(error, status, reason.message);
    }
    if (status != HALYARD_OK) {
        lines.add("no kernel can be taken: ");
        lines.add(reason.message);
        lines.add("\n");
    } else {
        for (int i = 0; i < checked.n_tensors; i++) {
            const TensorDesc &tensor = checked.tensors[i];
            char heading[128];
            const bool is_apart = only_lies_apart(checked, tensor);
            if (!tensor.rotates || (tensor.is_staged && !is_apart)) {
                std::snprintf(heading, sizeof(heading), "tensor %d, %s:\n", i,
                              tensor.rotates ? "in blocks of f32" : "is not rotated");
                lines.add(heading);
                if (tensor.rotates) {
                    explain_tensor(lines, block_task_for(tensor, checked.rotary_dim), allowed);
                }
                continue;
            }
            for (const Place place : {Place::out_of_place, Place::non_temporal, Place::in_place}) {
                if (place != Place::out_of_place &&
                    (is_apart || (place == Place::in_place && tensor.pairing != tensor.out_pairing))) {
                    continue;
                }
                for (const Layout layout : {Layout::even, Layout::strided}) {
                    const Task task = task_for(tensor, tensor.dtype, checked.rotary_dim, place, layout);
                    if (place == Place::non_temporal && select(task, allowed).place != place) {
                        continue;  // as for smaller outputs
                    }
                    std::snprintf(heading, sizeof(heading), "tensor %d, %s, %s heads:\n", i, words_for(place),
                                  layout == Layout::strided ? "strided" : "dense");
                    lines.add(heading);
                    explain_tensor(lines, task, allowed);
                }
            }
        }
    }
    lines.end(n_needed);
    return HALYARD_OK;
}

}  // extern "C"
