// Finds KV paths in a graph.
#include "kv_path.h"

#include "nodes.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>

namespace halyard_ggml {

namespace {

// The number of tokens from which a rotation is joined with each neighbour. A joined call has more code than a
// rotation, and between two calls a model's weights evict that code from the CPU's cache. So joining can be slower for
// few tokens. Measured:
//
//     joined with                heads (memory read between two calls)      machine                  faster from
//     norm of each head          16 query, 4 KV of head_dim 64 (a model)    Zen 5                    2 tokens
//     store of k, v in q8_0      8 of head_dim 128 (300 MB)                 Zen 5                    3 tokens
//     Hadamard transform of q    the same                                   Zen 5                    1 token
//     store in a float cache     8 and 32 of head_dim 128 (48 MB)           Rocket Lake, 1 thread    32 tokens
//     norm over all heads        32, and 8, of head_dim 128 (48 MB)         Rocket Lake, 1 thread    8, and 32, tokens
constexpr std::int64_t norm_from = 2, row_norm_from = 16;  // norms of each head, and over all heads of a token
constexpr std::int64_t cache_from = 64, records_from = 2;  // stores into float caches, and into quantised caches

/// A SET_ROWS is searched for in this many nodes after the node that it stores; in a layer fewer lie between the two.
constexpr int max_distance = 64;

/// Whether no node of the graph writes a tensor, so that its values are known before the graph is computed.
bool is_input(const ggml_cgraph *graph, const ggml_tensor *tensor) {
    const ggml_tensor *root = root_of(tensor);
    if (root->op != GGML_OP_NONE || tensor->data == nullptr || (tensor != root && !ggml_op_is_empty(tensor->op))) {
        return false;
    }
    const auto writes_to_it = [&](const ggml_tensor *node) { return node->view_src == root && is_computed(*node); };
    return std::none_of(graph->nodes, graph->nodes + graph->n_nodes, writes_to_it);
}

bool is_f32_rows(const ggml_tensor &tensor) { return tensor.type == GGML_TYPE_F32 && tensor.nb[0] == sizeof(float); }

/// Whether each row of a norm holds all heads of one token of `heads`.
bool is_norm_over_all_heads(const ggml_tensor &norm, const ggml_tensor &heads) {
    return norm.ne[0] == heads.ne[0] * heads.ne[1] && norm.ne[1] == heads.ne[2] && ggml_nrows(&norm) == norm.ne[1] &&
           ggml_nelements(&norm) == ggml_nelements(&heads);
}

/// Adds to the path the RMS_NORM before the rotation, of each head or over all heads, and its MUL by weights if any.
void find_norm(const ggml_cgraph *graph, int rope, KvPath *path) {
    int i = computed_neighbour(graph, rope, -1);
    if (i < 0 || !is_result_of(graph, path->rope_node->src[0], i) || !has_one_reader(graph, i)) {
        return;
    }
    ggml_tensor *norm = graph->nodes[i], *mul = nullptr;
    const ggml_tensor *weight = nullptr;
    if (norm->op == GGML_OP_MUL) {
        mul = norm;
        i = computed_neighbour(graph, i, -1);
        if (i < 0 || !has_one_reader(graph, i)) {
            return;
        }
        norm = graph->nodes[i];
        weight = mul->src[mul->src[0] == norm ? 1 : 0];
        if (!is_f32_rows(*weight) || ggml_nelements(weight) != mul->ne[0] || weight->ne[0] != mul->ne[0] ||
            !is_f32_rows(*mul) || (mul->src[0] == norm) == (mul->src[1] == norm) || !ggml_are_same_shape(norm, mul)) {
            return;
        }
    }
    const bool is_row = !ggml_are_same_shape(norm, path->rope.x);
    if (norm->op != GGML_OP_RMS_NORM || !is_f32_rows(*norm) || !is_f32_rows(*norm->src[0]) ||
        (is_row && (path->rope.x->ne[2] < row_norm_from || !is_norm_over_all_heads(*norm, *path->rope.x)))) {
        return;
    }
    path->norm_is_of_rows = is_row;
    path->norm_node = norm;
    path->mul_node = mul;
    path->weight = weight;
    path->x = norm->src[0];
    std::memcpy(&path->eps, norm->op_params, sizeof(path->eps));
}

/// Whether SET_ROWS stores all heads of each token as one row, with a type and strides that Halyard can write.
bool stores_tokens(const ggml_tensor &set_rows, const ggml_tensor &x) {
    const ggml_tensor &flat = *set_rows.src[0], &slots = *set_rows.src[1];
    const auto bytes = ggml_type_size(set_rows.type);
    const bool is_float =
        set_rows.type == GGML_TYPE_F32 || set_rows.type == GGML_TYPE_F16 || set_rows.type == GGML_TYPE_BF16;
    const bool is_records =
        is_supported_quantised(set_rows) && x.ne[0] % ggml_blck_size(set_rows.type) == 0 && flat.type == GGML_TYPE_F32;
    return (is_records || (is_float && set_rows.nb[1] % bytes == 0)) && set_rows.nb[0] == bytes &&
           flat.ne[0] == x.ne[0] * x.ne[1] && flat.ne[1] == x.ne[2] && ggml_nelements(&flat) == ggml_nelements(&x) &&
           x.ne[3] == 1 && set_rows.ne[2] == 1 && set_rows.ne[3] == 1 && slots.nb[0] % ggml_type_size(slots.type) == 0;
}

/// Adds to the path the Hadamard transform after the rotation.
void find_hadamard(const ggml_cgraph *graph, int rope, KvPath *path) {
    const int i = computed_neighbour(graph, rope, 1);
    if (i < 0 || path->rope_node->type != GGML_TYPE_F32 || !has_one_reader(graph, rope)) {
        return;
    }
    ggml_tensor *node = graph->nodes[i];
    const std::int64_t n = hadamard_size(*node);
    if (n != 0 && path->heads->ne[0] % n == 0 && ggml_is_contiguous(node) && is_result_of(graph, node->src[1], rope)) {
        path->hadamard_node = node;
    }
}

/// Adds to the path the Hadamard transform i, which has no rotation before it, and finds the heads that it reads.
/// Returns NULL, or the reason why ggml keeps the node.
const char *find_hadamard_without_rope(const ggml_cgraph *graph, int i, KvPath *path) {
    ggml_tensor *node = graph->nodes[i];
    path->hadamard_node = node;
    const ggml_tensor *x = node->src[1];
    const int before = computed_neighbour(graph, i, -1);
    if (before >= 0 && graph->nodes[before]->op == GGML_OP_CONT && has_one_reader(graph, before) &&
        is_result_of(graph, x, before)) {
        path->cont_node = graph->nodes[before];
        x = path->cont_node->src[0];
    } else if (x->op == GGML_OP_RESHAPE && x->src[0]->data == x->data) {
        x = x->src[0];
    }
    path->x = path->heads = x;
    const bool is_f32 = is_f32_rows(*x) && x->nb[1] % sizeof(float) == 0 && x->nb[2] % sizeof(float) == 0 &&
                        x->nb[3] % sizeof(float) == 0;
    return is_f32 && x->ne[0] % hadamard_size(*node) == 0 && ggml_is_contiguous(node)
               ? nullptr
               : "the heads are not whole ones of f32";
}

}  // namespace

/// Adds to the path the SET_ROWS that stores the result of node `last`.
void PathFinder::find_cache(int last, KvPath *path) {
    if (!has_one_reader(graph_, last)) {
        return;
    }
    int i = last;
    do {
        i = computed_neighbour(graph_, i, 1);
        if (i < 0 || i > last + max_distance) {
            return;
        }
    } while (graph_->nodes[i]->op != GGML_OP_SET_ROWS || !is_result_of(graph_, graph_->nodes[i]->src[0], last));
    ggml_tensor *set_rows = graph_->nodes[i];
    const std::int64_t from = is_supported_quantised(*set_rows) ? records_from : cache_from;
    if (path->heads->ne[2] < from || !stores_tokens(*set_rows, *path->heads)) {
        return;
    }
    const bool is_next = computed_neighbour(graph_, last, 1) == i;
    for (int between = computed_neighbour(graph_, last, 1); between != i;
         between = computed_neighbour(graph_, between, 1)) {
        if (touches(*graph_->nodes[between], root_of(set_rows))) {
            return;
        }
    }
    if (!is_next && !is_ready(set_rows->src[1])) {
        return;
    }
    path->set_rows_node = set_rows;
    path->call_node = is_next ? set_rows : graph_->nodes[last];
}

bool PathFinder::is_ready(const ggml_tensor *tensor) {
    const auto [known, is_new] = known_.try_emplace(tensor);
    if (is_new) {
        known->second = is_input(graph_, tensor);
    }
    return known->second;
}

const char *PathFinder::find_rope(int i, Neighbours wanted, KvPath *path) {
    path->rope_node = graph_->nodes[i];
    if (const char *why = read_rope(*path->rope_node, &path->rope)) {
        return why;
    }
    if (!is_ready(path->rope.positions)) {
        return "the graph itself makes the positions";
    }
    if (path->rope.factors != nullptr && !is_ready(path->rope.factors)) {
        return "the graph itself makes the frequency factors";
    }
    path->x = path->heads = path->rope.x;
    if (wanted.norm && path->x->ne[2] >= norm_from) {
        find_norm(graph_, i, path);
    }
    if (wanted.hadamard) {
        find_hadamard(graph_, i, path);
    }
    return nullptr;
}

const char *PathFinder::find(int i, Neighbours wanted, KvPath *out) {
    KvPath path = {};
    const bool is_rotated = hadamard_size(*graph_->nodes[i]) == 0;
    if (const char *why = is_rotated ? find_rope(i, wanted, &path) : find_hadamard_without_rope(graph_, i, &path)) {
        return why;
    }
    int last = i;
    while (graph_->nodes[last] != path.last()) {
        ++last;
    }
    path.call_node = path.last();
    if (wanted.cache) {
        find_cache(last, &path);
    }
    if (!is_rotated && path.set_rows_node == nullptr) {
        return "there is no cache behind it";
    }
    *out = path;
    return nullptr;
}

}  // namespace halyard_ggml
