// Bound runs of Halyard, and the calls that execute them in place of a graph's nodes.
#pragma once

#include "angles.h"
#include "kv_path.h"

#include <halyard/halyard_kv.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace halyard_ggml {

/// All that a bound run (halyard_bind_run) depends on, except its angles and its pointers.
struct RunKey {
    std::array<std::int64_t, 4> shape;    // batch, tokens, heads, head_dim
    std::array<std::int64_t, 4> in, out;  // strides of input and output: in elements, or in bytes for records
    std::int64_t rotary_dim;              // 0: no rotation
    std::int64_t offset, n_slots;         // where the rotated window begins; slots of the cache, 0: no cache
    std::int64_t stride_slot_numbers;     // in numbers, from a token's slot number to the next token's
    std::int64_t hadamard;                // n of the transform, or 0
    halyard::dtype in_dtype, out_dtype;
    std::int32_t groups;  // HALYARD_GROUPS_… of the output, or 0
    std::int32_t slot_type;
    float eps;
    bool is_half, is_inverse, is_in_place, is_shift, has_norm, norm_is_of_rows, has_weight;

    bool operator==(const RunKey &) const = default;
};

/// A plan and its bound run; or the error message if Halyard refused it.
struct BoundRun {
    halyard::plan plan;
    halyard::bound_run run;
    std::string why_not;
};

/// The latest runs that were bound to one angle source. A model needs few, because its layers share them.
class Runs : public halyard::run_cache<RunKey, BoundRun> {
public:
    Runs() : run_cache(64) {}
};

/// A bound run with the pointers of one node's call. Each of ggml's threads runs its part of the call.
struct Call {
    std::shared_ptr<AngleMaker> maker;  // NULL: no rotation
    std::shared_ptr<TokenRows> rows;    // NULL: no rotation, or a shift of keys, which needs no rows
    std::shared_ptr<const BoundRun> bound;
    const void *x = nullptr;
    void *y = nullptr;
    const void *weight = nullptr;
    const void *slots = nullptr;
    void *cache = nullptr;
    const void *shifts = nullptr;    // int32 [tokens]: by how many positions each key shifts; NULL: no shift
    halyard_error *error = nullptr;  // the first thread's part writes its error here

    void operator()(int part, int n_parts);
};

/// Binds a KV path or a shift, and fills in *call. Returns an empty string, or the reason why ggml keeps the nodes.
std::string try_bind(Angles &angles, const KvPath &path, Call *call);
std::string try_bind(Angles &angles, const Shift &shift, Call *call);

}  // namespace halyard_ggml
