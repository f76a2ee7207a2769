// Makes structs of the C ABI that are zero but for their size.
#pragma once

#include "halyard/halyard_kv.hpp"

template <typename Struct>
Struct sized() {
    return halyard::make_struct<Struct>();
}
