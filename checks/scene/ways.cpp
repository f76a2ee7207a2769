#include "checks/scene/ways.h"

#include "checks/scene/bound_pointers.h"

namespace scenes {

namespace {

/// The pointers of a bound run's call, taken from those that it was bound with.
struct ScenePointers : BoundPointers {
    explicit ScenePointers(const Call &call) : BoundPointers(call.x, call.y, call.plan.n_tensors, call.args.stages) {
        args.positions = call.args.positions != nullptr ? call.args.positions->data : nullptr;
        args.slots = call.args.slots != nullptr ? call.slots.data : nullptr;
        args.slots_scratch = call.args.slots != nullptr ? call.slots.scratch : nullptr;
        args.from_positions = call.args.from_positions != nullptr ? call.args.from_positions->data : nullptr;
    }
};

/// Every third part, then those behind them, and so on.
template <typename Function>
halyard_status for_each_part(std::int32_t n_parts, const WatchedError &error, Function run_part) {
    halyard_status first = HALYARD_OK;
    for (std::int32_t begin = 2; begin >= 0; begin--) {
        for (std::int32_t part = begin; part < n_parts; part += 3) {
            const halyard_status status = call(error, run_part(part));
            first = part == std::min(2, n_parts - 1) && begin == part ? status : first;
            require(status == first, "all parts return the same status", error.error.message);
        }
    }
    return first;
}

}  // namespace

halyard_status run(const halyard_plan *plan, const Call &of, Way way, std::int32_t n_parts, WatchedError &error) {
    halyard_run_args args = of.args;
    const halyard::pool pool(way == Way::pool ? n_parts : 1);
    args.executor = way == Way::pool ? pool.executor() : args.executor;
    if (way == Way::whole || way == Way::pool) {
        return call(error, halyard_run(plan, &args, &error.error));
    }
    if (way == Way::parts) {
        args.n_parts = n_parts;
        return for_each_part(n_parts, error, [&](std::int32_t part) {
            args.part = part;
            return halyard_run(plan, &args, &error.error);
        });
    }
    halyard_bound_run *made = nullptr;
    const halyard_status status = call(error, halyard_bind_run(plan, &args, &made, &error.error));
    const halyard::bound_run bound(made);
    require((status == HALYARD_OK) == (made != nullptr), "a bound run, or an error");
    if (status != HALYARD_OK) {
        return status;
    }
    ScenePointers pointers(of);
    pointers.args.n_parts = way == Way::bound_parts ? n_parts : 1;
    return for_each_part(pointers.args.n_parts, error, [&](std::int32_t part) {
        pointers.args.part = part;
        return halyard_run_bound(made, &pointers.args, &error.error);
    });
}

Images run(Scene &scene, const char *target, Way way, std::int32_t n_parts) {
    scene.memory.restore(scene.before);
    halyard_plan_desc desc = scene.call.plan;
    desc.target = target;
    const halyard::plan plan(desc);
    WatchedError error;
    if (run(plan.get(), scene.call, way, n_parts, error) != HALYARD_OK) {
        throw std::runtime_error(error.error.message + scene.text());
    }
    return scene.memory.image();
}

std::string fault_of_ways(Scene &scene) {
    const Images expected = run(scene, "reference", Way::whole);
    std::string fault = scene.fault(expected);
    for (const halyard_target_info &target : halyard::targets()) {
        if (target.built == 0 || target.supported == 0 || !fault.empty()) {
            continue;
        }
        const Images result = run(scene, target.name, Way::whole);
        const bool is_fused = std::string(target.name) != "x86_sse41";
        fault = is_fused ? scene.difference(expected, result) : scene.fault(result, false);
        fault = fault.empty() ? "" : std::string(target.name) + ": " + fault;
    }
    for (const Way way : all_ways) {
        fault = fault.empty() ? scene.difference(expected, run(scene, nullptr, way, 5)) : fault;
    }
    return fault;
}

}  // namespace scenes
