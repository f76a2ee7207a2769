// What several searches of a graph ask of its nodes.
#pragma once

#include <cstdint>

struct ggml_cgraph;
struct ggml_tensor;

namespace halyard_ggml {

bool is_computed(const ggml_tensor &node);

/// The nearest computed node after i (step 1), or before it (-1); -1 where there is none.
int neighbour(const ggml_cgraph *graph, int i, int step);

/// Whether node i has one reader, so that its result need not be written where that one is joined with it.
bool is_passed_on(const ggml_cgraph *graph, int i);

/// Whether a tensor is node i, or the node in another shape by views that nothing else reads.
bool is_result(const ggml_cgraph *graph, const ggml_tensor *tensor, int i);

/// Whether a node reads or writes the memory of a tensor that is no view.
bool touches(const ggml_tensor &node, const ggml_tensor *root);

/// The tensor that owns the memory.
const ggml_tensor *root_of(const ggml_tensor *tensor);

/// n, where the node is a Hadamard transform of each n floats; else 0.
std::int64_t hadamard_size(const ggml_tensor &node);

/// Whether Halyard writes what ggml's CPU backend writes for this quantised type, the groups of which are as long as
/// ggml's blocks.
bool is_record_type(const ggml_tensor &tensor);

}  // namespace halyard_ggml
