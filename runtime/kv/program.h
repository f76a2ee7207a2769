// What a run of a plan with stages has beside its program: the arrays of the stages and the slots, all but their
// addresses.
#pragma once

#include "base/share.h"
#include "core/memory.h"
#include "core/program.h"
#include "kv/plan.h"

#include <cstddef>

namespace halyard {

/// An array that a tensor's stages read or write.
struct BoundArray {
    Lattice elements;  // without its address; not set of a cache, see CacheDesc::elements
    Reach reach;
};

/// What the caller calls it, who asks for it, and where halyard_stages has its address.
struct ArrayWords {
    ArgumentName name;
    const char *needed_by;
    std::size_t field;
};
inline constexpr ArrayWords array_words[n_arrays] = {
    {{"args.kv.stages[%d].weight"}, "a norm with a weight", offsetof(halyard_stages, weight)},
    {{"args.kv.stages[%d].bias"}, "a norm with a bias", offsetof(halyard_stages, bias)},
    {{"args.kv.stages[%d].scales"}, "static scales", offsetof(halyard_stages, scales)},
    {{"args.kv.stages[%d].scales_out"}, "dynamic scales", offsetof(halyard_stages, scales_out)},
    {{"args.kv.stages[%d].cache"}, "a cache", offsetof(halyard_stages, cache)},
    {{"args.kv.stages[%d].position_scales"}, "scales by position", offsetof(halyard_stages, position_scales)},
    {{"args.kv.stages[%d].group_scales"}, "groups with scales apart", offsetof(halyard_stages, group_scales)},
    {{"args.kv.stages[%d].from_group_scales"},
     "from_groups with scales apart",
     offsetof(halyard_stages, from_group_scales)}};
inline const ArrayWords &words_of(Array array) noexcept { return array_words[static_cast<int>(array)]; }

/// The arrays that are written, a bit for each.
inline constexpr unsigned written_arrays = 1u << static_cast<int>(Array::scales_out) |
                                           1u << static_cast<int>(Array::cache) |
                                           1u << static_cast<int>(Array::group_scales);

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

/// What a run brings for the KV path; nothing where args.kv is NULL.
inline const halyard_kv_args &kv_args_of(const halyard_run_args &args) noexcept {
    static constexpr halyard_kv_args none = {};
    return args.kv == nullptr ? none : *args.kv;
}

/// Checks the sizes of all structs that a run or a bound run brings. kv may be NULL.
halyard_status check_kv_args(const halyard_plan &plan, const halyard_kv_args *kv, halyard_error *error) noexcept;

/// The pointers in them, once their sizes were checked.
KvPointers kv_pointers(const halyard_plan &plan, const halyard_kv_args *kv) noexcept;

/// Checks a run's stages, slots and moves, all but pointers, for a program that was bound.
halyard_status bind_kv(const Program &program, const halyard_run_args &args, KvProgram *out,
                       halyard_error *error) noexcept;

/// Checks by which sources and positions the keys of a run move, and the positions' form. (rerotate.cpp)
halyard_status bind_moves(const Program &program, const halyard_run_args &args, KvProgram *out,
                          halyard_error *error) noexcept;

/// Fills in how a tensor is rotated without blocks: from x to y, or to a cache, or to dense words.
void bind_direct(const Program &program, int index, bool to_words, ProgramTensor *out) noexcept;

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
