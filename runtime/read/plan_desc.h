// A checked halyard_plan_desc.
#pragma once

#include "base/pairing.h"
#include "base/storage.h"
#include "read/cache.h"
#include "read/groups.h"
#include "read/stage_desc.h"

#include <cstdint>
#include <optional>

namespace halyard {

/// The arrays that a run brings for a tensor's stages.
enum StageArray : std::uint8_t {
    weight_array,
    bias_array,
    scales_array,
    scales_out_array,
    cache_array,
    position_scales_array,
    group_scales_array,
    from_group_scales_array
};
inline constexpr int n_stage_arrays = 8;

/// A checked halyard_tensor_desc.
struct TensorDesc {
    Dtype dtype;
    Pairing pairing, out_pairing;
    std::int64_t head_dim, rotary_offset;
    Dtype out_dtype;
    std::int64_t hadamard;  // elements of a block that is transformed, or 0
    bool rotates;
    bool is_staged;      // has stages beside its rotation, or lies so that kernels cannot store it (walk/blocks.h)
    std::uint8_t asked;  // a bit for each StageArray that the stages below ask for, for who need not know more
    std::optional<NormDesc> norm;
    std::optional<ScaleDesc> scale;
    std::optional<CacheDesc> cache;
    bool position_scales;                           // the run brings factors of its tokens
    std::optional<GroupsDesc> groups, from_groups;  // of records that are written, and read

    bool asks_for(StageArray array) const noexcept { return (asked >> array & 1) != 0; }

    /// The last dimensions of x and y: elements of a head, or bytes of a record.
    std::int64_t in_dim() const noexcept { return from_groups ? from_groups->record_bytes : head_dim; }
    std::int64_t out_dim() const noexcept { return groups ? groups->record_bytes : head_dim; }
};

struct PlanDesc {
    std::int64_t rotary_dim;  // 0 if no tensor is rotated
    std::uint32_t sin_sign;   // 0x80000000 for the inverse
    std::int32_t n_tensors;
    bool rotates;       // at least one tensor
    bool rerotates;     // all tensors, from one position to another
    bool only_rotates;  // no tensor has a cache or stages
    TensorDesc tensors[HALYARD_MAX_TENSORS];
};

/// Checks a description, all but its targets. `given` becomes a copy of it with defaults filled in.
halyard_status read_plan_desc(const halyard_plan_desc *desc, PlanDesc *out, halyard_plan_desc *given,
                              halyard_error *error) noexcept;

}  // namespace halyard
