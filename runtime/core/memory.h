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

/// What the caller calls an argument; %d is the number of the tensor.
struct ArgumentName {
    const char *of_run, *of_bound_run;
};
inline constexpr ArgumentName x_name = {"x[%d].data", "args.x[%d]"}, y_name = {"y[%d].data", "args.y[%d]"},
                              positions_name = {"positions.data", "args.positions"},
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
    char text_[40];
};

/// The elements of a tensor that begins at data.
Lattice lattice_of(const Program &program, int index, const Side &side, std::int64_t dim, std::int64_t element_bytes,
                   const void *data) noexcept;

/// Calls add(is_written, name, tensor, span, lattice) for all memory of a plain call, for the KV path too: what is read
/// first. lattice() tells the elements of what may have gaps; where it is NULL, the memory is all of its span. (Inline,
/// so that the check of spans costs a few comparisons.)
template <typename Add>
[[gnu::always_inline]] inline void list_memory(const Program &program, const Pointers &given, const Add &add) {
    const halyard_plan &plan = *program.plan;
    const auto add_tensors = [&](bool is_written) {
        for (int i = 0; i < plan.n_tensors; i++) {
            const TensorPlan &desc = plan.tensors[i];
            const ProgramTensor &tensor = program.tensors[i];
            if (tensor.n_heads == 0 || !(is_written ? desc.writes_y : desc.reads_x && !tensor.in_place)) {
                continue;  // in place, y is the same
            }
            const Side &side = is_written ? tensor.y : tensor.x;
            const void *const data = is_written ? given.y[i] : given.x[i];
            MemoryRange span;
            place(data, side.reach, &span);
            add(is_written, is_written ? y_name : x_name, i, span, [&] {
                return is_written ? lattice_of(program, i, side, desc.out_dim, desc.out_bytes, data)
                                  : lattice_of(program, i, side, desc.in_dim, desc.bytes, data);
            });
        }
    };
    add_tensors(false);
    if (program.positions.is_given) {
        MemoryRange span;
        place(given.positions, program.positions.reach, &span);
        add(false, positions_name, 0, span, nullptr);
    }
    if (given.angles != nullptr) {
        add(false, cos_name, 0, given.angles->cos_memory, nullptr);
        add(false, sin_name, 0, given.angles->sin_memory, nullptr);
    }
    add_tensors(true);
}

/// Whether spans that are written meet any other. `list` is called with a function as list_memory is.
template <int most, typename List>
[[gnu::always_inline]] inline bool any_spans_meet(const List &list) {
    MemoryRange spans[most];
    int n = 0;
    unsigned meets = 0;  // no branches, for the cost of a run
    list([&](bool is_written, const ArgumentName &, int, const MemoryRange &span, const auto &) {
        if (is_written) {
            for (int j = 0; j < n; j++) {
                meets |=
                    static_cast<unsigned>(span.begin < spans[j].end) & static_cast<unsigned>(spans[j].begin < span.end);
            }
        }
        spans[n++] = span;
    });
    return meets != 0;
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
    list([&](bool is_written, const ArgumentName &name, int tensor, const MemoryRange &span, const auto &lattice) {
        Area &area = areas[n++];
        area = {&name, tensor, is_written, false, span, {}};
        if constexpr (!std::is_null_pointer_v<std::decay_t<decltype(lattice)>>) {
            area.has_gaps = true;
            area.elements = lattice();
        }
    });
    return check_elements(areas, n, is_bound, error);
}

/// How many areas a plain call has at most.
inline constexpr int most_plain_areas = 2 * HALYARD_MAX_TENSORS + 3;

/// Checks that pointers are there and in place as they were bound, and that arrays do not leave the address space.
halyard_status check_pointers(const Program &program, const Pointers &given, halyard_error *error) noexcept;

/// The same, and that nothing written by a plain call shares elements with anything else.
inline halyard_status check_memory(const Program &program, const Pointers &given, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_pointers(program, given, error));
    const auto list = [&](const auto &add) { list_memory(program, given, add); };
    return any_spans_meet<most_plain_areas>(list)
               ? check_listed_elements<most_plain_areas>(list, given.is_bound, error)
               : HALYARD_OK;
}

}  // namespace halyard
