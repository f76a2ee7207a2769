// Counts tokens as ONNX Runtime's CPU does. A prompt, whose total_sequence_length is its number of tokens, is at 0, 1,
// … in every batch row, or from the first of position_ids on. Else batch row b's last token is at seqlens_k[b], or they
// are where position_ids says.
#include "positions.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace halyard_onnxruntime {

namespace {

void compute(const Ort::KernelContext &context) {
    const Input x(context, 0, "X"), ends(context, 1, "seqlens_k"), total(context, 2, "total_sequence_length"),
        given(context, 3, "position_ids");
    const auto count = [](const Input &input) {
        return std::accumulate(input.shape.begin(), input.shape.end(), std::int64_t{1}, std::multiplies<>());
    };
    if (x.rank() < 2 || count(ends) != x.shape[0] || count(total) != 1) {
        refuse(HALYARD_ERROR_SHAPE, "seqlens_k is ", ends.shape_text(), " and total_sequence_length ",
               total.shape_text(), ", but must have a number for each batch row of X, which is ", x.shape_text(),
               ", and one");
    }
    const auto n_batch = x.shape[0], n_tokens = x.shape[1];
    if (given && given.shape != std::vector<std::int64_t>{n_batch, n_tokens}) {
        refuse(HALYARD_ERROR_SHAPE, "position_ids is ", given.shape_text(), ", but must be [batch, tokens] = [",
               n_batch, ", ", n_tokens, "]");
    }
    const bool is_prompt = *static_cast<const std::int32_t *>(total.data) == n_tokens;
    const auto *ids = static_cast<const std::int64_t *>(given.data);
    auto *out = context.GetOutput(0, {n_batch, n_tokens}).GetTensorMutableData<std::int64_t>();
    if (ids != nullptr && !is_prompt) {
        std::copy(ids, ids + n_batch * n_tokens, out);
        return;
    }
    for (std::int64_t b = 0; b < n_batch; ++b) {
        const std::int64_t end = static_cast<const std::int32_t *>(ends.data)[b];
        const auto first = !is_prompt ? end + 1 - n_tokens : ids == nullptr || n_tokens == 0 ? 0 : ids[0];
        if (first < 0) {
            refuse(HALYARD_ERROR_POSITION, "seqlens_k[", b, "] is ", end, ", but there are ", n_tokens, " tokens");
        }
        std::iota(out + b * n_tokens, out + (b + 1) * n_tokens, first);
    }
}

}  // namespace

OrtStatusPtr PositionsKernel::ComputeV2(OrtKernelContext *context) noexcept {
    return guard([&] { compute(Ort::KernelContext(context)); });
}

PositionsOperator::PositionsOperator() {
    InferOutputShapeFn = [](const OrtCustomOp *, OrtShapeInferContext *context) -> OrtStatusPtr {
        return guard([&] {
            Ort::ShapeInferContext shapes(&Ort::GetApi(), context);
            auto shape = shapes.GetInputShape(0);
            if (shape.size() >= 2) {
                shapes.SetOutputShape(0, {shape[0], shape[1]}, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
            }
        });
    };
}

}  // namespace halyard_onnxruntime
