// Exceptions of the extension: halyard.Error for what the library or the binding refuses, TypeError for what no array
// is.
#pragma once

#include <halyard/halyard_kv.hpp>
#include <nanobind/nanobind.h>

#include <sstream>

namespace halyard::python {

namespace nb = nanobind;

/// A sentence of parts, each of which is a text or a number.
template <typename... Parts>
std::string text(const Parts &...parts) {
    std::ostringstream sentence;
    (sentence << ... << parts);
    return sentence.str();
}

/// Throws halyard::error, which Python sees as halyard.Error.
template <typename... Parts>
[[noreturn]] void refuse(halyard_status status, const Parts &...parts) {
    throw error(status, text(parts...));
}

/// The name of an object's type, as "numpy.ndarray" or "list".
std::string type_of(nb::handle object);

/// An object as a number or a word; throws TypeError for what is none.
template <typename T, typename Text>
T cast(nb::handle object, const Text &name) {
    T value{};
    if (!nb::try_cast(object, value)) {
        throw nb::type_error(text(name, " is a ", type_of(object)).c_str());
    }
    return value;
}

/// A number that a float32 is made of; throws for one that would become another one's: 0, or an infinity.
double float_in(nb::handle object, const std::string &name);

/// A name that is looked up at each call, made once.
inline nb::object intern(const char *name) { return nb::steal(PyUnicode_InternFromString(name)); }

/// The member i of a tuple. Those that come here have as many as are asked for.
inline nb::handle at(nb::handle tuple, std::size_t i) {
    return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i));
}

}  // namespace halyard::python
