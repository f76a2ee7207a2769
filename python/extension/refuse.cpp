#include "refuse.h"

#include "module.h"

#include <cstring>
#include <exception>

namespace nb = nanobind;

namespace halyard::python {
namespace {

PyObject *error_type = nullptr;  // owned for as long as the process lives

void translate(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const error &refusal) {
        // A message is cut at 255 bytes, maybe within a character.
        const auto message = nb::steal(
            PyUnicode_DecodeUTF8(refusal.what(), static_cast<Py_ssize_t>(std::strlen(refusal.what())), "replace"));
        nb::object raised = nb::handle(error_type)(message);
        const char *name = halyard_status_name(refusal.status());
        raised.attr("status") = name != nullptr ? name : "unknown";
        PyErr_SetObject(error_type, raised.ptr());
    }
}

}  // namespace

void add_error(nb::module_ &module) {
    error_type = PyErr_NewExceptionWithDoc(
        "halyard.Error",
        "What Halyard refuses: a ValueError with a sentence that names the argument and its value.\n\n"
        "``status`` is the name of the C ABI's status, such as ``\"HALYARD_ERROR_WINDOW\"``. Nothing has been written.",
        PyExc_ValueError, nullptr);
    if (error_type == nullptr) {
        throw nb::python_error();
    }
    module.attr("Error") = nb::borrow(error_type);
    nb::register_exception_translator(translate);
}

}  // namespace halyard::python
