/* What Python (native.py) hands to C: it reads the structs from here. */
#pragma once

#include <stdint.h>

/* Everything that is timed, behind the signature of halyard_run and halyard_run_bound. Of loops, `self` is one of the
 * structs below, and they take nothing else. */
typedef int32_t bench_function(const void *self, const void *args, void *error);
#define BENCH_API __attribute__((visibility("default")))
#define BENCH_LOOP(name) BENCH_API int32_t bench_##name(const void *self, const void *args, void *error)

/* A call of one, with Halyard's arguments, which are copied for each call, since an engine fills them anew. */
struct bench_step {
    bench_function *function;
    const void *self;
    uint8_t args[80];
};

/* One way to do a work: the steps of a call. Copies of the work's tensors lie `stride` bytes apart, and calls use them
 * in turn: so the pointers at `places` are moved, from the copy that they are in. */
struct bench_way {
    const struct bench_step *steps;
    int64_t n_steps;
    char ***places;
    int64_t n_places, stride, n_copies, copy;
};

/* A rotation: x and y are dense [tokens, heads, head_dim], equal in place. Or one tensor of the KV path, whose x is
 * bf16. Or a layer's cached keys that move, all of their heads by the first row of cos and sin: then only y, slots,
 * sizes, cos and sin are read. */
struct bench_loop {
    const void *x;
    int64_t stride_token, stride_head; /* of x, in elements */
    int64_t tokens, heads, head_dim;
    int64_t rotary_dim, rotary_offset; /* 0: it is not rotated */
    const float *cos, *sin;            /* rows [tokens, rotary_dim / 2] */
    int64_t norm_size;                 /* 0: no norm; head_dim, or rotary_offset; a multiple of 16 */
    const uint16_t *weight;            /* bf16 [norm_size] */
    float weight_offset;               /* 1 where the weight is 1 + w, else 0 */
    float eps;
    void *y;              /* dense [row, heads, head_dim] */
    const int64_t *slots; /* a token's row; NULL: rows are tokens */
    float r;              /* what e4m3 is multiplied by */
};

/* Rows of bytes, a stride apart; x and y are aligned to 64 bytes. */
struct bench_ceiling {
    const void *x;
    void *y;
    int64_t n_rows, row_bytes, stride;
};
