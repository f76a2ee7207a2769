// The operator Positions: where com.microsoft's GroupQueryAttention takes its tokens to be.
#pragma once

#include "inputs.h"

#include <cstddef>

namespace halyard_onnxruntime {

struct PositionsKernel {
    OrtStatusPtr ComputeV2(OrtKernelContext *context) noexcept;
};

/// (X [batch, tokens, …] of any type, seqlens_k, total_sequence_length, position_ids?) -> int64 [batch, tokens].
struct PositionsOperator : Ort::CustomOpBase<PositionsOperator, PositionsKernel, true> {
    PositionsOperator();

    const char *GetName() const { return "Positions"; }
    std::size_t GetInputTypeCount() const { return 4; }
    ONNXTensorElementDataType GetInputType(std::size_t index) const {
        return index == 0   ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED
               : index == 3 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64
                            : ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
    }
    OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(std::size_t index) const {
        return index < 3 ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
    }
    std::size_t GetOutputTypeCount() const { return 1; }
    ONNXTensorElementDataType GetOutputType(std::size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64; }
    OrtStatusPtr CreateKernelV2(const OrtApi &, const OrtKernelInfo *, void **kernel) const noexcept {
        return guard([&] { *kernel = new PositionsKernel; });
    }
};

}  // namespace halyard_onnxruntime
