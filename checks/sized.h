// Makes structs of the C ABI whose size field is set and whose other fields are zero.
#pragma once

#include "halyard/halyard_kv.hpp"

template <typename Struct>
Struct sized() {
    return halyard::make_struct<Struct>();
}
