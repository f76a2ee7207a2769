// Reads q, k, v and the caches, and takes them all down one road.
#include "norm_rotary_cache.h"

#include <array>
#include <cstring>
#include <vector>

namespace halyard_onnxruntime {

namespace {

/// Reads the shape of tensor i, [batch, tokens, heads * head_dim] or [batch, tokens, heads, head_dim].
void read_tensor(const Input &x, std::int64_t num_heads, const char *num_heads_name, std::size_t i, RunKey *key) {
    const bool is_split = x.rank() == 4;
    if (x.rank() != 3 && !is_split) {
        refuse(HALYARD_ERROR_SHAPE, x.name, " is ", x.shape_text(),
               ", but must be [batch, tokens, heads * head_dim] or ", "[batch, tokens, heads, head_dim]");
    }
    const std::int64_t n_heads = is_split ? x.shape[2] : num_heads;
    if (n_heads == 0 || (!is_split && x.shape[2] % n_heads != 0)) {
        refuse(HALYARD_ERROR_SHAPE, x.name, " is ", x.shape_text(), ", which ", num_heads_name, " = ", num_heads,
               " does not split into heads");
    }
    const std::int64_t head_dim = is_split ? x.shape[3] : x.shape[2] / n_heads;
    if (i == 0) {
        key->n_batch = x.shape[0];
        key->n_tokens = x.shape[1];
        key->head_dim = head_dim;
    } else if (x.shape[0] != key->n_batch || x.shape[1] != key->n_tokens || head_dim != key->head_dim) {
        refuse(HALYARD_ERROR_SHAPE, x.name, " is ", x.shape_text(),
               ", whose batch, tokens or head_dim are not query's ", key->n_batch, ", ", key->n_tokens, " and ",
               key->head_dim);
    }
    TensorKey &tensor = key->tensors[i];
    tensor.n_heads = n_heads;
    tensor.in = {key->n_tokens * n_heads * head_dim, n_heads * head_dim, head_dim};
    tensor.out = {tensor.in[0], head_dim, key->n_tokens * head_dim};
}

void read_cache(const Input &past, std::size_t i, RunKey *key) {
    const std::int64_t n_heads = key->tensors[i].n_heads;
    if (past.rank() != 4 || past.shape[0] != key->n_batch || past.shape[1] != n_heads ||
        past.shape[3] != key->head_dim || (i == 2 && past.shape[2] != key->n_slots)) {
        refuse(HALYARD_ERROR_SHAPE, past.name, " is ", past.shape_text(), ", but must be [batch, kv_num_heads, slots, ",
               "head_dim] = [", key->n_batch, ", ", n_heads, ", ", i == 2 ? std::to_string(key->n_slots) : "slots",
               ", ", key->head_dim, "]");
    }
    key->n_slots = past.shape[2];
    key->tensors[i].has_cache = true;
}

/// Where each batch row's tokens begin in a cache that has all rows' slots one after the other.
std::vector<std::int64_t> read_starts(const Input &indices, const RunKey &key) {
    std::vector<std::int64_t> starts(static_cast<std::size_t>(key.n_batch));
    if (indices && indices.shape != std::vector<std::int64_t>{key.n_batch}) {
        refuse(HALYARD_ERROR_SHAPE, "write_indices is ", indices.shape_text(), ", but must be [batch] = [", key.n_batch,
               "]");
    }
    for (std::size_t b = 0; b < starts.size(); ++b) {
        const std::int64_t from = indices ? static_cast<const std::int64_t *>(indices.data)[b] : 0;
        if (from < 0 || from > key.n_slots || key.n_tokens > key.n_slots - from) {
            refuse(HALYARD_ERROR_SLOT, "write_indices[", b, "] is ", from, ", from which on ", key.n_tokens,
                   " tokens have no room in ", key.n_slots, " slots");
        }
        starts[b] = static_cast<std::int64_t>(b) * key.n_slots + from;
    }
    return starts;
}

}  // namespace

void NormRotaryCache::infer_shapes(OrtShapeInferContext *context) {
    const OrtApi &api = Ort::GetApi();
    for (const std::size_t i : {0, 1}) {
        OrtTensorTypeAndShapeInfo *past = nullptr;  // the context's
        Ort::ThrowOnError(api.ShapeInferContext_GetInputTypeShape(context, past_key + i, &past));
        Ort::ThrowOnError(api.ShapeInferContext_SetOutputTypeShape(context, 1 + i, past));
    }
}

NormRotaryCache::NormRotaryCache(const Ort::ConstKernelInfo &info, halyard::dtype dtype)
    : RotatingKernel(info, dtype, cos_cache),
      kv_num_heads_(attribute<std::int64_t>(info, "kv_num_heads", attributes_.num_heads)) {
    if (kv_num_heads_ < 0) {
        refuse(HALYARD_ERROR_SHAPE, "kv_num_heads is ", kv_num_heads_, ", but must not be negative");
    }
}

void NormRotaryCache::compute(const Ort::KernelContext &context) {
    const auto input = [&](std::size_t index) { return Input(context, inputs, index); };
    const std::array<Input, 3> x = {input(query), input(key_tensor), input(value)};
    const std::array<Input, 2> past = {input(past_key), input(past_value)};
    RunKey key = attributes_.start_key(dtype_);
    Pointers pointers;
    key.n_tensors = 3;
    for (std::size_t i = 0; i < 3; ++i) {
        read_tensor(x[i], i == 0 ? attributes_.num_heads : kv_num_heads_, i == 0 ? "num_heads" : "kv_num_heads", i,
                    &key);
        pointers.x[i] = x[i].data;
    }
    key.tensors[2].is_rotated = false;
    read_cache(past[0], 1, &key);
    read_cache(past[1], 2, &key);
    read_angles(cos_.read(context), sin_.read(context), input(position_ids), angles_ != nullptr, &key, &pointers);
    read_weight(input(q_weight), 0, &key, &pointers);
    read_weight(input(k_weight), 1, &key, &pointers);
    const auto starts = read_starts(input(write_indices), key);
    pointers.slots = starts.data();

    auto y = context.GetOutput(0, {key.n_batch, key.tensors[0].n_heads, key.n_tokens, key.head_dim});
    pointers.y[0] = y.GetTensorMutableRawData();
    for (std::size_t i = 1; i < 3; ++i) {
        auto present = context.GetOutput(i, past[i - 1].shape);
        pointers.caches[i] = present.GetTensorMutableRawData();
        if (pointers.caches[i] != past[i - 1].data) {
            const auto n_elements = present.GetTensorTypeAndShapeInfo().GetElementCount();
            std::memcpy(pointers.caches[i], past[i - 1].data,
                        n_elements * static_cast<std::size_t>(element_bytes(dtype_)));
        }
    }
    if (key.n_batch != 0 && key.n_tokens != 0) {
        runs_.run(context, key, pointers);
    }
}

}  // namespace halyard_onnxruntime
