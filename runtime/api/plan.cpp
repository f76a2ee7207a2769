// Plans: checks a description and chooses kernels.
#include "core/plan.h"
#include "base/error.h"
#include "base/versioned.h"
#include "kv/stages.h"

using namespace halyard;

namespace {

/// Checks a description with its stages, and fills in *plan, *given and *kv_plan.
halyard_status read(const halyard_plan_desc *desc, halyard_plan *plan, PlanReading *given,
                    std::shared_ptr<KvPlan> *kv_plan, halyard_error *error) {
    HALYARD_TRY(read_plan(desc, plan, given, error));
    return read_kv_plan(*given, plan, kv_plan, error);
}

}  // namespace

extern "C" {

halyard_status halyard_create_plan(const halyard_plan_desc *desc, halyard_plan **out, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(out, "out", error));
    return guard(error, "a plan", [&] {
        auto plan = std::make_unique<halyard_plan>();
        PlanReading given;
        std::shared_ptr<KvPlan> kv_plan;
        TargetSet allowed = 0;
        HALYARD_TRY(read(desc, plan.get(), &given, &kv_plan, error));
        HALYARD_TRY(allowed_targets(given.desc.target, given.desc.max_target, &allowed, error));
        choose_kernels(*plan, allowed);
        if (kv_plan != nullptr) {
            HALYARD_TRY(resolve_kv_plan(*plan, allowed, kv_plan.get(), error));
        }
        plan->kv_plan = kv_plan;
        *out = plan.release();
        return halyard_status{HALYARD_OK};
    });
}

const char *halyard_get_plan_target(const halyard_plan *plan) {
    return plan == nullptr ? nullptr : name_of(plan->target);
}

void halyard_destroy_plan(halyard_plan *plan) { delete plan; }

halyard_status halyard_explain_plan(const halyard_plan_desc *desc, char *text, int64_t n_bytes, int64_t *n_needed,
                                    halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_text(text, n_bytes, error));
    halyard_plan plan;
    PlanReading given;
    std::shared_ptr<KvPlan> kv_plan;
    HALYARD_TRY(read(desc, &plan, &given, &kv_plan, error));
    TargetSet allowed = 0;
    halyard_error reason = {sizeof(halyard_error), HALYARD_OK, ""};
    halyard_status status = allowed_targets(given.desc.target, given.desc.max_target, &allowed, &reason);
    if (status == HALYARD_ERROR_MISMATCH) {
        return fail(error, status, reason.message);
    }
    if (status == HALYARD_OK && kv_plan != nullptr) {
        status = resolve_kv_plan(plan, allowed, kv_plan.get(), &reason);
    }
    Text lines = {text, n_bytes};
    if (status != HALYARD_OK) {
        lines.add("no kernel can be taken: ", reason.message, "\n");
    }
    for (int i = 0; status == HALYARD_OK && i < plan.n_tensors; i++) {
        if (plan.tensors[i].is_plain) {
            explain_tensor(lines, plan, i, allowed);
        } else {
            explain_steps(lines, plan, *kv_plan, i, allowed);
        }
    }
    lines.end(n_needed);
    return HALYARD_OK;
}

}  // extern "C"
