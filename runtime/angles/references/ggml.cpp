// ggml 0.25.3 as llama-cpp-python 0.3.36 brings it: ggml_rope_cache_init and rope_yarn of ggml-cpu/ops.cpp and
// ggml_rope_yarn_corr_dims of ggml.c, with the parameters of llama.cpp's llama-context.cpp and the factors by pair that
// its conversion/*.py write. All is float32. Where a product meets a sum in YaRN's lines, they are fused as GCC fuses
// them for targets that can (its default): builds without fused multiply-add have other angles there.
#include "angles/references/ggml.h"

#include "angles/references/float_functions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace halyard {
namespace {

constexpr float pi = 0x1.921fb6p+1f;

halyard_status check(const halyard_scaling &s, halyard_error *error) noexcept {
    if (s.method == HALYARD_SCALING_DYNAMIC_NTK) {
        return refuse_frequencies(Reference::ggml, "method", "dynamic", ", which llama.cpp does not have", error);
    }
    if (s.exponent_dim != s.rotary_dim) {
        return refuse_frequencies(Reference::ggml, "exponent_dim", s.exponent_dim, ", and ggml divides by rotary_dim",
                                  error);
    }
    if (s.method == HALYARD_SCALING_PROPORTIONAL && s.factor != 1.0) {
        return refuse_frequencies(Reference::ggml, "factor", s.factor, ", and llama.cpp's proportional method has none",
                                  error);
    }
    return HALYARD_OK;
}

/// What ggml_rope_ext is told.
struct Parameters {
    std::int64_t n_dims = 0;
    float freq_base = 1.0f;
    float freq_scale = 1.0f;
    float ext_factor = 0.0f;
    float attn_factor = 1.0f;
    float low = 0.0f, high = 0.0f;          // what ggml_rope_yarn_corr_dims makes of the others
    std::unique_ptr<float[]> freq_factors;  // [n_dims / 2]; NULL: all 1
};

float get_mscale(float scale, float mscale) noexcept {
    return scale <= 1.0f ? 1.0f : std::fma(0.1f * mscale, log_float(scale), 1.0f);
}

/// llama_context's attn_factor, which undoes what ggml multiplies by.
float find_attn_factor(const halyard_frequencies &frequencies, const Parameters &parameters) noexcept {
    const halyard_scaling &s = frequencies.origin->scaling;
    if (s.method != HALYARD_SCALING_YARN) {
        return static_cast<float>(frequencies.attention_factor);
    }
    const float factor = 1.0f / parameters.freq_scale;
    float wanted = get_mscale(factor, 1.0f);
    if (s.attention_factor != 0.0) {
        wanted = static_cast<float>(s.attention_factor);
    } else if (s.mscale != 0.0 && s.mscale_all_dim != 0.0) {
        wanted =
            get_mscale(factor, static_cast<float>(s.mscale)) / get_mscale(factor, static_cast<float>(s.mscale_all_dim));
    }
    return wanted * (1.0f / std::fma(0.1f, log_float(factor), 1.0f));
}

void find_ramp(const halyard_scaling &s, Parameters &parameters) noexcept {
    const auto n_dims = static_cast<float>(parameters.n_dims);
    const auto find_pair = [&](double turns) noexcept {
        const float ratio = static_cast<float>(s.original_max_position) / (static_cast<float>(turns) * 2.0f * pi);
        return n_dims * log_float(ratio) / (2.0f * log_float(parameters.freq_base));
    };
    parameters.low = std::max(0.0f, std::floor(find_pair(s.beta_fast)));
    parameters.high = std::min(n_dims - 1.0f, std::ceil(find_pair(s.beta_slow)));
}

/// The factor that conversion/llama.py writes for a pair of Llama 3.
float find_llama3_factor(const halyard_scaling &s, std::int64_t k) noexcept {
    const auto trained = static_cast<double>(s.original_max_position);
    const auto factor = static_cast<float>(s.factor);
    const float exponent = static_cast<float>(2 * k) / static_cast<float>(s.rotary_dim);
    const float frequency = 1.0f / pow_float(static_cast<float>(s.base), exponent);
    const float wavelength = 1.0f / frequency * (2.0f * pi);
    if (wavelength < static_cast<float>(trained / s.high_freq_factor)) {
        return 1.0f;
    }
    if (wavelength > static_cast<float>(trained / s.low_freq_factor) || s.low_freq_factor == s.high_freq_factor) {
        return factor;
    }
    const float turns = 1.0f / wavelength * static_cast<float>(trained);
    const float smooth =
        (turns - static_cast<float>(s.low_freq_factor)) / static_cast<float>(s.high_freq_factor - s.low_freq_factor);
    return 1.0f / ((1.0f - smooth) / factor + smooth);
}

float find_factor(const Origin &origin, std::int64_t k) noexcept {
    const halyard_scaling &s = origin.scaling;
    switch (s.method) {
    case HALYARD_SCALING_LLAMA3: return find_llama3_factor(s, k);
    case HALYARD_SCALING_LONGROPE: return static_cast<float>(origin.chosen_factors()[k]);
    case HALYARD_SCALING_PROPORTIONAL: return k < s.rotated_dim / 2 ? 1.0f : 1e30f;  // conversion/gemma.py
    default: return 1.0f;
    }
}

class GgmlRows final : public TableRows {
public:
    explicit GgmlRows(Parameters parameters) noexcept
        : p_(std::move(parameters)), theta_scale_(pow_float(p_.freq_base, -2.0f / static_cast<float>(p_.n_dims))),
          mscale_(p_.attn_factor) {
        if (p_.ext_factor != 0.0f) {
            mscale_ *= std::fma(0.1f, log_float(1.0f / p_.freq_scale), 1.0f);
        }
    }

    void make(std::int32_t position, float *cos_row, float *sin_row) const noexcept override {
        auto theta = static_cast<float>(position);
        for (std::int64_t k = 0; k < p_.n_dims / 2; ++k) {
            const float extrapolated = p_.freq_factors != nullptr ? theta / p_.freq_factors.get()[k] : theta;
            const CosSin value = cos_sin_(find_angle(extrapolated, k), mscale_);  // rounded once, as for Hugging Face
            cos_row[k] = value.cos;
            sin_row[k] = value.sin;
            theta *= theta_scale_;
        }
    }

private:
    float find_angle(float extrapolated, std::int64_t k) const noexcept {
        const float interpolated = p_.freq_scale * extrapolated;
        if (p_.ext_factor == 0.0f) {
            return interpolated;
        }
        const float ramp = (static_cast<float>(k) - p_.low) / std::max(0.001f, p_.high - p_.low);
        const float mix = (1.0f - std::min(1.0f, std::max(0.0f, ramp))) * p_.ext_factor;
        return std::fma(interpolated, 1.0f - mix, extrapolated * mix);
    }

    Parameters p_;
    float theta_scale_;
    float mscale_;
    CosSinOfAngle cos_sin_;
};

}  // namespace

halyard_status make_ggml_rows(const halyard_frequencies &frequencies, std::unique_ptr<TableRows> *out,
                              halyard_error *error) noexcept {
    if (frequencies.origin == nullptr) {
        return refuse_frequencies(Reference::ggml, "method", "list", ", and ggml starts from a base", error);
    }
    const halyard_scaling &s = frequencies.origin->scaling;
    HALYARD_TRY(check(s, error));
    double base = s.base;
    if (s.method == HALYARD_SCALING_NTK) {  // conversion/hunyuan.py
        const auto dim = static_cast<double>(s.rotary_dim);
        base *= precise_pow(s.factor, dim / (dim - 2.0)).hi;
    }
    if (!is_base_of_engines(base)) {
        return refuse_frequencies(Reference::ggml, "base", base, ", and ggml's has to be in 1 to 2^127", error);
    }
    if (s.method == HALYARD_SCALING_YARN && static_cast<float>(base) == 1.0f) {
        return refuse_frequencies(Reference::ggml, "base", base,
                                  ", whose logarithm ggml divides by, and it is 0 in float32", error);
    }
    Parameters parameters;
    parameters.n_dims = s.rotary_dim;
    parameters.freq_base = static_cast<float>(base);
    if (s.method == HALYARD_SCALING_LINEAR || s.method == HALYARD_SCALING_YARN) {
        parameters.freq_scale = 1.0f / static_cast<float>(s.factor);
    }
    parameters.attn_factor = find_attn_factor(frequencies, parameters);
    if (!(parameters.attn_factor > 0.0f && std::isfinite(parameters.attn_factor))) {
        return refuse_frequencies(Reference::ggml, "attention_factor", frequencies.attention_factor,
                                  ", which float32 loses on its way", error);
    }
    if (s.method == HALYARD_SCALING_YARN) {
        parameters.ext_factor = 1.0f;
        find_ramp(s, parameters);
    } else if (s.method >= HALYARD_SCALING_LLAMA3) {
        parameters.freq_factors.reset(new (std::nothrow) float[static_cast<std::size_t>(frequencies.n_pairs)]);
        if (parameters.freq_factors == nullptr) {
            return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", frequencies.n_pairs, " factors");
        }
        for (std::int64_t k = 0; k < frequencies.n_pairs; ++k) {
            parameters.freq_factors.get()[k] = find_factor(*frequencies.origin, k);
        }
    }
    return make_rows_of<GgmlRows>(out, error, std::move(parameters));
}

}  // namespace halyard
