// A rival: roads into ggml's q8_0, and its keys that move, as the author of an engine would write them in C: one pass
// over each head, in memory of its own; and pass by pass over whole tensors, as ggml does it. Heads of 128 are compiled
// as such. loops.c includes this, after road_loops.c.
#include <string.h>

enum { GROUP = 32, GROUP_BYTES = 34, LONGEST_HEAD = 256 };

/// Each step takes neighbours and leaves sums before differences, so that after all steps numbers are where they were:
/// compilers make vectors of it.
ALWAYS_INLINE void transform(float *restrict v, int64_t n) {
    const float scale = 1.0f / sqrtf((float)n);
    float scaled[LONGEST_HEAD], *from = scaled, *to = v;
    for (int64_t i = 0; i < n; i++) {
        scaled[i] = v[i] * scale;
    }
    for (int64_t apart = 1; apart < n; apart *= 2) {
        for (int64_t i = 0; i < n / 2; i++) {
            const float v0 = from[2 * i], v1 = from[2 * i + 1];
            to[i] = v0 + v1;
            to[i + n / 2] = v0 - v1;
        }
        float *const made = to;
        to = from;
        from = made;
    }
    if (from != v) {
        memcpy(v, from, (size_t)n * sizeof *v);
    }
}

/// Pairs where they lie: as ggml writes it, which has vectors of its own for those that lie far apart.
ALWAYS_INLINE void transform_as_ggml(float *restrict v, int64_t n) {
    const float scale = 1.0f / sqrtf((float)n);
    for (int64_t i = 0; i < n; i++) {
        v[i] *= scale;
    }
    for (int64_t apart = 1; apart < n; apart *= 2) {
        for (int64_t i = 0; i < n; i += 2 * apart) {
            for (int64_t j = i; j < i + apart; j++) {
                const float v0 = v[j], v1 = v[j + apart];
                v[j] = v0 + v1;
                v[j + apart] = v0 - v1;
            }
        }
    }
}

/// Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
ALWAYS_INLINE void store_groups(uint8_t *restrict y, const float *restrict v, int64_t n) {
    for (int64_t first = 0; first < n; first += GROUP, y += GROUP_BYTES) {
        union bits largest = {.word = 0};  // of numbers without a sign, the larger has the larger word
        for (int64_t i = 0; i < GROUP; i++) {
            const union bits bits = {.value = v[first + i]};
            const uint32_t magnitude = bits.word & 0x7fffffff;
            largest.word = magnitude > largest.word ? magnitude : largest.word;
        }
        const half_float scale = (half_float)(largest.value / 127.0f);
        const float r = largest.word != 0 ? 127.0f / largest.value : 0.0f;
        memcpy(y, &scale, sizeof scale);
        for (int64_t i = 0; i < GROUP; i++) {
            const union bits bits = {.value = v[first + i] * r + 0x1.8p23f};
            y[2 + i] = (uint8_t)bits.word;
        }
    }
}

ALWAYS_INLINE void load_groups(float *restrict v, const uint8_t *restrict y, int64_t n) {
    for (int64_t first = 0; first < n; first += GROUP, y += GROUP_BYTES) {
        half_float scale;
        memcpy(&scale, y, sizeof scale);
        for (int64_t i = 0; i < GROUP; i++) {
            v[first + i] = (float)scale * (float)(int8_t)y[2 + i];
        }
    }
}

ALWAYS_INLINE void load_part(const struct halyard_road_part *part, int64_t t, int64_t h, float *restrict v, int64_t n) {
    const uint16_t *restrict const x = part->x + t * part->stride_token + h * part->stride_head;
    const float *restrict const cos = part->cos + t * n / 2, *restrict const sin = part->sin + t * n / 2;
    if (part->rotary_dim == 0) {
        for (int64_t i = 0; i < n; i++) {
            v[i] = load_bf16(&x[i]);
        }
        return;
    }
    for (int64_t k = 0; k < n / 2; k++) {
        const float x0 = load_bf16(&x[k]), x1 = load_bf16(&x[k + n / 2]);
        v[k] = x0 * cos[k] - x1 * sin[k];
        v[k + n / 2] = x1 * cos[k] + x0 * sin[k];
    }
}

ALWAYS_INLINE uint8_t *record_of(const struct halyard_road_part *part, int64_t i, int64_t n) {
    const int64_t row = part->slots[i / part->heads] * part->heads + i % part->heads;
    return (uint8_t *)part->y + row * (n / GROUP * GROUP_BYTES);
}

ALWAYS_INLINE void take_records(const struct halyard_road_part given, int is_shift, int is_transformed, int64_t n) {
    const struct halyard_road_part *const part = &given;
    for (int64_t i = 0; i < part->tokens * part->heads; i++) {
        float v[LONGEST_HEAD];
        uint8_t *const record = record_of(part, i, n);
        if (is_shift) {
            load_groups(v, record, n);
            if (is_transformed) {
                transform(v, n);
            }
            turn(v, part->cos, part->sin, n);
        } else {
            load_part(part, i / part->heads, i % part->heads, v, n);
        }
        if (is_transformed) {
            transform(v, n);
        }
        store_groups(record, v, n);
    }
}

/// What does not rotate comes to the first pass as it is.
ALWAYS_INLINE void take_passes(const struct halyard_road_part given, int is_shift, int is_transformed, int64_t n) {
    const struct halyard_road_part *const part = &given;
    const int64_t n_heads = part->tokens * part->heads;
    const int is_turned = is_shift || part->rotary_dim != 0;
    float *restrict const layer = part->layer;
    if (!is_turned && !is_transformed) {
        take_records(given, 0, 0, n);
        return;
    }
    for (int64_t i = 0; i < n_heads; i++) {
        if (is_shift) {
            load_groups(layer + i * n, record_of(part, i, n), n);
        } else {
            load_part(part, i / part->heads, i % part->heads, layer + i * n, n);
        }
        if (!is_turned) {
            transform_as_ggml(layer + i * n, n);
        }
    }
    for (int64_t i = 0; is_shift && is_transformed && i < n_heads; i++) {
        transform_as_ggml(layer + i * n, n);
    }
    for (int64_t i = 0; is_shift && i < n_heads; i++) {
        turn(layer + i * n, part->cos, part->sin, n);
    }
    for (int64_t i = 0; is_transformed && is_turned && i < n_heads; i++) {
        transform_as_ggml(layer + i * n, n);
    }
    for (int64_t i = 0; i < n_heads; i++) {
        store_groups(record_of(part, i, n), layer + i * n, n);
    }
}

#define RECORDS(name, is_shift, is_transformed)                                                                        \
    static void name(const struct halyard_road_part *given) {                                                          \
        if (given->head_dim == 128) {                                                                                  \
            take_records(*given, is_shift, is_transformed, 128);                                                       \
        } else {                                                                                                       \
            take_records(*given, is_shift, is_transformed, given->head_dim);                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_by_passes(const struct halyard_road_part *given) {                                              \
        if (given->head_dim == 128) {                                                                                  \
            take_passes(*given, is_shift, is_transformed, 128);                                                        \
        } else {                                                                                                       \
            take_passes(*given, is_shift, is_transformed, given->head_dim);                                            \
        }                                                                                                              \
    }
RECORDS(road_q8_0, 0, 0)
RECORDS(road_q8_0_hadamard, 0, 1)
RECORDS(shift_q8_0, 1, 0)
RECORDS(shift_q8_0_hadamard, 1, 1)
