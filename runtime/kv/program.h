// What a run of a plan with stages has beside its program: the arrays of the stages and the slots, all but their
// addresses.
#pragma once

#include "base/share.h"
#include "core/memory.h"
#include "core/program.h"
#include "kv/plan.h"
#include "kv/slots.h"

namespace halyard {

/// An array that a tensor's stages read or write.
struct BoundArray {
    Lattice elements;  // without its address; a cache's are CacheDesc::elements
    Reach reach;
};

/// What the caller calls it, and who asks for it.
struct ArrayWords {
    ArgumentName name;
    const char *asked_by;
};
inline constexpr ArrayWords array_words[n_arrays] = {
    {{"stages[%d].weight", "args.weights[%d]"}, "a norm with a weight"},
    {{"stages[%d].bias", "args.biases[%d]"}, "a norm with a bias"},
    {{"stages[%d].scales", "args.scales[%d]"}, "static scales"},
    {{"stages[%d].scales_out", "args.scales_out[%d]"}, "dynamic scales"},
    {{"stages[%d].cache", "args.caches[%d]"}, "a cache"},
    {{"stages[%d].position_scales", "args.position_scales[%d]"}, "scales by position"},
    {{"stages[%d].group_scales", "args.group_scales[%d]"}, "groups with scales apart"},
    {{"stages[%d].from_group_scales", "args.from_group_scales[%d]"}, "from_groups with scales apart"}};

inline const ArrayWords &words_of(Array array) noexcept { return array_words[static_cast<int>(array)]; }

struct KvTensorProgram {
    const Steps *steps;
    BoundArray arrays[n_arrays];  // those that are asked for
    ProgramTensor direct;  // the tensor as a kernel rotates it without blocks: from x to y, to a cache or to words
};

struct KvProgram {
    Slots slots;  // not given where no token is stored in a cache
    bool rerotates;
    const halyard_angle_source *from_angles;  // where keys come from; set only where the plan rerotates
    Positions from_positions;
    KvTensorProgram tensors[HALYARD_MAX_TENSORS];
};

/// The pointers that a call brings for stages, by tensor and Array.
struct KvPointers {
    char *of_tensor[HALYARD_MAX_TENSORS][n_arrays];
    const void *slots;
    unsigned char *scratch;
    const void *from_positions;
};

/// Those that are among the arguments of a run.
KvPointers kv_pointers(const halyard_plan &plan, const halyard_run_args &args) noexcept;

inline char *address(const void *data) noexcept { return static_cast<char *>(const_cast<void *>(data)); }

/// Checks a run's stages, slots and moves, all but pointers, for a program that was bound.
halyard_status bind_kv(const Program &program, const halyard_run_args &args, KvProgram *out,
                       halyard_error *error) noexcept;

/// Whether a run writes tokens to caches only, so that those without a slot are written nowhere.
bool stores_in_caches_only(const Program &program, const KvProgram &kv) noexcept;

/// Checks that all arrays are there, scales that are only read, and that nothing written shares elements with anything
/// else.
halyard_status check_kv_memory(const Program &program, const KvProgram &kv, const Pointers &given,
                               const KvPointers &arrays, halyard_error *error) noexcept;

/// Checks that and all other values, and does a call of a plan with stages, or a share of it.
halyard_status call_kv(const Program &program, const KvProgram &kv, const Pointers &given, const KvPointers &arrays,
                       const Share &share, halyard_error *error) noexcept;

}  // namespace halyard
