// Launches of the KV path's kernels. A launch does all stages, from load to store, of its tensors.
#pragma once

#include "cuda/launch.h"
#include "kv/stages.h"

namespace halyard::cuda {

/// A launch of a plan: its kernel, and the numbers of its tensors.
struct KvLaunch {
    const KvKernel *kernel;
    int tensors[HALYARD_MAX_TENSORS];
    int n_tensors;
};

/// Why no kernel can serve a tensor on any device, naming a field of its kv; NULL if some kernel may.
const char *why_never(const halyard_plan &plan, int index) noexcept;

/// Why a kernel cannot serve a tensor of a plan on a device of this compute capability (80: 8.0); NULL if it can.
const char *why_not(const KvKernel &kernel, const halyard_plan &plan, int index, int capability) noexcept;

/// Chooses kernels for the tensors of a plan, greedily, to have few launches. Fills in out and *n_launches, or fails,
/// naming a tensor that no kernel serves.
halyard_status choose_kv_launches(const halyard_plan &plan, int capability, KvLaunch (&out)[HALYARD_MAX_TENSORS],
                                  int *n_launches, halyard_error *error) noexcept;

/// One tensor of a launch. If it has a cache, y is the address of slot 0, head 0 there, and `out` is ignored.
struct KvPiece : Heads {
    const KvTensorPlan *stages;
    Address weight;
    float reciprocal;  // of the scale; 1 where there is none
};

/// Some tokens of the tensors of a launch.
struct KvPieces {
    const KvKernel *kernel;
    KvPiece tensors[HALYARD_MAX_TENSORS];
    int n_tensors;
    std::int64_t n_tokens;
    LaunchPositions positions, slots;  // slots.place is 0 if there are none
    std::int64_t n_slots;
    bool stores_bad;  // tokens with a bad position are stored in caches, too
};

/// Enqueues one launch. Returns 0 or the kernel's error.
int launch_kv(const Launch &launch, const KvPieces &pieces, Call &call) noexcept;

/// Why a tensor's alignment, strides or heads do not allow a launch, in a few words; NULL if they do.
const char *why_not(const KvPiece &tensor) noexcept;

}  // namespace halyard::cuda
