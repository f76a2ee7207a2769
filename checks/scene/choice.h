// What a scene is put together from. Each number chooses from a list of scene.cpp or run.cpp.
#pragma once

#include "checks/oracle.h"

#include <array>
#include <optional>
#include <set>
#include <vector>

namespace halyard::gpu {
struct KvKernel;
}

namespace scenes {

enum Factor {
    of_dtype,
    of_out_dtype,  // 0: the same
    of_turn,       // half, interleaved, from half to interleaved, from interleaved to half, none
    of_norm,       // none, of weights, of 1 + weights, without weights, of a window, with an eps, of the row; those,
                   // but of layers: without a bias, with one, of the row; and each head with weights of its own
    of_order,
    of_rounding,
    of_scale,   // none, static by HALYARD_SCALE_PER_…, dynamic
    of_layout,  // CacheLayout
    of_slots,   // int32, int64, ranges
    of_policy,
    of_window,  // the whole head, half of it
    of_head_dim,
    of_shape,
    of_heads,
    of_source,  // Angles::Kind; of keys that move table and phase
    of_axes,    // none, HALYARD_AXIS_MAP_SECTIONS, …
    of_from,    // Angles::From, of keys that move
    of_positions,
    of_strides,  // dense, packed, by head, with gaps, any
    of_direction,
    of_values,           // numbers, any bits
    of_position_scales,  // none, one, of tokens, of tokens and heads
    of_hadamard,         // none, a power of two that divides the head
    of_groups,           // none, of any preset
    of_from_groups,      // likewise
    n_factors
};
using Levels = std::array<int, n_factors>;

/// How many levels each factor has, on a CPU, of keys that move there, and on a device.
inline constexpr Levels of_roads = {3, 7, 5, 11, 2, 4, 4, 10, 3, 2, 2, 12, 9, 4, 6, 4, 1, 1, 5, 2, 2, 4, 2, 2, 2};
inline constexpr Levels of_moves = {6, 1, 2, 1, 1, 1, 4, 10, 3, 1, 2, 12, 9, 4, 2, 4, 2, 4, 5, 2, 1, 1, 2, 2, 1};
inline constexpr Levels of_device = {3, 1, 5, 1, 1, 1, 1, 4, 2, 2, 2, 11, 5, 4, 5, 4, 1, 1, 4, 2, 2, 1, 1, 1, 1};

/// What a test fixes of a scene: levels that are not -1, and what is not 0. The rest is drawn.
struct Choice {
    Levels level = all_drawn();
    std::int64_t n_tensors = 0, rotary_dim = 0, head_dim = 0, rotary_offset = 0;  // of the first tensor
    std::array<std::int64_t, 3> shape = {};                                       // batch, tokens, heads
    std::int32_t preset = 0;                                                      // of its groups, if they have one
    std::optional<bool> in_place;
    std::int64_t step = 1;  // in bytes, what addresses and strides are multiples of, or 1
    bool moves = false, on_device = false;
    const halyard::gpu::KvKernel *kernel = nullptr;  // of a device, which takes all tensors
    bool has_bad = false;    // some positions and slots
    bool any_range = false;  // the angle source covers any number of positions

    const Levels &levels() const { return on_device ? of_device : moves ? of_moves : of_roads; }
    static Levels all_drawn() {
        Levels levels;
        levels.fill(-1);
        return levels;
    }
    /// Fixes that all tensors are rotated and nothing else.
    static Choice of_rotations() {
        Choice choice;
        for (const Factor none :
             {of_out_dtype, of_norm, of_scale, of_layout, of_position_scales, of_hadamard, of_groups, of_from_groups}) {
            choice.level[none] = 0;
        }
        return choice;
    }
};

/// Levels in which each pair of levels of two factors occurs together at least once.
std::vector<Levels> cover_pairs(oracle::Random &random, const Levels &n_levels);

}  // namespace scenes
