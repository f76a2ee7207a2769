// The list of all memory that a call reads and writes, and the check that nothing written shares elements with anything
// else. The KV path has the same check with a longer list.
#pragma once

#include "base/error.h"
#include "base/overlap.h"
#include "core/check_and_bind.h"

#include <cstdio>
#include <type_traits>

namespace halyard {

/// The pointers of one call. All else is in the program.
struct Pointers {
    const halyard_angle_source *angles;  // the program's, or one like it (find_difference); NULL if nothing is rotated
    const void *positions;
    const void *const *x;  // [n_tensors]
    void *const *y;        // [n_tensors]
    bool is_bound;         // they are arguments of halyard_run_bound, which has other names for them
};

/// The pointers among the arguments of halyard_run.
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

/// An argument's name in error messages of halyard_run, and in those of halyard_run_bound; %d: the tensor's number.
struct ArgumentName {
    const char *of_run, *of_bound_run = of_run;
    bool is_optional = false;  // NULL is right if the run was bound without it
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

/// The elements of a tensor's x or y.
Lattice elements_of(const Program &program, const Pointers &given, int index, bool is_y) noexcept;

/// An array of a call's list of memory.
struct Listed {
    const ArgumentName *name;
    int tensor;
    bool is_written, is_valid;  // is_valid: the pointer is set if it must be and NULL if it must be NULL, and the array
    const void *data;           // does not leave the address space
    MemoryRange span;
};

/// Adds an array that must not be NULL to a list of memory: see list_memory.
template <typename Add, typename Elements>
[[gnu::always_inline]] inline void add_memory(const Add &add, bool is_written, const ArgumentName &name, int tensor,
                                              const void *data, const Reach &reach, const Elements &elements) {
    MemoryRange span;
    const bool is_valid = find_range(data, reach, &span) & (data != nullptr);  // no branches, as below
    add(Listed{&name, tensor, is_written, is_valid, data, span}, elements);
}

/// Lists the memory of x, y, positions and rows: calls add(listed, elements) for each array. Arrays that are only read
/// come first. elements() returns the Lattice of an array that may have gaps; for an array that fills its span,
/// elements is NULL. (Inline, so that the check of spans costs a few comparisons.)
template <typename Add>
[[gnu::always_inline]] inline void list_memory(const Program &program, const Pointers &given, const Add &add) {
    const int n_tensors = program.plan->n_tensors;
    for (int i = 0; i < n_tensors; i++) {
        const TensorProgram &tensor = program.tensors[i];
        if (tensor.lists_x) {
            add_memory(add, false, x_name, i, given.x[i], tensor.x.reach,
                       [&] { return elements_of(program, given, i, false); });
        }
    }
    if (given.angles != nullptr) {
        const bool is_given = program.positions.is_given;
        MemoryRange span = {0, 0};
        bool is_valid = (given.positions != nullptr) == is_given;
        if (is_given) {
            is_valid &= find_range(given.positions, program.positions.reach, &span);
        }
        add(Listed{&positions_name, 0, false, is_valid, given.positions, span}, nullptr);
        add(Listed{&cos_name, 0, false, true, nullptr, given.angles->cos_memory}, nullptr);
        add(Listed{&sin_name, 0, false, true, nullptr, given.angles->sin_memory}, nullptr);
    }
    for (int i = 0; i < n_tensors; i++) {
        const TensorProgram &tensor = program.tensors[i];
        if (tensor.lists_y) {
            MemoryRange span;
            const bool is_valid = find_range(given.y[i], tensor.y.reach, &span) & (given.y[i] != nullptr) &
                                  (!tensor.in_place | (given.x[i] == given.y[i]));
            add(Listed{&y_name, i, true, is_valid, given.y[i], span},
                [&] { return elements_of(program, given, i, true); });
        }
    }
}

/// The result of inspect_spans.
struct SpanCheck {
    bool any_invalid;  // for some array is_valid is false
    bool any_overlap;  // the span of a written array overlaps another span (may be true by mistake)
};

/// Inspects a list of memory. list(add) must call add for each array, as list_memory does.
template <int most, typename List>
[[gnu::always_inline]] inline SpanCheck inspect_spans(const List &list) {
    MemoryRange spans[most];
    int n = 0, n_read = 0;
    unsigned missing = 0;  // no branches, for the cost of a run
    list([&](const Listed &of, const auto &) {
        missing |= static_cast<unsigned>(!of.is_valid);
        spans[n++] = of.span;
        n_read += static_cast<int>(!of.is_written);
    });
    // Negative if both differences are negative for some two spans: these overlap, or are half of all addresses apart.
    std::uintptr_t meets = 0;
    for (int i = n_read; i < n; i++) {
        for (int j = 0; j < i; j++) {
            meets |= (spans[i].begin - spans[j].end) & (spans[j].begin - spans[i].end);
        }
    }
    return {missing != 0, static_cast<std::intptr_t>(meets) < 0};
}

/// An array of the list, with its elements if it has gaps.
struct Area : Listed {
    bool has_gaps;
    Lattice elements;
};

/// Fails, naming both arrays, if a written array shares elements with another. `areas` begins with those only read.
halyard_status check_overlaps(const Area *areas, int n, bool is_bound, halyard_error *error) noexcept;

/// The same for a list of memory. (Not inlined: it is needed only where spans overlap.)
template <int most, typename List>
[[gnu::noinline]] halyard_status check_listed_overlaps(const List &list, bool is_bound, halyard_error *error) {
    Area areas[most];
    int n = 0;
    list([&](const Listed &of, const auto &elements) {
        Area &area = areas[n++] = {of, false, {}};
        if constexpr (!std::is_null_pointer_v<std::decay_t<decltype(elements)>>) {
            area.has_gaps = true;
            area.elements = elements();
        }
    });
    return check_overlaps(areas, n, is_bound, error);
}

/// How many arrays list_memory lists at most.
inline constexpr int most_plain_areas = 2 * HALYARD_MAX_TENSORS + 3;

/// Fails for an array of the list whose is_valid is false, and says why.
[[gnu::cold]] halyard_status fail_invalid(const Listed &of, const Program &program, const Pointers &given,
                                          halyard_error *error) noexcept;

/// Fails for the first array of a list of memory whose is_valid is false.
template <typename List>
[[gnu::cold]] halyard_status fail_missing(const List &list, const Program &program, const Pointers &given,
                                          halyard_error *error) {
    halyard_status status = HALYARD_OK;
    list([&](const Listed &of, const auto &) {
        if (!of.is_valid && status == HALYARD_OK) {
            status = fail_invalid(of, program, given, error);
        }
    });
    return status;
}

/// Checks the memory of a plain call: that the same pointers are NULL and the same tensors are in place as when the run
/// was bound, that arrays fit the address space, and that no written array shares elements with another.
inline halyard_status check_memory(const Program &program, const Pointers &given, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    const auto list = [&](const auto &add) { list_memory(program, given, add); };
    const SpanCheck spans = inspect_spans<most_plain_areas>(list);
    if (spans.any_invalid) {
        return fail_missing(list, program, given, error);
    }
    return spans.any_overlap ? check_listed_overlaps<most_plain_areas>(list, given.is_bound, error) : HALYARD_OK;
}

}  // namespace halyard
