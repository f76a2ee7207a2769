#include "errors.h"

#include "module.h"

#include <nanobind/stl/string.h>

#include <cmath>
#include <string_view>

namespace halyard::python {
namespace {

PyObject *error_type = nullptr;  // halyard.Error; never released

void translate(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const error &refusal) {
        // The C ABI cuts messages at 255 bytes, maybe within a UTF-8 character.
        const std::string_view bytes = refusal.what();
        const auto message =
            nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
        nb::object raised = nb::handle(error_type)(message);
        const char *name = halyard_status_name(refusal.status());
        raised.attr("status") = name != nullptr ? name : "unknown";
        PyErr_SetObject(error_type, raised.ptr());
    }
}

}  // namespace

double float_in(nb::handle object, const std::string &name) {
    const auto value = cast<double>(object, name);
    const auto stored = static_cast<float>(value);
    if ((stored == 0.0f && value != 0.0) || (std::isinf(stored) && !std::isinf(value))) {
        refuse(HALYARD_ERROR_SCALE, name, " is ", nb::repr(object).c_str(), ", but float32 has no number so ",
               stored == 0.0f ? "small" : "large");
    }
    return value;
}

std::string type_of(nb::handle object) {
    const nb::handle type = object.type();
    const auto module = nb::cast<std::string>(type.attr("__module__"));
    const auto name = nb::cast<std::string>(type.attr("__qualname__"));
    return module == "builtins" ? name : module + "." + name;
}

void add_error(nb::module_ &module) {
    error_type = PyErr_NewExceptionWithDoc(
        "halyard.Error",
        "A ValueError for arguments that Halyard refuses. The message names the argument and its value.\n\n"
        "``status`` is the name of the C ABI's status, such as ``\"HALYARD_ERROR_WINDOW\"``. Nothing has been "
        "written, except after HALYARD_ERROR_DEVICE: then a GPU failed during the work.",
        PyExc_ValueError, nullptr);
    if (error_type == nullptr) {
        throw nb::python_error();
    }
    module.attr("Error") = nb::borrow(error_type);
    nb::register_exception_translator(translate);
}

}  // namespace halyard::python
