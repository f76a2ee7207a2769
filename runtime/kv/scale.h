// Scales: by position, static ones of a tensor or head, and dynamic ones of each head of each token.
#pragma once

#include "base/storage.h"
#include "halyard/halyard_kv.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace halyard {

struct Block;
struct KvCall;

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

/// Check the values of a tensor's scales before anything is written: those that are only read, of which those by
/// position must be finite; and the dynamic ones of keys that move.
halyard_status check_read_scales(const KvCall &call, int index, halyard_error *error) noexcept;
halyard_status check_moved_scales(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
