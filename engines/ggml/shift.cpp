// Finds context shifts of quantised keys in a graph.
#include "kv_path.h"
#include "nodes.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>

namespace halyard_ggml {

namespace {

/// Whether node j, a neighbour of node i, is a Hadamard transform of i's result, and nothing else reads that result.
bool is_hadamard_of(const ggml_cgraph *graph, int j, int i) {
    return j >= 0 && hadamard_size(*graph->nodes[j]) != 0 && has_one_reader(graph, i) &&
           is_result_of(graph, graph->nodes[j]->src[1], i);
}

}  // namespace

bool find_shift(const ggml_cgraph *graph, int i, Shift *out) {
    Rope rope = {};
    if (graph->nodes[i]->op != GGML_OP_ROPE || read_rope(*graph->nodes[i], &rope) != nullptr || rope.n_axes != 1 ||
        graph->nodes[i]->type != GGML_TYPE_F32) {
        return false;
    }
    std::vector<int> places = {i};
    const int before = computed_neighbour(graph, i, -1), after = computed_neighbour(graph, i, 1);
    std::int64_t n = 0;
    if (before >= 0 && is_hadamard_of(graph, after, i)) {
        n = hadamard_size(*graph->nodes[after]);
        if (hadamard_size(*graph->nodes[before]) != n || !has_one_reader(graph, before) ||
            !is_result_of(graph, graph->nodes[i]->src[0], before)) {
            return false;
        }
        places = {before, i, after};
    }
    const int first = computed_neighbour(graph, places.front(), -1), last = computed_neighbour(graph, places.back(), 1);
    if (first < 0 || last < 0) {
        return false;
    }
    ggml_tensor *load = graph->nodes[first], *store = graph->nodes[last];
    const ggml_tensor *loaded = n == 0 ? graph->nodes[i]->src[0] : graph->nodes[before]->src[1];
    const ggml_tensor *keys = load->src[0];
    const int uses_of_load = load->src[1] == load ? 2 : 1;  // ggml_cast makes its result its own src[1] too
    if (load->op != GGML_OP_CPY || store->op != GGML_OP_CPY || !is_supported_quantised(*keys) ||
        store->src[1] != keys || load->type != GGML_TYPE_F32 || !ggml_node_has_n_uses(graph, first, uses_of_load) ||
        !is_result_of(graph, loaded, first) || !has_one_reader(graph, places.back()) ||
        !is_result_of(graph, store->src[0], places.back())) {
        return false;
    }
    const std::int64_t block = ggml_blck_size(keys->type);
    if (!ggml_are_same_shape(keys, rope.x) || !ggml_are_same_shape(keys, load) || keys->ne[3] != 1 ||
        keys->ne[0] % block != 0 || keys->nb[0] != ggml_type_size(keys->type) || store->data != keys->data ||
        !std::equal(keys->nb, keys->nb + GGML_MAX_DIMS, store->nb) || (n != 0 && keys->ne[0] % n != 0)) {
        return false;
    }
    places.insert(places.begin(), first);
    places.push_back(last);
    out->rope = rope;
    out->keys = keys;
    out->hadamard = n;
    out->nodes.clear();
    for (const int place : places) {
        out->nodes.push_back(graph->nodes[place]);
    }
    return true;
}

}  // namespace halyard_ggml
