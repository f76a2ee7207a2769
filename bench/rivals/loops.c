// All functions of loop.c behind one signature, and those of ceilings.c and kv_loops.c, for one compiler.
#include "loops.h"

enum { F16 = 2, BF16 = 3 };  // as in halyard.h

#include "loop.c"

#include "ceilings.c"

#include "kv_loops.c"

// What a loop takes: both tensors, or one.
#define OUT_OF_PLACE_TENSORS x, y
#define IN_PLACE_TENSORS y

#define ENTRY(name, type, tensors)                                                                                     \
    static void name(const void *from, void *to, const float *cos, const float *sin, int64_t tokens, int64_t heads,    \
                     int64_t head_dim, int64_t rotary_dim) {                                                           \
        const type *x = from;                                                                                          \
        type *y = to;                                                                                                  \
        (void)x;                                                                                                       \
        halyard_loop_##name(tensors, cos, sin, tokens, heads, head_dim, rotary_dim);                                   \
    }
#define ENTRIES(type, dtype)                                                                                           \
    ENTRY(half_##dtype, type, OUT_OF_PLACE_TENSORS)                                                                    \
    ENTRY(interleaved_##dtype, type, OUT_OF_PLACE_TENSORS)                                                             \
    ENTRY(half_to_interleaved_##dtype, type, OUT_OF_PLACE_TENSORS)                                                     \
    ENTRY(interleaved_to_half_##dtype, type, OUT_OF_PLACE_TENSORS)                                                     \
    ENTRY(half_##dtype##_in_place, type, IN_PLACE_TENSORS)                                                             \
    ENTRY(interleaved_##dtype##_in_place, type, IN_PLACE_TENSORS)
ENTRIES(float, f32)
ENTRIES(half_float, f16)
ENTRIES(uint16_t, bf16)

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)
#ifdef __clang__
#define TABLE halyard_loops_clang
#define COMPILER "clang " VERSION(__clang_major__, __clang_minor__, __clang_patchlevel__)
#else
#define TABLE halyard_loops_gcc
#define COMPILER "gcc " VERSION(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)
#endif
#define ROW(dtype)                                                                                                     \
    {                                                                                                                  \
        half_##dtype, interleaved_##dtype, half_to_interleaved_##dtype, interleaved_to_half_##dtype,                   \
            half_##dtype##_in_place, interleaved_##dtype##_in_place                                                    \
    }
const struct halyard_loops TABLE = {COMPILER,
                                    {ROW(f32), ROW(f16), ROW(bf16)},
                                    {{kv_half_bf16, kv_interleaved_bf16, shift_bf16},
                                     {kv_half_e4m3, kv_interleaved_e4m3, shift_e4m3},
                                     {kv_q8_0, 0, shift_q8_0},
                                     {kv_q8_0_hadamard, 0, shift_q8_0_hadamard}},
                                    {{"memcpy", 0, 0, 1, copy_by_libc},
                                     {"copy", 0, 0, 1, copy},
                                     {"stream", 0, 0, 1, stream},
                                     {"multiply", 0, 1, 0, multiply},
                                     {"convert", F16, 1, 1, convert_f16},
                                     {"convert", BF16, 1, 1, convert_bf16},
                                     {"convert and stream", F16, 0, 1, stream_f16},
                                     {"convert and stream", BF16, 0, 1, stream_bf16}}};
