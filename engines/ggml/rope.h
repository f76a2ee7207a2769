// The parameters of a ROPE node of ggml.
#pragma once

#include <cstdint>
#include <vector>

struct ggml_tensor;

namespace halyard_ggml {

/// These parameters and the frequency factors determine cos and sin of a position. As in ggml_rope_ext.
struct RopeParameters {
    std::int32_t n_dims, mode, n_ctx_orig;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    std::int32_t sections[4];

    bool operator==(const RopeParameters &) const = default;
};

/// A ROPE or ROPE_BACK node.
struct Rope {
    RopeParameters parameters;
    const ggml_tensor *x;          // [head_dim, heads, tokens, batch]
    const ggml_tensor *positions;  // int32 [n_axes, tokens]
    const ggml_tensor *factors;    // f32, at least n_pairs numbers that divide the frequencies; or NULL
    std::int64_t n_axes;           // 1 or 4
    std::int64_t n_pairs, offset;  // of the rotated window, which begins at element `offset` of a head
    bool is_half, is_inverse;      // half or interleaved pairing; ROPE_BACK or ROPE
};

/// Reads a ROPE or ROPE_BACK node into *out. Returns NULL, or the reason why ggml keeps the node: a static string.
const char *read_rope(const ggml_tensor &node, Rope *out);

/// The angle of a pair is the position on this axis times freq_base^(-2 exponent / n_dims), before any scaling.
struct PairAngle {
    int axis, exponent;
};

/// The axis and exponent of each pair, [n_pairs], as ggml_mrope_cache_init assigns them.
std::vector<PairAngle> pair_angles(const RopeParameters &parameters, std::int64_t n_pairs);

}  // namespace halyard_ggml
