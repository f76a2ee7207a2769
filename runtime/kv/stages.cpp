#include "kv/stages.h"

#include "base/versioned.h"

#include <algorithm>

#define HALYARD_STAGE_KERNEL(name, stage, dtype, target) extern "C" halyard_##stage##_kernel name;
#include "built_kernels.inc"

namespace halyard {

namespace {

// ---- The description -----------------------------------------------------------------------------------------------

constexpr const char *long_head = ", but stages beside the rotation work on heads of at most ";

/// Refuses stages that contradict each other or the tensor's dtypes, or that a plan that rerotates cannot have.
halyard_status check_stages(const halyard_tensor_desc &tensor, const halyard_kv_desc &kv_desc, int index,
                            bool rerotates, const TensorPlan &tensor_plan, halyard_error *error) {
    const bool writes_records = kv_desc.groups != nullptr;
    const bool reads_records = rerotates ? writes_records : kv_desc.from_groups != nullptr;
    const bool has_records = writes_records || reads_records;
    const std::int64_t n = kv_desc.hadamard;
    const auto but_only_rotates = ", but a plan that rerotates does nothing but rotate";
    const auto are_set = [](bool has) { return has ? " is set" : " is NULL"; };
    const auto of_records = ": uint8 is for records";
    return check_fields(
        ElementName("tensors", index).text,
        {{rerotates && kv_desc.out_dtype != tensor.dtype, "kv.out_dtype", name_of(tensor_plan.out_dtype),
          ", but a plan that rerotates keeps the dtype, ", name_of(tensor_plan.dtype)},
         {rerotates && tensor.out_pairing != tensor.pairing, "out_pairing", tensor.out_pairing,
          ", but a plan that rerotates keeps the pairing, ", tensor.pairing},
         {rerotates && kv_desc.norm != nullptr, "kv.norm", "set", but_only_rotates},
         {rerotates && kv_desc.position_scales != 0, "kv.position_scales", "set", but_only_rotates},
         {rerotates && kv_desc.no_rotation != 0, "kv.no_rotation", "set", but_only_rotates},
         {has_records && tensor_plan.head_dim > max_head, HALYARD_ERROR_UNSUPPORTED, "head_dim", tensor_plan.head_dim,
          long_head, max_head},
         {rerotates && kv_desc.from_groups != nullptr, "kv.from_groups", "set",
          ", but a plan that rerotates has groups alone, for what it reads and writes"},
         {reads_records != (tensor_plan.dtype == Dtype::uint8), "dtype", name_of(tensor_plan.dtype), ", but ",
          rerotates ? "kv.groups" : "kv.from_groups", are_set(reads_records), of_records},
         {writes_records != (tensor_plan.out_dtype == Dtype::uint8), "kv.out_dtype", name_of(tensor_plan.out_dtype),
          ", but kv.groups", are_set(writes_records), of_records},
         {kv_desc.scale != nullptr && has_records, "kv.scale", "set", ", but groups have scales of their own"},
         {n != 0 && (n < 2 || (n & (n - 1)) != 0 || tensor_plan.head_dim % n != 0), HALYARD_ERROR_SHAPE, "kv.hadamard",
          n, ", but must be 0 or a power of two from 2 on that divides head_dim, ", tensor_plan.head_dim}},
        error);
}

/// The arrays that a run must pass for a tensor, a bit for each Array.
std::uint8_t find_needed_arrays(const KvTensorPlan &stages, bool rerotates) {
    unsigned arrays = 0;
    const auto need_if = [&](bool condition, Array array) { arrays |= unsigned{condition} << static_cast<int>(array); };
    need_if(stages.norm && stages.norm->weight, Array::weight);
    need_if(stages.norm && stages.norm->has_bias, Array::bias);
    need_if(stages.scale && !stages.scale->dynamic, Array::scales);
    need_if(stages.scale && stages.scale->dynamic, Array::scales_out);
    need_if(stages.cache.has_value(), Array::cache);
    need_if(stages.position_scales, Array::position_scales);
    need_if(stages.groups && stages.groups->scales_apart, Array::group_scales);
    need_if(stages.from_groups && stages.from_groups->scales_apart && !rerotates, Array::from_group_scales);
    return static_cast<std::uint8_t>(arrays);
}

halyard_status read_stages(const halyard_tensor_desc &tensor, const halyard_kv_desc &kv_desc, int index, bool rerotates,
                           TensorPlan &tensor_plan, KvTensorPlan *out, halyard_error *error) {
    HALYARD_TRY(check_stages(tensor, kv_desc, index, rerotates, tensor_plan, error));
    const struct {
        const halyard_groups_desc *given;
        const char *field;
        std::optional<GroupsDesc> &groups;
        std::int64_t &last_dim;
    } records[] = {
        {kv_desc.groups, ".kv.groups", out->groups, tensor_plan.out_dim},
        {rerotates ? kv_desc.groups : kv_desc.from_groups, ".kv.from_groups", out->from_groups, tensor_plan.in_dim}};
    for (const auto &[given, field, groups, last_dim] : records) {
        if (given != nullptr) {
            HALYARD_TRY(read_groups(given, ElementName("tensors", index, field).text, tensor_plan.head_dim,
                                    &groups.emplace(), error));
            last_dim = groups->record_bytes;
            out->most_heads = std::min(out->most_heads, block_groups / groups->n_groups);
        }
    }
    if (kv_desc.norm != nullptr) {
        const ElementName name("tensors", index, ".kv.norm");
        HALYARD_TRY(read_norm(kv_desc.norm, name.text, tensor_plan.head_dim, &out->norm.emplace(), error));
        HALYARD_TRY(check_fields(name.text,
                                 {{kv_desc.from_groups != nullptr && out->norm->rounding != 0, "rounding",
                                   out->norm->rounding, ", but records have no dtype to round to"}},
                                 error));
    }
    if (kv_desc.scale != nullptr) {
        const ElementName name("tensors", index, ".kv.scale");
        HALYARD_TRY(read_scale(kv_desc.scale, name.text, tensor_plan.out_dtype, &out->scale.emplace(), error));
    }
    if (kv_desc.cache != nullptr) {
        const ElementName name("tensors", index, ".kv.cache");
        HALYARD_TRY(read_cache(kv_desc.cache, name.text, tensor_plan.out_dim, &out->cache.emplace(), error));
        if (out->groups && out->cache->spacing != 1 && tensor_plan.out_dim > 1) {
            return fail(error, HALYARD_ERROR_STRIDE, name.text,
                        " has elements that are apart, but the bytes of a record lie one after the other");
        }
        tensor_plan.writes_y = false;
        tensor_plan.reads_x = !rerotates;
    }
    out->from_scales = rerotates ? Array::group_scales : Array::from_group_scales;
    out->copy.of_x = copier_of(tensor_plan.bytes);
    out->copy.of_y = copier_of(tensor_plan.out_bytes);
    out->copy.of_tile = out->cache ? copier_of(out->cache->tile_elements * tensor_plan.out_bytes) : nullptr;
    out->position_scales = kv_desc.position_scales != 0;
    out->hadamard = kv_desc.hadamard;
    out->needed = find_needed_arrays(*out, rerotates);
    return HALYARD_OK;
}

// ---- The steps -----------------------------------------------------------------------------------------------------

/// Whether a tensor is only rotated or copied, in a dtype that kernels can rotate without conversion.
bool is_only_rotated(const TensorPlan &tensor_plan, const halyard_kv_desc &kv_desc) {
    return has_only(kv_desc, tensor_plan.dtype, &halyard_kv_desc::no_rotation, &halyard_kv_desc::cache) &&
           !is_8_bit(tensor_plan.dtype);
}

/// Whether halyard_norm_rotate can do all of a tensor: norm whole heads, rotate and store them.
bool can_use_norm_rotate(const halyard_plan &plan, const TensorPlan &tensor_plan, const halyard_kv_desc &kv_desc,
                         const std::optional<NormDesc> &norm) {
    return norm && has_only(kv_desc, tensor_plan.dtype, &halyard_kv_desc::norm, &halyard_kv_desc::cache) &&
           !norm->layer && !norm->per_head && !norm->after && !norm->row &&
           (norm->rounding == 0 || tensor_plan.dtype == Dtype::f32) && norm->size == tensor_plan.head_dim &&
           plan.rotary_dim == tensor_plan.head_dim && plan.rotary_dim % 32 == 0 &&
           tensor_plan.pairing == Pairing::half && tensor_plan.out_pairing == Pairing::half;
}

/// Whether one kernel can do all stages of a tensor, and where it then writes.
Steps::Direct find_direct(const halyard_plan &plan, const KvPlan &kv_plan, const halyard_kv_desc &kv_desc, int index,
                          bool x_is_scattered, bool output_is_scattered) {
    using enum Steps::Direct;
    const TensorPlan &tensor_plan = plan.tensors[index];
    const KvTensorPlan &stages = kv_plan.tensors[index];
    const bool is_even = !stages.cache || stages.cache->spacing != 0;
    if (!is_only_rotated(tensor_plan, kv_desc)) {
        if (!can_use_norm_rotate(plan, tensor_plan, kv_desc, stages.norm) || x_is_scattered) {
            return no;
        }
        return output_is_scattered ? to_words : is_even ? to_output : no;
    }
    const bool writes_there =
        kv_plan.rerotates || !output_is_scattered || !stages.cache || tensor_plan.head_dim > max_head;
    if (is_even && writes_there) {
        return to_output;
    }
    return kv_plan.rerotates ? no : to_words;
}

/// The limits of a tensor's blocks. A norm of rows needs all heads of a token in a block.
BlockLimits limits_of_blocks(const TensorPlan &tensor_plan, const KvTensorPlan &stages, const Steps &steps) {
    constexpr std::int64_t line_bytes = 64;             // of the CPU's caches
    constexpr std::int64_t words_bytes = block_floats;  // of scattered outputs: a quarter of Workspace::spare
    const std::int64_t head_dim = tensor_plan.head_dim, bytes = tensor_plan.out_bytes;
    // Weights may take as much room as the heads of a block, and so may biases. Each has half of Workspace::weights.
    const bool norms_rows = stages.norm && stages.norm->row;
    const bool has_many_weights = stages.norm && stages.norm->layer && (norms_rows || stages.norm->per_head);
    // Blocks leave room in the L1 cache for the other memory that a step reads and writes.
    const std::int64_t n_floats = block_floats / (stages.groups ? 4 : 2);
    return {.heads = std::clamp<std::int64_t>((has_many_weights ? block_floats / 2 : block_floats) / head_dim, 1,
                                              stages.most_heads),
            .tokens = steps.scatters ? words_bytes / bytes / head_dim : block_floats,
            .heads_and_tokens = std::min(n_floats / head_dim, stages.most_heads),
            // In such caches the tokens of an element are contiguous, so more tokens in a block make longer stores.
            .tokens_of_line = steps.scatters && !norms_rows ? line_bytes / bytes : 1};
}

/// Lists the steps of a tensor, in the order in which they run.
void list_steps(const Listing &of) {
    const KvTensorPlan &stages = of.stages;
    if (of.steps.direct != Steps::Direct::no) {
        stages.norm ? list_norm_and_rotation(of) : list_rotation_of_heads(of);
        if (of.steps.direct == Steps::Direct::to_words) {
            list_store_of_words(of);
        }
        return;
    }
    stages.from_groups ? list_load_of_records(of) : list_load(of);
    list_norm(of, false);
    if (of.rerotates) {  // undoes the transform, which is its own inverse
        list_hadamard(of);
    }
    list_rotation(of);
    list_norm(of, true);
    list_position_scales(of);
    list_hadamard(of);
    list_scale(of);
    stages.groups ? list_store_of_records(of) : list_store(of);
}

/// What the kernel that rotates blocks of floats has to support. Heads are contiguous in a block.
Task block_task(const halyard_plan &plan, const TensorPlan &tensor_plan) {
    const bool converts = tensor_plan.pairing != tensor_plan.out_pairing;
    return task_for(tensor_plan, Dtype::f32, plan.rotary_dim, converts ? Place::out_of_place : Place::in_place,
                    Layout::dense);
}

// ---- The kernels ---------------------------------------------------------------------------------------------------

using enum Dtype;  // as the rows name them

/// The kernels of one target. If it has none, `target` of the result is the reference.
constexpr StageKernels kernels_of(Target target) {
    StageKernels kernels = {};
    kernels.target = Target::reference;
#define HALYARD_STAGE_KERNEL(name, stage, dtype, of)                                                                   \
    if (target == Target::of) {                                                                                        \
        kernels.target = target;                                                                                       \
        kernels.stage[index_of(dtype)] = name;                                                                         \
    }
#include "built_kernels.inc"
    kernels.widen_norm[index_of(f32)] = kernels.norm[index_of(f32)];
    kernels.quantise[index_of(uint8)] = kernels.quantise[index_of(int8)];
    return kernels;
}

constexpr StageKernels table[] = {
#define HALYARD_TARGET(name, ...) kernels_of(Target::name),
#include "targets.inc"
};

}  // namespace

const StageKernels *find_stage_kernels(TargetSet allowed) noexcept {
    for (const StageKernels &kernels : table) {
        if (kernels.target != Target::reference && (allowed & bit(kernels.target)) != 0) {
            return &kernels;
        }
    }
    return nullptr;
}

halyard_status read_kv_plan(const PlanReading &given, halyard_plan *plan, std::shared_ptr<KvPlan> *out,
                            halyard_error *error) noexcept {
    for (int i = 0; i < plan->n_tensors; i++) {
        TensorPlan &tensor_plan = plan->tensors[i];
        if (tensor_plan.is_plain) {
            continue;
        }
        if (*out == nullptr) {
            HALYARD_TRY(guard(error, "the stages of a plan", [&] {
                *out = std::make_shared<KvPlan>();
                return halyard_status{HALYARD_OK};
            }));
        }
        KvPlan &kv_plan = **out;
        KvTensorPlan &stages = kv_plan.tensors[i];
        kv_plan.rerotates = given.desc.rerotates != 0;
        kv_plan.walk = plan->rotary_dim == 0 ? walk_unrotated_tokens
                       : kv_plan.rerotates   ? walk_moved_tokens
                                             : walk_tokens;
        HALYARD_TRY(
            read_stages(given.tensors[i], given.kv_descs[i], i, kv_plan.rerotates, tensor_plan, &stages, error));
        kv_plan.has_cache = kv_plan.has_cache || stages.cache;
        kv_plan.norms_rows = kv_plan.norms_rows || (stages.norm && stages.norm->row);
        bool needs_blocks = false;
        for (const bool x : {false, true}) {
            for (const bool y : {false, true}) {
                Steps &steps = stages.steps[x][y];
                steps.scatters = stages.cache ? stages.cache->scatters(tensor_plan.out_bytes) : y;
                steps.limits = limits_of_blocks(tensor_plan, stages, steps);
                steps.direct = find_direct(*plan, kv_plan, given.kv_descs[i], i, x, steps.scatters);
                steps.walk = steps.in_blocks() ? walk_blocks : walk_whole_heads;
                const Where to = !stages.cache ? Where::view : stages.cache->spacing != 0 ? Where::cache : Where::tiles;
                list_steps(
                    {tensor_plan, stages, kv_plan.rerotates, x, kv_plan.rerotates ? to : Where::view, to, steps});
                needs_blocks = needs_blocks || steps.in_blocks();
            }
        }
        if (needs_blocks && tensor_plan.head_dim > max_head) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", i, "].head_dim is ", tensor_plan.head_dim,
                        long_head, max_head);
        }
    }
    return HALYARD_OK;
}

halyard_status resolve_kv_plan(const halyard_plan &plan, TargetSet allowed, KvPlan *out,
                               halyard_error *error) noexcept {
    out->kernels = find_stage_kernels(allowed);
    for (int i = 0; i < plan.n_tensors; i++) {
        if (plan.tensors[i].is_plain) {
            continue;
        }
        if (out->kernels == nullptr) {
            return fail(error, HALYARD_ERROR_TARGET_UNSUPPORTED, "tensors[", i,
                        "] has more stages than its rotation, which need x86_avx2, arm_neon or a better target, "
                        "but the target is ",
                        name_of(best_of(allowed)));
        }
        out->tensors[i].block_rotation = &select(block_task(plan, plan.tensors[i]), allowed);
    }
    return HALYARD_OK;
}

void explain_steps(Text &text, const halyard_plan &plan, const KvPlan &kv_plan, int index, TargetSet allowed) noexcept {
    const TensorPlan &tensor_plan = plan.tensors[index];
    const Steps &steps = kv_plan.tensors[index].steps[0][0];
    text.add("tensor ", index, steps.in_blocks() ? ", in blocks" : "");
    for (int i = 0; i < steps.n; i++) {
        text.add(i == 0 ? ": " : ", ", steps.list[i].name);
    }
    text.add("\n");
    if (!tensor_plan.rotates) {
        return;
    }
    if (steps.direct == Steps::Direct::no) {
        explain_task(text, block_task(plan, tensor_plan), allowed);
    } else if (!kv_plan.tensors[index].norm) {
        const Place place = kv_plan.rerotates ? Place::in_place : Place::out_of_place;
        explain_task(text, task_for(tensor_plan, tensor_plan.dtype, plan.rotary_dim, place, Layout::even), allowed);
    }
}

}  // namespace halyard
