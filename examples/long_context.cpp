// A model whose context YaRN stretched, at position 200,000: how far off cos and sin are when the angle is computed in
// float32, as Hugging Face transformers does, and how far Halyard's are.
#include <halyard/halyard.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

// What Qwen2.5's documentation says to add to its config.json for long texts, with a larger factor.
static const char config[] = R"({
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1000000.0,
    "max_position_embeddings": 32768,
    "rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32768}
})";

/// The greatest difference between a row and the exact cos and sin of its angles, times attention_factor.
static double worst(const halyard_frequencies_info &frequencies, double position, const float *row) {
    const auto n_pairs = frequencies.rotary_dim / 2;
    double result = 0.0;
    for (std::int64_t k = 0; k < n_pairs; ++k) {
        // The product in long double is exact to 1e-14, also at this position.
        const auto angle = static_cast<long double>(position) * static_cast<long double>(frequencies.inv_freq[k]);
        const auto factor = static_cast<long double>(frequencies.attention_factor);
        result = std::max(result, static_cast<double>(std::fabs(row[k] - factor * std::cos(angle))));
        result = std::max(result, static_cast<double>(std::fabs(row[n_pairs + k] - factor * std::sin(angle))));
    }
    return result;
}

int main() {
    const auto frequencies = halyard::frequencies::from_config(config, std::strlen(config));
    const auto info = frequencies.info();
    std::printf("%s, rotary_dim %lld, attention_factor %.6f\n", info.method, static_cast<long long>(info.rotary_dim),
                info.attention_factor);

    const halyard::plan plan(halyard::plan_desc(frequencies, {halyard::describe_tensor(halyard::dtype::f32)}));
    std::vector<float> row(static_cast<std::size_t>(info.rotary_dim));
    const auto rows_at = [&](const halyard::angle_source &angles, std::int32_t position) {
        const auto positions = halyard::positions(&position, {1, 1});
        halyard::make_rows(plan, angles, &positions, 1, 1, row.data(), info.rotary_dim);
        return worst(info, position, row.data());
    };
    // Tables hold just the rows near the positions that are asked for; `phase` needs none.
    auto phase = halyard::make_struct<halyard_angle_source_desc>();
    phase.kind = HALYARD_ANGLES_PHASE;
    phase.last = 262143;
    auto float32 = halyard::make_struct<halyard_angle_source_desc>();
    float32.kind = HALYARD_ANGLES_TABLE;
    float32.reference = HALYARD_REFERENCE_HF_F32;
    bool fine = true;
    std::puts("position   table      phase      float32 angles");
    for (const std::int32_t position : {2000, 20000, 200000}) {
        float32.first = float32.last = position;
        const double exact = rows_at(halyard::angle_source::table(frequencies, position, position), position);
        const double by_phase = rows_at(halyard::angle_source(frequencies, phase), position);
        const double rounded = rows_at(halyard::angle_source(frequencies, float32), position);
        std::printf("%8d   %.1e    %.1e    %.1e\n", position, exact, by_phase, rounded);
        fine = fine && exact <= 1.2e-7 * info.attention_factor && by_phase <= 1.2e-7 * info.attention_factor;
        fine = fine && (position < 200000 || rounded > 1e-3);
    }
    return fine ? 0 : 1;
}
