#include "tokens.h"

#include "names.h"

#include <map>

namespace nb = nanobind;

namespace halyard::python {

namespace {

bool is_number(nb::handle argument) {
    return PyLong_Check(argument.ptr()) || (PyIndex_Check(argument.ptr()) && !nb::hasattr(argument, "__dlpack__"));
}

/// The number of the first token; throws `status` where it is no int64.
std::int64_t read_start(const char *name, nb::handle argument, halyard_status status, std::int32_t device) {
    if (device != Array::on_cpu) {
        refuse(HALYARD_ERROR_UNSUPPORTED,
               std::string(name) + " is a number, but for tensors on a GPU it has to be an array there");
    }
    const auto index = nb::steal(PyNumber_Index(argument.ptr()));
    int overflow = 0;
    const auto start = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0) {
        refuse(status, std::string(name) + " is a start that is not an int64");
    }
    return start;
}

}  // namespace

const halyard_positions *Positions::read(const char *name, nb::handle argument, std::int64_t n_axes,
                                         std::int32_t device) {
    if (argument.is_none()) {
        return nullptr;
    }
    positions_ = make_struct<halyard_positions>();
    positions_.n_axes = n_axes;
    if (is_number(argument)) {
        start_ = read_start(name, argument, HALYARD_ERROR_POSITION, device);
        positions_.type = HALYARD_INT64;
        positions_.consecutive = 1;
        positions_.data = &start_;
        positions_.shape[0] = positions_.shape[1] = 1;
        return &positions_;
    }
    array_.emplace(argument, name, device);
    const auto &array = *array_;
    positions_.type = array.index_type();
    positions_.data = array.data();
    const int own = n_axes > 1 ? 1 : 0, n = array.n_dims() - own;
    if ((n != 1 && n != 2) || (own == 1 && array.size(0) != n_axes)) {
        const auto axes = own == 1 ? std::to_string(n_axes) + ", " : "";
        refuse(HALYARD_ERROR_SHAPE, std::string(name) + " has the shape " + array.shape_text() + ", but has to be [" +
                                        axes + "tokens], [" + axes + "batch, tokens] or [" + axes + "batch, 1]");
    }
    positions_.stride_axis = own == 1 ? array.stride(0) : 0;
    positions_.shape[0] = n == 2 ? array.size(own) : 1;
    positions_.strides[0] = n == 2 ? array.stride(own) : 0;
    positions_.shape[1] = array.size(own + n - 1);
    positions_.strides[1] = array.stride(own + n - 1);
    positions_.consecutive = n == 2 && positions_.shape[1] == 1 ? 1 : 0;
    return &positions_;
}

const halyard_slots *Slots::read(nb::handle argument, const char *duplicates, std::int64_t n_slots,
                                 std::int32_t device) {
    if (argument.is_none()) {
        return nullptr;
    }
    slots_ = make_struct<halyard_slots>();
    slots_.policy = value_of(slot_policies, "duplicate_slots", duplicates);
    if (is_number(argument)) {
        start_ = read_start("slots", argument, HALYARD_ERROR_SLOT, device);
        slots_.type = HALYARD_INT64;
        slots_.data = &start_;
        slots_.shape[0] = slots_.shape[1] = 1;
        slots_.consecutive = 1;
    } else {
        read_array(argument, device);
    }
    if (slots_.policy == HALYARD_SLOTS_CHECK) {
        scratch_.resize(static_cast<std::size_t>(n_slots / 8 + 1));
        slots_.scratch = scratch_.data();
        slots_.scratch_bytes = static_cast<std::int64_t>(scratch_.size());
    }
    return &slots_;
}

void Slots::read_array(nb::handle argument, std::int32_t device) {
    array_.emplace(argument, "slots", device);
    const auto &array = *array_;
    slots_.type = array.index_type();
    slots_.data = array.data();
    const int n = array.n_dims();
    if (n != 1 && n != 2) {
        refuse(HALYARD_ERROR_SHAPE,
               "slots has the shape " + array.shape_text() + ", but has to be [tokens], [batch, tokens] or [batch, 1]");
    }
    slots_.shape[0] = n == 2 ? array.size(0) : 1;
    slots_.strides[0] = n == 2 ? array.stride(0) : 0;
    slots_.shape[1] = array.size(n - 1);
    slots_.strides[1] = array.stride(n - 1);
    slots_.consecutive = n == 2 && slots_.shape[1] == 1 ? 1 : 0;
}

const halyard_executor *find_executor(std::int32_t n_threads) {
    if (n_threads == 1) {
        return nullptr;
    }
    static auto *const pools = new std::map<std::int32_t, pool>;  // threads are not joined where the process ends
    auto found = pools->find(n_threads);
    if (found == pools->end()) {
        found = pools->emplace(n_threads, pool(n_threads)).first;
    }
    return found->second.executor();
}

}  // namespace halyard::python
