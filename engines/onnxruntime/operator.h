// What ONNX Runtime asks of an operator, told by what its kernel says of itself.
#pragma once

#include "angles.h"
#include "inputs.h"
#include "runs.h"

#include <cstddef>
#include <iterator>
#include <memory>

namespace halyard_onnxruntime {

/// An output that may take the memory of an input.
struct Place {
    int input, output;
};

/// What the kernels of all operators have. Each says beside it, as static members, what Operator reads below.
class RotatingKernel {
public:
    virtual ~RotatingKernel() = default;

    /// Called by any number of threads at once.
    OrtStatusPtr ComputeV2(OrtKernelContext *context) noexcept {
        return guard([&] { compute(Ort::KernelContext(context)); });
    }

protected:
    /// Of the inputs, cos_index is cos_cache's; sin_cache and position_ids follow.
    RotatingKernel(const Ort::ConstKernelInfo &info, halyard::dtype dtype, std::size_t cos_index)
        : dtype_(dtype), attributes_(info), cos_(info, cos_index, "cos_cache"), sin_(info, cos_index + 1, "sin_cache"),
          angles_(read_angle_source(info)), runs_(angles_) {
        if (attributes_.axes && angles_ != nullptr) {
            refuse(HALYARD_ERROR_MISMATCH, "mrope_section is for cos_cache and sin_cache, and not for inv_freq");
        }
    }

    virtual void compute(const Ort::KernelContext &context) = 0;

    halyard::dtype dtype_;
    RotationAttributes attributes_;
    Table cos_, sin_;
    std::shared_ptr<const halyard::angle_source> angles_;  // the node's own; NULL where it has tables
    Runs runs_;
};

/// An operator of one dtype.
template <typename Kernel>
class Operator : public Ort::CustomOpBase<Operator<Kernel>, Kernel, true> {
public:
    explicit Operator(ONNXTensorElementDataType type) : type_(type) {
        this->InferOutputShapeFn = [](const OrtCustomOp *, OrtShapeInferContext *context) -> OrtStatusPtr {
            return guard([&] { Kernel::infer_shapes(context); });
        };
        // Which outputs may take which inputs' memory.
        this->GetMayInplace = [](int **inputs, int **outputs) {
            constexpr auto n = std::size(Kernel::places);
            *inputs = new int[n];
            *outputs = new int[n];
            for (std::size_t i = 0; i < n; ++i) {
                (*inputs)[i] = Kernel::places[i].input;
                (*outputs)[i] = Kernel::places[i].output;
            }
            return n;
        };
        this->ReleaseMayInplace = [](int *inputs, int *outputs) {
            delete[] inputs;
            delete[] outputs;
        };
    }

    const char *GetName() const { return Kernel::name; }
    std::size_t GetInputTypeCount() const { return std::size(Kernel::inputs); }
    ONNXTensorElementDataType GetInputType(std::size_t index) const {
        return Kernel::inputs[index].is_int64 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 : type_;
    }
    OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(std::size_t index) const {
        return Kernel::inputs[index].is_required ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
    }
    std::size_t GetOutputTypeCount() const { return Kernel::n_outputs; }
    ONNXTensorElementDataType GetOutputType(std::size_t) const { return type_; }
    OrtStatusPtr CreateKernelV2(const OrtApi &, const OrtKernelInfo *info, void **kernel) const noexcept {
        return guard([&] { *kernel = new Kernel(Ort::ConstKernelInfo(info), dtype_of(type_)); });
    }

private:
    ONNXTensorElementDataType type_;
};

}  // namespace halyard_onnxruntime
