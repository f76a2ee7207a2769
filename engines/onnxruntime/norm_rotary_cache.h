// The operator NormRotaryCache: q, k and v go from a projection to attention and its cache, with norms of q and k.
#pragma once

#include "operator.h"

namespace halyard_onnxruntime {

class NormRotaryCache : public RotatingKernel {
public:
    static constexpr const char *name = "NormRotaryCache";
    static constexpr InputKind inputs[] = {{"query", true},    {"key", true},        {"value", true},
                                           {"cos_cache"},      {"sin_cache"},        {"position_ids", false, true},
                                           {"past_key", true}, {"past_value", true}, {"write_indices", false, true},
                                           {"q_norm_weight"},  {"k_norm_weight"}};
    enum {  // where each is among them
        query,
        key_tensor,
        value,
        cos_cache,
        sin_cache,
        position_ids,
        past_key,
        past_value,
        write_indices,
        q_weight,
        k_weight
    };
    static constexpr std::size_t n_outputs = 3;
    // Where a session's caller has bound both to the same memory, they share it anyhow.
    static constexpr Place places[] = {{past_key, 1}, {past_value, 2}};

    /// The present caches have the shapes of the past ones.
    static void infer_shapes(OrtShapeInferContext *context);

    NormRotaryCache(const Ort::ConstKernelInfo &info, halyard::dtype dtype);

private:
    void compute(const Ort::KernelContext &context) override;

    std::int64_t kv_num_heads_;
};

}  // namespace halyard_onnxruntime
