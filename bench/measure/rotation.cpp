#include "measure/rotation.h"

#include "rotate/plan.h"

#include <malloc.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace halyard::bench {

namespace {

plan_desc describe(const Work &work, const char *target) {
    plan_desc desc(work.model.rotary_dim,
                   {describe_tensor(work.type, work.model.head_dim, work.model.in, work.model.out)});
    desc.target = target;
    return desc;
}

/// Keeps the last source that was made, as a model's layers would share it.
std::shared_ptr<const angle_source> angles_for(std::int64_t rotary_dim, std::int32_t kind, std::int32_t last) {
    static std::tuple<std::int64_t, std::int32_t, std::int32_t> made_for;
    static std::shared_ptr<const angle_source> made;
    if (made == nullptr || made_for != std::tuple(rotary_dim, kind, last)) {
        made = std::make_shared<angle_source>(frequencies::from_base(rope_base, rotary_dim),
                                              describe_angles(kind, 0, last));
        made_for = {rotary_dim, kind, last};
    }
    return made;
}

}  // namespace

Rotation::Rotation(const PlacedWork &placed, const char *target, const halyard_executor *executor)
    : angles_(angles_for(placed.work().model.rotary_dim, placed.work().angles, placed.last_position())),
      plan_(describe(placed.work(), target)), executor_(executor),
      position_data_(placed.positions().begin(), placed.positions().end()) {
    const Work &work = placed.work();
    positions_ = halyard::positions(position_data_.data(), {1, work.n_tokens});
    for (std::size_t i = 0; i < placed.slots().size(); i++) {
        const std::array<std::int64_t, 4> shape = {1, work.n_tokens, work.model.n_heads(), work.model.head_dim};
        views_.push_back({tensor(placed.x(i), work.type, shape), tensor(placed.y(i), work.type, shape)});
        for (halyard_tensor *const view : {&views_.back().x, &views_.back().y}) {
            view->strides[2] = work.stride_head();
            view->strides[3] = work.stride_element();
        }
    }
}

void Rotation::run(std::size_t slot) const {
    halyard_run_args args = {};
    args.size = sizeof(args);
    args.angles = angles_->get();
    args.positions = &positions_;
    args.x = &views_[slot].x;
    args.y = &views_[slot].y;
    args.executor = executor_;
    if (const halyard_status status = halyard_run(plan_.get(), &args, nullptr); status != HALYARD_OK) {
        throw error(status, "a run of the bench failed");
    }
}

void Rotation::run_bound(std::size_t slot) {
    if (!bound_) {
        run_options how;
        how.positions = &positions_;
        how.executor = executor_;
        bound_ = bound_run(plan_, *angles_, views_.front().x, views_.front().y, how);
    }
    auto args = make_struct<halyard_bound_run_args>();
    const void *const x = views_[slot].x.data;
    void *const y = views_[slot].y.data;
    args.n_tensors = 1;
    args.positions = position_data_.data();
    args.x = &x;
    args.y = &y;
    if (const halyard_status status = halyard_run_bound(bound_.get(), &args, nullptr); status != HALYARD_OK) {
        throw error(status, "a bound run of the bench failed");
    }
}

bool Rotation::use(const Kernel &kernel) {
    bool chosen = false;
    replace_kernels(*plan_.get(), [&](const Kernel &current, Place, Layout) {
        const bool is_served = serve_the_same(current, kernel);
        chosen = chosen || is_served;
        return is_served ? &kernel : &current;
    });
    return chosen;
}

bool Rotation::use(const RowKernels &kernels) {
    RowKernels &used = plan_.get()->row_kernels;
    const std::int32_t angles = angles_->info().kind;
    used.phase = kernels.phase != nullptr ? kernels.phase : used.phase;
    used.factored = kernels.factored != nullptr ? kernels.factored : used.factored;
    return (angles == HALYARD_ANGLES_PHASE && kernels.phase != nullptr) ||
           (angles == HALYARD_ANGLES_FACTORED && kernels.factored != nullptr);
}

std::size_t Rotation::plan_bytes() const { return malloc_usable_size(plan_.get()); }

}  // namespace halyard::bench
