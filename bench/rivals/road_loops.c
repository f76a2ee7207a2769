// A rival: the road from projection to cache as the author of an engine would write it in C, in one pass over each
// head: norm, rotation, conversion, store by slot. Slots are not checked. Sums have 16 partial sums, so that the
// compiler can make vectors of them. Compile with -O3 -ffp-contract=fast and the CPU's name.
#include "road_loops.h"

#include <math.h>

union bits {
    float value;
    uint32_t word;
};

static inline float load(uint16_t x) {
    const union bits bits = {.word = (uint32_t)x << 16};
    return bits.value;
}

static inline uint16_t to_bf16(float value) {
    const union bits bits = {.value = value};
    return (uint16_t)((bits.word + 0x7fff + ((bits.word >> 16) & 1)) >> 16);
}

/// Rounds to nearest even and saturates, but for NaN. Below 2^-6 numbers are multiples of 2^-9, which adding 2^14
/// leaves at the end.
static inline uint8_t to_e4m3(float value) {
    const union bits bits = {.value = value};
    const union bits magnitude = {.value = fabsf(value) > 448.0f ? 448.0f : fabsf(value)};
    const union bits small = {.value = magnitude.value + 0x1p14f};
    const uint32_t normal = ((magnitude.word + 0x7ffff + ((magnitude.word >> 20) & 1)) >> 20) - (120u << 3);
    const uint32_t subnormal = small.word - 0x46800000;
    return (uint8_t)((bits.word >> 24 & 0x80) | (magnitude.word < 0x3c800000 ? subnormal : normal));
}

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/// What a call is specialised for.
struct form {
    int is_e4m3, is_interleaved;
};

ALWAYS_INLINE void store(const struct halyard_road_part *part, const struct form form, void *restrict y, int64_t at,
                         float value) {
    if (form.is_e4m3) {
        ((uint8_t *)y)[at] = to_e4m3(value * part->r);
    } else {
        ((uint16_t *)y)[at] = to_bf16(value);
    }
}

ALWAYS_INLINE float normed(const struct halyard_road_part *part, const uint16_t *restrict x, int64_t i, int is_normed,
                           float r) {
    return is_normed ? load(x[i]) * r * (load(part->weight[i]) + part->weight_offset) : load(x[i]);
}

ALWAYS_INLINE void pass(const struct halyard_road_part *part, const struct form form, const uint16_t *restrict x,
                        void *restrict y, int64_t first, int64_t last, int is_normed, float r) {
    for (int64_t i = first; i < last; i++) {
        store(part, form, y, i, normed(part, x, i, is_normed, r));
    }
}

ALWAYS_INLINE void rotate(const struct halyard_road_part *part, const struct form form, const uint16_t *restrict x,
                          void *restrict y, const float *restrict cos, const float *restrict sin, int is_normed,
                          float r) {
    const int64_t pairs = part->rotary_dim / 2, first = part->rotary_offset;
    for (int64_t k = 0; k < pairs; k++) {
        const int64_t i0 = first + (form.is_interleaved ? 2 * k : k);
        const int64_t i1 = form.is_interleaved ? i0 + 1 : i0 + pairs;
        const float x0 = normed(part, x, i0, is_normed, r), x1 = normed(part, x, i1, is_normed, r);
        store(part, form, y, i0, x0 * cos[k] - x1 * sin[k]);
        store(part, form, y, i1, x1 * cos[k] + x0 * sin[k]);
    }
}

ALWAYS_INLINE float reciprocal_root(const uint16_t *restrict x, int64_t n, float eps) {
    float sums[16] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i += 16) {
        for (int64_t j = 0; j < 16; j++) {
            sums[j] += load(x[i + j]) * load(x[i + j]);
        }
    }
    for (int64_t j = 0; j < 16; j++) {
        sum += sums[j];
    }
    return 1.0f / sqrtf(sum / (float)n + eps);
}

ALWAYS_INLINE void take_road(const struct halyard_road_part *given, const float *restrict cos,
                             const float *restrict sin, int64_t tokens, float eps, const struct form form) {
    const struct halyard_road_part copy = *given, *const part = &copy;  // which no store can change
    const int64_t n_normed = part->norm_size, window = part->rotary_offset, end = window + part->rotary_dim;
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t row = part->slots ? part->slots[t] : t;
        if (row < 0) {
            continue;
        }
        for (int64_t h = 0; h < part->heads; h++) {
            const uint16_t *const x = part->x + t * part->stride_token + h * part->stride_head;
            void *const y = (char *)part->y + (row * part->heads + h) * part->head_dim * (form.is_e4m3 ? 1 : 2);
            const float *const c = cos + t * (part->rotary_dim / 2), *const s = sin + t * (part->rotary_dim / 2);
            if (n_normed == 0) {
                pass(part, form, x, y, 0, window, 0, 1.0f);
                rotate(part, form, x, y, c, s, 0, 1.0f);
                pass(part, form, x, y, end, part->head_dim, 0, 1.0f);
                continue;
            }
            const float r = reciprocal_root(x, n_normed, eps);
            if (n_normed == part->head_dim) {
                pass(part, form, x, y, 0, window, 1, r);
                rotate(part, form, x, y, c, s, 1, r);
                pass(part, form, x, y, end, part->head_dim, 1, r);
            } else {  // the norm ends where the window begins
                pass(part, form, x, y, 0, n_normed, 1, r);
                rotate(part, form, x, y, c, s, 0, 1.0f);
            }
        }
    }
}

#define ROAD(name, e4m3, interleaved)                                                                                  \
    static void name(const struct halyard_road_part *part, const float *cos, const float *sin, int64_t tokens,         \
                     float eps) {                                                                                      \
        take_road(part, cos, sin, tokens, eps, (struct form){e4m3, interleaved});                                      \
    }
ROAD(half_bf16, 0, 0)
ROAD(interleaved_bf16, 0, 1)
ROAD(half_e4m3, 1, 0)
ROAD(interleaved_e4m3, 1, 1)

// ---- Keys that move to other positions -----------------------------------------------------------------------------

/// Exact: the fields of an e4m3, in their place in a float, are 2^-120 of it, subnormals too. NaN is not looked for.
static inline float from_e4m3(uint8_t x) {
    const union bits magnitude = {.word = (uint32_t)(x & 0x7f) << 20};
    const union bits scaled = {.value = magnitude.value * 0x1p120f};
    const union bits bits = {.word = scaled.word | (uint32_t)(x & 0x80) << 24};
    return bits.value;
}

ALWAYS_INLINE float key(const void *restrict keys, int64_t i, int is_e4m3) {
    return is_e4m3 ? from_e4m3(((const uint8_t *)keys)[i]) : load(((const uint16_t *)keys)[i]);
}

ALWAYS_INLINE void store_key(void *restrict keys, int64_t i, float value, int is_e4m3) {
    if (is_e4m3) {
        ((uint8_t *)keys)[i] = to_e4m3(value);
    } else {
        ((uint16_t *)keys)[i] = to_bf16(value);
    }
}

ALWAYS_INLINE void *head_of(void *keys, int64_t row, int64_t head_dim, int is_e4m3) {
    return (char *)keys + row * head_dim * (is_e4m3 ? 1 : 2);
}

ALWAYS_INLINE void shift_in_place(void *keys, const int64_t *slots, int64_t tokens, int64_t heads, int64_t head_dim,
                                  const float *restrict cos, const float *restrict sin, int is_e4m3) {
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < heads; h++) {
            void *const head = head_of(keys, slots[t] * heads + h, head_dim, is_e4m3);
            for (int64_t k = 0; k < head_dim / 2; k++) {
                const float x0 = key(head, k, is_e4m3), x1 = key(head, k + head_dim / 2, is_e4m3);
                store_key(head, k, x0 * cos[k] - x1 * sin[k], is_e4m3);
                store_key(head, k + head_dim / 2, x1 * cos[k] + x0 * sin[k], is_e4m3);
            }
        }
    }
}

ALWAYS_INLINE void shift_by_layer(void *keys, const int64_t *slots, int64_t tokens, int64_t heads, int64_t head_dim,
                                  const float *restrict cos, const float *restrict sin, float *restrict layer,
                                  int is_e4m3) {
    for (int64_t i = 0; i < tokens * heads; i++) {
        const void *const head = head_of(keys, slots[i / heads] * heads + i % heads, head_dim, is_e4m3);
        for (int64_t d = 0; d < head_dim; d++) {
            layer[i * head_dim + d] = key(head, d, is_e4m3);
        }
    }
    for (int64_t i = 0; i < tokens * heads; i++) {
        float *const x = layer + i * head_dim;
        for (int64_t k = 0; k < head_dim / 2; k++) {
            const float x0 = x[k], x1 = x[k + head_dim / 2];
            x[k] = x0 * cos[k] - x1 * sin[k];
            x[k + head_dim / 2] = x1 * cos[k] + x0 * sin[k];
        }
    }
    for (int64_t i = 0; i < tokens * heads; i++) {
        void *const head = head_of(keys, slots[i / heads] * heads + i % heads, head_dim, is_e4m3);
        for (int64_t d = 0; d < head_dim; d++) {
            store_key(head, d, layer[i * head_dim + d], is_e4m3);
        }
    }
}

#define SHIFT(dtype, e4m3)                                                                                             \
    static void shift_##dtype(void *keys, const int64_t *slots, int64_t tokens, int64_t heads, int64_t head_dim,       \
                              const float *cos, const float *sin, float *layer) {                                      \
        (void)layer;                                                                                                   \
        shift_in_place(keys, slots, tokens, heads, head_dim, cos, sin, e4m3);                                          \
    }                                                                                                                  \
    static void shift_##dtype##_by_layer(void *keys, const int64_t *slots, int64_t tokens, int64_t heads,              \
                                         int64_t head_dim, const float *cos, const float *sin, float *layer) {         \
        shift_by_layer(keys, slots, tokens, heads, head_dim, cos, sin, layer, e4m3);                                   \
    }
SHIFT(bf16, 0)
SHIFT(e4m3, 1)

#ifdef __clang__
#define TABLE halyard_road_loops_clang
#define COMPILER "clang"
#else
#define TABLE halyard_road_loops_gcc
#define COMPILER "gcc"
#endif
const struct halyard_road_loops TABLE = {COMPILER,
                                         {{half_bf16, interleaved_bf16}, {half_e4m3, interleaved_e4m3}},
                                         {{shift_bf16, shift_bf16_by_layer}, {shift_e4m3, shift_e4m3_by_layer}}};
