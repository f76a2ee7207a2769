#include "road/road_call.h"

#include <array>

namespace halyard::bench {

/// One run, with all that its arguments point to.
struct RoadCall::Step {
    plan made;
    std::vector<halyard_tensor> x, y;
    std::vector<halyard_stages> stages;
    std::vector<const void *> x_data, weights;
    std::vector<void *> y_data, caches;
    std::vector<const float *> scales;
    halyard_positions positions;
    halyard_slots slots;
    halyard_run_args args = make_struct<halyard_run_args>();
    halyard_bound_run_args bound_args = make_struct<halyard_bound_run_args>();
    bound_run bound;
};

RoadCall::RoadCall(const PlacedRoad &placed, RoadForm form, const char *target)
    : angles_(std::make_shared<const angle_source>(
          angle_source::table(frequencies::from_base(rope_base, placed.work().model.rotary_dim), 0, n_positions - 1))) {
    if (form != RoadForm::separate) {
        add_step(placed, {form == RoadForm::fused, true, true}, {false, false, false}, target);
        return;
    }
    const bool norm = placed.work().model.has_norm();
    if (norm) {
        add_step(placed, {true, false, false}, {false, false, false}, target);
    }
    add_step(placed, {false, true, false}, {norm, false, false}, target);
    add_step(placed, {false, false, true}, {norm, true, false}, target);
}

RoadCall::PartOfStep RoadCall::take_part(const PlacedRoad &placed, std::size_t i, const Stages &stages,
                                         const Stages &done) {
    const RoadWork &work = placed.work();
    const PlacedRoad::Layout &layout = placed.layout();
    const RoadPart &part = work.model.parts[i];
    PartOfStep taken = {
        stages.norm && part.norm_size > 0, stages.rotation && part.rotates, stages.store && part.is_cached, {}, {}};
    // What stages before this one left lies in memory of its own, dense; so does what others go on with.
    const std::int64_t n = work.n_tokens, row = part.n_heads * part.head_dim;
    const bool is_between = (done.norm && part.norm_size > 0) || (done.rotation && part.rotates);
    taken.y = tensor(placed.at<char>(part.is_cached ? layout.between[i] : layout.y[i]), dtype::bf16,
                     {1, n, part.n_heads, part.head_dim}, {n * row, row, part.head_dim, 1});
    taken.x = is_between ? taken.y
                         : tensor(placed.at<std::uint16_t>(layout.x) + part.x_offset, dtype::bf16,
                                  {1, n, part.n_heads, part.head_dim},
                                  {n * work.model.row_elements, work.model.row_elements, part.x_stride_head, 1});
    return taken;
}

void RoadCall::add_step(const PlacedRoad &placed, const Stages &stages, const Stages &done, const char *target) {
    const RoadWork &work = placed.work();
    const PlacedRoad::Layout &layout = placed.layout();
    auto step = std::make_shared<Step>();
    std::vector<halyard_tensor_desc> descs;
    std::vector<halyard_norm_desc> norms(work.model.parts.size());
    std::vector<halyard_cache_desc> caches(work.model.parts.size());
    const auto scale = describe_static_scales();
    bool rotates = false, has_cache = false;
    for (std::size_t i = 0; i < work.model.parts.size(); i++) {
        const RoadPart &part = work.model.parts[i];
        const PartOfStep taken = take_part(placed, i, stages, done);
        if (!taken.norms && !taken.rotates && !taken.stores) {
            continue;
        }
        auto desc = describe_tensor(dtype::bf16, part.head_dim, work.model.how, taken.rotates ? part.rotary_offset : 0);
        desc.no_rotation = taken.rotates ? 0 : 1;
        rotates = rotates || taken.rotates;
        has_cache = has_cache || taken.stores;
        auto brought = make_struct<halyard_stages>();
        if (taken.norms) {
            norms[i] = describe_norm(dtype::bf16, road_eps);
            norms[i].unit_offset = work.model.unit_offset ? 1 : 0;
            norms[i].window_size = part.norm_size;
            desc.norm = &norms[i];
            brought.weight = placed.at<void>(layout.weight[i]);
            brought.n_weights = part.norm_size;
        }
        if (taken.stores) {
            caches[i] = describe_nhd_cache(road_pages, road_page_size, part.n_heads, part.head_dim);
            desc.cache = &caches[i];
            brought.cache = placed.at<void>(layout.y[i]);
        }
        if (taken.stores && work.cache == dtype::e4m3) {
            desc.out_dtype = HALYARD_E4M3;
            desc.scale = &scale;
            brought.scales = placed.at<float>(layout.scale);
            brought.n_scales = 1;
        }
        descs.push_back(desc);
        step->x.push_back(taken.x);
        step->y.push_back(taken.y);
        step->stages.push_back(brought);
    }
    plan_desc described(work.model.rotary_dim, descs);
    described.target = target;
    step->made = plan(described);
    bind(placed, *step, rotates, has_cache);
    steps_.push_back(std::move(step));
}

/// Makes ready what runs and bound runs of a step are told.
void RoadCall::bind(const PlacedRoad &placed, Step &step, bool rotates, bool has_cache) const {
    const PlacedRoad::Layout &layout = placed.layout();
    const std::int64_t n = placed.work().n_tokens;
    step.positions = positions(placed.at<std::int64_t>(layout.positions), {1, n});
    run_options options;
    options.positions = rotates ? &step.positions : nullptr;
    options.stages = step.stages.data();
    if (has_cache) {
        step.slots = slots(placed.at<std::int64_t>(layout.slots), {1, n}, placed.at<void>(layout.scratch),
                           road_pages * road_page_size / 8);
        options.slots = &step.slots;
    }
    step.args = detail::make_args(*angles_, step.x.data(), step.y.data(), options);
    step.bound = bound_run(step.made, *angles_, step.x.data(), step.y.data(), options);
    for (std::size_t i = 0; i < step.x.size(); i++) {
        step.x_data.push_back(step.x[i].data);
        step.y_data.push_back(step.y[i].data);
        step.weights.push_back(step.stages[i].weight);
        step.caches.push_back(step.stages[i].cache);
        step.scales.push_back(step.stages[i].scales);
    }
    halyard_bound_run_args &bound = step.bound_args;
    bound.n_tensors = static_cast<std::int32_t>(step.x.size());
    bound.positions = rotates ? step.positions.data : nullptr;
    bound.x = step.x_data.data();
    bound.y = step.y_data.data();
    bound.slots = has_cache ? step.slots.data : nullptr;
    bound.slots_scratch = has_cache ? step.slots.scratch : nullptr;
    bound.weights = step.weights.data();
    bound.scales = step.scales.data();
    bound.caches = step.caches.data();
}

void RoadCall::run() const {
    for (const auto &step : steps_) {
        if (const halyard_status status = halyard_run(step->made.get(), &step->args, nullptr); status != HALYARD_OK) {
            throw error(status, "a run of the bench failed");
        }
    }
}

void RoadCall::run_bound() const {
    for (const auto &step : steps_) {
        if (const halyard_status status = halyard_run_bound(step->bound.get(), &step->bound_args, nullptr);
            status != HALYARD_OK) {
            throw error(status, "a bound run of the bench failed");
        }
    }
}

const char *RoadCall::target() const { return steps_.front()->made.target(); }

}  // namespace halyard::bench
