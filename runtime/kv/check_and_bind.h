// The KV part of a program: the strides and shapes of slots and of the stages' arrays, without their addresses.
#pragma once

#include "base/work_share.h"
#include "core/check_and_bind.h"
#include "core/memory.h"
#include "kv/stages.h"

#include <cstddef>

namespace halyard {

/// An array that a tensor's stages read or write.
struct BoundArray {
    Lattice elements;  // without its address; not set for a cache, see CacheDesc::elements
    Reach reach;
};

/// An array's name in error messages, the stage that needs it, and the offset of its pointer in halyard_stages.
struct ArrayTexts {
    ArgumentName name;
    const char *needed_by;
    std::size_t field;
};
inline constexpr ArrayTexts array_texts[n_arrays] = {
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
inline const ArrayTexts &texts_of(Array array) noexcept { return array_texts[static_cast<int>(array)]; }

/// The arrays that are written, a bit for each.
inline constexpr unsigned written_arrays = 1u << static_cast<int>(Array::scales_out) |
                                           1u << static_cast<int>(Array::cache) |
                                           1u << static_cast<int>(Array::group_scales);

struct KvTensorProgram {
    const Steps *steps;
    WalkTensor *walk;
    BoundArray arrays[n_arrays];  // only those that are needed are set
    TensorProgram direct;         // for Steps::direct: x and the output (y, cache or words) as the kernel sees them
};

/// An array that a call must be given.
struct NeededArray {
    int tensor;
    Array array;
};
struct NeededArrays {
    int n = 0;
    NeededArray list[HALYARD_MAX_TENSORS * n_arrays];
};

struct KvProgram {
    const KvPlan *plan;
    NeededArrays needed[2];                   // [0]: those that are only read, [1]: those that are written
    Slots slots;                              // is_given is false if no token is stored in a cache
    const halyard_angle_source *from_angles;  // keys were rotated with it; set only if the plan rerotates
    Positions from_positions;
    KvTensorProgram tensors[HALYARD_MAX_TENSORS];
};

/// The pointers of one call for its KV stages.
struct KvPointers {
    char *of_tensor[HALYARD_MAX_TENSORS][n_arrays];  // by tensor and Array
    int n_given;                                     // how many of these are not NULL
    const void *slots;
    unsigned char *scratch;
    const void *from_positions;
};

/// *kv_args, or empty arguments if it is NULL.
inline const halyard_kv_args &or_none(const halyard_kv_args *kv_args) noexcept {
    static constexpr halyard_kv_args none = {};
    return kv_args == nullptr ? none : *kv_args;
}

/// Checks the sizes of all structs in the KV arguments of a run or a bound run, and that the plan needs what they
/// describe: slots, and where keys are rotated from. kv_args may be NULL.
halyard_status check_kv_args(const halyard_plan &plan, const halyard_kv_args *kv_args, halyard_error *error) noexcept;

/// The pointers in KV arguments whose sizes were checked.
KvPointers kv_pointers(const halyard_plan &plan, const halyard_kv_args *kv_args) noexcept;

/// Checks the KV arguments of a run, except pointers, and fills in *out. (It refuses from_positions without data, and a
/// missing scratch.) `program` is bound already.
halyard_status bind_kv(const Program &program, const halyard_run_args &args, KvProgram *out,
                       halyard_error *error) noexcept;

/// For plans that rerotate: checks the angle sources and the shape of from_positions, and sets them in *out.
/// (rerotate.cpp)
halyard_status bind_moves(const Program &program, const halyard_run_args &args, KvProgram *out,
                          halyard_error *error) noexcept;

/// Fills in KvTensorProgram::direct, for tensors that one kernel processes without a block of floats: from x to y, to a
/// cache, or, if to_words, to dense words in the workspace. (rotation.cpp)
void bind_direct(const Program &program, int index, bool to_words, KvTensorProgram *of) noexcept;

/// Whether all of a run's outputs are caches, so that tokens without a slot are written nowhere.
bool stores_in_caches_only(const Program &program, const KvProgram &kv_program) noexcept;

/// Checks a call's pointers, the values of the scales that it only reads, and that no array it writes shares elements
/// with another array.
halyard_status check_kv_memory(const Program &program, const KvProgram &kv_program, const Pointers &given,
                               const KvPointers &arrays, halyard_error *error) noexcept;

/// Checks the memory and all values (slots, positions, scales of cached keys), and runs the call, or a share of it.
halyard_status call_kv(const Program &program, const KvProgram &kv_program, const Pointers &given,
                       const KvPointers &arrays, const Share &share, halyard_error *error) noexcept;

}  // namespace halyard
