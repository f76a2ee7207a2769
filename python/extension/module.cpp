// The extension halyard._core: the C ABI as the package's Python calls it.
#include "module.h"

NB_MODULE(_core, module) {
    nanobind::set_leak_warnings(false);  // objects that outlive the interpreter, in caches of others', are no fault
    halyard::python::add_error(module);
    halyard::python::add_library(module);
    halyard::python::add_frequencies(module);
    halyard::python::add_angles(module);
    halyard::python::add_prepared(module);
    halyard::python::add_rotate(module);
}
