// Replaces the KV path in a library that is built without it (HALYARD_KV=OFF): refuses plans and runs that need it.
#include "kv/check_and_bind.h"

#include "base/error.h"

namespace halyard {

namespace {

halyard_status fail_without(halyard_error *error, const Part &what, const Part &index, const Part &rest) {
    return fail(error, HALYARD_ERROR_UNSUPPORTED, what, index, rest,
                ", but this library was built without the KV path");
}

}  // namespace

halyard_status read_kv_plan(const PlanReading &, halyard_plan *plan, std::shared_ptr<KvPlan> *,
                            halyard_error *error) noexcept {
    for (int i = 0; i < plan->n_tensors; i++) {
        if (!plan->tensors[i].is_plain) {
            return fail_without(error, "tensors[", i, "] is not only rotated");
        }
    }
    return HALYARD_OK;
}

halyard_status bind_kv(const Program &, const halyard_run_args &, KvProgram *, halyard_error *error) noexcept {
    return fail_without(error, "args.kv is set", "", "");
}

halyard_status read_preset(std::int32_t, const char *, std::int64_t, GroupsDesc *, halyard_error *error) noexcept {
    return fail_without(error, "records are asked for", "", "");
}

// The following are never called, since no plan with stages exists.

halyard_status resolve_kv_plan(const halyard_plan &, TargetSet, KvPlan *, halyard_error *) noexcept {
    return HALYARD_OK;
}

void explain_steps(Text &, const halyard_plan &, const KvPlan &, int, TargetSet) noexcept {}

halyard_status check_kv_args(const halyard_plan &, const halyard_kv_args *, halyard_error *) noexcept {
    return HALYARD_OK;
}

KvPointers kv_pointers(const halyard_plan &, const halyard_kv_args *) noexcept { return {}; }

halyard_status check_kv_memory(const Program &, const KvProgram &, const Pointers &, const KvPointers &,
                               halyard_error *) noexcept {
    return HALYARD_OK;
}

halyard_status call_kv(const Program &, const KvProgram &, const Pointers &, const KvPointers &, const Share &,
                       halyard_error *) noexcept {
    return HALYARD_OK;
}

}  // namespace halyard
