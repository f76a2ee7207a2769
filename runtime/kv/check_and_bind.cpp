#include "kv/check_and_bind.h"

#include "base/versioned.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace halyard {

namespace {

constexpr halyard_stages no_stages = {};

/// The inputs and the output of binding one tensor's stages.
struct Binding {
    const Program &program;
    const KvTensorPlan &stages;
    const halyard_stages &given;
    int index;
    KvTensorProgram &out;

    const TensorPlan &tensor_plan() const { return program.plan->tensors[index]; }
    std::int64_t n_heads() const { return program.tensors[index].n_heads; }
};

/// An array [batch, tokens, heads] with the sizes of x. Strides of dimensions of size 1 become 0.
Lattice lattice_like_x(const Binding &to, std::int64_t element_bytes, const std::int64_t (&strides)[3]) {
    const Positions &of = to.program.positions;
    return {nullptr,
            element_bytes,
            {of.n_batch, of.n_tokens, to.n_heads(), 1, 1, 1},
            {of.n_batch > 1 ? strides[0] : 0, of.n_tokens > 1 ? strides[of.one_token_rows ? 0 : 1] : 0,
             to.n_heads() > 1 ? strides[2] : 0, 0, 0, 0}};
}

/// Scales of groups outside their records: [blocks, slots of a block, heads, groups, bytes] for a cache, else [batch
/// rows, tokens, heads, groups, bytes]. Strides are the description's, or dense.
Lattice lattice_of_scales(const Binding &to, const GroupsDesc &groups, bool is_in_cache) {
    Lattice scales = lattice_like_x(to, 1, groups.strides);
    auto &[n_blocks, n_tokens, n_heads, n_groups, n_bytes, last] = scales.shape;
    auto &[stride_block, stride_token, stride_head, stride_group, stride_byte, stride_last] = scales.strides;
    n_groups = groups.n_groups;
    n_bytes = groups.scale_bytes();
    stride_group = groups.scale_stride;
    stride_byte = 1;
    if (is_in_cache) {
        n_blocks = to.stages.cache->n_slots / to.stages.cache->block_size;
        n_tokens = to.stages.cache->block_size;
        std::copy_n(groups.strides, 3, scales.strides);
    }
    if (groups.are_dense()) {
        stride_head = n_groups * stride_group;
        stride_token = n_heads * stride_head;
        // A product that overflows is saturated, so that find_reach refuses it.
        if (__builtin_mul_overflow(n_tokens, stride_token, &stride_block)) {
            stride_block = INT64_MAX;
        }
    }
    return scales;
}

[[gnu::cold]] halyard_status fail_outside_address_space(const Binding &to, Array array, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERFLOW, NameText(texts_of(array).name, false, to.index),
                " leaves the address space");
}

/// Sets elements and reach of an array, and checks that it fits into the address space.
halyard_status add_array(const Binding &to, Array array, const Lattice &elements, halyard_error *error) {
    BoundArray &bound = to.out.arrays[static_cast<int>(array)];
    bound.elements = elements;
    bool is_descending = false;
    return find_reach(elements.shape, elements.strides, elements.element_bytes, &bound.reach, &is_descending)
               ? HALYARD_OK
               : fail_outside_address_space(to, array, error);
}

/// The same for n numbers of so many bytes each, one after the other.
halyard_status add_dense(const Binding &to, Array array, std::int64_t n, std::int64_t bytes_each,
                         halyard_error *error) {
    BoundArray &bound = to.out.arrays[static_cast<int>(array)];
    bound.reach.below = 0;
    if (__builtin_mul_overflow(n, bytes_each, &bound.reach.above)) {
        return fail_outside_address_space(to, array, error);
    }
    bound.elements = {nullptr, bytes_each, {n, 1, 1, 1, 1, 1}, {1, 0, 0, 0, 0, 0}};
    return HALYARD_OK;
}

/// As add_array, for scales that are written. No two of them may overlap.
halyard_status add_written(const Binding &to, Array array, const Lattice &elements, halyard_error *error) {
    HALYARD_TRY(add_array(to, array, elements, error));
    const std::int64_t(&strides)[3] = to.given.stride_scales;
    return elements_are_disjoint(elements) ? HALYARD_OK
           : array == Array::scales_out
               ? fail(error, HALYARD_ERROR_STRIDE, "args.kv.stages[", to.index, "].stride_scales is ", strides[0], ", ",
                      strides[1], ", ", strides[2], ", by which two scales could meet")
               : fail(error, HALYARD_ERROR_STRIDE, "tensors[", to.index,
                      "].kv.groups.scales_stride_… are such that two scales could meet");
}

halyard_status bind_cache(const Binding &to, const CacheDesc &cache, halyard_error *error) {
    if (!cache.find_reach(to.n_heads(), to.tensor_plan().out_bytes,
                          &to.out.arrays[static_cast<int>(Array::cache)].reach)) {
        return fail_outside_address_space(to, Array::cache, error);
    }
    return to.n_heads() <= cache.most_heads
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_STRIDE, "x[", to.index, "] has ", to.n_heads(),
                      " heads, but two elements of so many could meet in tensors[", to.index,
                      "].kv.cache, whose stride_head is ", cache.stride_head, ", stride_token ", cache.stride_token,
                      " and stride_block ", cache.stride_block);
}

/// Binds an array that a tensor's stages need; not a cache, for which see bind_cache.
halyard_status bind_array(const Binding &to, Array array, halyard_error *error) {
    const auto &cache = to.stages.cache;
    const auto &norm = to.stages.norm;
    const std::int64_t(&strides)[3] = to.given.stride_scales;
    switch (array) {
    case Array::weight:
    case Array::bias: return add_dense(to, array, norm->n_weights(to.n_heads()), element_bytes(*norm->weight), error);
    case Array::scales: return add_dense(to, array, to.stages.scale->count(to.n_heads()), sizeof(float), error);
    case Array::scales_out: {
        Lattice scales = lattice_like_x(to, sizeof(float), strides);
        if (cache) {
            scales.shape[0] = 1;
            scales.shape[1] = cache->n_slots;
            scales.strides[0] = 0;
            scales.strides[1] = strides[1];
        }
        return add_written(to, array, scales, error);
    }
    case Array::position_scales:
        return add_array(to, array, lattice_like_x(to, sizeof(float), to.given.stride_position_scales), error);
    case Array::group_scales:
        return add_written(to, array, lattice_of_scales(to, *to.stages.groups, cache.has_value()), error);
    case Array::from_group_scales:
        return add_array(to, array, lattice_of_scales(to, *to.stages.from_groups, false), error);
    case Array::cache: break;
    }
    return HALYARD_OK;
}

/// Checks a count of numbers that the caller states.
halyard_status check_count(const Binding &to, const char *field, std::int64_t given, std::int64_t needed,
                           halyard_error *error) {
    return given == needed ? HALYARD_OK
                           : fail(error, HALYARD_ERROR_SHAPE, "args.kv.stages[", to.index, "].", field, " is ", given,
                                  ", but must be ", needed);
}

/// Refuses strides of scales that no stage needs.
halyard_status check_unneeded_strides(const Binding &to, halyard_error *error) {
    const bool writes_scales = to.stages.needs(Array::scales_out);
    for (int i = 0; i < 3; i++) {
        const std::int64_t stride = to.given.stride_scales[i], by_position = to.given.stride_position_scales[i];
        if (stride != 0 && (!writes_scales || (i == 0 && to.stages.cache))) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.kv.stages[", to.index, "].stride_scales[", i, "] is ",
                        stride, ", but ",
                        !writes_scales ? "no scales are written"
                                       : "in a cache scales have no batch: theirs are 0, slot, head");
        }
        if (by_position != 0 && !to.stages.position_scales) {
            return fail(error, HALYARD_ERROR_MISMATCH, "args.kv.stages[", to.index, "].stride_position_scales[", i,
                        "] is ", by_position, ", but tensors[", to.index, "] does not have scales by position");
        }
    }
    return HALYARD_OK;
}

/// Checks that the bytes of records are contiguous.
halyard_status check_record_strides(const Binding &to, const halyard_run_args &args, halyard_error *error) {
    const bool reads = to.tensor_plan().reads_x && to.stages.from_groups,
               writes = to.tensor_plan().writes_y && to.stages.groups;
    const bool is_x = reads && args.x[to.index].strides[3] != 1;
    const std::int64_t stride = is_x ? args.x[to.index].strides[3] : writes ? args.y[to.index].strides[3] : 1;
    return stride == 1 ? HALYARD_OK
                       : fail(error, HALYARD_ERROR_STRIDE, is_x ? "x[" : "y[", to.index, "].strides[3] is ", stride,
                              ", but the bytes of a record lie one after the other");
}

/// Whether kernels do not load or store elements where they are: those of a head are apart, or they are records of q8_0
/// that begin an odd number of bytes apart, as kernels count their scales in units of 2 bytes.
bool is_scattered(const Side &side, const std::optional<GroupsDesc> &records) {
    return side.element != 1 || (records && records->is_q8() && ((side.token | side.head) & 1) != 0);
}

halyard_status bind_stages(const Binding &to, const halyard_run_args &args, halyard_error *error) {
    const TensorProgram &tensor = to.program.tensors[to.index];
    const TensorPlan &tensor_plan = to.tensor_plan();
    HALYARD_TRY(check_record_strides(to, args, error));
    HALYARD_TRY(check_unneeded_strides(to, error));
    HALYARD_TRY(to.stages.cache ? bind_cache(to, *to.stages.cache, error) : HALYARD_OK);
    const std::int64_t n_weights = to.stages.needs(Array::weight) ? to.stages.norm->n_weights(to.n_heads()) : 0;
    const std::int64_t n_scales = to.stages.needs(Array::scales) ? to.stages.scale->count(to.n_heads()) : 0;
    HALYARD_TRY(check_count(to, "n_weights", to.given.n_weights, n_weights, error));
    HALYARD_TRY(check_count(to, "n_scales", to.given.n_scales, n_scales, error));
    for (unsigned left = to.stages.needed & ~(1u << static_cast<int>(Array::cache)); left != 0; left &= left - 1) {
        HALYARD_TRY(bind_array(to, Array(std::countr_zero(left)), error));
    }
    const bool x_is_scattered = tensor_plan.reads_x && is_scattered(tensor.x, to.stages.from_groups);
    const bool y_is_scattered = tensor_plan.writes_y && is_scattered(tensor.y, to.stages.groups);
    to.out.steps = &to.stages.steps[x_is_scattered][y_is_scattered];
    to.out.walk = to.out.steps->walk;
    if (to.stages.norm && to.stages.norm->row && to.n_heads() > to.out.steps->limits.heads) {
        to.out.walk = to.stages.norm->layer ? walk_long_layer_rows : walk_long_rms_rows;
    }
    const bool has_kernels = tensor_plan.kernels[0][0] != nullptr;  // false: the plan is for a GPU, which runs no steps
    if (has_kernels && to.out.steps->direct != Steps::Direct::no) {
        bind_direct(to.program, to.index, to.out.steps->direct == Steps::Direct::to_words, &to.out);
    }
    return HALYARD_OK;
}

[[gnu::cold]] halyard_status fail_no_stages(const KvTensorPlan &stages, int index, const halyard_kv_args *kv_args,
                                            halyard_error *error) {
    const Array first = stages.cache ? Array::cache : Array(std::countr_zero(stages.needed));
    return fail(error, HALYARD_ERROR_NULL_POINTER,
                kv_args == nullptr                          ? "args.kv is NULL"
                : stages.cache && kv_args->slots == nullptr ? "args.kv.stages and args.kv.slots are NULL"
                                                            : "args.kv.stages is NULL",
                ", but tensors[", index, "] has ", texts_of(first).needed_by);
}

}  // namespace

halyard_status check_kv_args(const halyard_plan &plan, const halyard_kv_args *kv_args, halyard_error *error) noexcept {
    if (kv_args == nullptr) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_struct(kv_args, "args.kv", error));
    HALYARD_TRY(check_choice("args.kv", "reserved", kv_args->reserved, 0, error));
    for (int i = 0; i < plan.n_tensors && kv_args->stages != nullptr; i++) {
        const halyard_stages &stages = kv_args->stages[i];
        if (stages.size != sizeof(stages) || stages.reserved != 0) {
            const ElementName name("args.kv.stages", i);
            HALYARD_TRY(check_struct(&stages, name.text, error));
            return check_choice(name.text, "reserved", stages.reserved, 0, error);
        }
    }
    HALYARD_TRY(kv_args->slots == nullptr ? HALYARD_OK : check_struct(kv_args->slots, "args.kv.slots", error));
    const bool has_from_positions = kv_args->from_positions != nullptr;
    HALYARD_TRY(has_from_positions ? check_struct(kv_args->from_positions, "args.kv.from_positions", error)
                                   : HALYARD_OK);
    const KvPlan &kv_plan = kv_of(plan);
    if (kv_args->slots != nullptr && !kv_plan.has_cache) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.kv.slots is set, but no tensor of the plan has a cache");
    }
    return kv_plan.rerotates || (!has_from_positions && kv_args->from_angles == nullptr)
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_MISMATCH, "args.kv.from_", has_from_positions ? "positions" : "angles",
                      " is set, but the plan does not rerotate");
}

KvPointers kv_pointers(const halyard_plan &plan, const halyard_kv_args *kv_args) noexcept {
    const halyard_kv_args &all = or_none(kv_args);
    KvPointers pointers;
    int n_given = 0;
    for (int i = 0; i < plan.n_tensors; i++) {
        const halyard_stages &given = all.stages == nullptr ? no_stages : all.stages[i];
        for (int array = 0; array < n_arrays; array++) {
            char *&pointer = pointers.of_tensor[i][array];
            std::memcpy(&pointer, reinterpret_cast<const char *>(&given) + array_texts[array].field, sizeof(pointer));
            n_given += static_cast<int>(pointer != nullptr);
        }
    }
    pointers.n_given = n_given;
    pointers.slots = all.slots == nullptr ? nullptr : all.slots->data;
    pointers.scratch = all.slots == nullptr ? nullptr : static_cast<unsigned char *>(all.slots->scratch);
    pointers.from_positions = all.from_positions == nullptr ? nullptr : all.from_positions->data;
    return pointers;
}

halyard_status bind_kv(const Program &program, const halyard_run_args &args, KvProgram *out,
                       halyard_error *error) noexcept {
    const KvPlan &kv_plan = kv_of(*program.plan);
    const halyard_kv_args &given_kv = or_none(args.kv);
    HALYARD_TRY(check_kv_args(*program.plan, args.kv, error));
    out->plan = &kv_plan;
    out->slots.is_given = false;
    HALYARD_TRY(kv_plan.rerotates ? bind_moves(program, args, out, error) : HALYARD_OK);
    std::int64_t n_slots = INT64_MAX;
    bool stores = false;
    for (int i = 0; i < program.plan->n_tensors; i++) {
        const KvTensorPlan &stages = kv_plan.tensors[i];
        const halyard_stages &given = given_kv.stages == nullptr ? no_stages : given_kv.stages[i];
        if (given_kv.stages == nullptr && stages.needed != 0) {
            return fail_no_stages(stages, i, args.kv, error);
        }
        n_slots = stages.cache ? std::min(n_slots, stages.cache->n_slots) : n_slots;
        if (program.tensors[i].n_heads != 0) {
            stores = stores || stages.cache;
            HALYARD_TRY(bind_stages({program, stages, given, i, out->tensors[i]}, args, error));
            for (unsigned left = stages.needed; left != 0; left &= left - 1) {
                const int array = std::countr_zero(left);
                NeededArrays &needed = out->needed[written_arrays >> array & 1];
                needed.list[needed.n++] = {i, Array(array)};
            }
        }
    }
    HALYARD_TRY(kv_plan.has_cache ? check_given(given_kv.slots, "args.kv.slots", error) : HALYARD_OK);
    if (!stores) {
        return HALYARD_OK;
    }
    HALYARD_TRY(bind_slots(given_kv.slots, args.x->shape[0], args.x->shape[1], n_slots, &out->slots, error));
    if (kv_plan.rerotates && out->slots.may_be_doubled) {
        return fail(error, HALYARD_ERROR_MISMATCH,
                    "args.kv.slots.policy is HALYARD_SLOTS_RANGE_ONLY, but a key must not be "
                    "rotated twice, which HALYARD_SLOTS_CHECK makes sure of");
    }
    return HALYARD_OK;
}

bool stores_in_caches_only(const Program &program, const KvProgram &kv_program) noexcept {
    bool all = kv_program.slots.is_given;
    for (int i = 0; i < program.plan->n_tensors; i++) {
        all = all && (program.tensors[i].n_heads == 0 || kv_program.plan->tensors[i].cache);
    }
    return all;
}

}  // namespace halyard
