// A run of two tensors (q and k) that is valid until a test changes something.
#pragma once

#include "changes.h"

#include <array>
#include <functional>
#include <numeric>

using Strides = std::array<std::int64_t, 4>;

inline void set_strides(halyard_tensor &tensor, const Strides &strides) {
    std::copy(strides.begin(), strides.end(), tensor.strides);
}

/// All memory of the run lies in one arena, whose bytes are compared afterwards.
struct Scene {
    static constexpr std::int64_t batch = 2, tokens = 3, head_dim = 8, rotary_dim = 4;
    static constexpr std::int64_t n_heads[] = {2, 1};

    halyard::frequencies frequencies = halyard::frequencies::from_base(100.0, rotary_dim);
    halyard::angle_source source = halyard::angle_source::table(frequencies, 0, 9);
    halyard::plan_desc desc = describe();
    std::vector<float> arena = std::vector<float>(4096);
    halyard_tensor x[2], y[2];
    halyard_positions positions = {};
    halyard_executor executor = sized<halyard_executor>();
    halyard_run_args args = sized<halyard_run_args>();

    static halyard::plan_desc describe() {
        const auto tensor = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half, 2);
        return halyard::plan_desc(rotary_dim, {tensor, tensor});
    }

    Scene() {
        std::iota(arena.begin(), arena.end(), 1.0f);
        for (int i = 0; i < 2; i++) {
            x[i] = halyard::tensor(at(256 * i), halyard::dtype::f32, {batch, tokens, n_heads[i], head_dim});
            y[i] = halyard::tensor(at(1024 + 256 * i), halyard::dtype::f32, {batch, tokens, n_heads[i], head_dim});
        }
        const std::int32_t values[] = {0, 1, 2, 3, 4, 9};
        std::memcpy(at(2048), values, sizeof(values));
        positions = halyard::positions(reinterpret_cast<const std::int32_t *>(at(2048)), {batch, tokens});
        executor.n_threads = 2;
        executor.parallel_for = [](void *, std::int64_t, void (*)(void *, std::int64_t), void *) {
            return std::int32_t{0};
        };
        args.angles = source.get();
        args.x = x;
        args.y = y;
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    float *at(std::int64_t element) { return arena.data() + element; }

    void take_source(halyard::angle_source other) {
        source = std::move(other);
        args.angles = source.get();
    }

    halyard_status run(halyard_error *error) {
        const halyard::plan plan(desc);
        return halyard_run(plan.get(), &args, error);
    }
};

inline void check_refused(Scene &scene, halyard_status status, const Words &words) {
    const std::vector<float> before = scene.arena;
    check_refused(status, words, [&](halyard_error *error) {
        const halyard_status result = scene.run(error);
        CHECK(std::memcmp(before.data(), scene.arena.data(), before.size() * sizeof(float)) == 0);
        return result;
    });
}

inline void check_accepted(Scene &scene) {
    auto error = sized<halyard_error>();
    const halyard_status status = scene.run(&error);
    CAPTURE(error.message);
    CHECK(status == HALYARD_OK);
}

/// Runs of the scene, each refused and writing nothing, or accepted.
inline Table runs_of(Scene &scene) {
    return Table([&scene](halyard_status status, const Words &words) { check_refused(scene, status, words); },
                 [&scene] {
                     const auto before = scene.arena;
                     check_accepted(scene);
                     scene.arena = before;
                 });
}
