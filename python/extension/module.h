// The functions by which the extension's source files add their classes and functions to the module halyard._core.
#pragma once

#include "errors.h"

namespace halyard::python {

void add_error(nb::module_ &module);  ///< adds halyard.Error, and raises halyard::error as such
void add_frequencies(nb::module_ &module);
void add_angles(nb::module_ &module);
void add_prepared(nb::module_ &module);
void add_rotate(nb::module_ &module);

}  // namespace halyard::python
