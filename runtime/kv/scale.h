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
    std::int64_t stride_head;  // of static scales: 1 if each head has one, else 0

    std::int64_t count(std::int64_t n_heads) const noexcept { return (n_heads - 1) * stride_head + 1; }
};

/// Checks a halyard_scale_desc. `name` is for error messages.
halyard_status read_scale(const halyard_scale_desc *scale, const char *name, Dtype out_dtype, ScaleDesc *out,
                          halyard_error *error) noexcept;

/// Checks the values of a tensor's static scales and scales by position before anything is written.
halyard_status check_input_scales(const KvCall &call, int index, halyard_error *error) noexcept;

}  // namespace halyard
