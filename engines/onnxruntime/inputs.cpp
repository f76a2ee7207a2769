// Reads attributes and inputs, and says what is wrong with them.
#include "inputs.h"

#include <algorithm>

namespace halyard_onnxruntime {

OrtStatusPtr as_status(const Ort::Exception &error) noexcept {
    return Ort::GetApi().CreateStatus(error.GetOrtErrorCode(), error.what());
}

OrtStatusPtr as_status(const halyard::error &error) noexcept {
    const bool is_callers = error.status() != HALYARD_ERROR_OUT_OF_MEMORY && error.status() != HALYARD_ERROR_EXECUTOR;
    return Ort::GetApi().CreateStatus(is_callers ? ORT_INVALID_ARGUMENT : ORT_FAIL, error.what());
}

halyard::dtype dtype_of(ONNXTensorElementDataType type) {
    switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return halyard::dtype::f16;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: return halyard::dtype::bf16;
    default: return halyard::dtype::f32;
    }
}

RotationAttributes::RotationAttributes(const Ort::ConstKernelInfo &info)
    : num_heads(attribute<std::int64_t>(info, "num_heads", 0)),
      rotary_dim(attribute<std::int64_t>(info, "rotary_embedding_dim", 0)),
      is_interleaved(attribute<std::int64_t>(info, "interleaved", 0) != 0),
      epsilon(attribute<float>(info, "epsilon", 1e-5F)) {
    if (num_heads < 0) {
        refuse(HALYARD_ERROR_SHAPE, "num_heads is ", num_heads, ", but must not be negative");
    }
    if (rotary_dim < 0 || rotary_dim % 2 != 0) {
        refuse(HALYARD_ERROR_ROTARY_DIM, "rotary_embedding_dim is ", rotary_dim, ", but must be even and not negative");
    }
    const auto sections = attributes<std::int64_t>(info, "mrope_section");
    const auto layout = attribute<std::int64_t>(info, "mrope_layout", 0);
    if (sections.empty()) {
        return;
    }
    if (sections.size() != axes.sections.size() || *std::min_element(sections.begin(), sections.end()) < 0 ||
        std::count(sections.begin(), sections.end(), 0) == 3 || layout < 0 || layout > 1) {
        refuse(HALYARD_ERROR_SHAPE, "mrope_section must be three counts of pairs, and mrope_layout, which is ", layout,
               ", 0 or 1");
    }
    std::copy(sections.begin(), sections.end(), axes.sections.begin());
    axes.are_interleaved = layout == 1;
}

RunKey RotationAttributes::start_key(halyard::dtype dtype) const {
    RunKey key;
    key.dtype = dtype;
    key.rotary_dim = rotary_dim;
    key.is_interleaved = is_interleaved;
    key.epsilon = epsilon;
    key.axes = axes;
    return key;
}

Input::Input(const Ort::KernelContext &context, std::size_t index, const char *called) : name(called) {
    if (index >= context.GetInputCount()) {
        return;
    }
    const auto value = context.GetInput(index);
    if (value == nullptr) {
        return;
    }
    set(value);
}

void Input::set(const Ort::ConstValue &value) {
    is_given = true;
    shape = value.GetTensorTypeAndShapeInfo().GetShape();
    data = value.GetTensorRawData();
}

Table::Table(const Ort::ConstKernelInfo &info, std::size_t index, const char *name) : index_(index), constant_(name) {
    int is_constant = 0;
    if (index < info.GetInputCount()) {
        const auto value = info.GetTensorConstantInput(index, &is_constant);
        if (is_constant != 0) {
            constant_.set(value);
        }
    }
}

std::string Input::shape_text() const {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + "]";
}

void read_angles(const Input &cos, const Input &sin, const Input &positions, bool has_own_angles, RunKey *key,
                 Pointers *pointers) {
    const bool is_start = positions && !key->axes && positions.shape == std::vector<std::int64_t>{1};
    if (key->axes && positions.shape != std::vector<std::int64_t>{3, key->n_batch, key->n_tokens}) {
        refuse(HALYARD_ERROR_SHAPE, "position_ids is ", positions ? positions.shape_text() : "missing",
               ", but must be [3, batch, tokens] = [3, ", key->n_batch, ", ", key->n_tokens,
               "] where there is an mrope_section");
    }
    if (positions && !key->axes && !is_start &&
        positions.shape != std::vector<std::int64_t>{key->n_batch, key->n_tokens}) {
        refuse(HALYARD_ERROR_SHAPE, "position_ids is ", positions.shape_text(),
               ", but must be [1], a start for all, or ", "[batch, tokens] = [", key->n_batch, ", ", key->n_tokens,
               "]");
    }
    key->positions = is_start ? Positions::one_start : positions ? Positions::each : Positions::none;
    pointers->positions = positions.data;
    if (key->rotary_dim == 0) {
        key->rotary_dim = key->head_dim;
    }
    if (has_own_angles) {
        return;
    }
    if (!cos || !sin) {
        refuse(HALYARD_ERROR_NULL_POINTER, cos ? "sin_cache" : "cos_cache", " is missing, and inv_freq, which could ",
               "take its place, too");
    }
    if (cos.shape != sin.shape) {
        refuse(HALYARD_ERROR_SHAPE, "cos_cache is ", cos.shape_text(), ", but sin_cache ", sin.shape_text());
    }
    const bool by_token = !positions;
    const auto half = std::to_string(key->rotary_dim / 2);
    if (cos.rank() != (by_token ? 3 : 2) || cos.shape.back() != key->rotary_dim / 2 ||
        (by_token && (cos.shape[0] != key->n_batch || cos.shape[1] != key->n_tokens))) {
        refuse(HALYARD_ERROR_SHAPE, "cos_cache is ", cos.shape_text(), ", but must be ",
               by_token ? "[batch, tokens, rotary_dim / 2] = [" + std::to_string(key->n_batch) + ", " +
                              std::to_string(key->n_tokens) + ", " + half + "] where position_ids is left out"
                        : "[positions, rotary_dim / 2], with rotary_dim / 2 = " + half);
    }
    pointers->cos = cos.data;
    pointers->sin = sin.data;
    key->rows = {true, by_token ? key->n_batch * key->n_tokens : cos.shape[0], by_token};
}

void read_weight(const Input &weight, std::size_t i, RunKey *key, Pointers *pointers) {
    if (!weight) {
        return;
    }
    if (weight.shape != std::vector<std::int64_t>{key->head_dim}) {
        refuse(HALYARD_ERROR_SHAPE, weight.name, " is ", weight.shape_text(), ", but must be [head_dim] = [",
               key->head_dim, "]");
    }
    key->tensors[i].has_norm = true;
    pointers->weights[i] = weight.data;
}

}  // namespace halyard_onnxruntime
