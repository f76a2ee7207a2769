// A rival: the road from projection to cache as the author of an engine would write it in C, in one pass over each
// head: norm, rotation, conversion, store by slot. Slots are not checked. Sums have 16 partial sums, so that the
// compiler can make vectors of them. loops.c includes this, after loop.c.
#include <math.h>

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

/// bf16, or e4m3.
ALWAYS_INLINE void store(void *restrict y, int64_t at, float value, int is_e4m3) {
    if (is_e4m3) {
        ((uint8_t *)y)[at] = to_e4m3(value);
    } else {
        store_bf16(&((uint16_t *)y)[at], value);
    }
}

/// What a call is specialised for, beside its part.
struct road {
    struct halyard_road_part part;
    int is_e4m3, is_interleaved, is_by_column;
};

ALWAYS_INLINE void store_part(const struct road *road, void *restrict y, int64_t i, float value) {
    const int64_t at = road->is_by_column ? i * road->part.page_size : i;
    store(y, at, road->is_e4m3 ? value * road->part.r : value, road->is_e4m3);
}

ALWAYS_INLINE float normed(const struct road *road, const uint16_t *restrict x, int64_t i, int is_normed, float r) {
    const float value = load_bf16(&x[i]);
    return is_normed ? value * r * (load_bf16(&road->part.weight[i]) + road->part.weight_offset) : value;
}

ALWAYS_INLINE void pass(const struct road *road, const uint16_t *restrict x, void *restrict y, int64_t first,
                        int64_t last, int is_normed, float r) {
    for (int64_t i = first; i < last; i++) {
        store_part(road, y, i, normed(road, x, i, is_normed, r));
    }
}

ALWAYS_INLINE void rotate(const struct road *road, const uint16_t *restrict x, void *restrict y,
                          const float *restrict cos, const float *restrict sin, int is_normed, float r) {
    const int64_t pairs = road->part.rotary_dim / 2, first = road->part.rotary_offset;
    for (int64_t k = 0; k < pairs; k++) {
        const int64_t i0 = first + (road->is_interleaved ? 2 * k : k);
        const int64_t i1 = road->is_interleaved ? i0 + 1 : i0 + pairs;
        const float x0 = normed(road, x, i0, is_normed, r), x1 = normed(road, x, i1, is_normed, r);
        store_part(road, y, i0, x0 * cos[k] - x1 * sin[k]);
        store_part(road, y, i1, x1 * cos[k] + x0 * sin[k]);
    }
}

ALWAYS_INLINE float reciprocal_root(const uint16_t *restrict x, int64_t n, float eps) {
    float sums[16] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i += 16) {
        for (int64_t j = 0; j < 16; j++) {
            sums[j] += load_bf16(&x[i + j]) * load_bf16(&x[i + j]);
        }
    }
    for (int64_t j = 0; j < 16; j++) {
        sum += sums[j];
    }
    return 1.0f / sqrtf(sum / (float)n + eps);
}

ALWAYS_INLINE void take_road(const struct road given) {
    const struct road *const road = &given;  // a copy, which no store can change
    const struct halyard_road_part *const part = &road->part;
    const float *restrict const cos = part->cos, *restrict const sin = part->sin;
    const int64_t n_normed = part->norm_size, window = part->rotary_offset, end = window + part->rotary_dim;
    for (int64_t t = 0; t < part->tokens; t++) {
        const int64_t row = part->slots ? part->slots[t] : t;
        if (row < 0) {
            continue;
        }
        for (int64_t h = 0; h < part->heads; h++) {
            const uint16_t *const x = part->x + t * part->stride_token + h * part->stride_head;
            const int64_t page = part->page_size;
            const int64_t at = road->is_by_column ? (row / page * part->heads + h) * part->head_dim * page + row % page
                                                  : (row * part->heads + h) * part->head_dim;
            void *const y = (char *)part->y + at * (road->is_e4m3 ? 1 : 2);
            const float *const c = cos + t * (part->rotary_dim / 2), *const s = sin + t * (part->rotary_dim / 2);
            if (n_normed == 0) {
                pass(road, x, y, 0, window, 0, 1.0f);
                rotate(road, x, y, c, s, 0, 1.0f);
                pass(road, x, y, end, part->head_dim, 0, 1.0f);
                continue;
            }
            const float r = reciprocal_root(x, n_normed, part->eps);
            if (n_normed == part->head_dim) {
                pass(road, x, y, 0, window, 1, r);
                rotate(road, x, y, c, s, 1, r);
                pass(road, x, y, end, part->head_dim, 1, r);
            } else {  // the norm ends where the window begins
                pass(road, x, y, 0, n_normed, 1, r);
                rotate(road, x, y, c, s, 0, 1.0f);
            }
        }
    }
}

#define ROAD(name, e4m3, interleaved, by_column)                                                                       \
    static void road_##name(const struct halyard_road_part *part) {                                                    \
        take_road((struct road){*part, e4m3, interleaved, by_column});                                                 \
    }
ROAD(half_bf16, 0, 0, 0)
ROAD(interleaved_bf16, 0, 1, 0)
ROAD(half_e4m3, 1, 0, 0)
ROAD(interleaved_e4m3, 1, 1, 0)
ROAD(half_bf16_by_column, 0, 0, 1)
ROAD(interleaved_bf16_by_column, 0, 1, 1)

// ---- Keys that move to other positions -----------------------------------------------------------------------------

/// Exact: the fields of an e4m3, in their place in a float, are 2^-120 of it, subnormals too. NaN is not looked for.
static inline float from_e4m3(uint8_t x) {
    const union bits magnitude = {.word = (uint32_t)(x & 0x7f) << 20};
    const union bits scaled = {.value = magnitude.value * 0x1p120f};
    const union bits bits = {.word = scaled.word | (uint32_t)(x & 0x80) << 24};
    return bits.value;
}

ALWAYS_INLINE float key(const void *restrict keys, int64_t i, int is_e4m3) {
    return is_e4m3 ? from_e4m3(((const uint8_t *)keys)[i]) : load_bf16(&((const uint16_t *)keys)[i]);
}

ALWAYS_INLINE void *key_head(const struct halyard_road_part *part, int64_t token, int64_t head, int is_e4m3) {
    const int64_t row = part->slots[token] * part->heads + head;
    return (char *)part->y + row * part->head_dim * (is_e4m3 ? 1 : 2);
}

ALWAYS_INLINE void shift_in_place(const struct halyard_road_part given, int is_e4m3) {
    const struct halyard_road_part *const part = &given;
    const float *restrict const cos = part->cos, *restrict const sin = part->sin;
    const int64_t pairs = part->head_dim / 2;
    for (int64_t t = 0; t < part->tokens; t++) {
        for (int64_t h = 0; h < part->heads; h++) {
            void *const head = key_head(part, t, h, is_e4m3);
            for (int64_t k = 0; k < pairs; k++) {
                const float x0 = key(head, k, is_e4m3), x1 = key(head, k + pairs, is_e4m3);
                store(head, k, x0 * cos[k] - x1 * sin[k], is_e4m3);
                store(head, k + pairs, x1 * cos[k] + x0 * sin[k], is_e4m3);
            }
        }
    }
}

/// Turns a head of n elements in f32.
ALWAYS_INLINE void turn(float *restrict v, const float *restrict cos, const float *restrict sin, int64_t n) {
    for (int64_t k = 0; k < n / 2; k++) {
        const float v0 = v[k], v1 = v[k + n / 2];
        v[k] = v0 * cos[k] - v1 * sin[k];
        v[k + n / 2] = v1 * cos[k] + v0 * sin[k];
    }
}

ALWAYS_INLINE void shift_by_layer(const struct halyard_road_part given, int is_e4m3) {
    const struct halyard_road_part *const part = &given;
    float *restrict const layer = part->layer;
    const int64_t n = part->tokens * part->heads, head_dim = part->head_dim;
    for (int64_t i = 0; i < n; i++) {
        const void *const head = key_head(part, i / part->heads, i % part->heads, is_e4m3);
        for (int64_t d = 0; d < head_dim; d++) {
            layer[i * head_dim + d] = key(head, d, is_e4m3);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        turn(layer + i * head_dim, part->cos, part->sin, head_dim);
    }
    for (int64_t i = 0; i < n; i++) {
        void *const head = key_head(part, i / part->heads, i % part->heads, is_e4m3);
        for (int64_t d = 0; d < head_dim; d++) {
            store(head, d, layer[i * head_dim + d], is_e4m3);
        }
    }
}

#define SHIFT(dtype, e4m3)                                                                                             \
    static void shift_##dtype(const struct halyard_road_part *part) { shift_in_place(*part, e4m3); }                   \
    static void shift_##dtype##_by_layer(const struct halyard_road_part *part) { shift_by_layer(*part, e4m3); }
SHIFT(bf16, 0)
SHIFT(e4m3, 1)
