// A call of a plan with stages: its memory and all values that are read are checked before the walk writes anything.
#include "kv/rerotate.h"
#include "kv/walk.h"

#include <bit>

namespace halyard {

namespace {

constexpr ArgumentName slots_name = {"slots.data", "args.slots"}, scratch_name = {"slots.scratch", "args.slots_scratch"},
                       from_positions_name = {"from_positions.data", "args.from_positions"};
constexpr int most_areas = most_plain_areas + n_arrays * HALYARD_MAX_TENSORS + 3;

/// All memory of a call, in any order.
template <typename Add>
void list_all_memory(const KvCall &call, const Add &add) {
    list_memory(call.program, call.given, add);
    const auto add_span = [&](bool is_written, const ArgumentName &name, const void *data, const Reach &reach) {
        MemoryRange span;
        place(data, reach, &span);
        add(is_written, name, 0, span, nullptr);
    };
    for (int i = 0; i < call.plan().n_tensors; i++) {
        const unsigned asked = call.program.tensors[i].n_heads == 0 ? 0 : call.kv_plan().tensors[i].asked;
        for (unsigned left = asked; left != 0; left &= left - 1) {
            const int array = std::countr_zero(left);
            const ArrayWords &words = words_of(Array(array));
            const BoundArray &bound = call.kv.tensors[i].arrays[array];
            const void *const data = call.arrays.of_tensor[i][array];
            MemoryRange span;
            place(data, bound.reach, &span);
            if (words.has_gaps) {
                add(words.is_written, words.name, i, span, [&] {
                    Lattice elements = bound.elements;
                    elements.data = data;
                    return elements;
                });
            } else {
                add(words.is_written, words.name, i, span, nullptr);
            }
        }
    }
    if (call.kv.rerotates) {
        add_span(false, from_positions_name, call.arrays.from_positions, call.kv.from_positions.reach);
    }
    if (call.kv.slots.is_given) {
        add_span(false, slots_name, call.arrays.slots, call.kv.slots.reach);
        add_span(true, scratch_name, call.arrays.scratch,
                 {0, static_cast<std::uintptr_t>(call.kv.slots.scratch_bytes)});
    }
}

/// The same as list_memory lists it: what is read first.
template <typename Add>
void list_kv_memory(const KvCall &call, const Add &add) {
    for (const bool wanted : {false, true}) {
        list_all_memory(call, [&](bool is_written, const ArgumentName &name, int tensor, const MemoryRange &span,
                                  const auto &lattice) {
            if (is_written == wanted) {
                add(is_written, name, tensor, span, lattice);
            }
        });
    }
}

/// Says which array is not there that a tensor's stages ask for, or is there for nothing.
[[gnu::cold]] halyard_status fail_arrays(const KvCall &call, unsigned brought, int index, halyard_error *error) {
    const KvTensor &stages = call.kv_plan().tensors[index];
    const auto first = static_cast<Array>(std::countr_zero(brought ^ stages.asked));
    const bool is_needed = stages.asks_for(first);
    return fail(error, is_needed ? HALYARD_ERROR_NULL_POINTER : HALYARD_ERROR_MISMATCH,
                NameText(words_of(first).name, call.given.is_bound, index), is_needed ? " is NULL" : " is set",
                ", but tensors[", index, is_needed ? "] has " : "] does not have ", words_of(first).asked_by);
}

halyard_status check_arrays(const KvCall &call, halyard_error *error) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        if (call.program.tensors[i].n_heads == 0) {
            continue;
        }
        unsigned brought = 0;
        for (int array = 0; array < n_arrays; array++) {
            brought |= unsigned{call.arrays.of_tensor[i][array] != nullptr} << array;
        }
        if (brought != call.kv_plan().tensors[i].asked) {
            return fail_arrays(call, brought, i, error);
        }
        for (unsigned left = brought; left != 0; left &= left - 1) {
            const int array = std::countr_zero(left);
            MemoryRange unused;
            if (!place(call.arrays.of_tensor[i][array], call.kv.tensors[i].arrays[array].reach, &unused)) {
                return fail(error, HALYARD_ERROR_OVERFLOW,
                            NameText(words_of(Array(array)).name, call.given.is_bound, i),
                            " leaves the address space");
            }
        }
    }
    return HALYARD_OK;
}

halyard_status check_numbers(const KvCall &call, const ArgumentName &name, const void *data, const Reach &reach,
                             halyard_error *error) {
    MemoryRange unused;
    const NameText text(name, call.given.is_bound, 0);
    if (data == nullptr) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, text, " is NULL");
    }
    return place(data, reach, &unused) ? HALYARD_OK
                                       : fail(error, HALYARD_ERROR_OVERFLOW, text, " leaves the address space");
}

/// Whether any tensor writes a token: a view does, and a cache that has a slot for it.
bool is_written(const void *context, std::int64_t token) {
    const KvCall &call = *static_cast<const KvCall *>(context);
    return call.kv.slots.of_token(call.arrays.slots, token) >= 0;
}

/// Checks positions, but not of tokens that are stored nowhere.
halyard_status check_all_positions(const KvCall &call, halyard_error *error) {
    bool all_in_caches = call.kv.slots.is_given;
    for (int i = 0; i < call.plan().n_tensors; i++) {
        all_in_caches = all_in_caches && (call.program.tensors[i].n_heads == 0 || call.kv_plan().tensors[i].cache);
    }
    const TokenSet written = {is_written, &call};
    const TokenSet *const tokens = all_in_caches ? &written : nullptr;
    return call.kv.rerotates ? check_moves(call, tokens, error)
                             : check_positions(row_input(call.program, call.given), tokens, error);
}

halyard_status check_call(const KvCall &call, halyard_error *error) {
    HALYARD_TRY(check_pointers(call.program, call.given, error));
    HALYARD_TRY(check_arrays(call, error));
    if (call.kv.rerotates && call.kv.from_positions.is_given) {
        HALYARD_TRY(
            check_numbers(call, from_positions_name, call.arrays.from_positions, call.kv.from_positions.reach, error));
    }
    const Slots &slots = call.kv.slots;
    if (slots.is_given) {
        HALYARD_TRY(check_numbers(call, slots_name, call.arrays.slots, slots.reach, error));
    }
    if (slots.is_given && slots.scratch_bytes != 0) {
        HALYARD_TRY(check_numbers(call, scratch_name, call.arrays.scratch,
                                  {0, static_cast<std::uintptr_t>(slots.scratch_bytes)}, error));
    }
    for (int i = 0; i < call.plan().n_tensors; i++) {
        if (call.program.tensors[i].n_heads != 0) {
            HALYARD_TRY(check_static_scales(call, i, error));
            HALYARD_TRY(check_position_scales(call, i, error));
        }
    }
    const auto list = [&](const auto &add) { list_kv_memory(call, add); };
    return any_spans_meet<most_areas>(list) ? check_listed_elements<most_areas>(list, call.given.is_bound, error)
                                            : HALYARD_OK;
}

}  // namespace

halyard_status check_kv_memory(const Program &program, const KvProgram &kv, const Pointers &given,
                               const KvPointers &arrays, halyard_error *error) noexcept {
    return program.is_empty ? HALYARD_OK : check_call({program, kv, given, arrays}, error);
}

halyard_status call_kv(const Program &program, const KvProgram &kv, const Pointers &given, const KvPointers &arrays,
                       const Share &share, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    const KvCall call = {program, kv, given, arrays};
    HALYARD_TRY(check_call(call, error));
    if (kv.slots.is_given) {
        HALYARD_TRY(check_slots(kv.slots, arrays.slots, arrays.scratch, error));
    }
    if (program.angles != nullptr) {
        HALYARD_TRY(check_all_positions(call, error));
    }
    for (int i = 0; i < program.plan->n_tensors && kv.rerotates; i++) {
        if (program.tensors[i].n_heads != 0) {
            HALYARD_TRY(call.kv_plan().tensors[i].groups ? check_moved_records(call, i, error)
                                                         : check_moved_scales(call, i, error));
        }
    }
    if (program.n_tasks > 1) {
        return on_executor(program, [&](const Share &part) { walk_share(call, part); }, error);
    }
    walk_share(call, share);
    return HALYARD_OK;
}

}  // namespace halyard
