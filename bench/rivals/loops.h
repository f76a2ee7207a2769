/* The loops of loop.c, in a table for each compiler that was found. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x and y are dense [tokens, heads, head_dim], equal in place; cos and sin are rows [tokens, rotary_dim / 2]. */
typedef void halyard_loop(const void *x, void *y, const float *cos, const float *sin, int64_t tokens, int64_t heads,
                          int64_t head_dim, int64_t rotary_dim);

struct halyard_loops {
    const char *compiler; /* "gcc 12.2.0" */
    /* [dtype - HALYARD_F32][half, interleaved, half to interleaved, interleaved to half; the first two in place] */
    halyard_loop *rotate[3][6];
};

/* Each exists where its compiler was found: HALYARD_LOOPS_GCC, HALYARD_LOOPS_CLANG. */
extern const struct halyard_loops halyard_loops_gcc, halyard_loops_clang;

#ifdef __cplusplus
}
#endif
