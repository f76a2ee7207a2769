// halyard._core.new_array.
#pragma once

#include <nanobind/nanobind.h>

namespace halyard::python {

void add_new_array(nanobind::module_ &module);

}  // namespace halyard::python
