// A call of a plan with stages: its memory and all values that are read are checked before the walk writes anything.
#include "kv/rerotate.h"
#include "kv/walk.h"

#include <bit>

namespace halyard {

namespace {

constexpr ArgumentName slots_name = {"args.kv.slots.data"}, scratch_name = {"args.kv.slots.scratch"},
                       from_positions_name = {"args.kv.from_positions.data"};
constexpr int most_areas = most_plain_areas + n_arrays * HALYARD_MAX_TENSORS + 3;

/// The arrays that are written, a bit for each.
constexpr unsigned written_arrays = 1u << static_cast<int>(Array::scales_out) | 1u << static_cast<int>(Array::cache) |
                                    1u << static_cast<int>(Array::group_scales);

/// The elements of an array, where it lies.
Lattice elements_of(const KvCall &call, int index, Array array) {
    const TensorPlan &desc = call.plan().tensors[index];
    const void *const data = call.arrays.of_tensor[index][static_cast<int>(array)];
    if (array == Array::cache) {
        return call.kv_plan().tensors[index].cache->elements(data, desc.out_dtype, call.program.tensors[index].n_heads,
                                                             desc.out_dim);
    }
    Lattice elements = call.kv.tensors[index].arrays[static_cast<int>(array)].elements;
    elements.data = data;
    return elements;
}

/// Lists the arrays of all stages that are written, or that are only read.
template <typename Add>
[[gnu::always_inline]] inline void list_arrays(const KvCall &call, bool is_written, const Add &add) {
    for (int i = 0; i < call.plan().n_tensors; i++) {
        unsigned left = call.program.tensors[i].n_heads == 0 ? 0 : call.kv_plan().tensors[i].asked;
        for (left &= is_written ? written_arrays : ~written_arrays; left != 0; left &= left - 1) {
            const int array = std::countr_zero(left);
            const BoundArray &bound = call.kv.tensors[i].arrays[array];
            const void *const data = call.arrays.of_tensor[i][array];
            MemoryRange span;
            const bool is_there = place(data, bound.reach, &span) && data != nullptr;
            add(is_written, words_of(Array(array)).name, i, is_there, span,
                [&] { return elements_of(call, i, Array(array)); });
        }
    }
}

/// All memory of a call, as list_memory lists it: what is read first.
template <typename Add>
void list_kv_memory(const KvCall &call, const Add &add) {
    const auto add_numbers = [&](bool is_written, const ArgumentName &name, const void *data, const Reach &reach) {
        MemoryRange span;
        const bool is_there = place(data, reach, &span) && data != nullptr;
        add(is_written, name, 0, is_there, span, nullptr);
    };
    list_arrays(call, false, add);
    if (call.kv.rerotates && call.kv.from_positions.is_given) {
        add_numbers(false, from_positions_name, call.arrays.from_positions, call.kv.from_positions.reach);
    }
    if (call.kv.slots.is_given) {
        add_numbers(false, slots_name, call.arrays.slots, call.kv.slots.reach);
    }
    list_memory(call.program, call.given, add);
    list_arrays(call, true, add);
    if (call.kv.slots.is_given && call.kv.slots.scratch_bytes != 0) {
        add_numbers(true, scratch_name, call.arrays.scratch,
                    {0, static_cast<std::uintptr_t>(call.kv.slots.scratch_bytes)});
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

/// Whether a call brings just the arrays that stages ask for.
[[gnu::always_inline]] inline unsigned find_brought(const KvCall &call, int index) {
    unsigned brought = 0;
    for (int array = 0; array < n_arrays; array++) {
        brought |= unsigned{call.arrays.of_tensor[index][array] != nullptr} << array;
    }
    return brought;
}

/// Says what is wrong with the pointers of a call that lacks some.
[[gnu::cold]] halyard_status fail_pointers(const KvCall &call, halyard_error *error) {
    HALYARD_TRY(check_pointers(call.program, call.given, error));
    for (int i = 0; i < call.plan().n_tensors; i++) {
        const unsigned brought = find_brought(call, i);
        if (call.program.tensors[i].n_heads != 0 && brought != call.kv_plan().tensors[i].asked) {
            return fail_arrays(call, brought, i, error);
        }
    }
    const auto name = [&](const ArgumentName &of) { return NameText(of, call.given.is_bound, 0); };
    const Slots &slots = call.kv.slots;
    if (call.kv.rerotates && call.kv.from_positions.is_given && call.arrays.from_positions == nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, name(from_positions_name),
                    " is NULL, but the run was bound with positions");
    }
    const bool lacks_slots = slots.is_given && call.arrays.slots == nullptr;
    if (lacks_slots || (slots.is_given && slots.scratch_bytes != 0 && call.arrays.scratch == nullptr)) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, name(lacks_slots ? slots_name : scratch_name), " is NULL");
    }
    halyard_status status = HALYARD_OK;
    list_kv_memory(call,
                   [&](bool, const ArgumentName &of, int tensor, bool is_there, const MemoryRange &, const auto &) {
                       if (!is_there && status == HALYARD_OK) {
                           status = fail(error, HALYARD_ERROR_OVERFLOW, NameText(of, call.given.is_bound, tensor),
                                         " leaves the address space");
                       }
                   });
    return status;
}

/// Whether any tensor writes a token: a view does, and a cache that has a slot for it.
bool is_written(const void *context, std::int64_t token) {
    const KvCall &call = *static_cast<const KvCall *>(context);
    return call.kv.slots.of_token(call.arrays.slots, token) >= 0;
}

/// Checks positions, but not of tokens that are stored nowhere.
halyard_status check_all_positions(const KvCall &call, halyard_error *error) {
    const TokenSet written = {is_written, &call};
    const TokenSet *const tokens = stores_in_caches_only(call.program, call.kv) ? &written : nullptr;
    return call.kv.rerotates ? check_moves(call, tokens, error)
                             : check_positions(row_input(call.program, call.given), tokens, error);
}

halyard_status check_call(const KvCall &call, halyard_error *error) {
    bool is_as_asked = true;
    for (int i = 0; i < call.plan().n_tensors; i++) {
        is_as_asked &= call.program.tensors[i].n_heads == 0 || find_brought(call, i) == call.kv_plan().tensors[i].asked;
    }
    const auto list = [&](const auto &add) { list_kv_memory(call, add); };
    const Look look = look_at<most_areas>(list);
    if (look.is_missing || !is_as_asked) {
        return fail_pointers(call, error);
    }
    for (int i = 0; i < call.plan().n_tensors; i++) {
        const KvTensor &stages = call.kv_plan().tensors[i];
        if (call.program.tensors[i].n_heads != 0 && (stages.scale || stages.position_scales)) {
            HALYARD_TRY(check_static_scales(call, i, error));
            HALYARD_TRY(check_position_scales(call, i, error));
        }
    }
    return look.meets ? check_listed_elements<most_areas>(list, call.given.is_bound, error) : HALYARD_OK;
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
        return on_executor(
            program, [&](const Share &part) { walk_share(call, part); }, error);
    }
    walk_share(call, share);
    return HALYARD_OK;
}

}  // namespace halyard
