// The KV part of a plan: each tensor's stages, and the list of steps that do them.
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

// ---- Steps: functions that work on a block of heads and tokens. Each is in the file of its stage -------------------

using RunStep = void(const KvCall &call, Block &block) noexcept;  // the type of the functions that follow

/// Where a step loads from or stores to: a view, x or y, or a cache. Tokens without a slot are loaded as zeros and not
/// stored.
enum class Where { view, cache };

// convert.cpp. load takes heads of contiguous elements in x, load_parts any. If the elements of a head are scattered in
// the output, narrow_to_words converts to dense words instead of store, and store_words copies these. (To call a kernel
// for every few elements is too slow.)
RunStep load, narrow_to_words;
template <Where where>
struct Conversion {
    static RunStep load_parts, store, store_words;
};
// groups.cpp. Convert records to floats and back.
template <Where where>
struct Records {
    static RunStep load, load_q8, store, store_q8;
};
// norm.cpp. load_and_norm takes little more time than load. norm_and_rotate_… is one kernel for whole heads;
// norm_and_rotate_to_words writes to words in the workspace.
RunStep norm, load_and_norm, norm_and_rotate_to_words, norm_and_rotate_to_view, norm_and_rotate_to_cache;
// rotation.cpp. rotate_block works in place, rotate_to_other_pairing does not. The others also copy tensors that are
// not rotated.
RunStep rotate_block, rotate_to_other_pairing, rotate_to_words, rotate_to_view, rotate_to_cache;
// scale.cpp. The first multiplies the block; the others set the factors by which the store multiplies. The block of a
// key that is re-rotated has elements as stored: if they are renewed, dynamic scales depend on the key's old one.
RunStep multiply_by_position_scales, set_factors_by_position_scales, set_factors_by_static_scales;
template <Where where, bool are_renewed>
struct DynamicScales {
    static RunStep make;
};
RunStep hadamard;

/// The longest head that is processed in blocks, and the most elements, heads and groups of a block.
inline constexpr std::int64_t max_head = 2048, block_floats = 8192, block_heads = 2048, block_groups = 256;

struct Step {
    const char *name;  // for halyard_explain_plan
    RunStep *run;
};

/// How many heads and tokens of a tensor go through the steps at once.
struct BlockLimits {
    std::int64_t heads, tokens, heads_and_tokens;  // the most, and the most of heads times tokens
    std::int64_t tokens_of_line;                   // there are fewer heads if so many tokens leave room for fewer only
};

/// The steps of a tensor, in the order in which they run: on one block after the other in a thread's workspace, or, if
/// one kernel that does all stages writes to the output, on all tokens at once.
struct Steps {
    static constexpr int most = 12;  // the longest list has 8
    Step list[most];
    int n = 0;
    enum class Direct { no, to_output, to_words } direct = Direct::no;  // where one kernel that does all stages writes
    Scatter scatter = Scatter::none;                                    // of the elements of a head in the output
    BlockLimits limits = {};

    bool in_blocks() const noexcept { return direct != Direct::to_output; }
};

/// The arrays that a run passes for a tensor's stages: pointers of halyard_stages.
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
struct KvTensorPlan {
    std::optional<NormDesc> norm;
    bool position_scales = false;  // each token is multiplied by a factor
    std::int64_t hadamard = 0;     // how many elements a transform has, or 0
    std::optional<ScaleDesc> scale;
    std::optional<GroupsDesc> groups, from_groups;  // formats of records that are written, and read
    std::int64_t most_heads = block_heads;          // of a block: there must be room for their groups' scales
    std::optional<CacheDesc> cache;
    std::uint8_t needed = 0;  // the arrays that a run must pass, a bit for each Array
    static_assert(n_arrays <= 8);
    const Kernel *block_rotation = nullptr;  // rotates blocks of floats; in place if pairing and out_pairing are equal
    Steps steps[2][2];                       // [x is scattered][y is scattered; with a cache, both entries are alike]

    bool needs(Array array) const noexcept { return (needed >> static_cast<int>(array) & 1) != 0; }
};

struct KvPlan {
    bool rerotates = false;   // cached keys are rotated from one position to another
    bool has_cache = false;   // of any tensor; else a run has no slots
    bool norms_rows = false;  // of any tensor; then a share has all heads of its tokens
    const StageKernels *kernels = nullptr;
    KvTensorPlan tensors[HALYARD_MAX_TENSORS];
};

/// The KV part of a plan; one without any stages if the plan has none.
inline const KvPlan &kv_of(const halyard_plan &plan) noexcept {
    static const KvPlan none = {};
    return plan.kv_plan != nullptr ? *plan.kv_plan : none;
}

/// Checks the stages of *plan, and sets *out and those fields of *plan that stages change. read_plan has set all other
/// fields. *out stays NULL if no tensor has stages.
halyard_status read_kv_plan(const PlanReading &given, halyard_plan *plan, std::shared_ptr<KvPlan> *out,
                            halyard_error *error) noexcept;

/// Chooses kernels. Fails if no allowed target has kernels for stages.
halyard_status resolve_kv_plan(const halyard_plan &plan, TargetSet allowed, KvPlan *out, halyard_error *error) noexcept;

/// Appends a line with the steps of a tensor that is not plain, and the choice of its rotation kernel.
void explain_steps(Text &text, const halyard_plan &plan, const KvPlan &kv_plan, int index, TargetSet allowed) noexcept;

}  // namespace halyard
