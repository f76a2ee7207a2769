#include "refuse.h"

#include "module.h"

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace nb = nanobind;

namespace halyard::python {
namespace {

PyObject *error_type = nullptr;  // owned for as long as the process lives

void translate(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const error &refusal) {
        // A message is cut at 255 bytes, maybe within a character.
        const std::string sentence = say_in_python(refusal.what());
        const auto message =
            nb::steal(PyUnicode_DecodeUTF8(sentence.data(), static_cast<Py_ssize_t>(sentence.size()), "replace"));
        nb::object raised = nb::handle(error_type)(message);
        const char *name = halyard_status_name(refusal.status());
        raised.attr("status") = name != nullptr ? name : "unknown";
        PyErr_SetObject(error_type, raised.ptr());
    }
}

}  // namespace

std::string say_in_python(std::string sentence) {
    static constexpr std::pair<std::string_view, std::string_view> words[] = {{"kv.", ""},
                                                                              {"args.", ""},
                                                                              {" is NULL", " is None"},
                                                                              {"tensors[0].", "x[0]'s "},
                                                                              {"tensors[1].", "x[1]'s "},
                                                                              {"tensors[2].", "x[2]'s "},
                                                                              {"tensors[", "x["}};
    for (const auto &[library, python] : words) {
        for (auto at = sentence.find(library); at != sentence.npos; at = sentence.find(library, at + python.size())) {
            sentence.replace(at, library.size(), python);
        }
    }
    return sentence;
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
        "What Halyard refuses: a ValueError with a sentence that names the argument and its value.\n\n"
        "``status`` is the name of the C ABI's status, such as ``\"HALYARD_ERROR_WINDOW\"``. Nothing has been "
        "written, but where a GPU failed under way: HALYARD_ERROR_DEVICE.",
        PyExc_ValueError, nullptr);
    if (error_type == nullptr) {
        throw nb::python_error();
    }
    module.attr("Error") = nb::borrow(error_type);
    nb::register_exception_translator(translate);
}

}  // namespace halyard::python
