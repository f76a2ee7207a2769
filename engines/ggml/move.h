// The shift of quantised keys in a graph: they turn where they lie.
#pragma once

#include "rope.h"

#include <cstdint>
#include <vector>

struct ggml_cgraph;

namespace halyard_ggml {

/// CPY to f32 -> MUL_MAT -> ROPE -> MUL_MAT -> CPY back, with a Hadamard matrix that undoes itself, or without both
/// MUL_MAT. ROPE's positions are by how much each token moves.
struct Move {
    Rope rope;
    std::vector<ggml_tensor *> nodes;  // from the first CPY to the last
    const ggml_tensor *keys;           // [head_dim, heads, tokens], quantised
    std::int64_t hadamard;             // n of the transform, or 0
};

/// Finds the shift around node i, if it is a ROPE in one.
bool find_move(const ggml_cgraph *graph, int i, Move *out);

}  // namespace halyard_ggml
