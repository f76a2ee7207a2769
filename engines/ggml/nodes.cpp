// Questions about the nodes of a ggml graph.
#include "nodes.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>

namespace halyard_ggml {

bool is_computed(const ggml_tensor &node) {
    return !ggml_op_is_empty(node.op) && (node.flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
}

int computed_neighbour(const ggml_cgraph *graph, int i, int step) {
    for (i += step; i >= 0 && i < graph->n_nodes; i += step) {
        if (is_computed(*graph->nodes[i])) {
            return i;
        }
    }
    return -1;
}

bool has_one_reader(const ggml_cgraph *graph, int i) { return ggml_node_has_n_uses(graph, i, 1); }

bool is_result_of(const ggml_cgraph *graph, const ggml_tensor *tensor, int i) {
    const ggml_tensor *const node = graph->nodes[i];
    for (; tensor != node; tensor = tensor->src[0]) {
        if (tensor == nullptr || !ggml_op_is_empty(tensor->op) || tensor->data != node->data ||
            tensor->type != node->type || !ggml_is_contiguous(tensor) ||
            ggml_nelements(tensor) != ggml_nelements(node) || (tensor->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
            return false;
        }
        int view = i + 1;  // a view's node comes after the node that it shows
        while (view < graph->n_nodes && graph->nodes[view] != tensor) {
            ++view;
        }
        if (view == graph->n_nodes || ggml_node_get_use_count(graph, view) != 1) {
            return false;
        }
    }
    return ggml_is_contiguous(node);
}

const ggml_tensor *root_of(const ggml_tensor *tensor) {
    return tensor->view_src == nullptr ? tensor : tensor->view_src;
}

bool touches(const ggml_tensor &node, const ggml_tensor *root) {
    const auto is_in = [&](const ggml_tensor *tensor) { return tensor != nullptr && root_of(tensor) == root; };
    return is_in(&node) || std::any_of(node.src, node.src + GGML_MAX_SRC, is_in);
}

std::int64_t hadamard_size(const ggml_tensor &node) {
    if (node.op != GGML_OP_MUL_MAT || !is_computed(node) ||
        ggml_get_op_params_i32(&node, 1) != GGML_HINT_SRC0_IS_HADAMARD || node.type != GGML_TYPE_F32 ||
        node.src[1]->type != GGML_TYPE_F32) {
        return 0;
    }
    return node.src[1]->ne[0];
}

bool is_supported_quantised(const ggml_tensor &tensor) {
    return tensor.type == GGML_TYPE_Q8_0 || tensor.type == GGML_TYPE_Q4_0;
}

}  // namespace halyard_ggml
