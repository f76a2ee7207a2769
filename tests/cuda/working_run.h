// A valid run on a CUDA device. Tests change single fields and check that the change is refused.
#pragma once

#include "checks/cuda_device.h"
#include "tests/call_checker.h"

/// An f32 run of shape [1, 4, 2, 64], out of place, with positions and an error word.
struct WorkingRun {
    static constexpr std::int64_t n_elements = 4 * 2 * 64;

    const halyard_cuda_queue queue;
    halyard::angle_source source = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 100);
    halyard::cuda_angles angles{queue, source};
    halyard::cuda_plan plan;
    std::vector<char> x_before, before;
    cuda_test::Memory from{queue, x_before}, to{queue, before}, places{queue, std::vector<char>(16)},
        word{queue, std::vector<char>(4)};
    halyard_tensor x = on_device(from), y = on_device(to);
    halyard_positions positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, 4});
    halyard_kv_args kv_args = sized<halyard_kv_args>();
    halyard_cuda_run_args args = sized<halyard_cuda_run_args>();

    /// The same run for another tensor description, or with more bytes after x and y.
    explicit WorkingRun(const halyard_tensor_desc &tensor = halyard::describe_tensor(halyard::dtype::f32, 64,
                                                                                     halyard::pairing::half),
                        std::size_t room = 0, const halyard_cuda_queue &its_queue = cuda_test::device_queue())
        : queue(its_queue), plan(queue, halyard::plan_desc(64, {tensor}), angles), x_before(n_elements * 4 + room, 7),
          before(x_before.size(), 9) {
        args.stream = queue.stream;
        args.positions = &positions;
        args.x = &x;
        args.y = &y;
        args.kv = &kv_args;
        args.error_word = static_cast<std::int32_t *>(word.data());
    }
    WorkingRun(const WorkingRun &) = delete;

    static halyard_tensor on_device(const cuda_test::Memory &memory) {
        auto tensor = halyard::tensor(memory.data(), halyard::dtype::f32, {1, 4, 2, 64});
        tensor.device = HALYARD_CUDA;
        return tensor;
    }
    halyard_status run(halyard_error *error = nullptr) const { return halyard_run_cuda(plan.get(), &args, error); }

    /// Checks that the run is refused and writes nothing.
    CallChecker runs{[this](halyard_status status, const Words &words) {
        check_refused(status, words, [this](auto *error) { return run(error); });
        CHECK((to.read() == before));
        CHECK((from.read() == x_before));
    }};
};
