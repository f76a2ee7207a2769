// The three kinds of scales: by position; static, of a tensor or of each head; dynamic, of each head of each token.
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

/// Checks a halyard_scale_desc. `name` is for error messages.
halyard_status read_scale(const halyard_scale_desc *scale, const char *name, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept;

/// Check the values of a tensor's scales before anything is written: static scales and scales by position, which must
/// be finite; and the dynamic scales of keys that are re-rotated.
halyard_status check_input_scales(const KvCall &call, int index, halyard_error *error) noexcept;
halyard_status check_scales_to_rerotate(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
