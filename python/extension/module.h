// What the extension's sources add to the module halyard._core.
#pragma once

#include "refuse.h"

namespace halyard::python {

void add_error(nb::module_ &module);  ///< halyard.Error, as which halyard::error is raised
void add_frequencies(nb::module_ &module);
void add_angles(nb::module_ &module);
void add_prepared(nb::module_ &module);
void add_rotate(nb::module_ &module);

}  // namespace halyard::python
