// Looks for roads in a graph.
#include "road.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>

namespace halyard_ggml {

namespace {

bool is_computed(const ggml_tensor &node) {
    return !ggml_op_is_empty(node.op) && (node.flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
}

/// The nearest computed node after i (step 1), or before it (-1); -1 where there is none.
int neighbour(const ggml_cgraph *graph, int i, int step) {
    for (i += step; i >= 0 && i < graph->n_nodes; i += step) {
        if (is_computed(*graph->nodes[i])) {
            return i;
        }
    }
    return -1;
}

int index_of(const ggml_cgraph *graph, const ggml_tensor *node, int from, int to) {
    for (int i = from; i < to; ++i) {
        if (graph->nodes[i] == node) {
            return i;
        }
    }
    return -1;
}

/// Whether the node's only reader is the next one of the road, so that its result need not be written.
bool is_passed_on(const ggml_cgraph *graph, int i) { return ggml_node_has_n_uses(graph, i, 1); }

/// Whether what a tensor holds is known before the graph is computed.
bool is_input(const ggml_cgraph *graph, const ggml_tensor *tensor) {
    const ggml_tensor *root = tensor->view_src == nullptr ? tensor : tensor->view_src;
    if (root->op != GGML_OP_NONE || tensor->data == nullptr || (tensor != root && !ggml_op_is_empty(tensor->op))) {
        return false;
    }
    const auto writes_to_it = [&](const ggml_tensor *node) { return node->view_src == root && is_computed(*node); };
    return std::none_of(graph->nodes, graph->nodes + graph->n_nodes, writes_to_it);
}

bool is_f32_rows(const ggml_tensor &tensor) { return tensor.type == GGML_TYPE_F32 && tensor.nb[0] == sizeof(float); }

/// Adds RMS_NORM and, where it is there, MUL by weights of a head.
void find_norm(const ggml_cgraph *graph, int rope, Road *road) {
    int i = neighbour(graph, rope, -1);
    const ggml_tensor *reader = road->rope_node;
    ggml_tensor *mul = nullptr;
    const ggml_tensor *weight = nullptr;
    if (i >= 0 && graph->nodes[i]->op == GGML_OP_MUL) {
        mul = graph->nodes[i];
        const int before = neighbour(graph, i, -1);
        if (reader->src[0] != mul || !is_passed_on(graph, i) || before < 0) {
            return;
        }
        const bool norm_is_first = mul->src[0] == graph->nodes[before];
        weight = mul->src[norm_is_first ? 1 : 0];
        if (!is_f32_rows(*weight) || ggml_nelements(weight) != mul->ne[0] || weight->ne[0] != mul->ne[0] ||
            weight == graph->nodes[before] || !is_f32_rows(*mul)) {
            return;
        }
        reader = mul;
        i = before;
    }
    if (i < 0) {
        return;
    }
    ggml_tensor *norm = graph->nodes[i];
    if (norm->op != GGML_OP_RMS_NORM || !is_passed_on(graph, i) || !ggml_are_same_shape(norm, reader) ||
        (reader->src[0] != norm && (reader->op != GGML_OP_MUL || reader->src[1] != norm)) || !is_f32_rows(*norm) ||
        !is_f32_rows(*norm->src[0])) {
        return;
    }
    road->norm_node = norm;
    road->mul_node = mul;
    road->weight = weight;
    road->x = norm->src[0];
    std::memcpy(&road->eps, norm->op_params, sizeof(road->eps));
}

/// Adds SET_ROWS of whole tokens, behind views that flatten the heads.
void find_cache(const ggml_cgraph *graph, int rope, Road *road) {
    const int i = neighbour(graph, rope, 1);
    const ggml_tensor &node = *road->rope_node;
    if (i < 0 || graph->nodes[i]->op != GGML_OP_SET_ROWS || !is_passed_on(graph, rope)) {
        return;
    }
    ggml_tensor *set_rows = graph->nodes[i];
    const ggml_tensor *flat = set_rows->src[0], *slots = set_rows->src[1];
    if (flat != &node) {
        const int view = index_of(graph, flat, rope + 1, i);
        if (view < 0 || !ggml_op_is_empty(flat->op) || flat->src[0] != &node || flat->data != node.data ||
            ggml_node_get_use_count(graph, view) != 1 || (flat->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
            return;
        }
    }
    const bool is_float =
        set_rows->type == GGML_TYPE_F32 || set_rows->type == GGML_TYPE_F16 || set_rows->type == GGML_TYPE_BF16;
    if (!is_float || !ggml_is_contiguous(&node) || !ggml_is_contiguous(flat) || node.ne[3] != 1 ||
        flat->ne[0] != node.ne[0] * node.ne[1] || flat->ne[1] != node.ne[2] || flat->ne[2] != 1 || flat->ne[3] != 1 ||
        set_rows->ne[2] != 1 || set_rows->ne[3] != 1 || set_rows->nb[0] != ggml_type_size(set_rows->type) ||
        set_rows->nb[1] % ggml_type_size(set_rows->type) != 0 || slots->nb[0] % ggml_type_size(slots->type) != 0) {
        return;
    }
    road->set_rows_node = set_rows;
}

}  // namespace

bool RoadFinder::is_ready(const ggml_tensor *tensor) {
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const auto &known) { return known.first == tensor; });
    if (found != known_.end()) {
        return found->second;
    }
    known_.emplace_back(tensor, is_input(graph_, tensor));
    return known_.back().second;
}

const char *RoadFinder::find(int i, Neighbours wanted, Road *out) {
    Road road = {};
    road.rope_node = graph_->nodes[i];
    if (const char *why = read_rope(*road.rope_node, &road.rope)) {
        return why;
    }
    if (!is_ready(road.rope.positions)) {
        return "the graph itself makes the positions";
    }
    if (road.rope.factors != nullptr && !is_ready(road.rope.factors)) {
        return "the graph itself makes the frequency factors";
    }
    road.x = road.rope.x;
    if (wanted.norm && road.x->ne[2] >= joins_.norm_from) {
        find_norm(graph_, i, &road);
    }
    if (wanted.cache && road.rope.x->ne[2] >= joins_.cache_from) {
        find_cache(graph_, i, &road);
    }
    *out = road;
    return nullptr;
}

}  // namespace halyard_ggml
