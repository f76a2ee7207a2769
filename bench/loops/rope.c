// RoPE as the author of an engine would write it in C, vectorised by the compiler. The bench compiles it for
// this machine and times it; `./run bench modelled` compiles it for other CPUs.
// x and y are dense [tokens, heads, head_dim], cos and sin are rows [tokens, rotary_dim / 2]. The compiler may contract
// to FMA: compile with -O3 -ffp-contract=fast and the CPU's name.
#include <stdint.h>

#ifdef __clang__
typedef __fp16 half_float;  // _Float16 needs Clang 15 on x86
#else
typedef _Float16 half_float;
#endif

static inline float load_f32(const float *x) { return *x; }
static inline void store_f32(float *y, float value) { *y = value; }
static inline float load_f16(const half_float *x) { return (float)*x; }
static inline void store_f16(half_float *y, float value) { *y = (half_float)value; }

union bits {
    float value;
    uint32_t word;
};

static inline float load_bf16(const uint16_t *x) {
    const union bits bits = {.word = (uint32_t)*x << 16};
    return bits.value;
}

static inline void store_bf16(uint16_t *y, float value) {
    const union bits bits = {.value = value};
    *y = (uint16_t)((bits.word + 0x7fff + ((bits.word >> 16) & 1)) >> 16);
}

// Where in a head the two elements of pair k are.
#define HALF_0 k
#define HALF_1 (k + pairs)
#define INTERLEAVED_0 (2 * k)
#define INTERLEAVED_1 (2 * k + 1)

#define ROTATE(x, y, dtype, in, out, copies)                                                                           \
    const int64_t pairs = rotary_dim / 2;                                                                              \
    for (int64_t t = 0; t < tokens; t++) {                                                                             \
        for (int64_t h = 0; h < heads; h++) {                                                                          \
            const int64_t head = (t * heads + h) * head_dim;                                                           \
            for (int64_t k = 0; k < pairs; k++) {                                                                      \
                const float c = cos[t * pairs + k], s = sin[t * pairs + k];                                            \
                const float x0 = load_##dtype(&x[head + in##_0]), x1 = load_##dtype(&x[head + in##_1]);                \
                const float y0 = x0 * c - x1 * s, y1 = x1 * c + x0 * s;                                                \
                store_##dtype(&y[head + out##_0], y0);                                                                 \
                store_##dtype(&y[head + out##_1], y1);                                                                 \
            }                                                                                                          \
            for (int64_t i = rotary_dim; copies && i < head_dim; i++) {                                                \
                y[head + i] = x[head + i];                                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }

#define NOT_INLINED __attribute__((noinline))  // GCC loses `restrict` when it inlines

#define OUT_OF_PLACE(name, type, dtype, in, out)                                                                       \
    NOT_INLINED void halyard_loop_##name##_##dtype(                                                                    \
        const type *restrict x, type *restrict y, const float *restrict cos, const float *restrict sin,                \
        int64_t tokens, int64_t heads, int64_t head_dim, int64_t rotary_dim) {                                         \
        ROTATE(x, y, dtype, in, out, 1)                                                                                \
    }

#define IN_PLACE(name, type, dtype, in)                                                                                \
    NOT_INLINED void halyard_loop_##name##_##dtype##_in_place(type *restrict x, const float *restrict cos,             \
                                                              const float *restrict sin, int64_t tokens,               \
                                                              int64_t heads, int64_t head_dim, int64_t rotary_dim) {   \
        ROTATE(x, x, dtype, in, in, 0)                                                                                 \
    }

#define LOOPS(type, dtype)                                                                                             \
    OUT_OF_PLACE(half, type, dtype, HALF, HALF)                                                                        \
    OUT_OF_PLACE(interleaved, type, dtype, INTERLEAVED, INTERLEAVED)                                                   \
    OUT_OF_PLACE(half_to_interleaved, type, dtype, HALF, INTERLEAVED)                                                  \
    OUT_OF_PLACE(interleaved_to_half, type, dtype, INTERLEAVED, HALF)                                                  \
    IN_PLACE(half, type, dtype, HALF)                                                                                  \
    IN_PLACE(interleaved, type, dtype, INTERLEAVED)

LOOPS(float, f32)
LOOPS(half_float, f16)
LOOPS(uint16_t, bf16)
