// Not measured: no GPU was at hand. ptxas 13.0 gives the kernels at most 48 registers on sm_80 to sm_120, no stack and
// no spills (2026-11-21, tests/check_ptx.py); all accesses to x and y are of 128 bits.
#pragma once

#include "schedule.h"

namespace halyard {

/// The numbers of the schedule. A block has element_threads x head_threads threads.
struct GpuSteps {
    int per_thread;       // elements that a thread takes in one step: 128 bits of each member, or 1
    int element_threads;  // side by side in a head, so that a warp's accesses are whole lines of 128 bytes
    int head_threads;
    int heads_per_thread;  // that a thread takes one after the other, with the same cos and sin, if tokens are many
    int few_tokens;        // up to so many, each thread has one head, so that one token spreads over the whole GPU
};

/// A block rotates some elements of some heads of one token. It computes their cos and sin once, in shared memory.
inline void schedule_gpu(Halide::Func y, Halide::Func angle, const Loops &loops, const GpuSteps &steps,
                         const Halide::Expr &one_axis) {
    using namespace Halide;
    const auto tail = TailStrategy::GuardWithIf;
    const Var inner("inner"), chunk("chunk"), chunks("chunks"), thread("thread"), head_thread("head_thread"),
        round("round"), heads("heads");
    // The pure stage is undefined, and emits nothing, but without a GPU schedule Halide takes it for host code.
    y.gpu_tile(loops.element, loops.head, chunks, heads, thread, head_thread, 1, 1);

    Stage update = y.update();
    const auto on_gpu = [&](Stage stage, int heads_per_thread) {
        stage.split(loops.element, chunk, inner, steps.per_thread, tail);
        stage.split(chunk, chunks, thread, steps.element_threads, tail);
        stage.split(loops.head, heads, round, steps.head_threads * heads_per_thread, tail);
        stage.split(round, round, head_thread, steps.head_threads, tail);
        if (loops.by_member) {
            stage.allow_race_conditions();
            stage.reorder(loops.member, inner, round, thread, head_thread, loops.token, heads, chunks);
            stage.vectorize(loops.member);
        } else {
            stage.reorder(inner, round, thread, head_thread, loops.token, heads, chunks);
        }
        if (steps.per_thread > 1) {
            stage.vectorize(inner);
        }
        // The first dimension of a grid is the only one that can exceed 65,535.
        stage.gpu_threads(thread, head_thread).gpu_blocks(loops.token, heads, chunks);
    };
    const Expr few = y.output_buffer().dim(3).extent() <= steps.few_tokens;
    on_gpu(update.specialize(one_axis && few), 1);
    on_gpu(update.specialize(one_axis), steps.heads_per_thread);
    on_gpu(update, steps.heads_per_thread);

    const Var pair_thread("pair_thread"), pair_round("pair_round");
    angle.compute_at(y, loops.token).store_in(MemoryType::GPUShared);
    angle.reorder_storage(loops.lane, loops.element, loops.token);
    angle.split(loops.element, pair_round, pair_thread, steps.element_threads, tail);
    angle.reorder(loops.lane, pair_thread, pair_round, loops.token).unroll(loops.lane);
    angle.gpu_threads(pair_thread, pair_round);
}

}  // namespace halyard
