/* The loops of loop.c, ceilings.c and kv_loops.c, in a table for each compiler that was found. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x and y are dense [tokens, heads, head_dim], equal in place; cos and sin are rows [tokens, rotary_dim / 2]. */
typedef void halyard_loop(const void *x, void *y, const float *cos, const float *sin, int64_t tokens, int64_t heads,
                          int64_t head_dim, int64_t rotary_dim);

/* One tensor of the KV path, whose x is bf16; or a layer's cached keys that move, all of their heads by the first row
 * of cos and sin: then only y, slots, sizes, cos and sin are read. */
struct halyard_kv_part {
    const uint16_t *x;
    int64_t stride_token, stride_head; /* of x, in elements */
    int64_t heads, head_dim;
    int64_t rotary_dim, rotary_offset; /* 0: it is not rotated */
    int64_t norm_size;                 /* 0: no norm; head_dim, or rotary_offset; a multiple of 16 */
    const uint16_t *weight;            /* bf16 [norm_size] */
    float weight_offset;               /* 1 where the weight is 1 + w, else 0 */
    void *y;                           /* dense [row, heads, head_dim] */
    const int64_t *slots;              /* a token's row; NULL: rows are tokens */
    float r;                           /* what e4m3 is multiplied by */
    int64_t tokens;
    const float *cos, *sin; /* rows [tokens, rotary_dim / 2] */
    float eps;
};
typedef void halyard_kv_loop(const struct halyard_kv_part *part);

/* How a cache is stored. Records are ggml's q8_0, after a Hadamard transform of the whole head or without; loops that
 * write them take whole heads of at most 256 elements, in half pairing or not rotated, without a norm. */
enum { HALYARD_LOOP_BF16, HALYARD_LOOP_E4M3, HALYARD_LOOP_Q8_0, HALYARD_LOOP_Q8_0_HADAMARD, HALYARD_LOOP_STORAGES };
/* By pairing, and of keys that move in place. */
enum { HALYARD_LOOP_HALF, HALYARD_LOOP_INTERLEAVED, HALYARD_LOOP_SHIFT, HALYARD_LOOP_WAYS };

/* Rows of bytes, a stride apart; x and y are aligned to 64 bytes. */
typedef void halyard_ceiling_loop(const void *x, void *y, int64_t n_rows, int64_t row_bytes, int64_t stride);
struct halyard_ceiling {
    const char *name;
    int dtype; /* HALYARD_F16 or _BF16, whose conversion it is; 0: memory's */
    int in_place, out_of_place;
    halyard_ceiling_loop *loop; /* or NULL */
};
enum { HALYARD_CEILINGS = 8 };

struct halyard_loops {
    const char *compiler; /* "gcc 12.2.0" */
    /* [dtype - HALYARD_F32][half, interleaved, half to interleaved, interleaved to half; the first two in place] */
    halyard_loop *rotate[3][6];
    halyard_kv_loop *kv[HALYARD_LOOP_STORAGES][HALYARD_LOOP_WAYS]; /* or NULL */
    struct halyard_ceiling ceilings[HALYARD_CEILINGS];
};

/* Each exists where its compiler was found: HALYARD_LOOPS_GCC, HALYARD_LOOPS_CLANG. */
extern const struct halyard_loops halyard_loops_gcc, halyard_loops_clang;

#ifdef __cplusplus
}
#endif
