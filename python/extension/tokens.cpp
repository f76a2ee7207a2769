#include "tokens.h"

#include "names.h"

namespace nb = nanobind;

namespace halyard::python {
namespace {

bool is_number(nb::handle argument) {
    const bool is_index = PyIndex_Check(argument.ptr()) && !PyBool_Check(argument.ptr());
    return is_index && (PyLong_Check(argument.ptr()) || !nb::hasattr(argument, "__dlpack__"));
}

}  // namespace

template <typename Numbers>
void Tokens::read(const char *name, nb::handle argument, std::int64_t n_axes, std::int32_t device,
                  halyard_status status, Numbers &out) {
    if (is_number(argument)) {
        if (device != Array::on_cpu) {
            refuse(HALYARD_ERROR_UNSUPPORTED, name,
                   " is a number, but for tensors on a GPU it has to be an array there");
        }
        int overflow = 0;
        start_ = PyLong_AsLongLongAndOverflow(nb::steal(PyNumber_Index(argument.ptr())).ptr(), &overflow);
        if (overflow != 0) {
            refuse(status, name, " is a start that is not an int64");
        }
        out.type = HALYARD_INT64;
        out.consecutive = 1;
        out.data = &start_;
        out.shape[0] = out.shape[1] = 1;
        return;
    }
    const auto &array = array_.emplace(argument, name, device);
    out.type = array.index_type();
    out.data = array.data();
    const int own = n_axes > 1 && array.n_dims() != 1 ? 1 : 0, n = array.n_dims() - own;
    if ((n != 1 && n != 2) || (own == 1 && array.size(0) != n_axes)) {
        const auto axes = n_axes > 1 ? text(n_axes, ", ") : "";
        array.refuse_shape(text(n_axes > 1 ? "[tokens] where all axes are equal, [" : "[", axes, "tokens], [", axes,
                                "batch, tokens] or [", axes, "batch, 1]"));
    }
    out.shape[0] = n == 2 ? array.size(own) : 1;
    out.strides[0] = n == 2 ? array.stride(own) : 0;
    out.shape[1] = array.size(own + n - 1);
    out.strides[1] = array.stride(own + n - 1);
    out.consecutive = n == 2 && out.shape[1] == 1 ? 1 : 0;
}

const halyard_positions *Positions::read(const char *name, nb::handle argument, std::int64_t n_axes,
                                         std::int32_t device) {
    if (argument.is_none()) {
        return nullptr;
    }
    positions_ = make_struct<halyard_positions>();
    Tokens::read(name, argument, n_axes, device, HALYARD_ERROR_POSITION, positions_);
    const bool has_axes = n_axes > 1 && array_ && array_->n_dims() != 1;  // else all are equal
    positions_.n_axes = has_axes ? n_axes : 1;
    positions_.stride_axis = has_axes ? array_->stride(0) : 0;
    return &positions_;
}

const halyard_slots *Slots::read(nb::handle argument, const std::string &duplicates, std::int64_t n_slots,
                                 std::int32_t device) {
    if (argument.is_none()) {
        return nullptr;
    }
    slots_ = make_struct<halyard_slots>();
    slots_.policy = value_of(slot_policies, "duplicate_slots", duplicates);
    Tokens::read("slots", argument, 1, device, HALYARD_ERROR_SLOT, slots_);
    make_scratch(n_slots);
    return &slots_;
}

void Slots::make_scratch(std::int64_t n_slots) {
    if (slots_.policy == HALYARD_SLOTS_CHECK) {
        scratch_.resize(static_cast<std::size_t>(n_slots / 8 + 1));
        slots_.scratch = scratch_.data();
        slots_.scratch_bytes = static_cast<std::int64_t>(scratch_.size());
    }
}

}  // namespace halyard::python
