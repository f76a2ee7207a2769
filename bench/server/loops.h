// The loops of rivals on a placed work. What the functions return is called with the number of a copy.
#pragma once

#include "rivals/ceiling.h"
#include "rivals/loops.h"
#include "server/placed.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace halyard::bench {

/// NULL where there is no such compiler.
inline const std::pair<const char *, const halyard_loops *> all_loops[] = {
#if defined(HALYARD_LOOPS_GCC)
    {"gcc", &halyard_loops_gcc},
#else
    {"gcc", nullptr},
#endif
#if defined(HALYARD_LOOPS_CLANG)
    {"clang", &halyard_loops_clang},
#else
    {"clang", nullptr},
#endif
};

/// Calls part(first, last) for shares of n things, on all threads of an executor; with none on this thread.
template <typename Part>
void share(const halyard_executor *executor, std::int64_t n, const Part &part) {
    if (executor == nullptr) {
        return part(0, n);
    }
    struct Shared {
        std::int64_t n, n_tasks;
        const Part &part;
    } shared = {n, executor->n_threads, part};
    executor->parallel_for(
        executor->context, shared.n_tasks,
        [](void *data, std::int64_t i) {
            const auto &all = *static_cast<const Shared *>(data);
            all.part(all.n * i / all.n_tasks, all.n * (i + 1) / all.n_tasks);
        },
        &shared);
}

/// A loop that sets a ceiling runs on all that lies in x and y, or in place on the rotary columns of each head.
inline auto ceiling_loop(const CeilingLoop &loop, const Placed &placed, const halyard_executor *executor) {
    const Work &work = placed.work();
    const auto head = static_cast<std::size_t>(work.parts[0].head_dim * bytes_of(work.type));
    const auto columns = static_cast<std::size_t>(work.rotary_dim * bytes_of(work.type));
    const bool dense = !work.in_place || columns == head;
    return [&placed, executor, run = loop.run, n_bytes = work.tensor_bytes(), dense, columns,
            step = dense ? 64 : head](std::size_t copy) {
        const auto n_steps = static_cast<std::int64_t>((n_bytes + step - 1) / step);
        share(executor, n_steps, [&](std::int64_t first, std::int64_t last) {
            const std::size_t from = static_cast<std::size_t>(first) * step;
            const std::size_t n = std::min(n_bytes, static_cast<std::size_t>(last) * step) - from;
            run({placed.x(copy) + from, placed.y(copy) + from, dense ? 1 : n / step, dense ? n : columns, step});
        });
    };
}

inline auto rotation_loop(const halyard_loops &loops, const Placed &placed, const halyard_executor *executor) {
    const Work &work = placed.work();
    const int out = work.out == pairing::half ? 0 : 1;
    const int which = work.in_place ? 4 + out : work.in == work.out ? out : 3 - out;
    halyard_loop *const rotate = loops.rotate[static_cast<int>(work.type) - HALYARD_F32][which];
    const std::int64_t n = work.n_tokens, head_dim = work.parts[0].head_dim, n_heads = work.n_heads();
    const halyard_executor *used = executor != nullptr && n >= executor->n_threads ? executor : nullptr;
    return [&placed, rotate, used, n, head_dim, n_heads](std::size_t copy) {
        share(used, n, [&](std::int64_t first, std::int64_t last) {
            const Work &work = placed.work();
            const std::int64_t at = first * work.row_elements * bytes_of(work.type);
            const float *const cos = placed.at<float>(placed.layout().cos) + first * work.rotary_dim / 2;
            const float *const sin = placed.at<float>(placed.layout().sin) + first * work.rotary_dim / 2;
            rotate(placed.x(copy) + at, placed.y(copy) + at, cos, sin, last - first, n_heads, head_dim,
                   work.rotary_dim);
        });
    };
}

inline int storage_of(dtype type, bool hadamard) {
    if (type == dtype::uint8) {
        return hadamard ? HALYARD_LOOP_Q8_0_HADAMARD : HALYARD_LOOP_Q8_0;
    }
    return type == dtype::e4m3 ? HALYARD_LOOP_E4M3 : HALYARD_LOOP_BF16;
}

/// Of a road or a shift. By passes: over whole tensors, as ggml does, where what is stored is records; over layers in
/// f32, as llama.cpp does, where keys move.
inline auto road_loop(const halyard_loops &loops, const Placed &placed, bool by_passes) {
    const Work &work = placed.work();
    const Placed::Layout &layout = placed.layout();
    struct Call {
        halyard_road_loop *loop;
        halyard_road_part part;
        char *y;
    };
    std::vector<Call> calls;
    for (std::size_t i = 0; i < work.parts.size(); i++) {
        const Part &part = work.parts[i];
        halyard_road_part call = {};
        call.x = placed.at<std::uint16_t>(layout.x[i].at);
        call.stride_token = work.row_elements;
        call.stride_head = part.stride_head;
        call.heads = part.n_heads;
        call.head_dim = part.head_dim;
        call.rotary_dim = part.rotates ? work.rotary_dim : 0;
        call.rotary_offset = part.rotary_offset;
        call.norm_size = part.norm_size;
        call.weight = placed.at<std::uint16_t>(layout.weight[i]);
        call.weight_offset = work.unit_offset ? 1.0f : 0.0f;
        call.slots = part.is_cached ? placed.at<std::int64_t>(layout.slots) : nullptr;
        call.r = 1.0f / road_scale;
        call.tokens = work.n_tokens;
        call.cos = placed.at<float>(layout.cos);
        call.sin = placed.at<float>(layout.sin);
        call.eps = road_eps;
        call.page_size = page_size;
        const int storage =
            placed.is_by_column(i) ? HALYARD_LOOP_BF16_BY_COLUMN : storage_of(placed.stored_type(i), work.hadamard);
        const int way = work.is_shift()               ? (by_passes ? HALYARD_LOOP_SHIFT_BY_LAYER : HALYARD_LOOP_SHIFT)
                        : by_passes && part.is_cached ? HALYARD_LOOP_BY_PASSES
                        : work.in == pairing::half    ? HALYARD_LOOP_HALF
                                                      : HALYARD_LOOP_INTERLEAVED;
        calls.push_back({loops.road[storage][way], call, placed.at<char>(layout.y[i].at)});
    }
    std::vector<float> layer(static_cast<std::size_t>(by_passes ? work.n_tokens * work.row_elements : 0));
    return [calls, layer, step = layout.step](std::size_t copy) mutable {
        for (Call &call : calls) {
            call.part.layer = layer.data();
            call.part.y = call.y + copy * step;
            call.loop(&call.part);
        }
    };
}

}  // namespace halyard::bench
