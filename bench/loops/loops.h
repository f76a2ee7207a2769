/* The structs that Python passes to the bench's C code. native.py parses their fields from this file. */
#pragma once

#include <stdint.h>

/* Everything that is timed has the signature of halyard_run and halyard_run_bound. C loops and ceilings read only
 * `self`, one of the structs below. */
typedef int32_t bench_function(const void *self, const void *args, void *error);
#define BENCH_API __attribute__((visibility("default")))
#define BENCH_LOOP(name) BENCH_API int32_t bench_##name(const void *self, const void *args, void *error)

/* A call of such a function. Halyard's arguments are copied before each call, as an engine would fill them anew. */
struct bench_step {
    bench_function *function;
    const void *self;
    uint8_t args[80];
};

/* A timed call, made of steps. There are n_copies of the tensors, `stride` bytes apart, and each call uses the next
 * copy. So before each call the pointers at `places`, which now point into the copy of index `copy`, are advanced. */
struct bench_call {
    const struct bench_step *steps;
    int64_t n_steps;
    char ***places;
    int64_t n_places, stride, n_copies, copy;
};

/* What a C loop works on. A rotation: x and y are dense [tokens, heads, head_dim], equal in place. Or one tensor of the
 * KV path, whose x is bf16. Or the cached keys of a layer that are re-rotated, all by the first row of cos and sin:
 * then only y, slots, sizes, cos and sin are read. */
struct bench_loop {
    const void *x;
    int64_t stride_token, stride_head; /* of x, in elements */
    int64_t tokens, heads, head_dim;
    int64_t rotary_dim, rotary_offset; /* rotary_dim 0: no rotation */
    const float *cos, *sin;            /* rows [tokens, rotary_dim / 2] */
    int64_t norm_size;                 /* 0: no norm; head_dim, or rotary_offset; a multiple of 16 */
    const uint16_t *weight;            /* bf16 [norm_size] */
    float weight_offset;               /* 1 where the weight is 1 + w, else 0 */
    float eps;
    void *y;              /* dense [row, heads, head_dim] */
    const int64_t *slots; /* a token's row; NULL: rows are tokens */
    float inverse_scale;  /* 1 / the scale of e4m3 */
};

/* Rows of bytes, a stride apart; x and y are aligned to 64 bytes. */
struct bench_ceiling {
    const void *x;
    void *y;
    int64_t n_rows, row_bytes, stride;
};
