// A halyard_plan_desc that was checked.
#pragma once

#include "base/pairing.h"
#include "base/storage.h"
#include "read/cache.h"
#include "read/stage_desc.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// A halyard_tensor_desc that was checked.
struct TensorDesc {
    Dtype dtype;
    Pairing pairing, out_pairing;
    std::int64_t head_dim, rotary_offset;
    Dtype out_dtype;
    bool rotates;
    bool is_staged;  // it goes through blocks of f32; else a kernel rotates it from where it is to where it goes
    std::optional<NormDesc> norm;
    std::optional<ScaleDesc> scale;
    std::optional<CacheDesc> cache;
};

struct PlanDesc {
    std::int64_t rotary_dim;
    std::uint32_t sin_sign;  // 0x80000000 for the inverse
    std::int32_t n_tensors;
    bool rotates;       // a tensor at least
    bool rerotates;     // all tensors, from one position to another
    bool only_rotates;  // every tensor is a view that is rotated into a view, and no more
    TensorDesc tensors[HALYARD_MAX_TENSORS];
};

/// Checks everything of a description but its targets. `given` is set to a copy of it, with the defaults filled in.
halyard_status read_plan_desc(const halyard_plan_desc *desc, PlanDesc *out, halyard_plan_desc *given,
                              halyard_error *error) noexcept;

}  // namespace halyard
