#include "kv/program.h"

#include "base/versioned.h"
#include "kv/rerotate.h"
#include "kv/rotation.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace halyard {

namespace {

constexpr halyard_stages no_stages = {};

/// What stages are bound by: the shape of a run and what the caller brings for one tensor.
struct Binding {
    const Program &program;
    const KvTensor &stages;
    const halyard_stages &given;
    int index;
    KvTensorProgram &out;

    const TensorPlan &desc() const { return program.plan->tensors[index]; }
    std::int64_t n_heads() const { return program.tensors[index].n_heads; }
    std::int64_t n_batch() const { return program.positions.n_batch; }
    std::int64_t n_tokens() const { return program.positions.n_tokens; }

    /// Where the strides of an array with the shape of x lead, which are never walked where there is one.
    struct ViewStrides {
        std::int64_t batch, token, head;
    };
    ViewStrides view(const std::int64_t (&strides)[3]) const {
        const bool one_token_rows = program.positions.one_token_rows;
        const std::int64_t token = one_token_rows ? strides[0] : strides[1];
        return {n_batch() > 1 ? strides[0] : 0, n_tokens() > 1 ? token : 0, n_heads() > 1 ? strides[2] : 0};
    }

    /// Notes where an array lies, and checks that.
    halyard_status add(Array array, const Lattice &elements, halyard_error *error) const {
        BoundArray &bound = out.arrays[static_cast<int>(array)];
        bound.elements = elements;
        bool is_descending = false;
        if (!find_reach(elements.shape, elements.strides, elements.element_bytes, &bound.reach, &is_descending)) {
            return fail_reach(array, error);
        }
        return HALYARD_OK;
    }

    [[gnu::cold]] halyard_status fail_reach(Array array, halyard_error *error) const {
        return fail(error, HALYARD_ERROR_OVERFLOW, NameText(words_of(array).name, false, index),
                    " leaves the address space");
    }
};

halyard_status check_count(std::int64_t given, std::int64_t needed, const char *field, int index,
                           halyard_error *error) {
    return given == needed ? HALYARD_OK
                           : fail(error, HALYARD_ERROR_SHAPE, "args.kv.stages[", index, "].", field, " is ", given,
                                  ", but must be ", needed);
}

halyard_status bind_weights(const Binding &to, halyard_error *error) {
    const bool has_weight = to.stages.asks_for(Array::weight);
    HALYARD_TRY(check_count(to.given.n_weights, has_weight ? to.stages.norm->n_weights(to.n_heads()) : 0, "n_weights",
                            to.index, error));
    if (!has_weight) {
        return HALYARD_OK;
    }
    const NormDesc &norm = *to.stages.norm;
    const Lattice dense = {nullptr,
                           element_bytes(*norm.weight),
                           {norm.n_rows_of_weights(to.n_heads()), norm.size, 1, 1, 1, 1},
                           {norm.size, 1, 0, 0, 0, 0}};
    HALYARD_TRY(to.add(Array::weight, dense, error));
    return norm.has_bias ? to.add(Array::bias, dense, error) : HALYARD_OK;
}

halyard_status bind_scales(const Binding &to, halyard_error *error) {
    const bool is_static = to.stages.asks_for(Array::scales);
    const std::int64_t n = is_static ? to.stages.scale->count(to.n_heads()) : 0;
    HALYARD_TRY(check_count(to.given.n_scales, n, "n_scales", to.index, error));
    if (is_static) {
        HALYARD_TRY(to.add(Array::scales, {nullptr, sizeof(float), {n, 1, 1, 1, 1, 1}, {1, 0, 0, 0, 0, 0}}, error));
    }
    if (to.stages.asks_for(Array::scales_out)) {
        const std::int64_t(&strides)[3] = to.given.stride_scales;
        const auto &cache = to.stages.cache;
        const Binding::ViewStrides view = to.view(strides);
        const Lattice elements = {
            nullptr,
            sizeof(float),
            {cache ? 1 : to.n_batch(), cache ? cache->n_slots : to.n_tokens(), to.n_heads(), 1, 1, 1},
            {cache ? 0 : view.batch, cache ? strides[1] : view.token, view.head, 0, 0, 0}};
        HALYARD_TRY(to.add(Array::scales_out, elements, error));
        if (!elements_are_apart(elements)) {
            return fail(error, HALYARD_ERROR_STRIDE, "args.kv.stages[", to.index, "].stride_scales is ", strides[0],
                        ", ", strides[1], ", ", strides[2], ", by which two scales could meet");
        }
    }
    if (to.stages.position_scales) {
        const Binding::ViewStrides view = to.view(to.given.stride_position_scales);
        HALYARD_TRY(to.add(Array::position_scales,
                           {nullptr,
                            sizeof(float),
                            {to.n_batch(), to.n_tokens(), to.n_heads(), 1, 1, 1},
                            {view.batch, view.token, view.head, 0, 0, 0}},
                           error));
    }
    return HALYARD_OK;
}

/// Scales of groups that lie apart: of so many blocks or batch rows of so many slots or tokens. They lie as described,
/// or dense.
Lattice group_scales(const Binding &to, const GroupsDesc &groups, bool is_in_cache) {
    const auto &cache = to.stages.cache;
    const std::int64_t n_blocks = is_in_cache ? cache->n_slots / cache->block_size : to.n_batch();
    const std::int64_t n_tokens = is_in_cache ? cache->block_size : to.n_tokens();
    GroupStrides strides = groups.strides;
    if (strides.are_zero()) {
        strides.stride_head = groups.n_groups * groups.scale_stride;
        strides.stride_token = to.n_heads() * strides.stride_head;
        // Beyond what an address can be, saturated: the reach says so.
        if (__builtin_mul_overflow(n_tokens, strides.stride_token, &strides.stride_batch)) {
            strides.stride_batch = INT64_MAX;
        }
    } else if (!is_in_cache) {
        const Binding::ViewStrides view = to.view({strides.stride_batch, strides.stride_token, strides.stride_head});
        strides = {view.batch, view.token, strides.stride_head};
    }
    return {nullptr,
            1,
            {n_blocks, n_tokens, to.n_heads(), groups.n_groups, groups.scale_bytes(), 1},
            {strides.stride_batch, strides.stride_token, strides.stride_head, groups.scale_stride, 1, 0}};
}

halyard_status bind_groups(const Binding &to, halyard_error *error) {
    const auto &groups = to.stages.groups, &from = to.stages.from_groups;
    if (to.stages.asks_for(Array::group_scales)) {
        const Lattice elements = group_scales(to, *groups, to.stages.cache.has_value());
        HALYARD_TRY(to.add(Array::group_scales, elements, error));
        if (!elements_are_apart(elements)) {
            return fail(error, HALYARD_ERROR_STRIDE, "tensors[", to.index,
                        "].kv.groups.scales_stride_… are such that two scales could meet");
        }
    }
    return to.stages.asks_for(Array::from_group_scales)
               ? to.add(Array::from_group_scales, group_scales(to, *from, false), error)
               : HALYARD_OK;
}

halyard_status bind_cache(const Binding &to, halyard_error *error) {
    if (!to.stages.cache) {
        return HALYARD_OK;
    }
    const CacheDesc &cache = *to.stages.cache;
    if (!cache.find_reach(to.n_heads(), to.desc().out_bytes, &to.out.arrays[static_cast<int>(Array::cache)].reach)) {
        return to.fail_reach(Array::cache, error);
    }
    if (to.n_heads() > cache.most_heads) {
        return fail(error, HALYARD_ERROR_STRIDE, "x[", to.index, "] has ", to.n_heads(),
                    " heads, but two elements of so many could meet in tensors[", to.index,
                    "].kv.cache, whose stride_head is ", cache.stride_head, ", stride_token ", cache.stride_token,
                    " and stride_block ", cache.stride_block);
    }
    return HALYARD_OK;
}

/// Refuses strides of scales that nothing asks for.
halyard_status check_unasked_strides(const Binding &to, halyard_error *error) {
    const std::int64_t(&scales)[3] = to.given.stride_scales, (&by_position)[3] = to.given.stride_position_scales;
    if ((scales[0] | scales[1] | scales[2] | by_position[0] | by_position[1] | by_position[2]) == 0) {
        return HALYARD_OK;
    }
    const bool writes_scales = to.stages.asks_for(Array::scales_out);
    for (int i = 0; i < 3; i++) {
        if (scales[i] != 0 && (!writes_scales || (i == 0 && to.stages.cache))) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.kv.stages[", to.index, "].stride_scales[", i, "] is ",
                        scales[i], ", but ",
                        !writes_scales ? "no scales are written"
                                       : "in a cache scales have no batch: theirs are 0, slot, head");
        }
        if (by_position[i] != 0 && !to.stages.position_scales) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.kv.stages[", to.index, "].stride_position_scales[", i,
                        "] is ", by_position[i], ", but tensors[", to.index, "] does not have scales by position");
        }
    }
    return HALYARD_OK;
}

/// The bytes of records lie one after the other.
halyard_status check_records(const Program &program, int index, const KvTensor &stages, const halyard_run_args &args,
                             halyard_error *error) {
    const TensorPlan &desc = program.plan->tensors[index];
    for (const bool is_x : {true, false}) {
        const bool are_records = is_x ? desc.reads_x && stages.from_groups : desc.writes_y && stages.groups;
        const std::int64_t stride = are_records ? (is_x ? args.x : args.y)[index].strides[3] : 1;
        if (stride != 1) {
            return fail(error, HALYARD_ERROR_STRIDE, is_x ? "x[" : "y[", index, "].strides[3] is ", stride,
                        ", but the bytes of a record lie one after the other");
        }
    }
    return HALYARD_OK;
}

halyard_status bind_stages(const Binding &to, const halyard_run_args &args, halyard_error *error) {
    const ProgramTensor &tensor = to.program.tensors[to.index];
    const TensorPlan &desc = to.desc();
    HALYARD_TRY(check_records(to.program, to.index, to.stages, args, error));
    HALYARD_TRY(check_unasked_strides(to, error));
    HALYARD_TRY(bind_cache(to, error));
    HALYARD_TRY(bind_weights(to, error));
    HALYARD_TRY(bind_scales(to, error));
    HALYARD_TRY(bind_groups(to, error));
    const bool x_is_scattered = desc.reads_x && tensor.in().element != 1;
    const bool y_is_scattered = desc.writes_y && tensor.y.element != 1;
    if (desc.is_plain()) {
        return HALYARD_OK;
    }
    to.out.steps = &to.stages.steps[x_is_scattered][y_is_scattered];
    const bool has_kernels = desc.kernels[0][0] != nullptr;  // else the plan is a device's, which takes no steps
    if (has_kernels && to.out.steps->direct != Steps::Direct::no) {
        bind_direct(to.program, to.index, to.out.steps->direct == Steps::Direct::to_words, &to.out.direct);
    }
    return HALYARD_OK;
}

[[gnu::cold]] halyard_status fail_no_stages(const KvTensor &stages, int index, const halyard_kv_args *kv,
                                             halyard_error *error) {
    const bool has_scales_apart = stages.asks_for(Array::group_scales) || stages.asks_for(Array::from_group_scales);
    return fail(error, HALYARD_ERROR_NULL_POINTER,
                kv == nullptr                          ? "args.kv is NULL"
                : stages.cache && kv->slots == nullptr ? "args.kv.stages and args.kv.slots are NULL"
                                                       : "args.kv.stages is NULL",
                ", but tensors[", index, "] has ",
                stages.cache             ? "a cache"
                : stages.scale           ? "a scale"
                : stages.position_scales ? "scales by position"
                : has_scales_apart       ? "groups with scales apart"
                                         : "a norm with a weight");
}

}  // namespace

halyard_status check_kv_args(const halyard_plan &plan, const halyard_kv_args *kv, halyard_error *error) noexcept {
    if (kv == nullptr) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_struct(kv, "args.kv", error));
    if (kv->reserved != 0) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "args.kv.reserved is ", kv->reserved, ", but must be 0");
    }
    for (int i = 0; i < plan.n_tensors && kv->stages != nullptr; i++) {
        const halyard_stages &stages = kv->stages[i];
        if (stages.size != sizeof(stages) || stages.reserved != 0) {
            char name[32];
            std::snprintf(name, sizeof(name), "args.kv.stages[%d]", i);
            HALYARD_TRY(check_struct(&stages, name, error));
            return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, name, ".reserved is ", stages.reserved, ", but must be 0");
        }
    }
    HALYARD_TRY(kv->slots == nullptr ? HALYARD_OK : check_struct(kv->slots, "args.kv.slots", error));
    return kv->from_positions == nullptr ? HALYARD_OK
                                         : check_struct(kv->from_positions, "args.kv.from_positions", error);
}

KvPointers kv_pointers(const halyard_plan &plan, const halyard_kv_args *kv) noexcept {
    KvPointers pointers;
    for (int i = 0; i < plan.n_tensors; i++) {
        const halyard_stages &given = kv == nullptr || kv->stages == nullptr ? no_stages : kv->stages[i];
        const void *const arrays[n_arrays] = {
            given.weight,          given.bias,         given.scales,           given.scales_out, given.cache,
            given.position_scales, given.group_scales, given.from_group_scales};
        std::transform(arrays, arrays + n_arrays, pointers.of_tensor[i], address);
    }
    const halyard_slots *const slots = kv == nullptr ? nullptr : kv->slots;
    pointers.slots = slots == nullptr ? nullptr : slots->data;
    pointers.scratch = slots == nullptr ? nullptr : static_cast<unsigned char *>(slots->scratch);
    pointers.from_positions = kv == nullptr || kv->from_positions == nullptr ? nullptr : kv->from_positions->data;
    return pointers;
}

halyard_status bind_kv(const Program &program, const halyard_run_args &args, KvProgram *out,
                       halyard_error *error) noexcept {
    const KvPlan &kv = kv_of(*program.plan);
    const halyard_kv_args &given_kv = kv_args_of(args);
    HALYARD_TRY(check_kv_args(*program.plan, args.kv, error));
    out->slots.is_given = false;
    HALYARD_TRY(bind_moves(program, args, out, error));
    std::int64_t n_slots = INT64_MAX;
    bool has_cache = false, stores = false;
    for (int i = 0; i < program.plan->n_tensors; i++) {
        const KvTensor &stages = kv.tensors[i];
        const halyard_stages &given = given_kv.stages == nullptr ? no_stages : given_kv.stages[i];
        if (given_kv.stages == nullptr && stages.asked != 0) {
            return fail_no_stages(stages, i, args.kv, error);
        }
        if (stages.cache) {
            has_cache = true;
            n_slots = std::min(n_slots, stages.cache->n_slots);
        }
        if (program.tensors[i].n_heads != 0) {
            stores = stores || stages.cache;
            HALYARD_TRY(bind_stages({program, stages, given, i, out->tensors[i]}, args, error));
        }
    }
    if (has_cache != (given_kv.slots != nullptr)) {
        return has_cache ? fail_null(error, args.kv == nullptr ? "args.kv" : "args.kv.slots")
                         : fail(error, HALYARD_ERROR_MISMATCH,
                                "args.kv.slots is set, but no tensor of the plan has a cache");
    }
    if (!stores) {
        return HALYARD_OK;
    }
    HALYARD_TRY(bind_slots(given_kv.slots, args.x->shape[0], args.x->shape[1], n_slots, &out->slots, error));
    if (out->rerotates && out->slots.may_be_doubled) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "args.kv.slots.policy is HALYARD_SLOTS_RANGE_ONLY, but a key must not be "
                    "rotated twice, which HALYARD_SLOTS_CHECK makes sure of");
    }
    return HALYARD_OK;
}

bool stores_in_caches_only(const Program &program, const KvProgram &kv) noexcept {
    bool all = kv.slots.is_given;
    for (int i = 0; i < program.plan->n_tensors; i++) {
        all = all && (program.tensors[i].n_heads == 0 || kv_of(*program.plan).tensors[i].cache);
    }
    return all;
}

}  // namespace halyard
