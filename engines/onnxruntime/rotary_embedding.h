// The operator RotaryEmbedding: that of opset 23 and of com.microsoft, with a norm before it if asked for.
#pragma once

#include "inputs.h"
#include "runs.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace halyard_onnxruntime {

class RotaryEmbeddingKernel {
public:
    explicit RotaryEmbeddingKernel(const Ort::ConstKernelInfo &info, halyard::dtype dtype);

    /// Called by any number of threads at once.
    OrtStatusPtr ComputeV2(OrtKernelContext *context) noexcept;

private:
    void compute(const Ort::KernelContext &context);

    RotationAttributes attributes_;
    halyard::dtype dtype_;
    bool has_tokens_first_;
    Table cos_, sin_;
    std::shared_ptr<const halyard::angle_source> angles_;
    Runs runs_;
};

struct RotaryEmbedding : Ort::CustomOpBase<RotaryEmbedding, RotaryEmbeddingKernel, true> {
    explicit RotaryEmbedding(ONNXTensorElementDataType type);

    const char *GetName() const { return "RotaryEmbedding"; }
    std::size_t GetInputTypeCount() const { return 5; }
    ONNXTensorElementDataType GetInputType(std::size_t index) const;
    OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(std::size_t index) const;
    std::size_t GetOutputTypeCount() const { return 1; }
    ONNXTensorElementDataType GetOutputType(std::size_t) const { return type_; }
    OrtStatusPtr CreateKernelV2(const OrtApi &api, const OrtKernelInfo *info, void **kernel) const noexcept;

private:
    ONNXTensorElementDataType type_;
};

}  // namespace halyard_onnxruntime
