// The factors of a random case, such as its dtype. A factor has levels: indices into lists here or in draw_*.cpp.
#pragma once

#include "checks/oracle.h"

#include <array>
#include <optional>
#include <set>
#include <vector>

namespace halyard::cuda {
struct KvKernel;
}

namespace cases {

enum Factor {
    of_dtype, of_out_dtype, of_pairing, of_norm, of_order, of_rounding, of_scale, of_layout, of_slots, of_policy,
    of_window, of_head_dim, of_shape, of_heads, of_source, of_axes, of_from, of_positions, of_strides, of_direction,
    of_values, of_position_scales, of_hadamard, of_groups, of_from_groups, n_factors
};
using Levels = std::array<int, n_factors>;

/// The layouts of engines' KV caches.
enum CacheLayout {
    no_cache,
    rows,          // [slots, H, D]
    nhd,           // [pages, bs, H, D]
    hnd,           // [pages, H, bs, D]
    transposed_k,  // [pages, H, D, bs]
    amx_k,         // [pages, H, bs / 16, D / 2, 16, 2]: the last dimension holds two elements
    amx_v,         // [pages, H, D / 16, bs / 2, 16, 2]: the last dimension holds two tokens
    x_split,       // [pages, H, D / x, bs, x]
    x_split_v,     // [pages, H, bs / xv, D, xv]
    packed_v,      // [pages, H, bs, 2 D]: the tensor is the first half of each row
    n_layouts_of_caches
};

/// How many levels a factor has: on the CPU's KV path, in re-rotations on the CPU, and on a CUDA device.
struct FactorLevels {
    Factor factor;
    int of_kv_path, of_rerotation, of_device;
    bool is_optional = false;  // level 0 means "none" and is drawn half of the time
};
inline constexpr FactorLevels all_factors[n_factors] = {
    {of_dtype, 3, 6, 3},
    {of_out_dtype, 7, 1, 1, true},
    {of_pairing, 5, 2, 5},  // half, interleaved, from half to interleaved, from interleaved to half, no rotation
    // No norm. RMS norms: with weights, with 1 + weights, without weights, with an eps, over a window of the head, over
    // a row of all heads. Layer norms: without a bias, with a bias, over a row. Last, a norm with weights
    // per head, which may be an RMS norm or a layer norm.
    {of_norm, 11, 1, 1, true},
    {of_order, 2, 1, 1},
    {of_rounding, 4, 1, 1},
    {of_scale, 4, 4, 1, true},  // none, static (one level for each HALYARD_SCALE_PER_…), dynamic
    {of_layout, n_layouts_of_caches, n_layouts_of_caches, 4, true},
    {of_slots, 3, 3, 2},  // int32, int64, consecutive slots from a start
    {of_policy, 2, 1, 2},
    {of_window, 2, 2, 2},  // the whole head is rotated, or half of it
    {of_head_dim, 12, 12, 11},
    {of_shape, 9, 9, 5},
    {of_heads, 4, 4, 4},
    {of_source, 6, 2, 5},  // Angles::Kind
    {of_axes, 4, 4, 4},    // none, HALYARD_AXIS_MAP_SECTIONS, …
    {of_from, 1, 2, 1},    // Angles::From
    {of_positions, 1, 4, 1},
    {of_strides, 5, 5, 4},  // dense, like fused QKV, heads outside of tokens, with gaps, any
    {of_direction, 2, 2, 2},
    {of_values, 2, 1, 2},                 // finite numbers, any bits
    {of_position_scales, 4, 1, 1, true},  // a single scale, one per token, one per token and head
    {of_hadamard, 2, 2, 1, true},         // its size is a power of two that divides head_dim
    {of_groups, 2, 2, 1, true},           // quantisation groups of any preset
    {of_from_groups, 2, 1, 1, true},
};

consteval Levels levels_of(int FactorLevels::*where) {
    Levels levels = {};
    for (const FactorLevels &each : all_factors) {
        if (&each != &all_factors[each.factor] || each.*where < 1) {
            throw "the list has not the order of the factors, or one has no level";
        }
        levels.at(each.factor) = each.*where;
    }
    return levels;
}
inline constexpr Levels of_kv_path = levels_of(&FactorLevels::of_kv_path),
                        of_rerotation = levels_of(&FactorLevels::of_rerotation),
                        of_device = levels_of(&FactorLevels::of_device);

/// What a test fixes of a case: levels other than -1, and numbers other than 0. The rest is drawn.
struct Choice {
    Levels level = none_fixed();
    std::int64_t n_tensors = 0, rotary_dim = 0, head_dim = 0, rotary_offset = 0;  // of the first tensor
    std::array<std::int64_t, 3> shape = {};                                       // batch, tokens, heads
    std::int32_t preset = 0;                                                      // of its quantisation groups, if any
    std::optional<bool> in_place;
    std::int64_t step = 1;  // in bytes: addresses and strides are multiples of it
    bool rerotates = false, on_device = false;
    const halyard::cuda::KvKernel *kernel = nullptr;  // the CUDA kernel that must serve all tensors
    bool has_bad = false;    // some positions and slots are out of range
    bool any_range = false;  // the angle source covers a random number of positions, not a fixed one

    const Levels &levels() const { return on_device ? of_device : rerotates ? of_rerotation : of_kv_path; }
    static Levels none_fixed() {
        Levels levels;
        levels.fill(-1);
        return levels;
    }
    /// A choice without any KV stage: tensors are only rotated.
    static Choice of_rotations() {
        Choice choice;
        for (const FactorLevels &each : all_factors) {
            choice.level[each.factor] = each.is_optional ? 0 : -1;
        }
        return choice;
    }
};

/// Pairwise testing: returns the levels of a list of cases. Any two levels of two factors occur together in some case.
std::vector<Levels> cover_level_pairs(oracle::Random &random, const Levels &n_levels);

}  // namespace cases
