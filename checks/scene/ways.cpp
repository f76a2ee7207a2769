#include "checks/scene/ways.h"

#include "checks/model.h"
#include "core/plan.h"

namespace scenes {

ScenePointers::ScenePointers(const Call &call) : BoundPointers(call.x, call.y, call.plan.n_tensors, call.args.kv) {
    args.positions = call.args.positions != nullptr ? call.args.positions->data : nullptr;
}

namespace {

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

namespace {

Images run_by(const halyard::plan &plan, Scene &scene, Way way, std::int32_t n_parts) {
    scene.memory.restore(scene.before);
    WatchedError error;
    if (run(plan.get(), scene.call, way, n_parts, error) != HALYARD_OK) {
        throw std::runtime_error(error.error.message + scene.text());
    }
    return scene.memory.image();
}

}  // namespace

Images run(Scene &scene, const char *target, Way way, std::int32_t n_parts) {
    halyard_plan_desc desc = scene.call.plan;
    desc.target = target;
    return run_by(halyard::plan(desc), scene, way, n_parts);
}

Images run_model(Scene &scene) { return run_by(model::make_plan(scene.call.plan), scene, Way::whole, 1); }

namespace {

/// One token of a call, as a run of its own.
struct TokenRun : RunStructs {
    TokenRun(const Scene &scene, std::int64_t batch, std::int64_t token) : RunStructs(scene.call) {
        const Call &call = scene.call;
        if (brought.slots != nullptr) {
            slot_ = slot_of(call, batch, token);
            slots.data = &slot_;
            slots.type = HALYARD_INT64;
            slots.consecutive = 0;
            slots.shape[0] = slots.shape[1] = 1;
        }
        const std::int64_t n_axes = scene.angles.n_axes();
        for (std::int64_t axis = 0; axis < n_axes; axis++) {
            to_[axis] = position_of(call.args.positions, axis, batch, token);
            from_[axis] =
                brought.from_positions != nullptr ? position_of(call.brought.from_positions, axis, batch, token) : 0;
        }
        for (const auto &[view, numbers] : {std::pair(&positions, to_), std::pair(&from_positions, from_)}) {
            *view = halyard::positions(numbers, {1, 1});
            view->n_axes = n_axes;
            view->stride_axis = 1;
        }
        args.positions = &positions;
        for (int i = 0; i < call.n(); i++) {
            take_tensor(call, i, {batch, token, 0});
        }
    }

private:
    std::int64_t slot_ = -1, to_[HALYARD_MAX_AXES], from_[HALYARD_MAX_AXES];

    void take_tensor(const Call &call, int i, const Head &first) {
        for (halyard_tensor *const tensor : {&x[i], &y[i]}) {
            tensor->data = tensor->data != nullptr ? place_in(*tensor, first, 0) : nullptr;
            tensor->shape[0] = tensor->shape[1] = 1;
        }
        const bool has_cache = call.kv[i].cache != nullptr;
        const halyard_stages &all = call.stages[i];
        if (all.position_scales != nullptr) {
            stages[i].position_scales = reinterpret_cast<const float *>(place_of_position_scale(call, i, first));
        }
        if (all.scales_out != nullptr && !has_cache) {
            stages[i].scales_out = reinterpret_cast<float *>(place_of_scale(call, i, first));
        }
        if (all.group_scales != nullptr && !has_cache) {
            stages[i].group_scales = place_of_group_scales(call, i, first, false);
        }
        if (all.from_group_scales != nullptr) {
            stages[i].from_group_scales = place_of_group_scales(call, i, first, true);
        }
    }
};

}  // namespace

Images run_each_token(Scene &scene) {
    scene.memory.restore(scene.before);
    const halyard::plan plan(scene.call.plan);
    const std::int64_t n_tokens = scene.call.n_tokens();
    for (std::int64_t i = 0; i < scene.call.n_batch() * n_tokens; i++) {
        const TokenRun token(scene, i / n_tokens, i % n_tokens);
        WatchedError error;
        if (call(error, halyard_run(plan.get(), &token.args, &error.error)) != HALYARD_OK) {
            throw std::runtime_error(error.error.message + scene.text());
        }
    }
    return scene.memory.image();
}

std::vector<const char *> targets_of(const Call &call) {
    const bool has_stages = halyard::plan(call.plan).get()->kv != nullptr;
    std::vector<const char *> names;
    for (const halyard_target_info &target : halyard::targets()) {
        if (target.built != 0 && target.supported != 0 &&
            !(has_stages && target.name == std::string("reference"))) {
            names.push_back(target.name);
        }
    }
    return names;
}

std::string fault_of_ways(Scene &scene) {
    const Images expected = run_model(scene);
    std::string fault = scene.fault(expected);
    for (const char *const target : targets_of(scene.call)) {
        if (fault.empty()) {
            fault = scene.difference(expected, run(scene, target, Way::whole));
            fault = fault.empty() ? "" : std::string(target) + ": " + fault;
        }
    }
    const halyard::plan plan(scene.call.plan);
    for (const Way way : all_ways) {
        fault = fault.empty() ? scene.difference(expected, run(scene, nullptr, way, 5)) : fault;
    }
    if (fault.empty() && scene.angles.desc.by_token == 0) {  // whose rows lie token after token
        fault = scene.difference(expected, run_each_token(scene));
        fault = fault.empty() ? "" : "token by token: " + fault;
    }
    return fault;
}

}  // namespace scenes
