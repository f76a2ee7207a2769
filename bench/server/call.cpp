#include "server/call.h"

#include "walk/bound_run.h"
#include "walk/plan.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace halyard::bench {

namespace {

/// Keeps the last source of each kind that was made, as a model's layers would share it.
std::shared_ptr<const angle_source> angles_for(const Placed &placed, std::int32_t kind) {
    using Key = std::tuple<std::int64_t, std::int32_t, std::int32_t>;
    static std::map<std::int32_t, std::pair<Key, std::shared_ptr<const angle_source>>> all;
    const Work &work = placed.work();
    const auto first = static_cast<std::int32_t>(std::max<std::int64_t>(work.first_position, 0));
    const Key key = work.is_shift() ? Key(work.rotary_dim, INT32_MIN, INT32_MAX)
                                    : Key(work.rotary_dim, first, placed.last_position());
    auto &[made, source] = all[kind];
    if (source == nullptr || made != key) {
        made = key;
        source = std::make_shared<angle_source>(frequencies::from_base(rope_base, work.rotary_dim),
                                                describe_angles(kind, std::get<1>(key), std::get<2>(key)));
    }
    return source;
}

halyard_tensor tensor_of(const Placed &placed, std::size_t p, const Placed::View &view, std::size_t copy) {
    const Work &work = placed.work();
    const Part &part = work.parts[p];
    return tensor(placed.at<char>(view.at + copy * placed.layout().step), work.type,
                  {1, work.n_tokens, part.n_heads, head_size(work.type, part.head_dim)},
                  {work.n_tokens * view.stride_token, view.stride_token, view.stride_head, view.stride_element});
}

halyard_cache_desc cache_of(const Placed &placed, std::size_t p) {
    const Work &work = placed.work();
    const Part &part = work.parts[p];
    const std::int64_t head = head_size(work.cache, part.head_dim);
    auto cache = describe_nhd_cache(work.n_slots / page_size, page_size, part.n_heads, head);
    if (placed.is_by_column(p)) {
        cache.stride_head = head * page_size;
        cache.stride_token = 1;
        cache.stride_element = page_size;
    }
    return cache;
}

bool norms(const Part &part, const Stages &stages) { return stages.norm && part.norm_size > 0; }
bool rotates(const Part &part, const Stages &stages) { return stages.rotation && part.rotates; }
bool stores(const Part &part, const Stages &stages) { return stages.store && part.is_cached; }

void check(halyard_status status, const char *what) {
    if (status != HALYARD_OK) {
        throw error(status, what);
    }
}

}  // namespace

Call::Call(const Placed &placed, const How &how)
    : angles_(angles_for(placed, how.angles)), executor_(how.executor), brings_stages_(placed.work().n_slots > 0),
      from_(-placed.work().moved_by), from_positions_(consecutive_positions(&from_, 1)),
      cos_rows_(placed.at<float>(placed.layout().cos)), sin_rows_(placed.at<float>(placed.layout().sin)) {
    const Work &work = placed.work();
    Descs descs;
    for (std::size_t p = 0; p < work.parts.size(); p++) {
        add(placed, how, p, descs);
    }
    plan_desc described(work.rotary_dim, descs.tensors);
    described.target = how.target.empty() ? nullptr : how.target.c_str();
    described.rerotates = work.is_shift();
    plan_ = plan(described);
    position_data_.assign(placed.positions().begin(), placed.positions().end());
    for (std::size_t copy = 0; copy < placed.layout().n_copies; copy++) {
        views_.push_back(view(placed, how, copy));
    }
    bind(placed);
}

/// Makes a part one of the run's tensors, if anything is done to it.
void Call::add(const Placed &placed, const How &how, std::size_t p, Descs &descs) {
    const Work &work = placed.work();
    const Part &part = work.parts[p];
    const bool is_rotated = rotates(part, how.stages);
    if (!norms(part, how.stages) && !is_rotated && !stores(part, how.stages)) {
        return;
    }
    auto desc = describe_tensor(work.type, part.head_dim, work.in, work.out, is_rotated ? part.rotary_offset : 0);
    desc.no_rotation = is_rotated ? 0 : 1;
    auto brought = make_struct<halyard_stages>();
    if (norms(part, how.stages)) {
        halyard_norm_desc &norm = descs.norms[p] = describe_norm(dtype::bf16, road_eps);
        norm.unit_offset = work.unit_offset ? 1 : 0;
        norm.window_size = part.norm_size;
        desc.norm = &norm;
        brought.weight = placed.at<void>(placed.layout().weight[p]);
        brought.n_weights = part.norm_size;
    }
    if (stores(part, how.stages)) {
        desc.cache = &(descs.caches[p] = cache_of(placed, p));
        desc.hadamard = work.hadamard ? static_cast<std::int32_t>(part.head_dim) : 0;
        desc.groups = work.cache == dtype::uint8 ? &descs.groups : nullptr;
        brought.cache = placed.at<void>(placed.layout().y[p].at);
        if (work.cache == dtype::e4m3) {
            desc.out_dtype = work.is_shift() ? desc.out_dtype : std::int32_t{HALYARD_E4M3};
            desc.scale = &descs.scale;
            brought.scales = placed.at<float>(placed.layout().scale);
            brought.n_scales = 1;
        }
    }
    descs.tensors.push_back(desc);
    parts_.push_back(p);
    stages_.push_back(brought);
    weights_.push_back(brought.weight);
    scales_.push_back(brought.scales);
    rotates_ = rotates_ || is_rotated;
    stores_ = stores_ || stores(part, how.stages);
}

Call::Views Call::view(const Placed &placed, const How &how, std::size_t copy) const {
    const Work &work = placed.work();
    const Placed::Layout &layout = placed.layout();
    Views views = {};
    const std::int64_t first = work.cold_table ? static_cast<std::int64_t>(copy) * work.n_tokens : 0;
    views.positions =
        work.is_shift() ? consecutive_positions(&to_, 1) : positions(position_data_.data() + first, {1, work.n_tokens});
    for (std::size_t i = 0; i < parts_.size(); i++) {
        const std::size_t p = parts_[i];
        const Part &part = work.parts[p];
        // What stages before this one left lies in memory of its own; so does what others go on with.
        const bool is_left = norms(part, how.done) || rotates(part, how.done);
        const Placed::View &left = part.is_cached && work.is_road() ? layout.between[p] : layout.y[p];
        views.x[i] = tensor_of(placed, p, is_left ? left : layout.x[p], copy);
        views.y[i] = tensor_of(placed, p, left, copy);
        if (work.is_shift()) {
            views.x[i].data = views.y[i].data = nullptr;  // keys are only in the cache
        }
        views.caches[i] = stages_[i].cache == nullptr ? nullptr : placed.at<char>(layout.y[p].at + copy * layout.step);
    }
    return views;
}

void Call::bind(const Placed &placed) {
    const Work &work = placed.work();
    const Views &first = views_.front();
    if (stores_) {
        slots_ = slots(placed.at<std::int64_t>(placed.layout().slots), {1, work.n_tokens},
                       placed.at<void>(placed.layout().scratch), work.n_slots / 8 + 1);
    }
    run_options options;
    options.executor = executor_;
    if (rotates_) {
        options.at(first.positions);
    }
    if (work.is_shift()) {
        options.moved_from(from_positions_);
    }
    if (brings_stages_) {
        options.stages = {stages_.data(), parts_.size()};
    }
    if (stores_) {
        options.slots = slots_;
    }
    bound_ = bound_run(plan_, *angles_, {first.x, parts_.size()}, {first.y, parts_.size()}, options);
}

// The arguments are filled anew for each call, as an engine does it.

void Call::run(std::size_t copy) const {
    const Views &views = views_[copy];
    auto args = make_struct<halyard_run_args>();
    args.angles = angles_->get();
    args.positions = rotates_ ? &views.positions : nullptr;
    args.n_tensors = static_cast<std::int32_t>(parts_.size());
    args.x = views.x;
    args.y = views.y;
    args.executor = executor_;
    args.stages = brings_stages_ ? stages_.data() : nullptr;
    args.slots = stores_ ? &slots_ : nullptr;
    check(halyard_run(plan_.get(), &args, nullptr), "a run of the bench failed");
}

void Call::run_bound(std::size_t copy) const {
    const Views &views = views_[copy];
    const void *const x[] = {views.x[0].data, views.x[1].data, views.x[2].data};
    void *const y[] = {views.y[0].data, views.y[1].data, views.y[2].data};
    auto args = make_struct<halyard_bound_run_args>();
    args.n_tensors = static_cast<std::int32_t>(parts_.size());
    args.positions = rotates_ ? views.positions.data : nullptr;
    args.x = x;
    args.y = y;
    if (brings_stages_) {
        args.weights = weights_.data();
        args.scales = scales_.data();
        args.caches = views.caches;
        args.from_positions = from_ != 0 ? &from_ : nullptr;
    }
    if (stores_) {
        args.slots = slots_.data;
        args.slots_scratch = slots_.scratch;
    }
    check(halyard_run_bound(bound_.get(), &args, nullptr), "a bound run of the bench failed");
}

bool Call::makes_single_calls() const { return bound_.get()->is_prepared; }

void Call::run_kernels(std::size_t copy) const {
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
    for (std::size_t i = 0; i < parts_.size(); i++) {
        const RunTensor &tensor = bound.run.tensors[i];
        halyard_buffer x = buffer(views_[copy].x[i].data, bound.prepared[i].x);
        halyard_buffer y = buffer(views_[copy].y[i].data, bound.prepared[i].y);
        tensor.kernel->function(&rows, &cos, &sin, 0, tensor.in_place ? &y : &x, &y);
    }
}

bool Call::use(const Kernel &kernel) {
    bool chosen = false;
    replace_kernels(*plan_.get(), [&](const Kernel &current, Place, Layout) {
        const bool is_served = serve_the_same(current, kernel);
        chosen = chosen || is_served;
        return is_served ? &kernel : &current;
    });
    return chosen;
}

bool Call::use(const RowKernels &kernels) {
    RowKernels &used = plan_.get()->row_kernels;
    used.phase = kernels.phase != nullptr ? kernels.phase : used.phase;
    return angles_->info().kind == HALYARD_ANGLES_PHASE && kernels.phase != nullptr;
}

}  // namespace halyard::bench
