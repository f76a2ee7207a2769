// Exceptions of the extension: halyard.Error for what the library or the binding refuses, TypeError for what no array
// is.
#pragma once

#include <halyard/halyard_kv.hpp>
#include <nanobind/nanobind.h>

#include <string>

namespace halyard::python {

/// Throws halyard::error, which Python sees as halyard.Error.
[[noreturn]] inline void refuse(halyard_status status, const std::string &message) { throw error(status, message); }

/// The C ABI's sentences speak of its fields, which have other names here.
std::string say_in_python(std::string sentence);

/// The name of an object's type, as "numpy.ndarray" or "list".
std::string type_of(nanobind::handle object);

}  // namespace halyard::python
