// Which nodes of a graph one call of Halyard can take the place of: a rotation, and what lies on both sides of it.
#pragma once

#include "rope.h"

#include <utility>
#include <vector>

struct ggml_cgraph;

namespace halyard_ggml {

/// What of a road is wanted beside the rotation.
struct Neighbours {
    bool norm, cache;
};

/// From how many tokens on a rotation is joined with its neighbours. One call for all is more code, which has to come
/// from memory where a model's weights have passed since the last one. Measured on a Zen 5 with models of twelve layers
/// of 16 and 4 heads of 64: with a norm it gains from two tokens on, while ggml's SET_ROWS is as fast up to 512.
struct Joins {
    std::int64_t norm_from = 2, cache_from = 512;
};

/// RMS_NORM -> MUL -> ROPE -> VIEW -> SET_ROWS; all but ROPE may be absent. Nodes are NULL then.
struct Road {
    Rope rope;
    ggml_tensor *rope_node;
    ggml_tensor *norm_node, *mul_node;
    ggml_tensor *set_rows_node;
    const ggml_tensor *x;       // what the first of the nodes reads, of the shape of ROPE's input
    const ggml_tensor *weight;  // of MUL, float [head_dim]
    float eps;

    /// The last node: the call is made in its place.
    ggml_tensor *last() const { return set_rows_node != nullptr ? set_rows_node : rope_node; }
};

/// Finds the roads of one graph.
class RoadFinder {
public:
    RoadFinder(const ggml_cgraph *graph, Joins joins) : graph_(graph), joins_(joins) {}

    /// The longest road through node i, a ROPE or ROPE_BACK, with no other neighbours than those wanted. The results of
    /// all nodes but the last are read by the next one only, and nothing is computed between them. Returns NULL, or why
    /// the node stays with ggml: a static string.
    const char *find(int i, Neighbours wanted, Road *out);

private:
    bool is_ready(const ggml_tensor *tensor);

    const ggml_cgraph *graph_;
    Joins joins_;
    std::vector<std::pair<const ggml_tensor *, bool>> known_;  // what is_ready() has found
};

}  // namespace halyard_ggml
