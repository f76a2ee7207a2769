// Exceptions of the extension: halyard.Error for arguments that the library or the binding refuses, TypeError for
// objects of a wrong type.
#pragma once

#include <halyard/halyard_kv.hpp>
#include <nanobind/nanobind.h>

#include <sstream>

namespace halyard::python {

namespace nb = nanobind;

/// Concatenates strings and numbers.
template <typename... Parts>
std::string text(const Parts &...parts) {
    std::ostringstream stream;
    (stream << ... << parts);
    return stream.str();
}

/// Throws halyard::error, which Python sees as halyard.Error, with the concatenated parts as its message.
template <typename... Parts>
[[noreturn]] void refuse(halyard_status status, const Parts &...parts) {
    throw error(status, text(parts...));
}

/// The name of an object's type, as "numpy.ndarray" or "list".
std::string type_of(nb::handle object);

/// Converts a Python object to T; throws TypeError, with the argument's name, if it has another type.
template <typename T, typename Text>
T cast(nb::handle object, const Text &name) {
    T value{};
    if (!nb::try_cast(object, value)) {
        throw nb::type_error(text(name, " is a ", type_of(object)).c_str());
    }
    return value;
}

/// Converts a Python number that will be rounded to float32; throws if rounding makes it 0 or infinite.
double float_in(nb::handle object, const std::string &name);

/// A Python string for attribute look-ups. Make it once, so that calls need not make it.
inline nb::object intern(const char *name) { return nb::steal(PyUnicode_InternFromString(name)); }

/// Element i of a tuple, which must have more than i elements.
inline nb::handle at(nb::handle tuple, std::size_t i) {
    return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i));
}

}  // namespace halyard::python
