// halyard._core: version, targets and explain.
#pragma once

#include <nanobind/nanobind.h>

namespace halyard::python {

void add_library(nanobind::module_ &module);

}  // namespace halyard::python
