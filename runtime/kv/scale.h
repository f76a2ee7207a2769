// Scales: by position, static ones of a tensor or head, and dynamic ones of each head of each token.
#pragma once

#include "base/storage.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

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

/// `name` is what sentences call it.
halyard_status read_scale(const halyard_scale_desc *scale, const char *name, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept;

/// Check the values of a tensor's scales before anything is written: those that are only read, of which those by
/// position must be finite; and the dynamic ones of keys that move.
halyard_status check_read_scales(const KvCall &call, int index, halyard_error *error) noexcept;
halyard_status check_moved_scales(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
