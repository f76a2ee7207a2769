// What the server of a GPU times: calls on q, k and v of a packed buffer, or on one tensor.
#pragma once

#include "device/device_memory.h"
#include "halyard/halyard_gpu.hpp"

#include <array>
#include <memory>
#include <vector>

namespace halyard::bench {

inline constexpr std::int64_t n_positions = 131072;

/// What a call does: rotate q and k, norm them before that, or all of their road: norms of q and k, their rotation, and
/// k and v into a cache of pages of 16 tokens.
enum class Job { rotate, norm, road, road_to_e4m3 };

struct Case {
    Job job;
    dtype type;
    pairing in, out;
    bool in_place;                                                       // of what is only rotated; q of a road is
    std::int64_t n_tokens, n_q_heads, n_kv_heads, head_dim, rotary_dim;  // without k and v there is one tensor
    std::int64_t offset = 0;  // of the first element in its memory, for what is not aligned
};

/// A call on device memory of its own.
class Work {
public:
    /// The source of angles must outlive this.
    Work(const halyard_gpu_queue &queue, const Case &test, const gpu_angles &angles);

    void enqueue() const { run(plan_, x_, y_, how_); }
    /// Waits until all that was enqueued is done.
    void finish() const;
    /// That it reads and writes, without cos and sin.
    std::int64_t n_bytes() const { return n_bytes_; }

private:
    halyard_gpu_queue queue_;
    std::int64_t n_bytes_ = 0;
    std::vector<std::unique_ptr<device::DeviceMemory>> memories_;
    halyard_norm_desc norm_;
    halyard_scale_desc scale_desc_ = describe_static_scales();
    halyard_cache_desc cache_;
    float scale_ = 0.5f;
    gpu_plan plan_;
    std::vector<halyard_tensor> x_, y_;
    std::array<halyard_stages, 3> stages_;
    halyard_positions positions_;
    halyard_slots slots_;
    gpu_run_options how_;

    void make_plan(const Case &test, const gpu_angles &angles);
    void place_tensors(const Case &test);
    void place_positions(std::int64_t n);
    const device::DeviceMemory &allocate(std::int64_t n_bytes, const void *data = nullptr);
};

}  // namespace halyard::bench
