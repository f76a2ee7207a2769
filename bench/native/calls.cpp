// Halyard on a work: runs and bound runs.
#include "native/work.h"

#include <algorithm>

namespace bench {

namespace {

class Run {
public:
    Run(const bench_work &work, bench_library &library, const char *target);

    const char *target() const { return library_.get_plan_target(plan_.get()); }

    // The arguments are filled anew for each call, as an engine does it.
    void run(std::size_t copy) const {
        const Views &views = views_[copy];
        auto args = make_struct<halyard_run_args>();
        set_args(args, views);
        check(library_.run(plan_.get(), &args, nullptr));
    }
    void run_bound(std::size_t copy) const {
        const Views &views = views_[copy];
        const void *const x[] = {views.x[0].data, views.x[1].data, views.x[2].data};
        void *const y[] = {views.y[0].data, views.y[1].data, views.y[2].data};
        auto args = make_struct<halyard_bound_run_args>();
        args.n_tensors = n_tensors_;
        args.positions = positions_.data;
        args.x = x;
        args.y = y;
        args.kv = slots_.data != nullptr ? &views.kv : nullptr;
        check(library_.run_bound(bound_.get(), &args, nullptr));
    }

private:
    /// A run's tensors in one copy.
    struct Views {
        halyard_tensor x[BENCH_MAX_PARTS], y[BENCH_MAX_PARTS];
        halyard_stages stages[BENCH_MAX_PARTS];
        halyard_kv_args kv;
    };
    /// What the plan's descriptions point to until it is made.
    struct Descs {
        std::vector<halyard_tensor_desc> tensors;
        halyard_kv_desc kv[BENCH_MAX_PARTS];
        halyard_norm_desc norms[BENCH_MAX_PARTS];
        halyard_cache_desc caches[BENCH_MAX_PARTS];
        halyard_scale_desc scale = make_struct<halyard_scale_desc>();
        halyard_groups_desc groups = make_struct<halyard_groups_desc>();
    };

    static void check(halyard_status status) {
        if (status != HALYARD_OK) {
            throw Failed("a run of the bench failed with status " + std::to_string(status));
        }
    }
    void set_args(halyard_run_args &args, const Views &views) const {
        args.angles = angles_.get();
        args.positions = &positions_;
        args.n_tensors = n_tensors_;
        args.x = views.x;
        args.y = views.y;
        args.kv = slots_.data != nullptr ? &views.kv : nullptr;
    }
    void add(const bench_work &work, std::int64_t p, Descs &descs);
    Views view(const bench_work &work, std::size_t copy) const;

    bench_library &library_;
    Angles angles_;
    std::shared_ptr<halyard_plan> plan_;
    std::shared_ptr<halyard_bound_run> bound_;
    std::int32_t n_tensors_;
    std::vector<std::int32_t> position_data_;
    std::int64_t from_, to_ = 0;  // of a shift
    halyard_positions from_positions_, positions_;
    halyard_slots slots_ = make_struct<halyard_slots>();
    std::vector<halyard_stages> stages_;
    std::vector<Views> views_;
};

halyard_positions positions_at(const void *data, std::int32_t type, std::int64_t n, bool consecutive = false) {
    auto positions = make_struct<halyard_positions>();
    positions.type = type;
    positions.consecutive = consecutive ? 1 : 0;
    positions.data = data;
    positions.shape[0] = 1;
    positions.shape[1] = positions.strides[0] = n;
    positions.strides[1] = 1;
    return positions;
}

halyard_tensor tensor_at(const bench_work &work, std::int64_t p, const bench_work::View &view, std::size_t copy) {
    const bench_desc &desc = work.desc;
    auto tensor = make_struct<halyard_tensor>();
    tensor.dtype = static_cast<std::int32_t>(desc.dtype);
    tensor.data = work.at<char>(view.at + copy * work.layout.step);
    const std::int64_t shape[] = {1, desc.tokens, desc.parts[p].heads, head_size(desc.dtype, desc.parts[p].head_dim)};
    const std::int64_t strides[] = {desc.tokens * view.stride_token, view.stride_token, view.stride_head, 1};
    std::copy_n(shape, 4, tensor.shape);
    std::copy_n(strides, 4, tensor.strides);
    return tensor;
}

/// Pages of [16, heads, head_dim].
halyard_cache_desc cache_of(const bench_work &work, std::int64_t p) {
    const bench_part &part = work.desc.parts[p];
    const std::int64_t head = head_size(work.desc.cache, part.head_dim);
    auto cache = make_struct<halyard_cache_desc>();
    cache.n_slots = work.desc.n_slots;
    cache.block_size = page_size;
    cache.stride_block = page_size * part.heads * head;
    cache.stride_head = head;
    cache.stride_token = part.heads * head;
    cache.stride_element = 1;
    return cache;
}

Run::Run(const bench_work &work, bench_library &library, const char *target)
    : library_(library), n_tensors_(static_cast<std::int32_t>(work.desc.n_parts)), from_(-work.desc.moved_by),
      from_positions_(positions_at(&from_, HALYARD_INT64, 1, true)) {
    const bench_desc &desc = work.desc;
    const auto first = static_cast<std::int32_t>(std::max<std::int64_t>(desc.first_position, 0));
    const auto kind = static_cast<std::int32_t>(desc.angles);
    angles_ = work.is_shift() ? library.angles(kind, desc.rotary_dim, INT32_MIN, INT32_MAX)
                              : library.angles(kind, desc.rotary_dim, first, work.last_position());
    Descs descs;
    for (std::int64_t p = 0; p < desc.n_parts; p++) {
        add(work, p, descs);
    }
    auto described = make_struct<halyard_plan_desc>();
    described.rotary_dim = desc.rotary_dim;
    described.n_tensors = n_tensors_;
    described.tensors = descs.tensors.data();
    described.target = target;
    described.rerotates = work.is_shift() ? 1 : 0;
    plan_ = library.make(library.destroy_plan, library.create_plan, &described);
    position_data_.assign(work.positions.begin(), work.positions.end());
    positions_ = work.is_shift() ? positions_at(&to_, HALYARD_INT64, 1, true)
                                 : positions_at(position_data_.data(), HALYARD_INT32, desc.tokens);
    for (std::size_t copy = 0; copy < work.layout.n_copies; copy++) {
        views_.push_back(view(work, copy));
    }
    if (desc.n_slots > 0) {
        slots_.type = HALYARD_INT64;
        slots_.data = work.at<void>(work.layout.slots);
        slots_.shape[0] = slots_.strides[1] = 1;
        slots_.shape[1] = slots_.strides[0] = desc.tokens;
        slots_.scratch = work.at<void>(work.layout.scratch);
        slots_.scratch_bytes = desc.n_slots / 8 + 1;
    }
    for (Views &views : views_) {
        views.kv = make_struct<halyard_kv_args>();
        views.kv.stages = views.stages;
        views.kv.slots = &slots_;
        views.kv.from_positions = from_ != 0 ? &from_positions_ : nullptr;
    }
    auto args = make_struct<halyard_run_args>();
    set_args(args, views_.front());
    bound_ = library.make(library.destroy_bound_run, library.bind_run, plan_.get(), &args);
}

/// Makes a part one of the run's tensors.
void Run::add(const bench_work &work, std::int64_t p, Descs &descs) {
    const bench_desc &all = work.desc;
    const bench_part &part = all.parts[p];
    auto desc = make_struct<halyard_tensor_desc>();
    desc.dtype = static_cast<std::int32_t>(all.dtype);
    desc.pairing = static_cast<std::int32_t>(all.pairing);
    desc.out_pairing = static_cast<std::int32_t>(all.out_pairing);
    desc.head_dim = part.head_dim;
    desc.rotary_offset = part.rotary_offset;
    halyard_kv_desc &kv = descs.kv[p] = make_struct<halyard_kv_desc>();
    desc.kv = &kv;
    kv.no_rotation = part.rotates ? 0 : 1;
    auto brought = make_struct<halyard_stages>();
    if (part.norm_size > 0) {
        halyard_norm_desc &norm = descs.norms[p] = make_struct<halyard_norm_desc>();
        norm.weight_dtype = HALYARD_BF16;
        norm.eps = eps;
        norm.unit_offset = all.unit_offset ? 1 : 0;
        norm.window_size = part.norm_size;
        kv.norm = &norm;
        brought.weight = work.at<void>(work.layout.weight[p]);
        brought.n_weights = part.norm_size;
    }
    if (part.is_cached) {
        kv.cache = &(descs.caches[p] = cache_of(work, p));
        kv.hadamard = all.hadamard ? static_cast<std::int32_t>(part.head_dim) : 0;
        descs.groups.preset = HALYARD_GROUPS_GGML_Q8_0;
        kv.groups = is_records(all.cache) ? &descs.groups : nullptr;
        brought.cache = work.at<void>(work.layout.y[p].at);
        if (all.cache == HALYARD_E4M3) {
            kv.out_dtype = HALYARD_E4M3;
            kv.scale = &descs.scale;
            brought.scales = work.at<float>(work.layout.scale);
            brought.n_scales = 1;
        }
    }
    descs.tensors.push_back(desc);
    stages_.push_back(brought);
}

Run::Views Run::view(const bench_work &work, std::size_t copy) const {
    const bench_work::Layout &layout = work.layout;
    Views views = {};
    for (std::int64_t p = 0; p < work.desc.n_parts; p++) {
        const bool is_cached = stages_[p].cache != nullptr;  // then y is not read
        views.x[p] = tensor_at(work, p, layout.x[p], copy);
        views.y[p] = tensor_at(work, p, is_cached ? layout.x[p] : layout.y[p], copy);
        if (work.is_shift()) {
            views.x[p].data = views.y[p].data = nullptr;  // keys are only in the cache
        }
        views.stages[p] = stages_[p];
        if (is_cached) {
            views.stages[p].cache = work.at<char>(layout.y[p].at + copy * layout.step);
        }
    }
    return views;
}

}  // namespace

std::unique_ptr<bench_subject> make_call(bench_work &work, const std::string &way, bench_library &library,
                                         const char *target) {
    if (way != "bound" && (way != "run" || work.is_shift())) {
        return nullptr;
    }
    const auto run = std::make_shared<const Run>(work, library, target);
    auto subject = way == "bound" ? make_subject(work, [run](std::size_t copy) { run->run_bound(copy); })
                                  : make_subject(work, [run](std::size_t copy) { run->run(copy); });
    subject->target = run->target();
    return subject;
}

}  // namespace bench
