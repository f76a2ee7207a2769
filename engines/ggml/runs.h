// Calls of Halyard that take the place of nodes.
#pragma once

#include "angles.h"
#include "kv_path.h"

#include <halyard/halyard_kv.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace halyard_ggml {

/// What a bound run depends on.
struct RunKey {
    std::array<std::int64_t, 4> shape;    // batch, tokens, heads, head_dim in elements of a head
    std::array<std::int64_t, 4> in, out;  // strides, in elements, of the same; of a cache's batch 0
    std::int64_t rotary_dim;              // 0: nothing rotates
    std::int64_t offset, n_slots;         // 0 slots: there is no cache
    std::int64_t stride_slot_numbers;
    std::int64_t hadamard;  // n of the transform, or 0
    halyard::dtype in_dtype, out_dtype;
    std::int32_t groups;  // HALYARD_GROUPS_… of the output, or 0
    std::int32_t slot_type;
    float eps;
    bool is_half, is_inverse, is_in_place, is_move, has_norm, norm_is_of_rows, has_weight;

    bool operator==(const RunKey &) const = default;
};

/// A KV path that Halyard has taken, or why it has not.
struct BoundRun {
    halyard::plan plan;
    halyard::bound_run run;
    std::string why_not;
};

/// The runs that were bound to some tokens' rows. A model has a few kinds of nodes.
class Runs : public halyard::run_cache<RunKey, BoundRun> {
public:
    Runs() : run_cache(64) {}
};

/// A call with its pointers. ggml's threads make it together.
struct Call {
    std::shared_ptr<AngleMaker> maker;  // NULL: nothing rotates
    std::shared_ptr<TokenRows> rows;    // NULL: nothing rotates, or keys move
    std::shared_ptr<const BoundRun> bound;
    const void *x = nullptr;
    void *y = nullptr;
    const void *weight = nullptr;
    const void *slots = nullptr;
    void *cache = nullptr;
    const void *shifts = nullptr;    // int32, by how much keys move
    halyard_error *error = nullptr;  // what the first thread's part came to

    void operator()(int part, int n_parts);
};

/// Binds a KV path. Fills in `call`, or returns why not.
std::string bind(Angles &angles, const KvPath &path, Call *call);
std::string bind(Angles &angles, const Move &move, Call *call);

}  // namespace halyard_ggml
