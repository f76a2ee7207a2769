// What a ROPE node of ggml asks for.
#pragma once

#include <cstdint>
#include <vector>

struct ggml_tensor;

namespace halyard_ggml {

/// All that cos and sin of a position depend on but the factors of the frequencies.
struct RopeParameters {
    std::int32_t n_dims, mode, n_ctx_orig;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    std::int32_t sections[4];

    bool operator==(const RopeParameters &) const = default;
};

struct Rope {
    RopeParameters parameters;
    const ggml_tensor *x;
    const ggml_tensor *positions;  // int32 [n_axes, tokens], where node->x is [head_dim, heads, tokens, batch]
    const ggml_tensor *factors;    // float [at least n_pairs], by which frequencies are divided; or NULL
    std::int64_t n_axes;           // 1 or 4
    std::int64_t n_pairs, offset;  // of the rotated window
    bool is_half, is_inverse;
};

/// Reads a ROPE or ROPE_BACK node. Returns NULL, or why it stays with ggml: a static string.
const char *read_rope(const ggml_tensor &node, Rope *out);

/// The angle of a pair is the position on this axis times freq_base^(-2 exponent / n_dims), before any scaling.
struct PairAngle {
    int axis, exponent;
};

/// As ggml_mrope_cache_init walks over the sections; [n_pairs].
std::vector<PairAngle> pair_angles(const RopeParameters &parameters, std::int64_t n_pairs);

}  // namespace halyard_ggml
