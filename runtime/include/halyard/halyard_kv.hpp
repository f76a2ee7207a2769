/// The C++ interface of halyard_kv.h, as halyard.hpp is of halyard.h.
///
///     const auto norm = halyard::describe_norm(halyard::dtype::bf16);
///     const auto cache = halyard::describe_nhd_cache(n_pages, page_size, n_heads, 128);
///     auto kv = halyard::make_struct<halyard_kv_desc>();
///     kv.norm = &norm;
///     kv.cache = &cache;
///     auto k = halyard::describe_tensor(halyard::dtype::bf16, 128, halyard::pairing::half);
///     k.kv = &kv;  // keep all of it until the plan is made
///     const halyard::plan plan(halyard::plan_desc(128, {k}));
///     const auto stages = halyard::stages(weight, 128, pages);
///     const auto slots = halyard::unchecked_slots(numbers, {batch, tokens});
///     const auto args = halyard::kv_args(&stages, &slots);
///     halyard::run(plan, angles, x, x, halyard::run_options().with(args));
#pragma once

#include "halyard/halyard.hpp"
#include "halyard/halyard_kv.h"

namespace halyard {

/// Describes an RMSNorm of each head before the rotation, with weights [head_dim].
inline halyard_norm_desc describe_norm(dtype weight, double eps = 1e-6) noexcept {
    auto desc = make_struct<halyard_norm_desc>();
    desc.weight_dtype = static_cast<std::int32_t>(weight);
    desc.eps = eps;
    desc.no_eps = eps == 0.0 ? 1 : 0;
    return desc;
}

/// Describes scales that the caller passes to a run; per is HALYARD_SCALE_PER_….
inline halyard_scale_desc describe_static_scales(std::int32_t per = HALYARD_SCALE_PER_TENSOR) noexcept {
    auto desc = make_struct<halyard_scale_desc>();
    desc.per = per;
    return desc;
}

/// Describes scales that a run writes, one for each head of each token.
inline halyard_scale_desc describe_dynamic_scales() noexcept {
    auto desc = make_struct<halyard_scale_desc>();
    desc.kind = HALYARD_SCALE_DYNAMIC;
    return desc;
}

/// Describes the groups of an engine's quantised cache; preset is HALYARD_GROUPS_….
inline halyard_groups_desc describe_groups(std::int32_t preset) noexcept {
    auto desc = make_struct<halyard_groups_desc>();
    desc.preset = preset;
    return desc;
}

/// The size and layout of a preset's records, for heads of head_dim elements.
inline halyard_groups_info get_groups_info(std::int32_t preset, std::int64_t head_dim) {
    auto info = make_struct<halyard_groups_info>();
    detail::call(halyard_get_groups_info, preset, head_dim, &info);
    return info;
}

/// Describes a dense cache [pages, page_size, heads, head_dim]; for a cache of records pass record_bytes as head_dim.
/// With n_pages = 1 it is [slots, heads, head_dim].
inline halyard_cache_desc describe_nhd_cache(std::int64_t n_pages, std::int64_t page_size, std::int64_t n_heads,
                                             std::int64_t head_dim) noexcept {
    auto desc = make_struct<halyard_cache_desc>();
    desc.n_slots = detail::multiply(n_pages, page_size);
    desc.block_size = page_size;
    desc.stride_head = head_dim;
    desc.stride_token = detail::multiply(n_heads, head_dim);
    desc.stride_block = detail::multiply(page_size, desc.stride_token);
    return desc;
}

/// Describes a dense cache [pages, heads, page_size, head_dim].
inline halyard_cache_desc describe_hnd_cache(std::int64_t n_pages, std::int64_t page_size, std::int64_t n_heads,
                                             std::int64_t head_dim) noexcept {
    auto desc = describe_nhd_cache(n_pages, page_size, n_heads, head_dim);
    desc.stride_token = head_dim;
    desc.stride_head = detail::multiply(page_size, head_dim);
    return desc;
}

/// Computes what a model with a q_scale_rule multiplies q by, [n_batch, n_tokens]: position_scales for runs. positions
/// may be NULL: 0, 1, 2, … in every batch row.
inline std::vector<float> position_scales(const frequencies &model, const halyard_positions *positions,
                                          std::int64_t n_batch, std::int64_t n_tokens) {
    std::vector<float> scales(static_cast<std::size_t>(detail::multiply(n_batch, n_tokens)));
    detail::call(halyard_make_position_scales, model.get(), positions, n_batch, n_tokens, scales.data(),
                 static_cast<std::int64_t>(scales.size()));
    return scales;
}

/// Dense slots [batch, tokens], of int32 or int64, no two of them equal except -1. A run checks this in scratch,
/// memory of the caller's with one bit for each slot of the cache. All memory stays the caller's.
template <typename Index>
halyard_slots slots(const Index *data, std::array<std::int64_t, 2> shape, void *scratch,
                    std::int64_t scratch_bytes) noexcept {
    auto result = detail::dense_numbers<halyard_slots>(data, shape);
    result.scratch = scratch;
    result.scratch_bytes = scratch_bytes;
    return result;
}

/// The same without that check: several tokens may have one slot, and the last of them is stored.
template <typename Index>
halyard_slots unchecked_slots(const Index *data, std::array<std::int64_t, 2> shape) noexcept {
    auto result = slots(data, shape, nullptr, 0);
    result.policy = HALYARD_SLOTS_RANGE_ONLY;
    return result;
}

/// The arguments of a run for a tensor that may have a norm with a weight, a cache, both or neither.
inline halyard_stages stages(const void *weight = nullptr, std::int64_t n_weights = 0, void *cache = nullptr) noexcept {
    auto result = make_struct<halyard_stages>();
    result.weight = weight;
    result.n_weights = n_weights;
    result.cache = cache;
    return result;
}
/// The same for a tensor that has a cache and no norm with a weight.
inline halyard_stages stages_into(void *cache) noexcept { return stages(nullptr, 0, cache); }

/// The KV arguments of a run: for each tensor of the plan its halyard_stages (weights, scales, its cache), and slots if
/// any tensor has a cache. Both are kept as pointers and must live until the run has returned.
inline halyard_kv_args kv_args(const halyard_stages *stages, const halyard_slots *slots = nullptr) noexcept {
    auto args = make_struct<halyard_kv_args>();
    args.stages = stages;
    args.slots = slots;
    return args;
}

/// The KV arguments of a plan that rerotates: the positions that keys have now, and the angle source that they were
/// rotated with (NULL: that of the run).
inline halyard_kv_args rerotate_from(const halyard_positions &where,
                                  const halyard_angle_source *with = nullptr) noexcept {
    auto args = make_struct<halyard_kv_args>();
    args.from_positions = &where;
    args.from_angles = with;
    return args;
}

}  // namespace halyard
