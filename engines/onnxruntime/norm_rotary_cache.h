// The operator NormRotaryCache: q, k and v go from a projection to attention and its cache, with norms of q and k.
#pragma once

#include "inputs.h"
#include "runs.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace halyard_onnxruntime {

class NormRotaryCacheKernel {
public:
    NormRotaryCacheKernel(const Ort::ConstKernelInfo &info, halyard::dtype dtype);

    /// Called by any number of threads at once.
    OrtStatusPtr ComputeV2(OrtKernelContext *context) noexcept;

private:
    void compute(const Ort::KernelContext &context);

    RotationAttributes attributes_;
    std::int64_t kv_num_heads_;
    halyard::dtype dtype_;
    Table cos_, sin_;
    std::shared_ptr<const halyard::angle_source> angles_;
    Runs runs_;
};

struct NormRotaryCache : Ort::CustomOpBase<NormRotaryCache, NormRotaryCacheKernel, true> {
    explicit NormRotaryCache(ONNXTensorElementDataType type);

    const char *GetName() const { return "NormRotaryCache"; }
    std::size_t GetInputTypeCount() const { return 11; }
    ONNXTensorElementDataType GetInputType(std::size_t index) const;
    OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(std::size_t index) const;
    std::size_t GetOutputTypeCount() const { return 3; }
    ONNXTensorElementDataType GetOutputType(std::size_t) const { return type_; }
    OrtStatusPtr CreateKernelV2(const OrtApi &api, const OrtKernelInfo *info, void **kernel) const noexcept;

private:
    ONNXTensorElementDataType type_;
};

}  // namespace halyard_onnxruntime
