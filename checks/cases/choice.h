// What a case is put together from. Each level chooses from a list of case.cpp or run.cpp.
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
    of_dtype, of_out_dtype, of_turn, of_norm, of_order, of_rounding, of_scale, of_layout, of_slots, of_policy, of_window,
    of_head_dim, of_shape, of_heads, of_source, of_axes, of_from, of_positions, of_strides, of_direction, of_values,
    of_position_scales, of_hadamard, of_groups, of_from_groups, n_factors
};
using Levels = std::array<int, n_factors>;

/// The layouts of caches that engines have.
enum CacheLayout {
    no_cache,
    rows,          // [slots, H, D]
    nhd,           // [pages, bs, H, D]
    hnd,           // [pages, H, bs, D]
    transposed_k,  // [pages, H, D, bs]
    amx_k,         // [pages, H, bs / 16, D / 2, 16, 2], the last of elements
    amx_v,         // [pages, H, D / 16, bs / 2, 16, 2], the last of tokens
    x_split,       // [pages, H, D / x, bs, x]
    x_split_v,     // [pages, H, bs / xv, D, xv]
    packed_v,      // [pages, H, bs, 2 D], of which it is the first half
    n_layouts_of_caches
};

/// How many levels a factor has: on a CPU, of keys that move there, and on a device.
struct FactorLevels {
    Factor factor;
    int of_kv_path, of_moves, of_device;
    bool is_optional = false;  // level 0 is none, which is drawn half the times
};
inline constexpr FactorLevels all_factors[n_factors] = {
    {of_dtype, 3, 6, 3},
    {of_out_dtype, 7, 1, 1, true},
    {of_turn, 5, 2, 5},  // half, interleaved, from half to interleaved, from interleaved to half, none
    // Of weights, of 1 + weights, without weights, of a window, with an eps, of the row; those, but of layers: without
    // a bias, with one, of the row; and each head with weights of its own.
    {of_norm, 11, 1, 1, true},
    {of_order, 2, 1, 1},
    {of_rounding, 4, 1, 1},
    {of_scale, 4, 4, 1, true},     // static by HALYARD_SCALE_PER_…, dynamic
    {of_layout, n_layouts_of_caches, n_layouts_of_caches, 4, true},
    {of_slots, 3, 3, 2},           // int32, int64, ranges
    {of_policy, 2, 1, 2},
    {of_window, 2, 2, 2},  // the whole head, half of it
    {of_head_dim, 12, 12, 11},
    {of_shape, 9, 9, 5},
    {of_heads, 4, 4, 4},
    {of_source, 6, 2, 5},  // Angles::Kind
    {of_axes, 4, 4, 4},    // none, HALYARD_AXIS_MAP_SECTIONS, …
    {of_from, 1, 2, 1},    // Angles::From
    {of_positions, 1, 4, 1},
    {of_strides, 5, 5, 4},  // dense, packed, by head, with gaps, any
    {of_direction, 2, 2, 2},
    {of_values, 2, 1, 2},                 // numbers, any bits
    {of_position_scales, 4, 1, 1, true},  // one, of tokens, of tokens and heads
    {of_hadamard, 2, 2, 1, true},         // a power of two that divides the head
    {of_groups, 2, 2, 1, true},           // of any preset
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
inline constexpr Levels of_kv_path = levels_of(&FactorLevels::of_kv_path), of_moves = levels_of(&FactorLevels::of_moves),
                        of_device = levels_of(&FactorLevels::of_device);

/// What a test fixes of a case: levels that are not -1, and what is not 0. The rest is drawn.
struct Choice {
    Levels level = all_drawn();
    std::int64_t n_tensors = 0, rotary_dim = 0, head_dim = 0, rotary_offset = 0;  // of the first tensor
    std::array<std::int64_t, 3> shape = {};                                       // batch, tokens, heads
    std::int32_t preset = 0;                                                      // of its groups, if they have one
    std::optional<bool> in_place;
    std::int64_t step = 1;  // in bytes, what addresses and strides are multiples of, or 1
    bool moves = false, on_device = false;
    const halyard::cuda::KvKernel *kernel = nullptr;  // of a device, which takes all tensors
    bool has_bad = false;    // some positions and slots
    bool any_range = false;  // the angle source covers any number of positions

    const Levels &levels() const { return on_device ? of_device : moves ? of_moves : of_kv_path; }
    static Levels all_drawn() {
        Levels levels;
        levels.fill(-1);
        return levels;
    }
    /// Fixes that all tensors are rotated and nothing else.
    static Choice of_rotations() {
        Choice choice;
        for (const FactorLevels &each : all_factors) {
            choice.level[each.factor] = each.is_optional ? 0 : -1;
        }
        return choice;
    }
};

/// Levels in which each pair of levels of two factors occurs together at least once.
std::vector<Levels> cover_pairs(oracle::Random &random, const Levels &n_levels);

}  // namespace cases
