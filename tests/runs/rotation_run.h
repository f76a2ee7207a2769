// A valid run that only rotates q and k. Tests change single fields and check that the change is refused.
#pragma once

#include "valid_run.h"

using Strides = std::array<std::int64_t, 4>;

/// Rotates half of each head out of place. In the arena, x[0] and x[1] are at 0 and 256, y[0] and y[1] at 1024 and
/// 1280, `positions` at 2048. args.positions and args.executor are NULL unless a test sets them.
struct RotationRun : ValidRun {
    static constexpr std::int64_t rotary_dim = 4, n_heads[] = {2, 1};

    halyard_positions positions = halyard::positions(reinterpret_cast<std::int32_t *>(at(2048)), {n_batch, n_tokens});
    halyard_executor executor = sized<halyard_executor>();

    RotationRun() : ValidRun(2, rotary_dim) {
        for (int i = 0; i < 2; i++) {
            tensors[i].rotary_offset = 2;
            x[i] = halyard::tensor(at(256 * i), halyard::dtype::f32, {n_batch, n_tokens, n_heads[i], D});
            y[i] = halyard::tensor(at(1024 + 256 * i), halyard::dtype::f32, {n_batch, n_tokens, n_heads[i], D});
        }
        const std::int32_t values[] = {0, 1, 2, 3, 4, 9};
        std::memcpy(at(2048), values, sizeof(values));
        executor.n_threads = 2;
        executor.parallel_for = [](void *, std::int64_t, void (*)(void *, std::int64_t), void *) {
            return std::int32_t{0};
        };
        args.kv = nullptr;
    }

    /// Changes that give dimension d of all tensors another size.
    std::vector<Change> all_shapes(int d, std::int64_t size) {
        return {{x[0].shape[d], size}, {y[0].shape[d], size}, {x[1].shape[d], size}, {y[1].shape[d], size}};
    }
};
