// Binds runs to roads; those of a model's layers differ in nothing but pointers.
#include "runs.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace halyard_ggml {

namespace {

std::int32_t dtype_of(ggml_type type) {
    switch (type) {
    case GGML_TYPE_F16: return HALYARD_F16;
    case GGML_TYPE_BF16: return HALYARD_BF16;
    default: return HALYARD_F32;
    }
}

void read_strides(const ggml_tensor &tensor, std::int64_t *strides) {
    for (int i = 0; i < 3; ++i) {
        strides[i] = static_cast<std::int64_t>(tensor.nb[3 - i] / ggml_type_size(tensor.type));
    }
}

struct Span {
    const char *begin, *end;
};

Span span_of(const ggml_tensor &tensor) {
    const auto *begin = static_cast<const char *>(tensor.data);
    return {begin, begin + ggml_nbytes(&tensor)};
}

bool meet(const ggml_tensor &a, const ggml_tensor &b) {
    const Span x = span_of(a), y = span_of(b);
    return x.begin < y.end && y.begin < x.end;
}

RunKey key_of(const Road &road) {
    const ggml_tensor &x = *road.x, &y = *road.last();
    RunKey key = {};
    for (int i = 0; i < 4; ++i) {
        key.shape[i] = x.ne[3 - i];
    }
    read_strides(x, key.in);
    key.offset = road.rope.offset;
    key.in_dtype = dtype_of(x.type);
    key.out_dtype = dtype_of(y.type);
    key.is_half = road.rope.is_half;
    key.is_inverse = road.rope.is_inverse;
    key.has_norm = road.norm_node != nullptr;
    key.has_weight = road.weight != nullptr;
    key.eps = road.eps;
    if (road.set_rows_node == nullptr) {
        read_strides(y, key.out);
        key.is_in_place = x.data == y.data && std::equal(key.in, key.in + 3, key.out);
    } else {
        const ggml_tensor &slots = *y.src[1];
        key.out[1] = static_cast<std::int64_t>(y.nb[1] / ggml_type_size(y.type));
        key.n_slots = y.ne[1];
        key.slot_type = slots.type == GGML_TYPE_I32 ? HALYARD_INT32 : HALYARD_INT64;
        key.stride_slot_numbers = static_cast<std::int64_t>(slots.nb[0] / ggml_type_size(slots.type));
    }
    return key;
}

halyard::plan make_plan(const RunKey &key, std::int64_t rotary_dim) {
    auto tensor =
        halyard::describe_tensor(static_cast<halyard::dtype>(key.in_dtype), key.shape[3],
                                 key.is_half ? halyard::pairing::half : halyard::pairing::interleaved, key.offset);
    tensor.out_dtype = key.out_dtype;
    auto norm = halyard::describe_norm(halyard::dtype::f32, key.eps);
    norm.weight_dtype = key.has_weight ? HALYARD_F32 : 0;
    tensor.norm = key.has_norm ? &norm : nullptr;
    auto cache = halyard::make_struct<halyard_cache_desc>();
    cache.n_slots = cache.block_size = key.n_slots;
    cache.stride_head = key.shape[3];
    cache.stride_token = key.out[1];
    tensor.cache = key.n_slots == 0 ? nullptr : &cache;
    return halyard::plan(halyard::plan_desc(
        rotary_dim, {tensor}, key.is_inverse ? halyard::direction::inverse : halyard::direction::forward));
}

halyard::bound_run make_run(const Road &road, const RunKey &key, const TokenRows &rows, const halyard::plan &plan) {
    const std::array<std::int64_t, 4> shape = {key.shape[0], key.shape[1], key.shape[2], key.shape[3]};
    const auto x = halyard::input_tensor(road.x->data, static_cast<halyard::dtype>(key.in_dtype), shape,
                                         {key.in[0], key.in[1], key.in[2], 1});
    const auto y = halyard::tensor(road.last()->data, static_cast<halyard::dtype>(key.out_dtype), shape,
                                   {key.out[0], key.out[1], key.out[2], 1});
    halyard::run_options options;
    auto stages = halyard::stages(key.has_weight ? road.weight->data : nullptr, key.has_weight ? key.shape[3] : 0,
                                  key.n_slots == 0 ? nullptr : road.last()->data);
    if (key.has_norm || key.n_slots != 0) {
        options.stages = stages;
    }
    auto slots = halyard::make_struct<halyard_slots>();
    if (key.n_slots != 0) {
        slots.type = key.slot_type;
        slots.policy = HALYARD_SLOTS_RANGE_ONLY;
        slots.data = road.last()->src[1]->data;
        slots.shape[0] = 1;
        slots.shape[1] = key.shape[1];
        slots.strides[1] = key.stride_slot_numbers;
        options.slots = slots;
    }
    return halyard::bound_run(plan, rows.source, x, y, options);
}

BoundRun make(const Road &road, const RunKey &key, const TokenRows &rows) {
    BoundRun made;
    try {
        made.plan = make_plan(key, 2 * rows.maker->n_pairs());
        made.run = make_run(road, key, rows, made.plan);
    } catch (const halyard::error &error) {
        made.why_not = error.what();
    }
    return made;
}

}  // namespace

void Call::operator()(int part, int n_parts) {
    auto args = halyard::make_struct<halyard_bound_run_args>();
    args.part = part;
    args.n_parts = n_parts;
    args.n_tensors = 1;
    args.x = &x;
    args.y = &y;
    args.weights = weight == nullptr ? nullptr : &weight;
    args.slots = slots;
    args.caches = cache == nullptr ? nullptr : &cache;
    halyard_run_bound(bound->run.get(), &args, part == 0 ? error : nullptr);
}

std::string bind(Angles &angles, const Road &road, Call *call) {
    const ggml_tensor &y = *road.last();
    const bool has_cache = road.set_rows_node != nullptr;
    if (road.x->data == nullptr || y.data == nullptr) {
        return "a tensor has no memory";
    }
    const RunKey key = key_of(road);
    if (!key.is_in_place && meet(*road.x, y)) {
        return "input and output share memory";
    }
    try {
        call->rows = angles.rows(road.rope);
    } catch (const halyard::error &error) {
        return error.what();
    }
    call->bound = call->rows->runs->find(key, [&] { return make(road, key, *call->rows); });
    if (!call->bound->run) {
        return call->bound->why_not;
    }
    call->x = road.x->data;
    call->y = has_cache ? nullptr : y.data;
    call->weight = road.weight == nullptr ? nullptr : road.weight->data;
    call->slots = has_cache ? y.src[1]->data : nullptr;
    call->cache = has_cache ? y.data : nullptr;
    return {};
}

}  // namespace halyard_ggml
