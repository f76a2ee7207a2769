// Checks that the loaded ggml has the names, structs and results that this library expects, whatever its version.
#include "angles.h"
#include "graph.h"
#include "replacements.h"

#include <ggml-backend-impl.h>
#include <ggml-cpp.h>
#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace halyard_ggml {

namespace {

constexpr std::int64_t head_dim = 64, n_heads = 2, n_tokens = 64, n_elements = head_dim * n_heads * n_tokens;

void set(ggml_tensor *tensor, const void *values) { ggml_backend_tensor_set(tensor, values, 0, ggml_nbytes(tensor)); }

std::vector<float> floats_of(const ggml_tensor *cache) {
    std::vector<ggml_fp16_t> words(static_cast<std::size_t>(ggml_nelements(cache)));
    ggml_backend_tensor_get(cache, words.data(), 0, ggml_nbytes(cache));
    std::vector<float> floats(words.size());
    ggml_fp16_to_fp32_row(words.data(), floats.data(), ggml_nelements(cache));
    return floats;
}

constexpr std::pair<ggml_op, const char *> operations[] = {
    {GGML_OP_NONE, "NONE"},           {GGML_OP_MUL, "MUL"},           {GGML_OP_RMS_NORM, "RMS_NORM"},
    {GGML_OP_MUL_MAT, "MUL_MAT"},     {GGML_OP_CPY, "CPY"},           {GGML_OP_CONT, "CONT"},
    {GGML_OP_RESHAPE, "RESHAPE"},     {GGML_OP_SET_ROWS, "SET_ROWS"}, {GGML_OP_ROPE, "ROPE"},
    {GGML_OP_ROPE_BACK, "ROPE_BACK"}, {GGML_OP_CUSTOM, "CUSTOM"}};
constexpr std::pair<ggml_type, const char *> types[] = {{GGML_TYPE_F32, "f32"},   {GGML_TYPE_F16, "f16"},
                                                        {GGML_TYPE_BF16, "bf16"}, {GGML_TYPE_I32, "i32"},
                                                        {GGML_TYPE_Q8_0, "q8_0"}, {GGML_TYPE_Q4_0, "q4_0"}};

std::string find_changed_name() {
    for (const auto &[op, name] : operations) {
        if (std::strcmp(ggml_op_name(op), name) != 0) {
            return std::string("the operation ") + name;
        }
    }
    for (const auto &[type, name] : types) {
        if (std::strcmp(ggml_type_name(type), name) != 0) {
            return std::string("the type ") + name;
        }
    }
    return {};
}

/// Computes a layer's k of 64 tokens with and without Halyard: norm, rotation of a part of each head, store. The
/// values of ROPE's parameters are such that misplacing any of them changes the result. Returns what differs, or "".
std::string find_difference_of_graph(ggml_backend_t backend) {
    const ggml_context_ptr context(ggml_init({1 << 16, nullptr, true}));
    ggml_context *const c = context.get();
    ggml_tensor *const x = ggml_new_tensor_3d(c, GGML_TYPE_F32, head_dim, n_heads, n_tokens);
    ggml_tensor *const weight = ggml_new_tensor_1d(c, GGML_TYPE_F32, head_dim);
    ggml_tensor *const positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, n_tokens);
    ggml_tensor *const slots = ggml_new_tensor_1d(c, GGML_TYPE_I64, n_tokens);
    ggml_tensor *const cache = ggml_new_tensor_2d(c, GGML_TYPE_F16, head_dim * n_heads, n_tokens);
    ggml_tensor *const normed = ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), weight);
    ggml_tensor *const rotated = ggml_rope_ext(c, normed, positions, nullptr, 48, GGML_ROPE_TYPE_NEOX, 4096, 5e5f, 0.5f,
                                               1.0f, 1.25f, 32.0f, 2.0f);
    ggml_tensor *const rows = ggml_reshape_2d(c, rotated, head_dim * n_heads, n_tokens);
    ggml_cgraph *const graph = ggml_new_graph_custom(c, 16, false);
    ggml_build_forward_expand(graph, ggml_set_rows(c, cache, rows, slots));
    if (graph->n_nodes != ggml_graph_n_nodes(graph) || graph->nodes[0] != ggml_graph_node(graph, 0) ||
        rotated->name != ggml_get_name(rotated)) {
        return "a graph";
    }
    const ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(c, backend));
    if (buffer == nullptr) {
        throw std::bad_alloc();
    }
    std::vector<float> numbers(n_elements);
    std::vector<std::int32_t> counted(n_tokens);
    std::vector<std::int64_t> into(n_tokens);
    std::generate(numbers.begin(), numbers.end(), [i = 0.0f]() mutable { return std::sin(i += 1.0f); });
    std::iota(counted.begin(), counted.end(), 5000);
    std::iota(into.rbegin(), into.rend(), 0);
    set(x, numbers.data());
    set(weight, numbers.data());
    set(positions, counted.data());
    set(slots, into.data());
    const auto compute = [&] {
        ggml_backend_tensor_memset(cache, 0xff, 0, ggml_nbytes(cache));  // NaN
        backend->iface.graph_compute(backend, graph);
        return floats_of(cache);
    };
    const std::vector<float> theirs = compute();
    Angles angles;
    angles.begin_graph();
    Replacements replacements(angles, graph);
    replacements.edit_graph();
    const std::vector<float> ours = compute();
    replacements.restore_graph();
    Counts counts;
    replacements.add_counts(&counts);
    const bool is_near = std::equal(ours.begin(), ours.end(), theirs.begin(), [](float a, float b) {
        return std::fabs(a - b) <= 0x1p-8f * (1.0f + std::fabs(b));
    });
    return is_near && counts.replaced.size() == 1 && counts.left.empty() ? "" : "what a graph computes";
}

}  // namespace

std::string find_incompatibility(ggml_backend_dev_t device) {
    std::string differs = find_changed_name();
    if (!differs.empty()) {
        return differs;
    }
    const ggml_backend_ptr backend(ggml_backend_dev_init(device, nullptr));
    if (device->iface.get_name(device) != ggml_backend_dev_name(device) || backend == nullptr ||
        backend->iface.get_name(backend.get()) != ggml_backend_name(backend.get())) {
        return "a backend";
    }
    if (auto *const set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
            ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"))) {
        set_n_threads(backend.get(), 1);  // the small graph needs no more
    }
    return find_difference_of_graph(backend.get());
}

}  // namespace halyard_ggml
