// Compiles only if Halyard's declarations of Halide's runtime, and the constants it uses, agree with Halide's headers.
#include <HalideRuntime.h>
#include <HalideRuntimeCuda.h>

#include "cuda/halide_runtime.cpp"

static_assert(halide_buffer_flag_device_dirty == 2);
static_assert(halide_type_int == 0 && halide_type_uint == 1 && halide_type_float == 2);
static_assert(sizeof(halide_type_t) == 4);
