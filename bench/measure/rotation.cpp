#include "measure/rotation.h"

#include "walk/bound_run.h"
#include "walk/plan.h"

#include <malloc.h>

#include <algorithm>
#include <map>

namespace halyard::bench {

namespace {

plan_desc describe(const Work &work, const char *target) {
    const auto tensor = describe_tensor(work.type, work.head_dim, work.in, work.out);
    plan_desc desc = work.apart ? plan_desc(work.rotary_dim, {tensor, tensor}) : plan_desc(work.rotary_dim, {tensor});
    desc.target = target;
    return desc;
}

/// Keeps the last source of each kind that was made, as a model's layers would share it.
std::shared_ptr<const angle_source> angles_for(std::int64_t rotary_dim, std::int32_t kind, std::int32_t last) {
    struct Made {
        std::int64_t rotary_dim;
        std::int32_t last;
        std::shared_ptr<const angle_source> source;
    };
    static std::map<std::int32_t, Made> all;
    Made &made = all[kind];
    if (made.source == nullptr || made.rotary_dim != rotary_dim || made.last != last) {
        made = {rotary_dim, last,
                std::make_shared<angle_source>(frequencies::from_base(rope_base, rotary_dim),
                                               describe_angles(kind, 0, last))};
    }
    return made.source;
}

}  // namespace

Rotation::Rotation(const PlacedWork &placed, const char *target, const halyard_executor *executor, std::int32_t angles)
    : angles_(angles_for(placed.work().rotary_dim, angles, placed.last_position())),
      plan_(describe(placed.work(), target)), executor_(executor),
      position_data_(placed.positions().begin(), placed.positions().end()), n_tensors_(placed.work().apart ? 2 : 1),
      cos_rows_(placed.cos_rows()), sin_rows_(placed.sin_rows()) {
    const Work &work = placed.work();
    const auto view = [&](char *data, std::int64_t first, std::int64_t n_heads) {
        halyard_tensor view = tensor(data + first * work.stride_head() * work.element_bytes(), work.type,
                                     {1, work.n_tokens, n_heads, work.head_dim});
        view.strides[1] = work.n_heads() * work.head_dim;
        view.strides[2] = work.stride_head();
        view.strides[3] = work.stride_element();
        return view;
    };
    for (std::size_t i = 0; i < placed.slots().size(); i++) {
        Views views = {};
        views.positions = halyard::positions(position_data_.data() +
                                                 (work.cold_table ? static_cast<std::int64_t>(i) * work.n_tokens : 0),
                                             {1, work.n_tokens});
        const std::int64_t n_q = work.n_q_heads, n_k = work.n_k_heads;
        views.x[0] = view(placed.x(i), 0, work.apart ? n_q : n_q + n_k);
        views.y[0] = view(placed.y(i), 0, work.apart ? n_q : n_q + n_k);
        views.x[1] = view(placed.x(i), n_q, n_k);
        views.y[1] = view(placed.y(i), n_q, n_k);
        views_.push_back(views);
    }
}

void Rotation::run(std::size_t slot) const {
    halyard_run_args args = {};
    args.size = sizeof(args);
    args.angles = angles_->get();
    args.positions = &views_[slot].positions;
    args.x = views_[slot].x;
    args.y = views_[slot].y;
    args.executor = executor_;
    if (const halyard_status status = halyard_run(plan_.get(), &args, nullptr); status != HALYARD_OK) {
        throw error(status, "a run of the bench failed");
    }
}

void Rotation::bind() {
    if (!bound_) {
        run_options how;
        how.positions = &views_.front().positions;
        how.executor = executor_;
        bound_ = bound_run(plan_, *angles_, views_.front().x, views_.front().y, how);
    }
}

void Rotation::run_bound(std::size_t slot) {
    bind();
    const Views &views = views_[slot];
    auto args = make_struct<halyard_bound_run_args>();
    const void *const x[] = {views.x[0].data, views.x[1].data};
    void *const y[] = {views.y[0].data, views.y[1].data};
    args.n_tensors = n_tensors_;
    args.positions = views.positions.data;
    args.x = x;
    args.y = y;
    if (const halyard_status status = halyard_run_bound(bound_.get(), &args, nullptr); status != HALYARD_OK) {
        throw error(status, "a bound run of the bench failed");
    }
}

bool Rotation::makes_single_calls() {
    bind();
    return bound_.get()->is_prepared;
}

void Rotation::run_kernels(std::size_t slot) const {
    halyard_bound_run &bound = *bound_.get();
    static std::int32_t row_of_token[] = {0};
    const std::int64_t n_pairs = bound.row[0].extent;
    halyard_dimension row[2] = {bound.row[0], {0, 1, static_cast<std::int32_t>(n_pairs), 0}};
    const auto buffer = [](const void *host, halyard_dimension *dim) {
        halyard_buffer buffer = {};
        buffer.host = static_cast<std::uint8_t *>(const_cast<void *>(host));
        buffer.dim = dim;
        return buffer;
    };
    halyard_buffer rows = buffer(row_of_token, bound.rows), cos = buffer(cos_rows_, row), sin = buffer(sin_rows_, row);
    for (int i = 0; i < n_tensors_; i++) {
        const RunTensor &tensor = bound.run.tensors[i];
        halyard_buffer x = buffer(views_[slot].x[i].data, bound.prepared[i].x);
        halyard_buffer y = buffer(views_[slot].y[i].data, bound.prepared[i].y);
        tensor.kernel->function(&rows, &cos, &sin, 0, tensor.in_place ? &y : &x, &y);
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
