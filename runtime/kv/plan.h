// What the KV path does with the tensors of a plan: each tensor's stages, as a list of steps.
#pragma once

#include "base/error.h"
#include "base/text.h"
#include "core/plan.h"
#include "kv/cache.h"
#include "kv/groups.h"
#include "kv/norm.h"
#include "kv/scale.h"
#include "kv/stage_kernels.h"

#include <optional>

namespace halyard {

struct Block;
struct KvCall;

// ---- Steps: each does something to a block of heads and tokens, and stands in the file of its stage ----------------

using RunStep = void(const KvCall &call, Block &block) noexcept;

// convert.cpp. Tokens that have no slot in the cache get zeros. Scattered elements are narrowed to dense words that are
// copied then, because kernels that would write few elements each would be called too often.
RunStep load, store, store_scattered, store_words;
// groups.cpp: the floats of a block from records, and to records but for tokens without a slot, which are loaded as
// zeros.
RunStep load_records, store_records;
// norm.cpp. A view is loaded and its heads are normed in one pass, which costs little more than the load alone. Whole
// heads are normed and rotated by one kernel, from x to y or to a cache, or to words in the workspace.
RunStep norm, load_and_norm, norm_and_rotate, norm_and_rotate_to_words;
// rotation.cpp. What goes to the output or to words may also be a tensor that is not rotated.
RunStep rotate_block, rotate_to_output, rotate_to_words;
// scale.cpp. Factors are what the store multiplies by. The block of a key that moves has not been multiplied by the
// key's old dynamic scale, so that goes into the new one and into the factor.
RunStep multiply_by_position_scales, take_position_scales, take_static_scales, make_dynamic_scales;
RunStep hadamard;

/// The longest head that goes through blocks, the elements of a thread's block, and the heads or groups of one.
inline constexpr std::int64_t max_head = 2048, block_floats = 8192, block_heads = 2048, block_groups = 256;

struct Step {
    const char *name;  // for explanations
    RunStep *run;
};

/// The steps of a tensor, in the order in which they are done. One that is done in blocks needs a thread's workspace;
/// else a step takes all tokens at once.
struct Steps {
    static constexpr int most = 8;  // load, norm, Hadamard, rotate, scale by position, Hadamard, scale, store
    Step list[most];
    int n = 0;
    bool in_blocks = false;
    enum class Direct { no, to_output, to_words } direct = Direct::no;  // one kernel does all but copies
};

/// The arrays that a run brings for a tensor's stages.
enum class Array : std::uint8_t {
    weight,
    bias,
    scales,
    scales_out,
    cache,
    position_scales,
    group_scales,
    from_group_scales
};
inline constexpr int n_arrays = 8;

/// The stages of one tensor.
struct KvTensor {
    std::optional<NormDesc> norm;
    bool position_scales = false;  // the run brings factors of its tokens
    std::int64_t hadamard = 0;     // elements that are transformed together, or 0
    std::optional<ScaleDesc> scale;
    std::optional<GroupsDesc> groups, from_groups;  // of records that are written, and read
    std::int64_t most_heads = block_heads;          // of a block: as many as there is room for their numbers
    std::optional<CacheDesc> cache;
    std::uint8_t needed = 0;                 // a bit for each Array
    const Kernel *block_rotation = nullptr;  // of floats, in place if the pairings are one
    Steps steps[2][2];                       // [elements of x are scattered][those of y, or of the cache, are]

    bool needs(Array array) const noexcept { return (needed >> static_cast<int>(array) & 1) != 0; }
};

struct KvPlan {
    bool rerotates = false;  // keys move from one position to another
    const StageKernels *kernels = nullptr;
    KvTensor tensors[HALYARD_MAX_TENSORS];
};

/// The stages of a plan, which may be none.
inline const KvPlan &kv_of(const halyard_plan &plan) noexcept {
    static const KvPlan none = {};
    return plan.kv != nullptr ? *plan.kv : none;
}

/// Reads the stages of the tensors of a plan whose plain part was read, and sets what they change in that. *out stays
/// NULL if all tensors are plain.
halyard_status read_kv_plan(const PlanReading &given, halyard_plan *plan, std::shared_ptr<KvPlan> *out,
                            halyard_error *error) noexcept;

/// Chooses kernels and lists the steps. Fails if no allowed target has stages.
halyard_status resolve_kv_plan(const halyard_plan &plan, TargetSet allowed, KvPlan *out, halyard_error *error) noexcept;

/// Tells the steps of a tensor that is not plain.
void explain_steps(Text &text, const halyard_plan &plan, const KvPlan &kv, int index, TargetSet allowed) noexcept;

}  // namespace halyard
