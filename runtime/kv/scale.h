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

/// `name` is what sentences call it.
halyard_status read_scale(const halyard_scale_desc *scale, const char *name, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept;

/// Check the values of a tensor's scales before anything is written: those that are only read, of which those by
/// position must be finite; and the dynamic ones of keys that move.
halyard_status check_read_scales(const KvCall &call, int index, halyard_error *error) noexcept;
halyard_status check_moved_scales(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
