/// The C++ interface of halyard_cuda.h, as halyard.hpp is of halyard.h: owning classes and exceptions, no logic.
///
///     const halyard::cuda_angles angles(queue, source);
///     const auto q = halyard::describe_tensor(type, 128, halyard::pairing::half);
///     const halyard::cuda_plan plan(queue, halyard::plan_desc(128, {q}), angles);
///     halyard::cuda_run_options how;
///     how.stream = stream;
///     halyard::run(plan, x, y, how);  // enqueued when it returns
#pragma once

#include "halyard/halyard.hpp"
#include "halyard/halyard_cuda.h"

namespace halyard {

/// A device (HALYARD_CUDA) with the driver's context and stream: see halyard_cuda_queue.
inline halyard_cuda_queue describe_queue(std::int32_t device, void *context, void *stream) noexcept {
    auto queue = make_struct<halyard_cuda_queue>();
    queue.device = device;
    queue.context = context;
    queue.stream = stream;
    return queue;
}

/// A copy of an angle source in device memory.
class cuda_angles : public detail::handle<halyard_cuda_angles, halyard_destroy_cuda_angles> {
public:
    using handle::handle;

    cuda_angles(const halyard_cuda_queue &queue, const angle_source &source)
        : handle(detail::create<halyard_cuda_angles>(halyard_create_cuda_angles, &queue, source.get())) {}
};

/// A description that has been checked, with its kernels loaded. The angles must outlive it.
class cuda_plan : public detail::handle<halyard_cuda_plan, halyard_destroy_cuda_plan> {
public:
    using handle::handle;

    cuda_plan(const halyard_cuda_queue &queue, const plan_desc &desc, const cuda_angles &angles)
        : cuda_plan(queue, desc.get(), angles) {}
    cuda_plan(const halyard_cuda_queue &queue, const halyard_plan_desc &desc, const cuda_angles &angles)
        : handle(detail::create<halyard_cuda_plan>(halyard_create_cuda_plan, &queue, &desc, angles.get())) {}
};

struct cuda_run_options {
    void *stream = nullptr;                        ///< NULL is the default stream
    const halyard_positions *positions = nullptr;  ///< NULL: 0, 1, 2, … in every batch row
    bad_position policy = bad_position::error;     ///< error: rotates as position 0 and sets *error_word
    std::int32_t *error_word = nullptr;
    const halyard_kv_args *kv = nullptr;  ///< slots, weights and caches in device memory, scales in host memory
};

/// Enqueues what the plan does to its tensors.
inline void run(const cuda_plan &made, const tensors &x, const tensors &y, const cuda_run_options &options) {
    auto args = make_struct<halyard_cuda_run_args>();
    args.bad_position = static_cast<std::int32_t>(options.policy);
    args.stream = options.stream;
    args.positions = options.positions;
    args.n_tensors = detail::count_tensors(x.size(), y.size());
    args.x = x.data();
    args.y = y.data();
    args.error_word = options.error_word;
    args.kv = options.kv;
    detail::call(halyard_run_cuda, made.get(), &args);
}

/// Whether HALYARD_CUDA can be used on this machine, and if not, why.
inline halyard_target_info cuda_target(std::int32_t device) {
    return detail::get_info<halyard_target_info>(halyard_get_cuda_target_info, device);
}

/// A text with a line for each kernel that serves a description's tensors on a device, and for which layouts.
inline std::string explain(std::int32_t device, const plan_desc &description) {
    const auto desc = description.get();
    return detail::read_text(halyard_explain_cuda_plan, device, &desc);
}

}  // namespace halyard
