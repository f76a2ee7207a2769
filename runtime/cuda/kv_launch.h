// Launches of the KV path's kernels: tensors of one kernel, from load to store.
#pragma once

#include "cuda/launch.h"
#include "kv/plan.h"

namespace halyard::cuda {

/// Which tensors of a plan go by one launch, and its kernel.
struct KvLaunch {
    const KvKernel *kernel;
    int tensors[HALYARD_MAX_TENSORS];
    int n_tensors;
};

/// What is asked of a tensor in its kv that no kernel does, whatever the device; NULL if some kernel of the list may.
const char *why_never(const halyard_plan &plan, int index) noexcept;

/// Why a kernel does not take a tensor of a plan on a device of that compute capability (80: 8.0); NULL if it does.
const char *why_not(const KvKernel &kernel, const halyard_plan &plan, int index, int capability) noexcept;

/// Shares the tensors of a plan out to kernels, as few as can be; returns the number of launches, or fails, naming a
/// tensor that no kernel takes.
halyard_status choose_kv_launches(const halyard_plan &plan, int capability, KvLaunch (&out)[HALYARD_MAX_TENSORS],
                                  int *n_launches, halyard_error *error) noexcept;

/// One tensor of a launch. Where there is a cache, y is the first head of its slot 0, and out is not looked at.
struct KvPiece : Heads {
    const KvTensor *stages;
    Address weight;
    float reciprocal;  // of the scale; 1 where there is none
};

/// Some tokens of the tensors of a launch.
struct KvPieces {
    const KvKernel *kernel;
    KvPiece tensors[HALYARD_MAX_TENSORS];
    int n_tensors;
    std::int64_t n_tokens;
    LaunchPositions positions, slots;  // without slots, those have no memory
    std::int64_t n_slots;
    bool stores_bad;  // tokens whose positions have no angles are stored in caches, too
};

/// Enqueues them. Returns 0 or what a kernel returned.
int launch_kv(const Launch &launch, const KvPieces &pieces, Call &call) noexcept;

/// Why a tensor cannot be enqueued as it lies, in a few words; an empty string when it can.
const char *why_not(const KvPiece &tensor) noexcept;

}  // namespace halyard::cuda
