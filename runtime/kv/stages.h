// The KV part of a plan: each tensor's stages, and the list of steps that do them.
#pragma once

#include "base/error.h"
#include "base/text.h"
#include "base/transpose.h"
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
struct Rows;
struct Share;
struct TokenBlock;

// ---- Steps: functions that work on a block of heads and tokens ------------------------------------------------------

using RunStep = void(const KvCall &call, Block &block) noexcept;

/// Checks the numbers that are stored with a tensor's cached keys before these are re-rotated. Slots were checked.
using CheckKeys = halyard_status(const KvCall &call, int index, halyard_error *error) noexcept;

/// Runs the steps of all tensors on a share of the heads of tokens first … last - 1, whose rows of cos and sin it finds
/// or makes. (call.cpp)
using WalkTokens = void(const KvCall &call, std::int64_t first, std::int64_t last, const Share &heads) noexcept;
WalkTokens walk_tokens, walk_moved_tokens, walk_unrotated_tokens;

/// Runs the steps of one tensor on a share of its heads, for tokens whose rows are found or made. (call.cpp)
using WalkTensor = void(const KvCall &call, int index, const TokenBlock &tokens, Rows &rows,
                        const Share &heads) noexcept;
WalkTensor walk_plain_tensor, walk_whole_heads, walk_blocks, walk_long_rms_rows, walk_long_layer_rows;

struct Step {
    const char *name;  // for halyard_explain_plan
    RunStep *run;
};

/// The longest head that is processed in blocks, and the most elements, heads and groups of a block.
inline constexpr std::int64_t max_head = 2048, block_floats = 8192, block_heads = 2048, block_groups = 256;

/// How many heads and tokens of a tensor go through the steps at once.
struct BlockLimits {
    std::int64_t heads, tokens, heads_and_tokens;  // the most, and the most of heads times tokens
    std::int64_t tokens_of_line;                   // there are fewer heads if so many tokens leave room for fewer only
};

/// The steps of a tensor, in the order in which they run: on one block after the other in a thread's workspace, or, if
/// one kernel that does all stages writes to the output, on all tokens at once.
struct Steps {
    static constexpr int most = 16;  // the longest list has 12
    Step list[most];
    int n = 0;
    int norm = 0;  // the place of the norm in the list
    WalkTensor *walk = walk_plain_tensor;
    enum class Direct { no, to_output, to_words } direct = Direct::no;  // where one kernel that does all stages writes
    bool scatters = false;            // whether the output is scattered (check_and_bind.cpp)
    CheckKeys *check_keys = nullptr;  // NULL if there is nothing to check
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
    Array from_scales = Array::from_group_scales;   // of records that are read, if they lie apart
    std::int64_t most_heads = block_heads;          // of a block: there must be room for their groups' scales
    std::optional<CacheDesc> cache;
    struct {
        CopyUnits *of_x, *of_y, *of_tile;  // for elements of x and of the output, and for tiles that are units
    } copy = {};
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
    WalkTokens *walk = walk_tokens;
    const StageKernels *kernels = nullptr;
    KvTensorPlan tensors[HALYARD_MAX_TENSORS];
};

/// Where a step loads from or stores to: a view, x or y; a cache; a cache whose heads lie in tiles, or in units: tiles
/// that are small enough to be copied each by one instruction. Tokens without a slot are loaded as zeros and not
/// stored.
enum class Where { view, cache, tiles, units };

/// A tensor's stages, whose steps are listed.
struct Listing {
    const TensorPlan &tensor_plan;
    const KvTensorPlan &stages;
    bool rerotates, x_is_scattered;
    Where from, to;  // view, cache or tiles
    Steps &steps;

    bool from_cache() const noexcept { return from != Where::view; }
    bool to_cache() const noexcept { return to != Where::view; }
    void add(const char *name, RunStep *run) const noexcept { steps.list[steps.n++] = {name, run}; }
    void add_if(bool is_done, const char *name, RunStep *run) const noexcept {
        if (is_done) {
            add(name, run);
        }
    }
};

// These functions append the steps of a stage to the list, each in its stage's file.
void list_load(const Listing &of) noexcept;  // convert.cpp
void list_store(const Listing &of) noexcept;
void list_store_of_words(const Listing &of) noexcept;
void list_load_of_records(const Listing &of) noexcept;  // groups.cpp
void list_store_of_records(const Listing &of) noexcept;
void list_norm(const Listing &of, bool is_after) noexcept;  // norm.cpp
void list_norm_and_rotation(const Listing &of) noexcept;
void list_rotation(const Listing &of) noexcept;  // rotation.cpp
void list_rotation_of_heads(const Listing &of) noexcept;
void list_position_scales(const Listing &of) noexcept;  // scale.cpp
void list_scale(const Listing &of) noexcept;
void list_hadamard(const Listing &of) noexcept;  // hadamard.cpp

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
