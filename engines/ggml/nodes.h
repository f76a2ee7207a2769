// Questions about the nodes of a ggml graph, shared by kv_path.cpp, shift.cpp and replacements.cpp.
#pragma once

#include <cstdint>

struct ggml_cgraph;
struct ggml_tensor;

namespace halyard_ggml {

/// Whether ggml computes the node: it is no view, and is marked GGML_TENSOR_FLAG_COMPUTE.
bool is_computed(const ggml_tensor &node);

/// The index of the nearest computed node after i (step 1) or before it (step -1); -1 if there is none.
int computed_neighbour(const ggml_cgraph *graph, int i, int step);

/// Whether exactly one node reads node i. If one call joins node i and that reader, i's result need not be written.
bool has_one_reader(const ggml_cgraph *graph, int i);

/// Whether a tensor is node i, or a view of all elements of node i. In a chain of views, each must have one reader.
bool is_result_of(const ggml_cgraph *graph, const ggml_tensor *tensor, int i);

/// Whether a node reads or writes the memory of `root`, a tensor that is no view.
bool touches(const ggml_tensor &node, const ggml_tensor *root);

/// The tensor that a view shows; the tensor itself if it is no view.
const ggml_tensor *root_of(const ggml_tensor *tensor);

/// If the node is a Hadamard transform of every n f32 elements, returns n; else 0.
std::int64_t hadamard_size(const ggml_tensor &node);

/// Whether the tensor has a quantised type that Halyard can write, with the same bytes as ggml's CPU backend.
bool is_supported_quantised(const ggml_tensor &tensor);

}  // namespace halyard_ggml
