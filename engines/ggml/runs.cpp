// Binds runs to KV paths; those of a model's layers differ in nothing but pointers.
#include "runs.h"

#include "nodes.h"

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

bool meet(const ggml_tensor &a, const ggml_tensor &b) {
    const auto *x = static_cast<const char *>(a.data), *y = static_cast<const char *>(b.data);
    return x < y + ggml_nbytes(&b) && y < x + ggml_nbytes(&a);
}

/// What ggml's CPU backend writes for a quantised type, or 0.
std::int32_t groups_of(ggml_type type) {
    switch (type) {
#if defined(__aarch64__)
    case GGML_TYPE_Q8_0: return HALYARD_GROUPS_GGML_Q8_0_NEON;
#else
    case GGML_TYPE_Q8_0: return HALYARD_GROUPS_GGML_Q8_0;
#endif
    case GGML_TYPE_Q4_0: return HALYARD_GROUPS_GGML_Q4_0;
    default: return 0;
    }
}

/// The last dimension of a tensor and the stride of its heads in a cache: elements, or the bytes of a record.
std::int64_t record_size(ggml_type type, std::int64_t head_dim) {
    return static_cast<std::int64_t>(groups_of(type) == 0 ? static_cast<std::size_t>(head_dim)
                                                          : ggml_row_size(type, head_dim));
}

RunKey key_of(const KvPath &path) {
    const ggml_tensor &x = *path.x, &y = *path.last();
    RunKey key = {};
    for (int i = 0; i < 4; ++i) {
        key.shape[i] = path.heads->ne[3 - i];
    }
    read_strides(x, key.in);
    if (path.norm_is_of_rows) {  // x has tokens as its rows, and no batch
        key.in[1] = key.in[2];
        key.in[2] = key.shape[3];
    }
    key.offset = path.rope.offset;
    key.hadamard = path.hadamard_node == nullptr ? 0 : hadamard_size(*path.hadamard_node);
    key.in_dtype = dtype_of(x.type);
    key.groups = groups_of(y.type);
    key.out_dtype = key.groups == 0 ? dtype_of(y.type) : HALYARD_UINT8;
    key.is_rotated = path.rope_node != nullptr;
    key.is_half = path.rope.is_half;
    key.is_inverse = path.rope.is_inverse;
    key.has_norm = path.norm_node != nullptr;
    key.norm_is_of_rows = path.norm_is_of_rows;
    key.has_weight = path.weight != nullptr;
    key.eps = path.eps;
    if (path.set_rows_node == nullptr) {
        if (path.hadamard_node != nullptr) {  // which is dense
            key.out[2] = key.shape[3];
            key.out[1] = key.shape[2] * key.out[2];
            key.out[0] = key.shape[1] * key.out[1];
        } else {
            read_strides(y, key.out);
        }
        key.is_in_place = x.data == y.data && std::equal(key.in, key.in + 3, key.out);
    } else {
        const ggml_tensor &slots = *y.src[1];
        key.out[1] = static_cast<std::int64_t>(key.groups == 0 ? y.nb[1] / ggml_type_size(y.type) : y.nb[1]);
        key.out[2] = record_size(y.type, key.shape[3]);
        key.n_slots = y.ne[1];
        key.slot_type = slots.type == GGML_TYPE_I32 ? HALYARD_INT32 : HALYARD_INT64;
        key.stride_slot_numbers = static_cast<std::int64_t>(slots.nb[0] / ggml_type_size(slots.type));
    }
    return key;
}

RunKey key_of(const Move &move) {
    const ggml_tensor &keys = *move.keys;
    RunKey key = {};
    for (int i = 0; i < 4; ++i) {
        key.shape[i] = keys.ne[3 - i];
    }
    for (int i = 0; i < 3; ++i) {
        key.in[i] = key.out[i] = static_cast<std::int64_t>(keys.nb[3 - i]);
    }
    key.offset = move.rope.offset;
    key.hadamard = move.hadamard;
    key.in_dtype = key.out_dtype = HALYARD_UINT8;
    key.groups = groups_of(keys.type);
    key.is_half = move.rope.is_half;
    key.is_rotated = key.is_in_place = key.is_move = true;
    return key;
}

halyard::plan make_plan(const RunKey &key, std::int64_t rotary_dim) {
    auto tensor =
        halyard::describe_tensor(static_cast<halyard::dtype>(key.in_dtype), key.shape[3],
                                 key.is_half ? halyard::pairing::half : halyard::pairing::interleaved, key.offset);
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.out_dtype = key.out_dtype;
    kv.no_rotation = key.is_rotated ? 0 : 1;
    kv.hadamard = static_cast<std::int32_t>(key.hadamard);
    auto groups = halyard::make_struct<halyard_groups_desc>();
    groups.preset = key.groups;
    kv.groups = key.groups == 0 ? nullptr : &groups;
    auto norm = halyard::describe_norm(halyard::dtype::f32, key.eps);
    norm.weight_dtype = key.has_weight ? HALYARD_F32 : 0;
    norm.width = key.norm_is_of_rows ? HALYARD_NORM_ROW : HALYARD_NORM_HEAD;
    kv.norm = key.has_norm ? &norm : nullptr;
    auto cache = halyard::make_struct<halyard_cache_desc>();
    cache.n_slots = cache.block_size = key.n_slots;
    cache.stride_head = key.out[2];
    cache.stride_token = key.out[1];
    kv.cache = key.n_slots == 0 ? nullptr : &cache;
    tensor.kv = &kv;
    halyard::plan_desc desc(rotary_dim, {tensor},
                            key.is_inverse ? halyard::direction::inverse : halyard::direction::forward);
    desc.rerotates = key.is_move;
    return halyard::plan(desc);
}

halyard::bound_run make_run(const KvPath &path, const RunKey &key, const halyard::angle_source &angles,
                            const halyard::plan &plan) {
    const std::array<std::int64_t, 4> shape = {key.shape[0], key.shape[1], key.shape[2], key.shape[3]};
    auto y_shape = shape;
    y_shape[3] = record_size(path.last()->type, key.shape[3]);
    const auto x = halyard::input_tensor(path.x->data, static_cast<halyard::dtype>(key.in_dtype), shape,
                                         {key.in[0], key.in[1], key.in[2], 1});
    const auto y = halyard::tensor(path.last()->data, static_cast<halyard::dtype>(key.out_dtype), y_shape,
                                   {key.out[0], key.out[1], key.out[2], 1});
    const auto stages =
        halyard::stages(key.has_weight ? path.weight->data : nullptr, key.has_weight ? ggml_nelements(path.weight) : 0,
                        key.n_slots == 0 ? nullptr : path.last()->data);
    auto kv = halyard::kv_args(&stages);
    auto slots = halyard::make_struct<halyard_slots>();
    if (key.n_slots != 0) {
        slots.type = key.slot_type;
        slots.policy = HALYARD_SLOTS_RANGE_ONLY;
        slots.data = path.last()->src[1]->data;
        slots.shape[0] = 1;
        slots.shape[1] = key.shape[1];
        slots.strides[1] = key.stride_slot_numbers;
        kv.slots = &slots;
    }
    halyard::run_options options;
    options.kv = key.has_weight || key.n_slots != 0 ? &kv : nullptr;
    return halyard::bound_run(plan, angles, x, y, options);
}

/// Where keys come from: ggml's graphs say by how much they move.
constexpr std::int32_t zero = 0;

halyard::bound_run make_move(const Move &move, const RunKey &key, const halyard::angle_source &angles,
                             const halyard::plan &plan) {
    const std::array<std::int64_t, 4> shape = {key.shape[0], key.shape[1], key.shape[2],
                                               record_size(move.keys->type, key.shape[3])};
    const auto keys = halyard::tensor(move.keys->data, static_cast<halyard::dtype>(key.in_dtype), shape,
                                      {key.in[0], key.in[1], key.in[2], 1});
    const auto to = halyard::positions(static_cast<const std::int32_t *>(move.rope.positions->data), {1, shape[1]});
    auto from = halyard::positions(&zero, {1, shape[1]});
    from.strides[0] = from.strides[1] = 0;
    const auto kv = halyard::rerotate_from(from);
    return halyard::bound_run(plan, angles, keys, keys, halyard::run_options().at(to).with(kv));
}

/// run(plan) binds it.
template <typename MakeRun>
BoundRun make(const RunKey &key, std::int64_t rotary_dim, MakeRun &&run) {
    BoundRun made;
    try {
        made.plan = make_plan(key, rotary_dim);
        made.run = run(made.plan);
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
    args.positions = shifts;
    const auto stages = halyard::stages(weight, 0, cache);  // of what follows only addresses are read
    auto slot_numbers = halyard::make_struct<halyard_slots>();
    slot_numbers.data = slots;
    const auto from = halyard::positions(&zero, {1, 1});
    auto kv = halyard::kv_args(&stages, slots == nullptr ? nullptr : &slot_numbers);
    kv.from_positions = shifts == nullptr ? nullptr : &from;
    args.kv = weight != nullptr || cache != nullptr || shifts != nullptr ? &kv : nullptr;
    halyard_run_bound(bound->run.get(), &args, part == 0 ? error : nullptr);
}

std::string bind(Angles &angles, const KvPath &path, Call *call) {
    const ggml_tensor &y = *path.last();
    const bool has_cache = path.set_rows_node != nullptr;
    if (path.x->data == nullptr || y.data == nullptr) {
        return "a tensor has no memory";
    }
    const RunKey key = key_of(path);
    if (!key.is_in_place && meet(*path.x, y)) {
        return "input and output share memory";
    }
    const halyard::angle_source none;
    const halyard::angle_source *source = &none;
    if (key.is_rotated) {
        try {
            call->rows = angles.rows(path.rope);
        } catch (const halyard::error &error) {
            return error.what();
        }
        call->maker = call->rows->maker;
        source = &call->rows->source;
    }
    const std::int64_t rotary_dim = key.is_rotated ? 2 * call->maker->n_pairs() : 0;
    Runs &runs = key.is_rotated ? *call->rows->runs : angles.unrotated();
    const auto run = [&](const halyard::plan &plan) { return make_run(path, key, *source, plan); };
    call->bound = runs.find(key, [&] { return make(key, rotary_dim, run); });
    if (!call->bound->run) {
        return call->bound->why_not;
    }
    call->x = path.x->data;
    call->y = has_cache ? nullptr : y.data;
    call->weight = path.weight == nullptr ? nullptr : path.weight->data;
    call->slots = has_cache ? y.src[1]->data : nullptr;
    call->cache = has_cache ? y.data : nullptr;
    return {};
}

std::string bind(Angles &angles, const Move &move, Call *call) {
    try {
        call->maker = angles.maker(move.rope);
    } catch (const halyard::error &error) {
        return error.what();
    }
    std::string why;
    const halyard::angle_source *source = call->maker->source_of_moves(&why);
    if (source == nullptr) {
        return why;
    }
    const RunKey key = key_of(move);
    const auto run = [&](const halyard::plan &plan) { return make_move(move, key, *source, plan); };
    call->bound = call->maker->moves->find(key, [&] { return make(key, 2 * call->maker->n_pairs(), run); });
    if (!call->bound->run) {
        return call->bound->why_not;
    }
    call->x = call->y = move.keys->data;
    call->shifts = move.rope.positions->data;
    return {};
}

}  // namespace halyard_ggml
