// Reads X in one of its three layouts, and rotates it.
#include "rotary_embedding.h"

#include <cstring>
#include <utility>
#include <vector>

namespace halyard_onnxruntime {

namespace {

/// Reads the shape of X, [batch, tokens, heads * head_dim], [batch, heads, tokens, head_dim] or, tokens first, [batch,
/// tokens, heads, head_dim], whose output is [batch, heads, tokens, head_dim].
void read_shape(const Input &x, const Input &cos, const RotationAttributes &attributes, bool has_tokens_first,
                RunKey *key) {
    TensorKey &tensor = key->tensors[0];
    const auto &shape = x.shape;
    if (x.rank() == 3) {
        std::int64_t n_heads = attributes.num_heads;
        if (n_heads == 0 && attributes.rotary_dim == 0 && cos.rank() > 0 && cos.shape.back() > 0) {
            n_heads = shape[2] / (2 * cos.shape.back());  // as com.microsoft's has it: whole heads are rotated
        }
        if (n_heads == 0 || shape[2] % n_heads != 0) {
            refuse(HALYARD_ERROR_SHAPE, "X is ", x.shape_text(), ", which num_heads = ", attributes.num_heads,
                   " does not split into heads");
        }
        key->n_batch = shape[0];
        key->n_tokens = shape[1];
        key->head_dim = shape[2] / n_heads;
        tensor.n_heads = n_heads;
        tensor.in = {shape[1] * shape[2], shape[2], key->head_dim};
        tensor.out = tensor.in;
        return;
    }
    if (x.rank() != 4) {
        refuse(HALYARD_ERROR_SHAPE, "X is ", x.shape_text(), ", but must have 3 or 4 dimensions");
    }
    key->n_batch = shape[0];
    key->n_tokens = shape[has_tokens_first ? 1 : 2];
    key->head_dim = shape[3];
    tensor.n_heads = shape[has_tokens_first ? 2 : 1];
    const auto stride_batch = shape[1] * shape[2] * shape[3];
    tensor.out = {stride_batch, key->head_dim, key->n_tokens * key->head_dim};
    tensor.in = has_tokens_first ? std::array{stride_batch, tensor.n_heads * key->head_dim, key->head_dim} : tensor.out;
}

std::vector<std::int64_t> output_shape(const Input &x, const RunKey &key, bool has_tokens_first) {
    if (x.rank() == 4 && has_tokens_first) {
        return {key.n_batch, key.tensors[0].n_heads, key.n_tokens, key.head_dim};
    }
    return x.shape;
}

/// Copies what lies behind the first n heads of each token from X to Y.
void copy_other_heads(const RunKey &key, std::int64_t n, const Pointers &pointers) {
    const auto bytes_of_head = key.head_dim * element_bytes(key.dtype);
    const auto stride = key.tensors[0].in[1] * element_bytes(key.dtype), first = n * bytes_of_head;
    for (std::int64_t token = 0; token < key.n_batch * key.n_tokens; ++token) {
        const auto at = token * stride + first;
        std::memcpy(static_cast<char *>(pointers.y[0]) + at, static_cast<const char *>(pointers.x[0]) + at,
                    static_cast<std::size_t>(stride - first));
    }
}

}  // namespace

// ONNX Runtime asks the first operator of a name for those of all dtypes.
void RotaryEmbedding::infer_shapes(OrtShapeInferContext *context) {
    const OrtApi &api = Ort::GetApi();
    OrtTensorTypeAndShapeInfo *info = nullptr;  // the context's
    Ort::ThrowOnError(api.ShapeInferContext_GetInputTypeShape(context, 0, &info));
    const Ort::ConstTensorTypeAndShapeInfo x(info);
    const OrtOpAttr *layout = nullptr;
    if (auto *status = api.ShapeInferContext_GetAttribute(context, "tokens_first", &layout)) {
        api.ReleaseStatus(status);
    }
    std::int64_t has_tokens_first = 0;
    std::size_t n_bytes = 0;
    if (layout != nullptr) {
        Ort::ThrowOnError(
            api.ReadOpAttr(layout, ORT_OP_ATTR_INT, &has_tokens_first, sizeof(has_tokens_first), &n_bytes));
    }
    auto shape = x.GetShape();
    std::vector<const char *> names(shape.size());
    x.GetSymbolicDimensions(names.data(), names.size());
    if (shape.size() == 4 && has_tokens_first != 0) {
        std::swap(shape[1], shape[2]);
        std::swap(names[1], names[2]);
    }
    OrtTensorTypeAndShapeInfo *y = nullptr;
    Ort::ThrowOnError(api.CreateTensorTypeAndShapeInfo(&y));
    const Ort::TensorTypeAndShapeInfo made(y);
    Ort::ThrowOnError(api.SetTensorElementType(y, x.GetElementType()));
    Ort::ThrowOnError(api.SetDimensions(y, shape.data(), shape.size()));
    Ort::ThrowOnError(api.SetSymbolicDimensions(y, names.data(), names.size()));
    Ort::ThrowOnError(api.ShapeInferContext_SetOutputTypeShape(context, 0, y));
}

RotaryEmbedding::RotaryEmbedding(const Ort::ConstKernelInfo &info, halyard::dtype dtype)
    : RotatingKernel(info, dtype, 1), has_tokens_first_(attribute<std::int64_t>(info, "tokens_first", 0) != 0),
      rotated_heads_(attribute<std::int64_t>(info, "rotated_heads", 0)) {}

void RotaryEmbedding::compute(const Ort::KernelContext &context) {
    const Input cos = cos_.read(context), sin = sin_.read(context);
    const Input x(context, inputs, 0), positions(context, inputs, 3), weight(context, inputs, 4);
    RunKey key = attributes_.start_key(dtype_);
    Pointers pointers;
    read_shape(x, cos, attributes_, has_tokens_first_, &key);
    const auto n_heads = key.tensors[0].n_heads;
    if (rotated_heads_ != 0 && (rotated_heads_ < 0 || rotated_heads_ > n_heads || x.rank() != 3)) {
        refuse(HALYARD_ERROR_SHAPE, "rotated_heads is ", rotated_heads_, ", but X is ", x.shape_text(), " with ",
               n_heads, " heads; only some of a X of three dimensions can be rotated");
    }
    key.tensors[0].n_heads = rotated_heads_ == 0 ? n_heads : rotated_heads_;
    read_angles(cos, sin, positions, angles_ != nullptr, &key, &pointers);
    read_weight(weight, 0, &key, &pointers);
    auto y = context.GetOutput(0, output_shape(x, key, has_tokens_first_));
    pointers.x[0] = x.data;
    pointers.y[0] = y.GetTensorMutableRawData();
    TensorKey &tensor = key.tensors[0];
    if (key.n_batch == 0 || key.n_tokens == 0 || tensor.n_heads == 0) {
        return;
    }
    std::vector<char> copy;
    tensor.is_in_place = pointers.x[0] == pointers.y[0];
    if (tensor.is_in_place && tensor.in != tensor.out) {
        // As many tokens as heads: ONNX Runtime took the shapes for the same.
        const auto *from = static_cast<const char *>(x.data);
        copy.assign(from, from + key.n_batch * tensor.in[0] * element_bytes(dtype_));
        pointers.x[0] = copy.data();
        tensor.is_in_place = false;
    }
    runs_.run(context, key, pointers);
    if (tensor.n_heads != n_heads && !tensor.is_in_place) {
        copy_other_heads(key, tensor.n_heads, pointers);
    }
}

}  // namespace halyard_onnxruntime
