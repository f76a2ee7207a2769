#include "checks/cases/run_modes.h"

#include "checks/fields.h"
#include "checks/kernel_model.h"
#include "checks/rotate.h"
#include "core/plan.h"

namespace cases {

namespace {

/// Runs parts 2, 5, 8, …, then 1, 4, 7, …, then 0, 3, 6, …. All must return the same status, which is returned.
template <typename Function>
halyard_status for_each_part(std::int32_t n_parts, const WatchedError &error, Function run_part) {
    halyard_status first = HALYARD_OK;
    for (std::int32_t begin = 2; begin >= 0; begin--) {
        for (std::int32_t part = begin; part < n_parts; part += 3) {
            const halyard_status status = count_and_check(error, run_part(part));
            first = part == std::min(2, n_parts - 1) && begin == part ? status : first;
            require(status == first, "all parts return the same status", error.error.message);
        }
    }
    return first;
}

}  // namespace

halyard_status run(const halyard_plan *plan, const Call &call, RunMode mode, std::int32_t n_parts,
                   WatchedError &error) {
    RunStructs given(call);
    const halyard::pool pool(mode == RunMode::pool ? n_parts : 1);
    given.args.executor = mode == RunMode::pool ? pool.executor() : call.args.executor;
    if (mode == RunMode::whole || mode == RunMode::pool) {
        return count_and_check(error, halyard_run(plan, &given.args, &error.error));
    }
    if (mode == RunMode::parts) {
        given.args.n_parts = n_parts;
        return for_each_part(n_parts, error, [&](std::int32_t part) {
            given.args.part = part;
            return halyard_run(plan, &given.args, &error.error);
        });
    }
    // Binding reads static scales but no other data, so the other data pointers are moved to unmapped addresses.
    for (const fields::Place &place :
         fields::places(fields::of<halyard_run_args>(), &given.args, call.plan.n_tensors)) {
        if (place.field->kind == fields::Kind::data && !place.is_null() && !place.path.ends_with("scales")) {
            place.write(place.read<std::uintptr_t>() + (std::uintptr_t{1} << 40));
        }
    }
    halyard_bound_run *made = nullptr;
    const halyard_status status = count_and_check(error, halyard_bind_run(plan, &given.args, &made, &error.error));
    const halyard::bound_run bound(made);
    require((status == HALYARD_OK) == (made != nullptr), "a bound run, or an error");
    if (status != HALYARD_OK) {
        return status;
    }
    BoundPointers pointers(call.plan, call.args);
    pointers.args.n_parts = mode == RunMode::bound_parts ? n_parts : 1;
    return for_each_part(pointers.args.n_parts, error, [&](std::int32_t part) {
        pointers.args.part = part;
        return halyard_run_bound(made, &pointers.args, &error.error);
    });
}

namespace {

Images run_by(const halyard::plan &plan, Case &drawn, RunMode mode, std::int32_t n_parts) {
    drawn.memory.restore(drawn.before);
    WatchedError error;
    if (run(plan.get(), drawn.call, mode, n_parts, error) != HALYARD_OK) {
        throw std::runtime_error(error.error.message + drawn.text());
    }
    return drawn.memory.image();
}

/// Runs each token by itself and returns the contents of memory after the last run.
Images run_each_token(Case &drawn) {
    drawn.memory.restore(drawn.before);
    const halyard::plan plan(drawn.call.plan);
    const std::int64_t n_tokens = drawn.call.n_tokens();
    for (std::int64_t i = 0; i < drawn.call.n_batch() * n_tokens; i++) {
        const TokenRun token(drawn, i / n_tokens, i % n_tokens);
        WatchedError error;
        if (count_and_check(error, halyard_run(plan.get(), &token.args, &error.error)) != HALYARD_OK) {
            throw std::runtime_error(error.error.message + drawn.text());
        }
    }
    return drawn.memory.image();
}

}  // namespace

Images run(Case &drawn, const char *target, RunMode mode, std::int32_t n_parts) {
    halyard_plan_desc desc = drawn.call.plan;
    desc.target = target;
    return run_by(halyard::plan(desc), drawn, mode, n_parts);
}

Images run_kernel_model(Case &drawn) { return run_by(model::make_plan(drawn.call.plan), drawn, RunMode::whole, 1); }

std::vector<const char *> targets_of(const Call &call) {
    return halyard::plan(call.plan).get()->kv_plan != nullptr ? stage_targets_here() : targets_here();
}

std::string fault_in_run_modes(Case &drawn) {
    const Images expected = run_kernel_model(drawn);
    std::string fault = drawn.fault(expected);
    for (const char *const target : targets_of(drawn.call)) {
        if (fault.empty()) {
            fault = drawn.difference(expected, run(drawn, target, RunMode::whole));
            fault = fault.empty() ? "" : std::string(target) + ": " + fault;
        }
    }
    for (const RunMode mode : all_run_modes) {
        fault = fault.empty() ? drawn.difference(expected, run(drawn, nullptr, mode, 5)) : fault;
    }
    if (fault.empty()) {
        fault = drawn.difference(expected, run_each_token(drawn));
        fault = fault.empty() ? "" : "token by token: " + fault;
    }
    return fault;
}

}  // namespace cases
