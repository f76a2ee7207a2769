// Calls of Halyard, bound once for each shape and made on ONNX Runtime's own threads.
#pragma once

#include "ort.h"

#include <halyard/halyard.hpp>

#include <array>
#include <cstdint>
#include <memory>

namespace halyard_onnxruntime {

/// Of a dtype that an operator takes.
constexpr std::int64_t element_bytes(halyard::dtype dtype) { return dtype == halyard::dtype::f32 ? 4 : 2; }

/// The cos and sin that a node is given: rows by position, or a row for each token.
struct Rows {
    bool are_given = false;  // else the angles are the node's own
    std::int64_t n_rows = 0;
    bool are_by_token = false;

    bool operator==(const Rows &) const = default;
};

enum class Positions { none, one_start, each };

/// Which of three axes (time, height, width) of its token's positions a pair reads, by com.microsoft's
/// MRotaryEmbedding.
struct Axes {
    std::array<std::int64_t, 3> sections = {};  // pairs of each; all 0: positions have one axis
    bool are_interleaved = false;

    explicit operator bool() const { return sections != std::array<std::int64_t, 3>{}; }
    bool operator==(const Axes &) const = default;
};

/// One tensor of a call: strides are in elements, of batch, tokens and heads.
struct TensorKey {
    std::int64_t n_heads = 0;
    std::array<std::int64_t, 3> in = {}, out = {};
    bool is_rotated = true, has_norm = false, has_cache = false, is_in_place = false;

    bool operator==(const TensorKey &) const = default;
};

/// Everything that a bound run depends on.
struct RunKey {
    halyard::dtype dtype = {};
    std::int64_t n_batch = 0, n_tokens = 0, head_dim = 0, rotary_dim = 0;
    bool is_interleaved = false;
    float epsilon = 0;
    std::int64_t n_slots = 0;  // of the cache of one batch row
    Positions positions = {};
    Axes axes;
    Rows rows;
    int n_tensors = 1;
    std::array<TensorKey, 3> tensors;

    bool operator==(const RunKey &) const = default;
};

/// What a call brings for each tensor, as RunKey::tensors; slots are a start for each batch row.
struct Pointers {
    std::array<const void *, 3> x = {};
    std::array<void *, 3> y = {};
    std::array<const void *, 3> weights = {};
    std::array<void *, 3> caches = {};
    const void *cos = nullptr, *sin = nullptr;
    const void *positions = nullptr;
    const void *slots = nullptr;
};

/// A run, and the rows that it was bound to, if rows are given.
struct BoundRun {
    halyard::angle_source rows;
    const void *cos = nullptr, *sin = nullptr;  // where they lay
    halyard::plan plan;
    halyard::bound_run run;
    int n_parts = 1;
};

/// The calls of one node. Threads may run it at the same time.
class Runs {
public:
    /// own: the node's angles; NULL where rows are given.
    explicit Runs(std::shared_ptr<const halyard::angle_source> own) : own_(std::move(own)) {}

    /// Throws halyard::error; nothing has been written then.
    void run(const Ort::KernelContext &context, const RunKey &key, const Pointers &pointers);

private:
    BoundRun make(const RunKey &key, const Pointers &pointers) const;

    std::shared_ptr<const halyard::angle_source> own_;
    halyard::run_cache<RunKey, BoundRun> known_{16};  // prompts come in many lengths, but a step of decoding in one
};

}  // namespace halyard_onnxruntime
