#include "core/memory.h"

namespace halyard {

Lattice lattice_of(const Program &program, int index, bool is_y, const void *data) noexcept {
    const TensorPlan &desc = program.plan->tensors[index];
    const ProgramTensor &tensor = program.tensors[index];
    const Side &side = is_y ? tensor.y : tensor.x;
    return {data,
            is_y ? desc.out_bytes : desc.bytes,
            {program.positions.n_batch, program.positions.n_tokens, tensor.n_heads, is_y ? desc.out_dim : desc.in_dim,
             1, 1},
            {side.batch, side.token, side.head, side.element, 0, 0}};
}

halyard_status check_elements(const Area *areas, int n, bool is_bound, halyard_error *error) noexcept {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i && areas[i].is_written; j++) {
            const Area &a = areas[i], &b = areas[j];
            if (a.span.overlaps(b.span) && (!a.has_gaps || !b.has_gaps || may_share_bytes(a.elements, b.elements))) {
                const bool is_its_input = a.name == &y_name && b.name == &x_name && a.tensor == b.tensor;
                return fail(error, HALYARD_ERROR_OVERLAP, NameText(*a.name, is_bound, a.tensor),
                            " shares elements with ", NameText(*b.name, is_bound, b.tensor),
                            is_its_input && a.elements.element_bytes != b.elements.element_bytes
                                ? ", but only an output of its input's dtype can be in place"
                                : "");
            }
        }
    }
    return HALYARD_OK;
}

namespace {

/// Says what is wrong with the pointers of a tensor.
[[gnu::cold]] halyard_status fail_tensor(const Program &program, const Pointers &given, int i, halyard_error *error) {
    const TensorPlan &desc = program.plan->tensors[i];
    const NameText x(x_name, given.is_bound, i), y(y_name, given.is_bound, i);
    const bool lacks_x = desc.reads_x && given.x[i] == nullptr, lacks_y = desc.writes_y && given.y[i] == nullptr;
    if (lacks_x || lacks_y) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, lacks_x ? x : y, " is NULL");
    }
    if (program.tensors[i].in_place && given.x[i] != given.y[i]) {
        return fail(error, HALYARD_ERROR_MISMATCH, y, " is not ", x, ", but the tensor was bound in place");
    }
    const bool has_both = desc.reads_x && desc.writes_y;
    return fail(error, HALYARD_ERROR_OVERFLOW, desc.reads_x ? x : y, has_both ? " or " : "",
                has_both ? Part(y) : Part(""), " leaves the address space");
}

[[gnu::cold]] halyard_status fail_positions(const Program &program, const Pointers &given, halyard_error *error) {
    const NameText name(positions_name, given.is_bound, 0);
    if ((given.positions != nullptr) != program.positions.is_given) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, " is ", program.positions.is_given ? "NULL" : "set",
                    ", but the run was bound ", program.positions.is_given ? "with" : "without", " positions");
    }
    return fail(error, HALYARD_ERROR_OVERFLOW, name, " leaves the address space");
}

}  // namespace

halyard_status check_pointers(const Program &program, const Pointers &given, halyard_error *error) noexcept {
    MemoryRange unused;
    for (int i = 0; i < program.plan->n_tensors; i++) {
        const TensorPlan &desc = program.plan->tensors[i];
        const ProgramTensor &tensor = program.tensors[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        bool is_there = true;
        if (desc.reads_x) {
            is_there = given.x[i] != nullptr && place(given.x[i], tensor.x.reach, &unused);
        }
        if (desc.writes_y) {
            is_there = is_there && given.y[i] != nullptr && place(given.y[i], tensor.y.reach, &unused) &&
                       (!tensor.in_place || given.x[i] == given.y[i]);
        }
        if (!is_there) {
            return fail_tensor(program, given, i, error);
        }
    }
    if (given.angles != nullptr && ((given.positions != nullptr) != program.positions.is_given ||
                                    !place(given.positions, program.positions.reach, &unused))) {
        return fail_positions(program, given, error);
    }
    return HALYARD_OK;
}

}  // namespace halyard
