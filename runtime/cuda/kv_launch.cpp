#include "cuda/kv_launch.h"

#include "base/error.h"
#include "cuda/arguments.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace halyard::cuda {

// ---- Which kernel --------------------------------------------------------------------------------------------------

namespace {

/// The words of the first pair whose bool is true; NULL if none is.
const char *first_of(std::initializer_list<std::pair<bool, const char *>> refusals) {
    for (const auto &[holds, words] : refusals) {
        if (holds) {
            return words;
        }
    }
    return nullptr;
}

}  // namespace

const char *why_never(const halyard_plan &plan, int index) noexcept {
    const TensorPlan &tensor_plan = plan.tensors[index];
    // The bindings name all members, so that a new stage or kind of norm does not compile until refused, or served.
    const auto &[its_norm, position_scales, hadamard, scale, groups, from_groups, from_scales, most_heads, its_cache,
                 copy, needed, block_rotation, steps] = kv_of(plan).tensors[index];
    const auto &[row, after, unit_offset, rounding, eps, weight, offset, size, layer, has_bias, per_head] =
        its_norm.value_or(NormDesc{});
    const CacheDesc cache = its_cache.value_or(CacheDesc{});
    return first_of(
        {{groups.has_value(), "groups is set"},
         {from_groups.has_value(), "from_groups is set"},
         {hadamard != 0, "hadamard is set"},
         {position_scales, "position_scales is 1"},
         {layer, "norm.kind is HALYARD_NORM_LAYER (1)"},
         {row, "norm.width is HALYARD_NORM_ROW (1)"},
         {per_head, "norm.weight_per_head is 1"},
         {after, "norm.order is HALYARD_NORM_AFTER (1)"},
         {rounding != 0, "norm.rounding is set"},
         {its_norm && size != tensor_plan.head_dim, "norm has a window"},
         {scale && scale->dynamic, "scale.kind is HALYARD_SCALE_DYNAMIC (1)"},
         {scale && scale->stride_head != 0, "scale.per is not HALYARD_SCALE_PER_TENSOR (0)"},
         {its_cache && cache.spacing != 1, "cache has heads that are not dense"},
         {cache.tile_tokens < cache.block_size && cache.stride_tile_tokens != cache.tile_tokens * cache.stride_token,
          "cache has tiles of tokens"},
         {cache.n_slots > INT32_MAX, "cache.n_slots is more than 2^31 - 1"}});
}

const char *why_not(const KvKernel &kernel, const halyard_plan &plan, int index, int capability) noexcept {
    const TensorPlan &tensor_plan = plan.tensors[index];
    const KvTensorPlan &stages = kv_of(plan).tensors[index];
    const bool has_weight = stages.norm && stages.norm->weight;
    return first_of(
        {{tensor_plan.head_dim != kernel.head_dim, "another head_dim"},
         {tensor_plan.dtype != kernel.dtype || tensor_plan.out_dtype != kernel.out_dtype, "another dtype or out_dtype"},
         {stages.scale && tensor_plan.out_dtype != Dtype::e4m3, "scales only e4m3"},
         {tensor_plan.rotates && (tensor_plan.pairing != kernel.pairing || tensor_plan.out_pairing != kernel.pairing),
          "another pairing"},
         {tensor_plan.rotates &&
              (plan.rotary_dim != kernel.rotary_dim || tensor_plan.rotary_offset != kernel.rotary_offset),
          "another rotary_dim or rotary_offset"},
         {has_weight && (*stages.norm->weight != kernel.weight || stages.norm->unit_offset != kernel.unit_offset),
          "another weight_dtype or unit_offset"},
         {capability < kernel.capability, "the device's compute capability is lower"}});
}

halyard_status choose_kv_launches(const halyard_plan &plan, int capability, KvLaunch (&out)[HALYARD_MAX_TENSORS],
                                  int *n_launches, halyard_error *error) noexcept {
    bool is_done[HALYARD_MAX_TENSORS] = {};
    *n_launches = 0;
    for (int i = 0; i < plan.n_tensors; i++) {
        KvLaunch best = {};
        for (const KvKernel &kernel : kv_kernels()) {
            KvLaunch its = {&kernel, {}, 0};
            for (int j = i; j < plan.n_tensors && !is_done[i]; j++) {
                if (!is_done[j] && why_not(kernel, plan, j, capability) == nullptr) {
                    its.tensors[its.n_tensors++] = j;
                } else if (j == i) {
                    break;
                }
            }
            best = its.n_tensors > best.n_tensors ? its : best;
        }
        for (int j = 0; j < best.n_tensors; j++) {
            is_done[best.tensors[j]] = true;
        }
        if (best.n_tensors != 0) {
            out[(*n_launches)++] = best;
        } else if (!is_done[i]) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensors[", i, "] is taken by no kernel of the list ",
                        "(heads of ", plan.tensors[i].head_dim, " elements, ", name_of(plan.tensors[i].dtype), " to ",
                        name_of(plan.tensors[i].out_dtype), ", rotary_dim ", plan.rotary_dim,
                        "): halyard_explain_cuda_plan tells why of each");
        }
    }
    return HALYARD_OK;
}

// ---- Launches ------------------------------------------------------------------------------------------------------

namespace {

/// The base addresses of a launch; its tensors' addresses are passed as offsets from these.
struct Origins {
    Address x, y, weight;
};

/// The distance between two addresses that are multiples of 16 bytes, in units of 16 bytes.
std::int64_t quads(Address from, Address to) { return static_cast<std::int64_t>(to - from) / quad_bytes; }

/// Sets the scalar fields of a tensor.
void set_tensor(Fields::Kv &to, int i, const KvPiece &tensor, const Origins &origins) {
    const TensorPlan &tensor_plan = *tensor.tensor_plan;
    const auto &norm = tensor.stages->norm;
    const auto &cache = tensor.stages->cache;
    to.end[i] = (i == 0 ? 0 : to.end[i - 1]) + static_cast<std::int32_t>(tensor.n_heads);
    to.kind[i] = (norm ? Fields::Kv::is_normed : 0) | (norm && norm->weight ? Fields::Kv::has_weight : 0) |
                 (tensor_plan.rotates ? Fields::Kv::is_rotated : 0);
    to.x_at[i] = quads(origins.x, tensor.x);
    to.x_head[i] = tensor.in.head * tensor_plan.bytes / quad_bytes;
    to.x_token[i] = tensor.in.token * tensor_plan.bytes / quad_bytes;
    to.y_at[i] = quads(origins.y, tensor.y);
    to.y_head[i] = (cache ? cache->stride_head : tensor.out.head) * tensor_plan.out_bytes / quad_bytes;
    to.y_token[i] = (cache ? cache->stride_token : tensor.out.token) * tensor_plan.out_bytes / quad_bytes;
    to.y_block[i] = cache ? cache->stride_block * tensor_plan.out_bytes / quad_bytes : 0;
    to.block_size[i] = cache ? static_cast<std::int32_t>(cache->block_size) : 0;
    to.reciprocal[i] = tensor.reciprocal;
    to.eps[i] = norm ? norm->eps : 0.0f;
    to.weight_at[i] = norm && norm->weight ? quads(origins.weight, tensor.weight) : 0;
}

}  // namespace

int launch_kv(const Launch &launch, const KvPieces &pieces, Call &call) noexcept {
    // Kernels load weights even for a norm without weights, and ignore them. If no tensor has weights,
    // they load from axis_of_pair, whose memory is at least as large as the weights of a head.
    Origins origins = {pieces.tensors[0].x, pieces.tensors[0].y, address_of(launch.angles->axis_of_pair)};
    bool has_norms = false, rotates = false;
    for (int i = 0; i < pieces.n_tensors; i++) {
        const KvPiece &tensor = pieces.tensors[i];
        origins.weight = tensor.weight != 0 ? tensor.weight : origins.weight;
        has_norms = has_norms || tensor.stages->norm;
        rotates = rotates || tensor.tensor_plan->rotates;
    }
    Arguments all;
    Fields::Kv fields{all};
    set_angles(fields.angles, launch, pieces.positions, pieces.n_tokens, launch.angles->source.rotary_dim / 2);
    if (!rotates) {
        fields.angles.form = static_cast<std::int32_t>(AngleForm::none);
    }
    fields.stores_bad = pieces.stores_bad;
    fields.has_norms = has_norms;
    set_slots(fields, pieces.slots, pieces.positions, pieces.n_tokens);
    fields.n_slots = static_cast<std::int32_t>(pieces.n_slots);
    for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
        set_tensor(fields, i, pieces.tensors[std::min(i, pieces.n_tensors - 1)], origins);
    }
    fields.n_heads = fields.end[pieces.n_tensors - 1];
    fields.weights.begin_at(origins.weight).add(line_extent, 1);
    fields.x.begin_at(origins.x).add(line_extent, 1);
    View out(origins.y, halide_type<std::uint32_t>);
    all.add(out.add(line_extent, 1));
    return pieces.kernel->function(all.get(call));
}

const char *why_not(const KvPiece &tensor) noexcept {
    constexpr std::int64_t most_heads = most_blocks * kv_heads_in_block / HALYARD_MAX_TENSORS;  // of each tensor
    const TensorPlan &tensor_plan = *tensor.tensor_plan;
    const auto &cache = tensor.stages->cache;
    const std::int64_t steps =
        (tensor.in.token | tensor.in.head) * tensor_plan.bytes |
        (cache ? cache->stride_block | cache->stride_head | cache->stride_token : tensor.out.token | tensor.out.head) *
            tensor_plan.out_bytes;
    if (tensor.in.element != 1 || (!cache && tensor.out.element != 1)) {
        return "has heads in x or y whose elements are not contiguous, as the KV path on a device needs them";
    }
    if ((tensor.x | tensor.y | static_cast<std::uint64_t>(steps)) % quad_bytes != 0) {
        return "has heads in x, y or the cache that are not aligned to 16 bytes, as the KV path on a device needs them";
    }
    if (tensor.weight % quad_bytes != 0) {
        return "has a weight that does not begin on 16 bytes";
    }
    return tensor.n_heads > most_heads ? "has more than 262,140 heads" : nullptr;
}

}  // namespace halyard::cuda
