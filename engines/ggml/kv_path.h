// Which nodes of a graph one call of Halyard can take the place of: a rotation, and what lies on both sides of it.
#pragma once

#include "rope.h"

#include <cstdint>
#include <map>
#include <vector>

struct ggml_cgraph;

namespace halyard_ggml {

/// What of a KV path is wanted beside the rotation.
struct Neighbours {
    bool norm, hadamard, cache;
};

/// RMS_NORM -> MUL -> ROPE -> MUL_MAT (Hadamard) -> SET_ROWS; all but ROPE may be absent. Or CONT -> MUL_MAT (Hadamard)
/// -> SET_ROWS, as v takes it; CONT may be absent. Views may lie between. Nodes are NULL then.
struct KvPath {
    Rope rope;
    ggml_tensor *rope_node;
    ggml_tensor *norm_node, *mul_node, *cont_node;
    ggml_tensor *hadamard_node;
    ggml_tensor *set_rows_node;
    ggml_tensor *call_node;     // in whose place the call is made: the last one, or the one before SET_ROWS
    const ggml_tensor *heads;   // what has the shape of all, [head_dim, heads, tokens, batch]
    const ggml_tensor *x;       // what the first of the nodes reads: of that shape or, before a norm of rows, tokens
    const ggml_tensor *weight;  // of MUL, float [head_dim] or [heads * head_dim]
    float eps;
    bool norm_is_of_rows;  // all heads of a token are normed together

    /// The node whose result the call writes.
    ggml_tensor *last() const {
        return set_rows_node != nullptr ? set_rows_node : hadamard_node != nullptr ? hadamard_node : rope_node;
    }
};

/// CPY to f32 -> MUL_MAT -> ROPE -> MUL_MAT -> CPY back, with a Hadamard matrix that undoes itself, or without both
/// MUL_MAT: a shift of quantised keys, which turn where they lie. ROPE's positions are by how much each token moves.
struct Move {
    Rope rope;
    std::vector<ggml_tensor *> nodes;  // from the first CPY to the last
    const ggml_tensor *keys;           // [head_dim, heads, tokens], quantised
    std::int64_t hadamard;             // n of the transform, or 0
};

/// Finds the shift around node i, if it is a ROPE in one.
bool find_move(const ggml_cgraph *graph, int i, Move *out);

/// Finds the KV paths of one graph.
class PathFinder {
public:
    explicit PathFinder(const ggml_cgraph *graph) : graph_(graph) {}

    const ggml_cgraph *graph() const { return graph_; }

    /// The longest KV path through node i, a ROPE, ROPE_BACK or Hadamard transform without one, with no other
    /// neighbours than those wanted. The results of all nodes but the last are read by the next one only, and nothing
    /// is computed between them; but before SET_ROWS there may be what has nothing to do with its cache. Returns NULL,
    /// or why the node stays with ggml: a static string.
    const char *find(int i, Neighbours wanted, KvPath *out);

    /// Whether what a tensor holds is known before the graph is computed.
    bool is_ready(const ggml_tensor *tensor);

private:
    const char *find_rope(int i, Neighbours wanted, KvPath *path);
    void find_cache(int last, KvPath *path);

    const ggml_cgraph *graph_;
    std::map<const ggml_tensor *, bool> known_;  // what is_ready() has found
};

}  // namespace halyard_ggml
