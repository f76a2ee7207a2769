// Launches of the road's kernel: all stages of all tensors that one launch can take.
#pragma once

#include "gpu/gpu_kernels.h"
#include "gpu/launch.h"
#include "gpu/launch_fields.h"
#include "kv/plan.h"

namespace halyard::gpu {

/// Elements of a head that a block of the road's kernel has room for: three arrays of 4 heads and the angles of their
/// pairs take 33 of the 48 KiB of shared memory that any device has.
inline constexpr std::int64_t most_road_elements = 640;

/// One tensor of a launch.
struct RoadTensor {
    const TensorPlan *desc;
    const KvTensor *stages;
    Address x, y, weight;  // y: the first head of the first token, or of a cache's slot 0
    Strides in, out;       // out is not looked at where there is a cache
    std::int64_t n_heads;
    float reciprocal;  // of the scale; 1 where there is none
    Address x_begin;   // where the memory that it reads begins; and that it writes
    Address y_begin;
    // Of groups that lie apart from their scales, where those are. Strides are in bytes; that from block to block is 0
    // of a view.
    Address scales;
    Address scales_begin;
    std::int64_t scale_token, scale_head, scale_block;
};

/// Where a tensor's groups and their scales lie.
GroupPlace place_of(const GroupsDesc &groups) noexcept;

/// Some tokens of tensors whose dtype and head_dim are one.
struct RoadPiece {
    RoadTensor tensors[HALYARD_MAX_TENSORS];
    int n_tensors;
    std::int64_t rotary_dim, n_tokens;
    LaunchPositions positions, slots;  // without slots, those have no memory
    std::int64_t n_slots;
    bool stores_bad;  // tokens whose positions have no angles are stored in caches, too
};

/// The kernel that takes launches of such tensors alone, if their weights lie on 16 bytes; NULL where there is none. It
/// looks up angles of whole heads, even if it rotates none. (Groups have out_dtype uint8, and what is normed from an
/// offset is less than the head.)
const PlainRoadKernel *plain_road_of(const TensorPlan &desc, const KvTensor &stages, std::int64_t rotary_dim) noexcept;

/// Enqueues a piece, in as many launches as its tokens take: one, but for 2^31 words of positions. Returns 0 or what a
/// kernel returned.
int take_road_on_device(const Launch &launch, const RoadPiece &piece, Call &call) noexcept;

/// Why a tensor's road cannot be enqueued, in a few words; an empty string when it can.
const char *why_not(const RoadTensor &tensor) noexcept;

}  // namespace halyard::gpu
