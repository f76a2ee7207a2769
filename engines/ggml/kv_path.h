// Finds sequences of nodes that one call of Halyard can replace: a rotation with its neighbours, and shifts of keys.
#pragma once

#include "rope.h"

#include <cstdint>
#include <map>
#include <vector>

struct ggml_cgraph;

namespace halyard_ggml {

/// Which neighbours of a rotation to join with it.
struct Neighbours {
    bool norm, hadamard, cache;
};

/// RMS_NORM -> MUL -> ROPE -> MUL_MAT (Hadamard) -> SET_ROWS, for q or k; all but ROPE may be absent. Or, for v,
/// CONT -> MUL_MAT (Hadamard) -> SET_ROWS; CONT may be absent. Absent nodes are NULL. Views may lie between nodes.
struct KvPath {
    Rope rope;
    ggml_tensor *rope_node;
    ggml_tensor *norm_node, *mul_node, *cont_node;
    ggml_tensor *hadamard_node;
    ggml_tensor *set_rows_node;
    ggml_tensor *call_node;     // the node that becomes the call: the last one, or the one before SET_ROWS
    const ggml_tensor *heads;   // a tensor with the shape of the path's heads, [head_dim, heads, tokens, batch]
    const ggml_tensor *x;       // the input: of the same shape or, with norm_is_of_rows, [heads * head_dim, tokens]
    const ggml_tensor *weight;  // of MUL, f32 [head_dim] or [heads * head_dim]
    float eps;
    bool norm_is_of_rows;  // the norm is over all heads of a token

    /// The last node of the path, whose result the call writes.
    ggml_tensor *last() const {
        return set_rows_node != nullptr ? set_rows_node : hadamard_node != nullptr ? hadamard_node : rope_node;
    }
};

/// A context shift of quantised keys, in place: CPY to f32 -> MUL_MAT -> ROPE -> MUL_MAT -> CPY back. Each MUL_MAT is
/// by a Hadamard matrix, which is its own inverse; both may be absent. ROPE's positions are the shift of each token.
struct Shift {
    Rope rope;
    std::vector<ggml_tensor *> nodes;  // from the first CPY to the last
    const ggml_tensor *keys;           // [head_dim, heads, tokens], quantised
    std::int64_t hadamard;             // n of the transform, or 0
};

/// If node i is the ROPE of a shift, fills in *out and returns true.
bool find_shift(const ggml_cgraph *graph, int i, Shift *out);

/// Finds the KV paths of one graph.
class PathFinder {
public:
    explicit PathFinder(const ggml_cgraph *graph) : graph_(graph) {}

    const ggml_cgraph *graph() const { return graph_; }

    /// Finds the longest KV path through node i that has, beside node i, only nodes of the wanted kinds. Node i is a
    /// ROPE, a ROPE_BACK, or a Hadamard transform that no rotation precedes. A node's result is read only by the next
    /// node of the path. In the graph's order, the path's nodes follow one another. Only right before SET_ROWS may
    /// there be other nodes, which must not access the cache that SET_ROWS writes. Fills in *out and returns NULL, or
    /// returns the reason why ggml computes node i itself: a static string.
    const char *find(int i, Neighbours wanted, KvPath *out);

    /// Whether a tensor's values are known before the graph is computed.
    bool is_ready(const ggml_tensor *tensor);

private:
    const char *find_rope(int i, Neighbours wanted, KvPath *path);
    void find_cache(int last, KvPath *path);

    const ggml_cgraph *graph_;
    std::map<const ggml_tensor *, bool> known_;  // the results of is_ready()
};

}  // namespace halyard_ggml
