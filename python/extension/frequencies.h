// halyard._core.Frequencies.
#pragma once

#include <nanobind/nanobind.h>

namespace halyard::python {

void add_frequencies(nanobind::module_ &module);

}  // namespace halyard::python
