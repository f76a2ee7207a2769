// What the bench of CUDA kernels times: calls on q, k and v of a packed buffer, and what they are compared with.
#pragma once

#include "device/device_memory.h"
#include "halyard/halyard_gpu.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

inline constexpr std::int64_t n_q_heads = 32, n_kv_heads = 8, head_dim = 128, n_positions = 131072;

/// What a call does: rotate q and k, or all of their road: norms of q and k, their rotation, and k and v into a cache
/// of pages of 16 tokens.
enum class Job { rotate, road, road_to_e4m3 };

struct Case {
    Job job;
    dtype type;
    pairing order;
    bool in_place;  // of what is only rotated; q of a road is
    const gpu_angles *angles;
    std::int64_t n_tokens;
};

/// A call on device memory of its own: x is packed q, k and v of every token.
class Work {
public:
    Work(const halyard_gpu_queue &queue, const Case &test);

    void enqueue() const;
    /// That it reads and writes, without cos and sin.
    std::int64_t n_bytes() const { return n_bytes_; }

private:
    halyard_gpu_queue queue_;
    std::int64_t n_bytes_ = 0;
    std::vector<std::unique_ptr<device::DeviceMemory>> memories_;
    halyard_norm_desc norm_;
    halyard_scale_desc scale_desc_;
    halyard_cache_desc cache_;
    float scale_ = 0.5f;
    gpu_plan plan_;
    std::vector<halyard_tensor> x_, y_;
    std::array<halyard_stages, 3> stages_;
    halyard_positions positions_;
    halyard_slots slots_;
    gpu_run_options how_;

    void *allocate(std::int64_t n_bytes, const void *data = nullptr);
    void place_slots(std::int64_t n);
};

/// A kernel that does nothing.
class EmptyKernel {
public:
    explicit EmptyKernel(void *stream);
    EmptyKernel(const EmptyKernel &) = delete;
    EmptyKernel &operator=(const EmptyKernel &) = delete;
    ~EmptyKernel();

    void enqueue() const;

private:
    void *stream_, *module_ = nullptr, *function_ = nullptr;
};

}  // namespace halyard::bench
