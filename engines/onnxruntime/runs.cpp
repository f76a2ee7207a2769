// Binds runs; those of a model's steps differ in nothing but pointers.
#include "runs.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace halyard_onnxruntime {

namespace {

/// Below this a thread that is woken costs more than it saves, as Halyard's own executors have it.
constexpr std::int64_t bytes_of_part = 192 << 10;

int count_parts(const RunKey &key) {
    std::int64_t n_heads = 0;
    for (int i = 0; i < key.n_tensors; ++i) {
        n_heads += key.tensors[static_cast<std::size_t>(i)].n_heads;
    }
    const auto n_bytes = key.n_batch * key.n_tokens * n_heads * key.head_dim * element_bytes(key.dtype);
    const auto n_threads = static_cast<std::int64_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 1024U));
    return static_cast<int>(std::clamp<std::int64_t>(n_bytes / bytes_of_part, 1, n_threads));
}

halyard::angle_source make_rows(const RunKey &key, const Pointers &pointers) {
    auto rows = halyard::angle_source::describe_rows(pointers.cos, pointers.sin, key.dtype, key.rows.n_rows,
                                                     key.rotary_dim / 2, key.rotary_dim);
    rows.by_token = key.rows.are_by_token ? 1 : 0;
    if (key.axes) {
        rows.axis_map = key.axes.are_interleaved ? HALYARD_AXIS_MAP_INTERLEAVED : HALYARD_AXIS_MAP_SECTIONS;
        rows.n_axes = static_cast<std::int32_t>(key.axes.sections.size());
        std::copy(key.axes.sections.begin(), key.axes.sections.end(), rows.axis_counts);
    }
    return halyard::angle_source::given(rows);
}

halyard::plan make_plan(const RunKey &key) {
    auto norm = halyard::describe_norm(key.dtype, key.epsilon);
    std::array<halyard_cache_desc, 3> caches;
    std::vector<halyard_tensor_desc> tensors;
    for (std::size_t i = 0; i < static_cast<std::size_t>(key.n_tensors); ++i) {
        const TensorKey &from = key.tensors[i];
        auto tensor = halyard::describe_tensor(
            key.dtype, key.head_dim, key.is_interleaved ? halyard::pairing::interleaved : halyard::pairing::half);
        tensor.no_rotation = from.is_rotated ? 0 : 1;
        tensor.norm = from.has_norm ? &norm : nullptr;
        caches[i] = halyard::describe_hnd_cache(key.n_batch, key.n_slots, from.n_heads, key.head_dim);
        tensor.cache = from.has_cache ? &caches[i] : nullptr;
        tensors.push_back(tensor);
    }
    return halyard::plan(halyard::plan_desc(key.rotary_dim, std::move(tensors)));
}

halyard::bound_run bind(const RunKey &key, const Pointers &pointers, const halyard::plan &plan,
                        const halyard::angle_source &angles) {
    std::array<halyard_tensor, 3> x, y;
    std::array<halyard_stages, 3> stages;
    bool has_stages = false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(key.n_tensors); ++i) {
        const TensorKey &tensor = key.tensors[i];
        const std::array<std::int64_t, 4> shape = {key.n_batch, key.n_tokens, tensor.n_heads, key.head_dim};
        x[i] = halyard::input_tensor(pointers.x[i], key.dtype, shape, {tensor.in[0], tensor.in[1], tensor.in[2], 1});
        y[i] = halyard::tensor(pointers.y[i], key.dtype, shape, {tensor.out[0], tensor.out[1], tensor.out[2], 1});
        stages[i] = halyard::stages(pointers.weights[i], tensor.has_norm ? key.head_dim : 0, pointers.caches[i]);
        has_stages = has_stages || tensor.has_norm || tensor.has_cache;
    }
    const auto *starts = static_cast<const std::int64_t *>(pointers.positions);
    auto positions = key.positions == Positions::each ? halyard::positions(starts, {key.n_batch, key.n_tokens})
                                                      : halyard::consecutive_positions(starts, 1);
    if (key.axes) {
        positions.n_axes = static_cast<std::int64_t>(key.axes.sections.size());
        positions.stride_axis = key.n_batch * key.n_tokens;
    }
    const auto n = static_cast<std::size_t>(key.n_tensors);
    halyard::run_options options;
    if (key.positions != Positions::none) {
        options.positions = positions;
    }
    if (has_stages) {
        options.stages = {stages.data(), n};
    }
    if (pointers.slots != nullptr) {
        const auto *first = static_cast<const std::int64_t *>(pointers.slots);
        options.slots = halyard::consecutive_slots(first, key.n_batch, halyard::keep_last);
    }
    return halyard::bound_run(plan, angles, {x.data(), n}, {y.data(), n}, options);
}

/// A call that ONNX Runtime's threads make together.
struct Call {
    const halyard_bound_run *run;
    halyard_bound_run_args args;
    halyard_error error;  // of the first part; all parts come to the same

    static void make_part(void *data, std::size_t part) {
        auto &call = *static_cast<Call *>(data);
        auto args = call.args;
        args.part = static_cast<std::int32_t>(part);
        halyard_run_bound(call.run, &args, part == 0 ? &call.error : nullptr);
    }
};

}  // namespace

BoundRun Runs::make(const RunKey &key, const Pointers &pointers) const {
    BoundRun made;
    made.rows = key.rows.are_given ? make_rows(key, pointers) : halyard::angle_source();
    made.cos = pointers.cos;
    made.sin = pointers.sin;
    made.plan = make_plan(key);
    made.run = bind(key, pointers, made.plan, key.rows.are_given ? made.rows : *own_);
    made.n_parts = count_parts(key);
    return made;
}

void Runs::run(const Ort::KernelContext &context, const RunKey &key, const Pointers &pointers) {
    const auto bound = known_.find(key, [&] { return make(key, pointers); });
    Call call = {bound->run.get(), halyard::make_struct<halyard_bound_run_args>(),
                 halyard::make_struct<halyard_error>()};
    call.args.n_parts = bound->n_parts;
    call.args.n_tensors = key.n_tensors;
    call.args.positions = pointers.positions;
    call.args.x = pointers.x.data();
    call.args.y = pointers.y.data();
    call.args.weights = pointers.weights.data();
    call.args.caches = pointers.caches.data();
    call.args.slots = pointers.slots;
    halyard::angle_source rows;  // those that a graph computes lie elsewhere in each call
    if (pointers.cos != bound->cos || pointers.sin != bound->sin) {
        rows = make_rows(key, pointers);
        call.args.angles = rows.get();
    }
    if (bound->n_parts == 1) {
        Call::make_part(&call, 0);
    } else {
        context.ParallelFor(Call::make_part, static_cast<std::size_t>(bound->n_parts), 0, &call);
    }
    halyard::detail::check(call.error.code, call.error);
}

}  // namespace halyard_onnxruntime
