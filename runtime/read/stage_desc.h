// Checked descriptions of a tensor's norm and scale. Caches are in cache.h.
#pragma once

#include "base/storage.h"
#include "halyard/halyard.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

namespace halyard {

/// The longest head that stages take, and the elements of a thread's block.
inline constexpr std::int64_t max_staged_head = 2048, max_staged_block = 8192;

/// A checked halyard_norm_desc.
struct NormDesc {
    bool row;    // norms all heads of a token together, not each by itself
    bool after;  // comes after the rotation
    bool unit_offset;
    std::int32_t rounding;  // HALYARD_NORM_ROUND_…
    float eps;
    std::optional<Dtype> weight;  // none: there is no weight
    std::int64_t offset, size;    // of the window
    bool layer;                   // takes the mean off
    bool has_bias;
    bool per_head;  // each head has weights of its own

    /// How many elements are normed together.
    std::int64_t count(std::int64_t n_heads) const noexcept { return row ? n_heads * size : size; }
    /// How many of those heads have weights of their own, as far as weights go.
    std::int64_t n_rows_of_weights(std::int64_t n_heads) const noexcept { return row || per_head ? n_heads : 1; }
    std::int64_t n_weights(std::int64_t n_heads) const noexcept { return n_rows_of_weights(n_heads) * size; }
    /// The longest row that is normed in one block. A layer norm has weights and biases where others have weights only.
    std::int64_t most_in_block() const noexcept { return layer ? max_staged_block / 2 : max_staged_block; }
};

/// A checked halyard_scale_desc.
struct ScaleDesc {
    bool dynamic;
    bool by_head;  // static scales: one for each head

    std::int64_t count(std::int64_t n_heads) const noexcept { return by_head ? n_heads : 1; }
};

/// The greatest finite number of an 8-bit dtype, for dynamic scales.
constexpr float greatest_of(Dtype dtype) noexcept {
    switch (dtype) {
    case Dtype::e4m3: return 448.0f;
    case Dtype::e5m2: return 57344.0f;
    case Dtype::int8: return 127.0f;
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
    case Dtype::uint8: break;
    }
    return 0.0f;
}

/// Checks the norm of tensor `index`, whose head_dim was checked.
halyard_status read_norm(const halyard_norm_desc *norm, int index, std::int64_t head_dim, NormDesc *out,
                         halyard_error *error) noexcept;

halyard_status read_scale(const halyard_scale_desc *scale, int index, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept;

/// Whether a scale can be used: it and its reciprocal are positive and finite.
inline bool is_scale(float scale) noexcept {
    return scale > 0.0f && scale - scale == 0.0f && 1.0f / scale <= 0x1.fffffep127f;
}

// Loads and stores of a dynamic scale in the caller's memory. They are atomic unless the scale is misaligned, because
// another part of the run may be writing the same scale.
inline bool is_word(const char *at) noexcept { return reinterpret_cast<std::uintptr_t>(at) % sizeof(float) == 0; }
inline float load_scale(const char *at) noexcept {
    return is_word(at)
               ? std::bit_cast<float>(__atomic_load_n(reinterpret_cast<const std::uint32_t *>(at), __ATOMIC_RELAXED))
               : read_word<float>(at);
}
inline void store_scale(char *at, float scale) noexcept {
    if (is_word(at)) {
        __atomic_store_n(reinterpret_cast<std::uint32_t *>(at), std::bit_cast<std::uint32_t>(scale), __ATOMIC_RELAXED);
    } else {
        std::memcpy(at, &scale, sizeof(scale));
    }
}

}  // namespace halyard
