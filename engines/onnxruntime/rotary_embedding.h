// The operator RotaryEmbedding: that of opset 23 and of com.microsoft, with a norm before it if asked for; and
// MRotaryEmbedding of com.microsoft, where positions have three axes.
#pragma once

#include "operator.h"

namespace halyard_onnxruntime {

class RotaryEmbedding : public RotatingKernel {
public:
    static constexpr const char *name = "RotaryEmbedding";
    static constexpr InputKind inputs[] = {
        {"X", true}, {"cos_cache"}, {"sin_cache"}, {"position_ids", false, true}, {"norm_weight"}};
    static constexpr std::size_t n_outputs = 1;
    // ONNX Runtime makes use of it where X ends here, and the shapes are known to be the same.
    static constexpr Place places[] = {{0, 0}};

    /// Y has X's type and shape, with heads before tokens.
    static void infer_shapes(OrtShapeInferContext *context);

    RotaryEmbedding(const Ort::ConstKernelInfo &info, halyard::dtype dtype);

private:
    void compute(const Ort::KernelContext &context) override;

    bool has_tokens_first_;
    std::int64_t rotated_heads_;  // the first ones of a packed X, [query | key | value]; 0: all
};

}  // namespace halyard_onnxruntime
