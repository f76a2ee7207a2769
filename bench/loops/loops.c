// All C loops, in a library for each compiler. prepared.py builds the names of their functions.
#include "loops.h"

#include "rope.c"

#include "ceilings.c"

#include "kv_loops.c"

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)
#ifdef __clang__
BENCH_API const char *const bench_compiler = "clang " VERSION(__clang_major__, __clang_minor__, __clang_patchlevel__);
#else
BENCH_API const char *const bench_compiler = "gcc " VERSION(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif

// The tensors that a C loop takes: x and y, or in place y alone.
#define OUT_OF_PLACE_TENSORS loop->x, loop->y
#define IN_PLACE_TENSORS loop->y

#define ENTRY(name, tensors)                                                                                           \
    BENCH_LOOP(rotate_##name) {                                                                                        \
        const struct bench_loop *const loop = self;                                                                    \
        halyard_loop_##name(tensors, loop->cos, loop->sin, loop->tokens, loop->heads, loop->head_dim,                  \
                            loop->rotary_dim);                                                                         \
        return 0;                                                                                                      \
    }
#define ENTRIES(dtype)                                                                                                 \
    ENTRY(half_##dtype, OUT_OF_PLACE_TENSORS)                                                                          \
    ENTRY(interleaved_##dtype, OUT_OF_PLACE_TENSORS)                                                                   \
    ENTRY(half_to_interleaved_##dtype, OUT_OF_PLACE_TENSORS)                                                           \
    ENTRY(interleaved_to_half_##dtype, OUT_OF_PLACE_TENSORS)                                                           \
    ENTRY(half_##dtype##_in_place, IN_PLACE_TENSORS)                                                                   \
    ENTRY(interleaved_##dtype##_in_place, IN_PLACE_TENSORS)
ENTRIES(f32)
ENTRIES(f16)
ENTRIES(bf16)
