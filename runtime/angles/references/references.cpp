#include "angles/references/references.h"

#include "angles/references/ggml.h"
#include "angles/references/vllm.h"

#include <memory>

namespace halyard {
namespace {

class ExactRows final : public TableRows {
public:
    explicit ExactRows(const halyard_frequencies &frequencies) noexcept : frequencies_(frequencies) {}

    void make(std::int32_t position, float *cos_row, float *sin_row) const noexcept override {
        make_row(frequencies_, position, cos_row, sin_row);
    }

private:
    const halyard_frequencies &frequencies_;
};

/// transformers' LlamaRotaryEmbedding.forward: freqs = inv_freq @ position, cos = freqs.cos() * attention_scaling, all
/// in float32.
class HuggingFaceRows final : public TableRows {
public:
    explicit HuggingFaceRows(const halyard_frequencies &frequencies) noexcept : frequencies_(frequencies) {}

    void make(std::int32_t position, float *cos_row, float *sin_row) const noexcept override {
        // attention_factor goes in before the one rounding: theirs rounds cos, which is itself not quite the nearest
        // float, and then the product, so that doing the same would now and then be 2 ulp from it.
        const double factor = static_cast<float>(frequencies_.attention_factor);
        for (std::int64_t pair = 0; pair < frequencies_.n_pairs; ++pair) {
            const auto inv_freq = static_cast<float>(frequencies_.rounded_inv_freq.get()[pair]);
            const CosSin value = cos_sin_(static_cast<float>(position) * inv_freq, factor);
            cos_row[pair] = value.cos;
            sin_row[pair] = value.sin;
        }
    }

private:
    const halyard_frequencies &frequencies_;
    CosSinOfAngle cos_sin_;
};

}  // namespace

const char *name_of(Reference reference) noexcept {
    switch (reference) {
    case Reference::exact: return "HALYARD_REFERENCE_EXACT";
    case Reference::hf_f32: return "HALYARD_REFERENCE_HF_F32";
    case Reference::vllm_f16: return "HALYARD_REFERENCE_VLLM_F16";
    case Reference::vllm_bf16: return "HALYARD_REFERENCE_VLLM_BF16";
    case Reference::ggml: return "HALYARD_REFERENCE_GGML";
    }
    return nullptr;
}

halyard_status refuse_frequencies(Reference reference, const Part &has, const Part &value, const Part &why,
                                  halyard_error *error) noexcept {
    return fail(error, HALYARD_ERROR_UNSUPPORTED, "desc.reference is ", name_of(reference), ", but the frequencies' ",
                has, " is ", value, why);
}

halyard_status make_table_rows(const halyard_frequencies &frequencies, Reference reference,
                               std::unique_ptr<TableRows> *out, halyard_error *error) noexcept {
    switch (reference) {
    case Reference::exact: return make_rows_of<ExactRows>(out, error, frequencies);
    case Reference::hf_f32: return make_rows_of<HuggingFaceRows>(out, error, frequencies);
    case Reference::vllm_f16:
    case Reference::vllm_bf16: return make_vllm_rows(frequencies, reference, out, error);
    case Reference::ggml: return make_ggml_rows(frequencies, out, error);
    }
    return HALYARD_ERROR_UNKNOWN_VALUE;
}

}  // namespace halyard
