#include "core/memory.h"

namespace halyard {

Lattice elements_of(const Program &program, const Pointers &given, int index, bool is_y) noexcept {
    const TensorPlan &tensor_plan = program.plan->tensors[index];
    const TensorProgram &tensor = program.tensors[index];
    const Side &side = is_y ? tensor.y : tensor.x;
    return {is_y ? given.y[index] : given.x[index],
            is_y ? tensor_plan.out_bytes : tensor_plan.bytes,
            {program.positions.n_batch, program.positions.n_tokens, tensor.n_heads,
             is_y ? tensor_plan.out_dim : tensor_plan.in_dim, 1, 1},
            {side.batch, side.token, side.head, side.element, 0, 0}};
}

halyard_status check_overlaps(const Area *areas, int n, bool is_bound, halyard_error *error) noexcept {
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

halyard_status fail_invalid(const Listed &of, const Program &program, const Pointers &given,
                            halyard_error *error) noexcept {
    const ArgumentName &name = *of.name;
    const int tensor = of.tensor;
    const void *const data = of.data;
    const NameText text(name, given.is_bound, tensor), x(x_name, given.is_bound, tensor);
    if (name.is_optional && (data == nullptr || (&name == &positions_name && !program.positions.is_given))) {
        return fail(error, HALYARD_ERROR_MISMATCH, text, " is ", data == nullptr ? "NULL" : "set",
                    ", but the run was bound ", data == nullptr ? "with" : "without", " positions");
    }
    const bool is_y = &name == &y_name, is_in_place = is_y && program.tensors[tensor].in_place;
    const void *const its_x = is_in_place ? given.x[tensor] : data;
    if (data == nullptr || its_x == nullptr) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, its_x == nullptr && is_in_place ? x : text, " is NULL");
    }
    if (data != its_x) {
        return fail(error, HALYARD_ERROR_MISMATCH, text, " is not ", x, ", but the tensor was bound in place");
    }
    const TensorPlan &tensor_plan = program.plan->tensors[tensor];
    const bool is_either = (is_y || &name == &x_name) && tensor_plan.reads_x && tensor_plan.writes_y;
    const NameText y(y_name, given.is_bound, tensor);
    return fail(error, HALYARD_ERROR_OVERFLOW, is_either ? x : text, is_either ? " or " : "",
                is_either ? Part(y) : Part(""), " leaves the address space");
}

}  // namespace halyard
