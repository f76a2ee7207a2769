// What the extension's sources add to the module halyard._core.
#pragma once

#include <nanobind/nanobind.h>

namespace halyard::python {

void add_error(nanobind::module_ &module);  ///< halyard.Error, as which halyard::error is raised
void add_frequencies(nanobind::module_ &module);
void add_angles(nanobind::module_ &module);
void add_prepared(nanobind::module_ &module);
void add_rotate(nanobind::module_ &module);

}  // namespace halyard::python
