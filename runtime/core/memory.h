// The one list of memory that a call reads and writes, and the check that nothing written shares elements with anything
// else. The KV path has the same check with a longer list.
#pragma once

#include "base/error.h"
#include "base/overlap.h"
#include "core/program.h"

#include <cstdio>
#include <type_traits>

namespace halyard {

/// What a call brings.
struct Pointers {
    const halyard_angle_source *angles;  // the program's, or like it; NULL if nothing is rotated
    const void *positions;
    const void *const *x;  // [n_tensors]
    void *const *y;        // likewise
    bool is_bound;         // the arguments are those of halyard_run_bound, and have other names
};

/// The pointers that are among the arguments of a run.
struct RunPointers {
    const void *x[HALYARD_MAX_TENSORS];
    void *y[HALYARD_MAX_TENSORS];
    Pointers all;

    RunPointers(const Program &program, const halyard_run_args &args) noexcept {
        for (int i = 0; i < program.plan->n_tensors; i++) {
            x[i] = args.x[i].data;
            y[i] = args.y[i].data;
        }
        all = {program.angles, args.positions == nullptr || program.angles == nullptr ? nullptr : args.positions->data,
               x, y, false};
    }
    RunPointers(const RunPointers &) = delete;
    RunPointers &operator=(const RunPointers &) = delete;
};

/// What the caller calls an argument; %d is the number of the tensor.
struct ArgumentName {
    const char *of_run, *of_bound_run = of_run;
    bool is_optional = false;  // a call brings it if the run was bound with it
};
inline constexpr ArgumentName x_name = {"x[%d].data", "args.x[%d]"}, y_name = {"y[%d].data", "args.y[%d]"},
                              positions_name = {"positions.data", "args.positions", true},
                              cos_name = {"the cos rows of the angle source", "the cos rows of the angle source"},
                              sin_name = {"the sin rows of the angle source", "the sin rows of the angle source"};

/// An argument's name as text.
class NameText {
public:
    NameText(const ArgumentName &name, bool is_bound, int tensor) noexcept {
        std::snprintf(text_, sizeof(text_), is_bound ? name.of_bound_run : name.of_run, tensor);
    }
    operator Part() const noexcept { return text_; }

private:
    char text_[48];
};

/// The elements of x or y of a tensor.
Lattice elements_of(const Program &program, const Pointers &given, int index, bool is_y) noexcept;

/// Adds memory that has to be there to a list: see list_memory.
template <typename Add, typename Elements>
[[gnu::always_inline]] inline void add_memory(const Add &add, bool is_written, const ArgumentName &name, int tensor,
                                              const void *data, const Reach &reach, const Elements &elements) {
    MemoryRange span;
    const bool is_there = place(data, reach, &span) && data != nullptr;
    add(is_written, name, tensor, data, is_there, span, elements);
}

/// Calls add(is_written, name, tensor, data, is_there, span, elements) for all memory of a plain call, for the KV path
/// too: what is read first. is_there: data is as it has to be, and the array does not leave the address space.
/// elements() tells those of what may have gaps; where it is NULL, the memory is all of its span. (Inline, so that the
/// check of spans costs a few comparisons.)
template <typename Add>
[[gnu::always_inline]] inline void list_memory(const Program &program, const Pointers &given, const Add &add) {
    const int n_tensors = program.plan->n_tensors;
    for (int i = 0; i < n_tensors; i++) {
        const ProgramTensor &tensor = program.tensors[i];
        if (tensor.lists_x) {
            add_memory(add, false, x_name, i, given.x[i], tensor.x.reach,
                       [&] { return elements_of(program, given, i, false); });
        }
    }
    if (given.angles != nullptr) {
        const bool is_given = program.positions.is_given;
        MemoryRange span = {0, 0};
        bool is_there = (given.positions != nullptr) == is_given;
        if (is_given) {
            is_there &= place(given.positions, program.positions.reach, &span);
        }
        add(false, positions_name, 0, given.positions, is_there, span, nullptr);
        add(false, cos_name, 0, nullptr, true, given.angles->cos_memory, nullptr);
        add(false, sin_name, 0, nullptr, true, given.angles->sin_memory, nullptr);
    }
    for (int i = 0; i < n_tensors; i++) {
        const ProgramTensor &tensor = program.tensors[i];
        if (tensor.lists_y) {
            MemoryRange span;
            const bool is_there = place(given.y[i], tensor.y.reach, &span) && given.y[i] != nullptr &&
                                  (!tensor.in_place || given.x[i] == given.y[i]);
            add(true, y_name, i, given.y[i], is_there, span, [&] { return elements_of(program, given, i, true); });
        }
    }
}

/// What one look at a list finds.
struct Look {
    bool is_missing;  // something is not there, or leaves the address space
    bool meets;       // the span of something written meets another
};

/// Looks at a list: `list` is called with a function as list_memory is.
template <int most, typename List>
[[gnu::always_inline]] inline Look look_at(const List &list) {
    std::uintptr_t begins[most], ends[most];
    int n = 0;
    unsigned meets = 0, missing = 0;  // no branches, for the cost of a run
    list([&](bool is_written, const ArgumentName &, int, const void *, bool is_there, const MemoryRange &span,
             const auto &) {
        missing |= static_cast<unsigned>(!is_there);
        for (int j = 0; j < n && is_written; j++) {
            meets |= static_cast<unsigned>(span.begin < ends[j]) & static_cast<unsigned>(begins[j] < span.end);
        }
        begins[n] = span.begin;
        ends[n++] = span.end;
    });
    return {missing != 0, meets != 0};
}

/// Memory of a call whose spans meet, with what its elements are.
struct Area {
    const ArgumentName *name;
    int tensor;
    bool is_written, has_gaps;
    MemoryRange span;
    Lattice elements;
};

/// Fails, naming the first two, if anything written shares elements with anything else. What is read comes first.
halyard_status check_elements(const Area *areas, int n, bool is_bound, halyard_error *error) noexcept;

/// The same for a list. (Not inlined: it is seldom needed.)
template <int most, typename List>
[[gnu::noinline]] halyard_status check_listed_elements(const List &list, bool is_bound, halyard_error *error) {
    Area areas[most];
    int n = 0;
    list([&](bool is_written, const ArgumentName &name, int tensor, const void *, bool, const MemoryRange &span,
             const auto &elements) {
        Area &area = areas[n++];
        area = {&name, tensor, is_written, false, span, {}};
        if constexpr (!std::is_null_pointer_v<std::decay_t<decltype(elements)>>) {
            area.has_gaps = true;
            area.elements = elements();
        }
    });
    return check_elements(areas, n, is_bound, error);
}

/// How many areas a plain call has at most.
inline constexpr int most_plain_areas = 2 * HALYARD_MAX_TENSORS + 3;

/// Says what is wrong with memory that is not there as it has to be. `name` is one of those of a list.
[[gnu::cold]] halyard_status fail_memory(const Program &program, const Pointers &given, const ArgumentName &name,
                                         int tensor, const void *data, halyard_error *error) noexcept;

/// Says what is wrong with the first such memory of a list.
template <typename List>
[[gnu::cold]] halyard_status fail_missing(const List &list, const Program &program, const Pointers &given,
                                          halyard_error *error) {
    halyard_status status = HALYARD_OK;
    list([&](bool, const ArgumentName &name, int tensor, const void *data, bool is_there, const MemoryRange &,
             const auto &) {
        if (!is_there && status == HALYARD_OK) {
            status = fail_memory(program, given, name, tensor, data, error);
        }
    });
    return status;
}

/// Checks that pointers are there and in place as they were bound, that arrays do not leave the address space, and that
/// nothing written by a plain call shares elements with anything else.
inline halyard_status check_memory(const Program &program, const Pointers &given, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    const auto list = [&](const auto &add) { list_memory(program, given, add); };
    const Look look = look_at<most_plain_areas>(list);
    if (look.is_missing) {
        return fail_missing(list, program, given, error);
    }
    return look.meets ? check_listed_elements<most_plain_areas>(list, given.is_bound, error) : HALYARD_OK;
}

}  // namespace halyard
