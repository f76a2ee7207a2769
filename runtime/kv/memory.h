// The list of all memory that a call of a plan with stages reads and writes, on the CPU or on a device.
#pragma once

#include "core/memory.h"
#include "kv/block.h"

namespace halyard {

inline constexpr ArgumentName slots_name = {"args.kv.slots.data"}, scratch_name = {"args.kv.slots.scratch"},
                              from_positions_name = {"args.kv.from_positions.data", "args.kv.from_positions.data",
                                                     true};
inline constexpr int most_areas = most_plain_areas + n_arrays * HALYARD_MAX_TENSORS + 3;

/// The elements of an array, with its address.
inline Lattice elements_of(const KvCall &call, int index, Array array) {
    const TensorPlan &tensor_plan = call.plan().tensors[index];
    const auto &cache = call.kv_plan().tensors[index].cache;
    Lattice elements = array == Array::cache ? cache->elements(nullptr, tensor_plan.out_dtype,
                                                               call.program.tensors[index].n_heads, tensor_plan.out_dim)
                                             : call.bound(index, array).elements;
    elements.data = call.data(index, array);
    return elements;
}

/// Lists the arrays of all stages: those that are written, or those that are only read.
template <typename Add>
[[gnu::always_inline]] inline void list_arrays(const KvCall &call, bool is_written, const Add &add) {
    const NeededArrays &needed = call.kv_program.needed[is_written];
    for (int i = 0; i < needed.n; i++) {
        const NeededArray &of = needed.list[i];
        add_memory(add, is_written, texts_of(of.array).name, of.tensor, call.data(of.tensor, of.array),
                   call.bound(of.tensor, of.array).reach, [&] { return elements_of(call, of.tensor, of.array); });
    }
}

/// Lists all memory of a call as list_memory does, memory that is only read first.
template <typename Add>
void list_kv_memory(const KvCall &call, const Add &add) {
    const Slots &slots = call.kv_program.slots;
    list_arrays(call, false, add);
    if (call.kv_plan().rerotates && call.kv_program.from_positions.is_given) {
        add_memory(add, false, from_positions_name, 0, call.arrays.from_positions, call.kv_program.from_positions.reach,
                   nullptr);
    }
    if (slots.is_given) {
        add_memory(add, false, slots_name, 0, call.arrays.slots, slots.reach, nullptr);
    }
    list_memory(call.program, call.given, add);
    list_arrays(call, true, add);
    if (slots.is_given && slots.scratch_bytes != 0) {
        add_memory(add, true, scratch_name, 0, call.arrays.scratch,
                   {0, static_cast<std::uintptr_t>(slots.scratch_bytes)}, nullptr);
    }
}

}  // namespace halyard
