// What a device does, until a test changes something: a run, and a plan of one tensor.
#pragma once

#include "checks/gpu_device.h"
#include "tests/changes.h"

#include <catch2/matchers/catch_matchers.hpp>

/// A run that works: f32 [1, 4, 2, 64] from one buffer to another, at positions, with an error word.
struct Working {
    static constexpr std::int64_t n_elements = 4 * 2 * 64;

    const halyard_gpu_queue &queue = gpu_test::device_queue();
    halyard::angle_source source = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 100);
    halyard::gpu_angles angles{queue, source};
    halyard::gpu_plan plan;
    std::vector<char> x_before, before;
    gpu_test::Memory from{queue, x_before}, to{queue, before}, places{queue, std::vector<char>(16)},
        word{queue, std::vector<char>(4)};
    halyard_tensor x = on_device(from), y = on_device(to);
    halyard_positions positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, 4});
    halyard_kv_args brought = sized<halyard_kv_args>();
    halyard_gpu_run_args args = sized<halyard_gpu_run_args>();

    /// Of another tensor, or with so many bytes behind what is read and written.
    explicit Working(const halyard_tensor_desc &tensor = halyard::describe_tensor(halyard::dtype::f32, 64,
                                                                                  halyard::pairing::half),
                     std::size_t room = 0)
        : plan(queue, halyard::plan_desc(64, {tensor}), angles), x_before(n_elements * 4 + room, 7),
          before(x_before.size(), 9) {
        args.stream = queue.stream;
        args.positions = &positions;
        args.x = &x;
        args.y = &y;
        args.kv = &brought;
        args.error_word = static_cast<std::int32_t *>(word.data());
    }
    Working(const Working &) = delete;

    static halyard_tensor on_device(const gpu_test::Memory &memory) {
        auto tensor = halyard::tensor(memory.data(), halyard::dtype::f32, {1, 4, 2, 64});
        tensor.device = HALYARD_CUDA;
        return tensor;
    }
    halyard_status run(halyard_error *error = nullptr) const { return halyard_run_gpu(plan.get(), &args, error); }

    /// Runs that write nothing.
    Table runs{[this](halyard_status status, const Words &words) {
        check_refused(status, words, [this](auto *error) { return run(error); });
        CHECK((to.read() == before));
        CHECK((from.read() == x_before));
    }};
};

/// A plan of one tensor that a device has a kernel for.
struct WorkingPlan {
    const halyard_gpu_queue &queue = gpu_test::device_queue();
    const halyard::gpu_angles angles{queue,
                                     halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 10)};
    halyard_kv_desc kv = sized<halyard_kv_desc>();
    halyard_tensor_desc tensor = halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half);

    WorkingPlan() { tensor.kv = &kv; }
    WorkingPlan(const WorkingPlan &) = delete;

    struct Refused {
        const char *sentence;  // behind the tensor's name
        std::vector<Set> changes;
    };
    /// A device does none of this, which both a plan and an explanation say.
    void refuse(std::initializer_list<Refused> rows) const {
        const Table plans([this](halyard_status, const Words &words) {
            const halyard::plan_desc desc(64, {tensor});
            CHECK_THROWS_WITH(halyard::gpu_plan(queue, desc, angles), words[0]);
            CHECK_THROWS_WITH(halyard::explain(HALYARD_CUDA, desc), words[0]);
        });
        for (const auto &[sentence, changes] : rows) {
            plans.refuse(HALYARD_ERROR_UNSUPPORTED, {"tensors[0]" + std::string(sentence)}, changes);
        }
    }
};
