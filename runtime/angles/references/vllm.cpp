// vLLM 0.32.0, vllm/model_executor/layers/rotary_embedding: each class's _compute_inv_freq and _compute_cos_sin_cache,
// operation by operation as PyTorch does them on a CPU: numbers of Python are doubles until they meet a float32 tensor,
// and a number over a tensor is the number times the tensor's reciprocal.
#include "angles/references/vllm.h"

#include "angles/references/float_functions.h"
#include "base/storage.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace halyard {
namespace {

constexpr double pi = 0x1.921fb54442d18p+1;

halyard_status check(const halyard_scaling &s, double attention_factor, Reference reference,
                     halyard_error *error) noexcept {
    if (s.exponent_dim != s.rotary_dim) {
        return refuse_frequencies(reference, "exponent_dim", s.exponent_dim, ", and vLLM divides by rotary_dim", error);
    }
    if (s.method == HALYARD_SCALING_PROPORTIONAL && s.factor != 1.0) {
        return refuse_frequencies(reference, "factor", s.factor, ", and vLLM's proportional method has none", error);
    }
    const bool has_factor = s.method == HALYARD_SCALING_YARN || s.method == HALYARD_SCALING_LONGROPE;
    if (attention_factor != 1.0 && !has_factor) {
        return refuse_frequencies(reference, "attention_factor", attention_factor,
                                  ", and vLLM has none for their method", error);
    }
    return HALYARD_OK;
}

/// base ** (2k / rotary_dim) in float32.
class PowersOfBase {
public:
    PowersOfBase(const halyard_scaling &s, double base) noexcept
        : base_(static_cast<float>(base)), dim_(static_cast<float>(s.rotary_dim)) {}

    float operator[](std::int64_t k) const noexcept { return pow_float(base_, static_cast<float>(2 * k) / dim_); }

private:
    float base_, dim_;
};

/// The base that NTK-aware methods take in the place of s.base.
double stretch_base(const halyard_scaling &s) noexcept {
    double stretch = s.factor;  // DynamicNTKAlphaRotaryEmbedding
    if (s.method == HALYARD_SCALING_DYNAMIC_NTK) {
        const auto trained = static_cast<double>(s.original_max_position);
        const auto longest = std::max(static_cast<double>(s.seq_len), trained);
        stretch = s.factor * longest / trained - (s.factor - 1.0);
    }
    if (!(stretch > 0.0)) {
        return 0.0;  // what doubles make of a factor near 2^53
    }
    const auto dim = static_cast<double>(s.rotary_dim);
    return s.base * precise_pow(stretch, dim / (dim - 2.0)).hi;
}

/// YaRNScalingRotaryEmbedding and DeepseekScalingRotaryEmbedding.
void set_yarn(const halyard_scaling &s, std::int64_t n_pairs, float *inv_freq) noexcept {
    const auto dim = static_cast<double>(s.rotary_dim);
    const auto find_pair = [&](double turns) noexcept {
        const double ratio = static_cast<double>(s.original_max_position) / (turns * 2.0 * pi);
        return dim * precise_log(ratio).hi / (2.0 * precise_log(s.base).hi);
    };
    double low = find_pair(s.beta_fast), high = find_pair(s.beta_slow);
    if (s.no_truncate == 0) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1.0);
    high = low == high ? high + 0.001 : high;
    const PowersOfBase powers(s, s.base);
    for (std::int64_t k = 0; k < n_pairs; ++k) {
        const float extrapolated = 1.0f / powers[k];
        const float interpolated = 1.0f / (static_cast<float>(s.factor) * powers[k]);
        const float ramp = (static_cast<float>(k) - static_cast<float>(low)) / static_cast<float>(high - low);
        const float mask = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
        inv_freq[k] = interpolated * (1.0f - mask) + extrapolated * mask;
    }
}

/// Llama3RotaryEmbedding.
float scale_llama3(const halyard_scaling &s, float inv_freq) noexcept {
    const auto trained = static_cast<double>(s.original_max_position);
    const auto factor = static_cast<float>(s.factor);
    const float wavelength = 1.0f / inv_freq * static_cast<float>(2.0 * pi);
    if (wavelength < static_cast<float>(trained / s.high_freq_factor)) {
        return inv_freq;
    }
    if (wavelength > static_cast<float>(trained / s.low_freq_factor)) {
        return inv_freq / factor;
    }
    float smooth = 0.0f;
    if (s.low_freq_factor != s.high_freq_factor) {
        const float turns = 1.0f / wavelength * static_cast<float>(trained);
        smooth = (turns - static_cast<float>(s.low_freq_factor)) /
                 static_cast<float>(s.high_freq_factor - s.low_freq_factor);
    }
    return (1.0f - smooth) * inv_freq / factor + smooth * inv_freq;
}

void set_inv_freq(const Origin &origin, double base, std::int64_t n_pairs, float *inv_freq) noexcept {
    const halyard_scaling &s = origin.scaling;
    if (s.method == HALYARD_SCALING_YARN) {
        return set_yarn(s, n_pairs, inv_freq);
    }
    const PowersOfBase powers(s, base);
    for (std::int64_t k = 0; k < n_pairs; ++k) {
        if (s.method == HALYARD_SCALING_LONGROPE) {  // Phi3LongRoPEScaledRotaryEmbedding
            inv_freq[k] = 1.0f / (static_cast<float>(origin.chosen_factors()[k]) * powers[k]);
        } else if (s.method == HALYARD_SCALING_PROPORTIONAL && k >= s.rotated_dim / 2) {  // Gemma4RotaryEmbedding
            inv_freq[k] = 0.0f;
        } else {
            const float unscaled = 1.0f / powers[k];
            inv_freq[k] = s.method == HALYARD_SCALING_LLAMA3 ? scale_llama3(s, unscaled) : unscaled;
        }
    }
}

class VllmRows final : public TableRows {
public:
    VllmRows(VllmTable table, std::int64_t n_pairs, Dtype dtype) noexcept
        : table_(std::move(table)), n_pairs_(n_pairs), dtype_(dtype) {}

    void make(std::int32_t position, float *cos_row, float *sin_row) const noexcept override {
        const float t = static_cast<float>(position) / table_.position_divisor;
        for (std::int64_t k = 0; k < n_pairs_; ++k) {
            const CosSin value = cos_sin_(t * table_.inv_freq.get()[k]);
            cos_row[k] = round(value.cos * table_.factor);
            sin_row[k] = round(value.sin * table_.factor);
        }
    }

private:
    float round(float value) const noexcept {
        return dtype_ == Dtype::f16 ? F16::widen(F16::narrow(value)) : BF16::widen(BF16::narrow(value));
    }

    VllmTable table_;
    std::int64_t n_pairs_;
    Dtype dtype_;
    CosSinOfAngle cos_sin_;
};

}  // namespace

halyard_status make_vllm_table(const halyard_frequencies &frequencies, Reference reference, VllmTable *out,
                               halyard_error *error) noexcept {
    const std::int64_t n_pairs = frequencies.n_pairs;
    out->inv_freq.reset(new (std::nothrow) float[static_cast<std::size_t>(n_pairs)]);
    if (out->inv_freq == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", n_pairs, " inverse frequencies");
    }
    out->factor = static_cast<float>(frequencies.attention_factor);
    if (frequencies.origin == nullptr) {
        std::transform(frequencies.rounded_inv_freq.get(), frequencies.rounded_inv_freq.get() + n_pairs,
                       out->inv_freq.get(), [](double value) { return static_cast<float>(value); });
        return HALYARD_OK;
    }
    const halyard_scaling &s = frequencies.origin->scaling;
    HALYARD_TRY(check(s, frequencies.attention_factor, reference, error));
    const bool is_ntk = s.method == HALYARD_SCALING_NTK || s.method == HALYARD_SCALING_DYNAMIC_NTK;
    const double base = is_ntk ? stretch_base(s) : s.base;
    if (!is_base_of_engines(base)) {
        return refuse_frequencies(reference, "base", base, ", and vLLM's has to be in 1 to 2^127", error);
    }
    if (s.method == HALYARD_SCALING_LINEAR) {  // LinearScalingRotaryEmbedding
        out->position_divisor = static_cast<float>(s.factor);
    }
    set_inv_freq(*frequencies.origin, base, n_pairs, out->inv_freq.get());
    return HALYARD_OK;
}

halyard_status make_vllm_rows(const halyard_frequencies &frequencies, Reference reference,
                              std::unique_ptr<TableRows> *out, halyard_error *error) noexcept {
    const double factor = frequencies.attention_factor;
    if (reference == Reference::vllm_f16 && factor > 65504.0) {
        return refuse_frequencies(reference, "attention_factor", factor, ", and the largest f16 is 65504", error);
    }
    VllmTable table;
    HALYARD_TRY(make_vllm_table(frequencies, reference, &table, error));
    const Dtype dtype = reference == Reference::vllm_f16 ? Dtype::f16 : Dtype::bf16;
    return make_rows_of<VllmRows>(out, error, std::move(table), frequencies.n_pairs, dtype);
}

}  // namespace halyard
