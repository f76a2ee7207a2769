// halyard._core.rotate.
#pragma once

#include <nanobind/nanobind.h>

namespace halyard::python {

void add_rotate(nanobind::module_ &module);

}  // namespace halyard::python
