// The schedule of rotations on CUDA. Speed on an H200, in place, from 4,096 tokens on: .90 to 1.00 of a copy's
// (bench/README.md). With ptxas 13.5 kernels have at most 48 registers on sm_80 to sm_120, no stack and no spills, and
// all accesses to x and y are as wide as the kernels' names say (2026-11-23, tests/cuda/check_ptx.py).
#pragma once

#include "cuda/device_angles.h"
#include "schedule.h"

namespace halyard {

/// Makes a thread load its eight words by two accesses of 128 bits before all else. An access has one member of four
/// pairs (half pairing), or both members of two pairs (interleaved).
inline void load_words_by_128_bits(Halide::Func y, Halide::Func loaded, bool is_half_pairing) {
    using Halide::Var;
    const Var element = loaded.args()[0], member = loaded.args()[1], quad("quad"), in_quad("in_quad");
    loaded.compute_at(y, Var("round")).bound_extent(element, 4).bound_extent(member, 2);
    if (is_half_pairing) {
        loaded.vectorize(element).unroll(member);
    } else {
        loaded.split(element, quad, in_quad, 2).reorder(member, in_quad, quad);
        loaded.vectorize(member).vectorize(in_quad).unroll(quad);
    }
}

/// A thread block rotates elements of some heads of one token, and computes their cos and sin once, in shared memory.
/// In one step a thread processes per_thread elements: 1, or as many as a wide access to their members holds.
/// Neighbouring threads access neighbouring elements of a head, so that a warp's accesses are whole lines of 128 bytes.
inline void schedule_cuda(Halide::Func y, Halide::Func angle, const Loops &loops, int per_thread,
                          DeviceAngles &device_angles) {
    const int element_threads = per_thread > 1 ? 8 : 32, head_threads = 128 / element_threads;
    // A thread processes several heads one after the other, with the same cos and sin; if tokens are few, only one
    // head, so that a token spreads over the whole GPU.
    constexpr int few_tokens = 64, heads_per_thread = 4;
    using namespace Halide;
    const auto tail = TailStrategy::GuardWithIf;
    const Var inner("inner"), chunk("chunk"), chunks("chunks"), thread("thread"), head_thread("head_thread"),
        round("round"), heads("heads");
    // The pure stage is undefined and emits no code, but without a GPU schedule Halide would make it host code.
    y.gpu_tile(loops.element, loops.head, chunks, heads, thread, head_thread, 1, 1);

    const Expr heads_of_thread = select(y.output_buffer().dim(3).extent() <= few_tokens, 1, heads_per_thread);
    Stage update = y.update();
    update.split(loops.element, chunk, inner, per_thread, tail);
    update.split(chunk, chunks, thread, element_threads, tail);
    update.split(loops.head, heads, round, head_threads * heads_of_thread, tail);
    update.split(round, round, head_thread, head_threads, tail);
    if (loops.by_member) {
        const Var quad("quad");
        update.allow_race_conditions();
        update.reorder(loops.member, inner, round, thread, head_thread, loops.token, heads, chunks);
        update.vectorize(loops.member);
        if (per_thread == 4) {  // Halide 21 makes 128-bit accesses of four words only
            update.split(inner, quad, inner, 2).unroll(quad);
        }
    } else {
        update.reorder(inner, round, thread, head_thread, loops.token, heads, chunks);
    }
    if (per_thread > 1) {
        update.vectorize(inner);
    }
    // The first dimension of a grid is the only one that can exceed 65,535.
    update.gpu_threads(thread, head_thread).gpu_blocks(loops.token, heads, chunks);

    const Var pair("pair"), across("across"), down("down"), rounds("rounds"), pair_round("pair_round");
    angle.compute_at(y, loops.token).store_in(MemoryType::GPUShared);
    angle.reorder_storage(loops.lane, loops.element, loops.token).reorder(loops.lane, loops.element, loops.token);
    angle.fuse(loops.lane, loops.element, pair).split(pair, rounds, across, element_threads, tail);
    angle.split(rounds, pair_round, down, head_threads, tail).reorder(pair_round, across, down, loops.token);
    angle.gpu_threads(across, down);
    device_angles.specialize_by_form(angle);
}

}  // namespace halyard
