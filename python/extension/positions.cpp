#include "positions.h"

#include "enum_names.h"

namespace halyard::python {
namespace {

bool is_number(nb::handle argument) {
    const bool is_index = PyIndex_Check(argument.ptr()) && !PyBool_Check(argument.ptr());
    return is_index && (PyLong_Check(argument.ptr()) || !nb::hasattr(argument, "__dlpack__"));
}

}  // namespace

template <typename Numbers>
const Numbers *Tokens<Numbers>::read(const char *name, nb::handle argument, std::int64_t n_axes, std::int32_t device) {
    constexpr bool are_positions = std::is_same_v<Numbers, halyard_positions>;
    if (argument.is_none()) {
        return nullptr;
    }
    numbers_ = make_struct<Numbers>();
    if constexpr (are_positions) {
        numbers_.n_axes = 1;  // one array for all axes
    }
    if (is_number(argument)) {
        if (device != Array::on_cpu) {
            refuse(HALYARD_ERROR_UNSUPPORTED, name,
                   " is a number, but for tensors on a GPU it has to be an array there");
        }
        int overflow = 0;
        start_ = PyLong_AsLongLongAndOverflow(nb::steal(PyNumber_Index(argument.ptr())).ptr(), &overflow);
        if (overflow != 0) {
            refuse(are_positions ? HALYARD_ERROR_POSITION : HALYARD_ERROR_SLOT, name,
                   " is a start that is not an int64");
        }
        numbers_.type = HALYARD_INT64;
        numbers_.consecutive = 1;
        numbers_.data = &start_;
        numbers_.shape[0] = numbers_.shape[1] = 1;
        return &numbers_;
    }
    const auto &array = array_.emplace(argument, name, device);
    numbers_.type = array.index_type();
    numbers_.data = array.data();
    const int own = n_axes > 1 && array.n_dims() != 1 ? 1 : 0, n = array.n_dims() - own;
    if ((n != 1 && n != 2) || (own == 1 && array.size(0) != n_axes)) {
        const auto axes = n_axes > 1 ? text(n_axes, ", ") : "";
        array.refuse_shape(text(n_axes > 1 ? "[tokens] where all axes are equal, [" : "[", axes, "tokens], [", axes,
                                "batch, tokens] or [", axes, "batch, 1]"));
    }
    if constexpr (are_positions) {
        numbers_.n_axes = own == 1 ? n_axes : 1;
        numbers_.stride_axis = own == 1 ? array.stride(0) : 0;
    }
    numbers_.shape[0] = n == 2 ? array.size(own) : 1;
    numbers_.strides[0] = n == 2 ? array.stride(own) : 0;
    numbers_.shape[1] = array.size(own + n - 1);
    numbers_.strides[1] = array.stride(own + n - 1);
    numbers_.consecutive = n == 2 && numbers_.shape[1] == 1 ? 1 : 0;
    return &numbers_;
}

template class Tokens<halyard_positions>;

const halyard_slots *Slots::read(nb::handle argument, const std::string &duplicates, std::int64_t n_slots,
                                 std::int32_t device) {
    const auto *const slots = Tokens::read("slots", argument, 1, device);
    if (slots != nullptr) {
        numbers_.policy = value_of(slot_policies, "duplicate_slots", duplicates);
        make_scratch(n_slots);
    }
    return slots;
}

void Slots::make_scratch(std::int64_t n_slots) {
    if (numbers_.policy == HALYARD_SLOTS_CHECK) {
        scratch_.resize(static_cast<std::size_t>(n_slots / 8 + 1));
        numbers_.scratch = scratch_.data();
        numbers_.scratch_bytes = static_cast<std::int64_t>(scratch_.size());
    }
}

}  // namespace halyard::python
