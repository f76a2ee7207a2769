// Binds runs for KV paths and shifts. The layers of a model share bound runs, because only their pointers differ.
#include "runs.h"

#include "nodes.h"

#include <ggml.h>

#include <cstddef>

namespace halyard_ggml {

namespace {

halyard::dtype dtype_of(ggml_type type) {
    switch (type) {
    case GGML_TYPE_F16: return halyard::dtype::f16;
    case GGML_TYPE_BF16: return halyard::dtype::bf16;
    default: return halyard::dtype::f32;
    }
}

std::array<std::int64_t, 4> shape_of(const ggml_tensor &tensor) {
    return {tensor.ne[3], tensor.ne[2], tensor.ne[1], tensor.ne[0]};
}

/// The strides of batch, tokens, heads and elements, in units of `unit` bytes; the elements of a head are dense.
std::array<std::int64_t, 4> strides_of(const ggml_tensor &tensor, std::size_t unit) {
    const auto stride = [&](int i) { return static_cast<std::int64_t>(tensor.nb[i] / unit); };
    return {stride(3), stride(2), stride(1), 1};
}

bool share_memory(const ggml_tensor &a, const ggml_tensor &b) {
    const auto *x = static_cast<const char *>(a.data), *y = static_cast<const char *>(b.data);
    return x < y + ggml_nbytes(&b) && y < x + ggml_nbytes(&a);
}

/// The HALYARD_GROUPS_… of a quantised ggml type, as ggml's CPU backend writes its records; 0 for any other type.
std::int32_t groups_preset_of(ggml_type type) {
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

/// The size of a head as Halyard counts it: its elements or, for quantised types, the bytes of its record (the
/// quantised head as it is stored).
std::int64_t elements_or_record_bytes(ggml_type type, std::int64_t head_dim) {
    return static_cast<std::int64_t>(groups_preset_of(type) == 0 ? static_cast<std::size_t>(head_dim)
                                                                 : ggml_row_size(type, head_dim));
}

RunKey key_of(const KvPath &path) {
    const ggml_tensor &x = *path.x, &y = *path.last();
    RunKey key = {};
    key.shape = shape_of(*path.heads);
    key.in = strides_of(x, ggml_type_size(x.type));
    if (path.norm_is_of_rows) {  // x is [heads * head_dim, tokens], without a batch
        key.in[1] = key.in[2];
        key.in[2] = key.shape[3];
    }
    key.rotary_dim = 2 * path.rope.n_pairs;
    key.offset = path.rope.offset;
    key.hadamard = path.hadamard_node == nullptr ? 0 : hadamard_size(*path.hadamard_node);
    key.in_dtype = dtype_of(x.type);
    key.groups = groups_preset_of(y.type);
    key.out_dtype = key.groups == 0 ? dtype_of(y.type) : halyard::dtype::uint8;
    key.is_half = path.rope.is_half;
    key.is_inverse = path.rope.is_inverse;
    key.has_norm = path.norm_node != nullptr;
    key.norm_is_of_rows = path.norm_is_of_rows;
    key.has_weight = path.weight != nullptr;
    key.eps = path.eps;
    if (path.set_rows_node == nullptr) {
        key.out = strides_of(y, ggml_type_size(y.type));
        if (path.hadamard_node != nullptr) {  // the transform's node has another shape; its result is dense
            key.out = {key.shape[1] * key.shape[2] * key.shape[3], key.shape[2] * key.shape[3], key.shape[3], 1};
        }
        key.is_in_place = x.data == y.data && key.in == key.out;
    } else {
        const ggml_tensor &slots = *y.src[1];
        const std::size_t unit = key.groups == 0 ? ggml_type_size(y.type) : 1;
        key.out = {0, static_cast<std::int64_t>(y.nb[1] / unit), elements_or_record_bytes(y.type, key.shape[3]), 1};
        key.n_slots = y.ne[1];
        key.slot_type = slots.type == GGML_TYPE_I32 ? HALYARD_INT32 : HALYARD_INT64;
        key.stride_slot_numbers = static_cast<std::int64_t>(slots.nb[0] / ggml_type_size(slots.type));
    }
    return key;
}

RunKey key_of(const Shift &shift) {
    const ggml_tensor &keys = *shift.keys;
    RunKey key = {};
    key.shape = shape_of(keys);
    key.in = key.out = strides_of(keys, 1);
    key.rotary_dim = 2 * shift.rope.n_pairs;
    key.offset = shift.rope.offset;
    key.hadamard = shift.hadamard;
    key.in_dtype = key.out_dtype = halyard::dtype::uint8;
    key.groups = groups_preset_of(keys.type);
    key.is_half = shift.rope.is_half;
    key.is_in_place = key.is_shift = true;
    return key;
}

halyard::plan make_plan(const RunKey &key) {
    const auto pairing = key.is_half ? halyard::pairing::half : halyard::pairing::interleaved;
    auto tensor = halyard::describe_tensor(key.in_dtype, key.shape[3], pairing, key.offset);
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.out_dtype = static_cast<std::int32_t>(key.out_dtype);
    kv.no_rotation = key.rotary_dim == 0 ? 1 : 0;
    kv.hadamard = static_cast<std::int32_t>(key.hadamard);
    const auto groups = halyard::describe_groups(key.groups);
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
    const auto direction = key.is_inverse ? halyard::direction::inverse : halyard::direction::forward;
    halyard::plan_desc desc(key.rotary_dim, {tensor}, direction);
    desc.rerotates = key.is_shift;
    return halyard::plan(desc);
}

halyard::bound_run bind_path(const KvPath &path, const RunKey &key, const halyard::angle_source &angles,
                             const halyard::plan &plan) {
    auto y_shape = key.shape;
    y_shape[3] = elements_or_record_bytes(path.last()->type, key.shape[3]);
    const auto x = halyard::input_tensor(path.x->data, key.in_dtype, key.shape, key.in);
    const auto y = halyard::tensor(path.last()->data, key.out_dtype, y_shape, key.out);
    const auto stages =
        halyard::stages(key.has_weight ? path.weight->data : nullptr, key.has_weight ? ggml_nelements(path.weight) : 0,
                        key.n_slots == 0 ? nullptr : path.last()->data);
    auto kv = halyard::kv_args(&stages);
    auto slots = halyard::make_struct<halyard_slots>();
    if (key.n_slots != 0) {
        const auto *numbers = static_cast<const std::int64_t *>(path.last()->src[1]->data);
        slots = halyard::unchecked_slots(numbers, {1, key.shape[1]});
        slots.type = key.slot_type;
        slots.strides[1] = key.stride_slot_numbers;
        kv.slots = &slots;
    }
    halyard::run_options options;
    options.kv = key.has_weight || key.n_slots != 0 ? &kv : nullptr;
    return halyard::bound_run(plan, angles, x, y, options);
}

/// Re-rotation is from position 0 to position `shift`, because ggml's graph has only the differences of positions.
constexpr std::int32_t zero = 0;

halyard::bound_run bind_shift(const Shift &shift, const RunKey &key, const halyard::angle_source &angles,
                              const halyard::plan &plan) {
    auto shape = key.shape;
    shape[3] = elements_or_record_bytes(shift.keys->type, key.shape[3]);
    const auto keys = halyard::tensor(shift.keys->data, key.in_dtype, shape, key.in);
    const auto to = halyard::positions(static_cast<const std::int32_t *>(shift.rope.positions->data), {1, shape[1]});
    auto from = halyard::positions(&zero, {1, shape[1]});
    from.strides[0] = from.strides[1] = 0;
    const auto kv = halyard::rerotate_from(from);
    return halyard::bound_run(plan, angles, keys, keys, halyard::run_options().at(to).with(kv));
}

/// Sets call->bound to the run of this key, which bind_run(plan) binds if it is new. Returns an error message, or "".
template <typename BindRun>
std::string find_run(Runs &runs, const RunKey &key, BindRun &&bind_run, Call *call) {
    call->bound = runs.find(key, [&] {
        BoundRun made;
        try {
            made.plan = make_plan(key);
            made.run = bind_run(made.plan);
        } catch (const halyard::error &error) {
            made.why_not = error.what();
        }
        return made;
    });
    return call->bound->why_not;
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
    const auto stages = halyard::stages(weight, 0, cache);  // a bound run reads only the pointers of these structs
    auto slot_numbers = halyard::make_struct<halyard_slots>();
    slot_numbers.data = slots;
    const auto from = halyard::positions(&zero, {1, 1});
    auto kv = halyard::kv_args(&stages, slots == nullptr ? nullptr : &slot_numbers);
    kv.from_positions = shifts == nullptr ? nullptr : &from;
    args.kv = weight != nullptr || cache != nullptr || shifts != nullptr ? &kv : nullptr;
    halyard_run_bound(bound->run.get(), &args, part == 0 ? error : nullptr);
}

std::string try_bind(Angles &angles, const KvPath &path, Call *call) {
    const ggml_tensor &y = *path.last();
    const bool has_cache = path.set_rows_node != nullptr;
    if (path.x->data == nullptr || y.data == nullptr) {
        return "a tensor has no memory";
    }
    const RunKey key = key_of(path);
    if (!key.is_in_place && share_memory(*path.x, y)) {
        return "input and output share memory";
    }
    const halyard::angle_source none;
    const halyard::angle_source *source = &none;
    if (key.rotary_dim != 0) {
        try {
            call->rows = angles.rows(path.rope);
        } catch (const halyard::error &error) {
            return error.what();
        }
        call->maker = call->rows->maker;
        source = &call->rows->source;
    }
    Runs &runs = key.rotary_dim != 0 ? *call->rows->runs : angles.unrotated();
    const auto bind_run = [&](const halyard::plan &plan) { return bind_path(path, key, *source, plan); };
    call->x = path.x->data;
    call->y = has_cache ? nullptr : y.data;
    call->weight = path.weight == nullptr ? nullptr : path.weight->data;
    call->slots = has_cache ? y.src[1]->data : nullptr;
    call->cache = has_cache ? y.data : nullptr;
    return find_run(runs, key, bind_run, call);
}

std::string try_bind(Angles &angles, const Shift &shift, Call *call) {
    try {
        call->maker = angles.maker(shift.rope);
    } catch (const halyard::error &error) {
        return error.what();
    }
    const halyard::angle_source *source = call->maker->source_of_shifts();
    if (source == nullptr) {
        return "it multiplies keys by a factor";
    }
    const RunKey key = key_of(shift);
    const auto bind_run = [&](const halyard::plan &plan) { return bind_shift(shift, key, *source, plan); };
    call->x = call->y = shift.keys->data;
    call->shifts = shift.rope.positions->data;
    return find_run(*call->maker->shift_runs, key, bind_run, call);
}

}  // namespace halyard_ggml
