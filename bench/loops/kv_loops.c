// The KV path as the author of an engine would write it in C, in one pass over each head: norm, rotation, conversion,
// store by slot; and the re-rotation of cached keys. Slots are not checked. Sums are made of 16 partial sums, so that
// the compiler can vectorise them. loops.c includes this, after ceilings.c.
#include <math.h>

/// Rounds to nearest even and saturates; NaN is not handled. Numbers below 2^-6 are rounded to multiples of 2^-9:
/// adding 2^14 leaves the multiple in the low bits of the sum.
static inline uint8_t to_e4m3(float value) {
    const union bits bits = {.value = value};
    const union bits magnitude = {.value = fabsf(value) > 448.0f ? 448.0f : fabsf(value)};
    const union bits small = {.value = magnitude.value + 0x1p14f};
    const uint32_t normal = ((magnitude.word + 0x7ffff + ((magnitude.word >> 20) & 1)) >> 20) - (120u << 3);
    const uint32_t subnormal = small.word - 0x46800000;
    return (uint8_t)((bits.word >> 24 & 0x80) | (magnitude.word < 0x3c800000 ? subnormal : normal));
}

ALWAYS_INLINE void store_e4m3_or_bf16(void *restrict y, int64_t i, float value, int is_e4m3) {
    if (is_e4m3) {
        ((uint8_t *)y)[i] = to_e4m3(value);
    } else {
        store_bf16(&((uint16_t *)y)[i], value);
    }
}

/// A tensor (`part`), and the constants for which the compiler specialises the loop.
struct kv {
    struct bench_loop part;
    int is_e4m3, is_interleaved;
};

ALWAYS_INLINE void store_element(const struct kv *kv, void *restrict y, int64_t i, float value) {
    store_e4m3_or_bf16(y, i, kv->is_e4m3 ? value * kv->part.inverse_scale : value, kv->is_e4m3);
}

ALWAYS_INLINE float load_normed(const struct kv *kv, const uint16_t *restrict x, int64_t i, int is_normed, float r) {
    const float value = load_bf16(&x[i]);
    return is_normed ? value * r * (load_bf16(&kv->part.weight[i]) + kv->part.weight_offset) : value;
}

ALWAYS_INLINE void store_columns(const struct kv *kv, const uint16_t *restrict x, void *restrict y, int64_t first,
                                 int64_t last, int is_normed, float r) {
    for (int64_t i = first; i < last; i++) {
        store_element(kv, y, i, load_normed(kv, x, i, is_normed, r));
    }
}

ALWAYS_INLINE void rotate(const struct kv *kv, const uint16_t *restrict x, void *restrict y, const float *restrict cos,
                          const float *restrict sin, int is_normed, float r) {
    const int64_t pairs = kv->part.rotary_dim / 2, first = kv->part.rotary_offset;
    for (int64_t k = 0; k < pairs; k++) {
        const int64_t i0 = first + (kv->is_interleaved ? 2 * k : k);
        const int64_t i1 = kv->is_interleaved ? i0 + 1 : i0 + pairs;
        const float x0 = load_normed(kv, x, i0, is_normed, r), x1 = load_normed(kv, x, i1, is_normed, r);
        store_element(kv, y, i0, x0 * cos[k] - x1 * sin[k]);
        store_element(kv, y, i1, x1 * cos[k] + x0 * sin[k]);
    }
}

/// 1 / sqrt(mean of squares + eps).
ALWAYS_INLINE float reciprocal_rms_bf16(const uint16_t *restrict x, int64_t n, float eps) {
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

ALWAYS_INLINE void run_kv(const struct kv given) {
    const struct kv *const kv = &given;  // a local copy, so that stores cannot alias it
    const struct bench_loop *const part = &kv->part;
    const float *restrict const cos = part->cos, *restrict const sin = part->sin;
    const int64_t n_normed = part->norm_size, window = part->rotary_offset, end = window + part->rotary_dim;
    for (int64_t t = 0; t < part->tokens; t++) {
        const int64_t row = part->slots ? part->slots[t] : t;
        if (row < 0) {
            continue;
        }
        for (int64_t h = 0; h < part->heads; h++) {
            const uint16_t *const x = (const uint16_t *)part->x + t * part->stride_token + h * part->stride_head;
            void *const y = (char *)part->y + (row * part->heads + h) * part->head_dim * (kv->is_e4m3 ? 1 : 2);
            const float *const c = cos + t * (part->rotary_dim / 2), *const s = sin + t * (part->rotary_dim / 2);
            if (n_normed == 0) {
                store_columns(kv, x, y, 0, window, 0, 1.0f);
                rotate(kv, x, y, c, s, 0, 1.0f);
                store_columns(kv, x, y, end, part->head_dim, 0, 1.0f);
                continue;
            }
            const float r = reciprocal_rms_bf16(x, n_normed, part->eps);
            if (n_normed == part->head_dim) {
                store_columns(kv, x, y, 0, window, 1, r);
                rotate(kv, x, y, c, s, 1, r);
                store_columns(kv, x, y, end, part->head_dim, 1, r);
            } else {  // MLA: the normed columns end where the rotated columns begin
                store_columns(kv, x, y, 0, n_normed, 1, r);
                rotate(kv, x, y, c, s, 0, 1.0f);
            }
        }
    }
}

#define KV(name, ...)                                                                                                  \
    BENCH_LOOP(kv_##name) {                                                                                            \
        run_kv((struct kv){*(const struct bench_loop *)self, __VA_ARGS__});                                            \
        return 0;                                                                                                      \
    }

// ---- Re-rotation of cached keys ------------------------------------------------------------------------------------

/// Exact: the bits of an e4m3, shifted to the fields of a float, are 2^-120 times its value, subnormals too. NaN is not
/// handled.
static inline float from_e4m3(uint8_t x) {
    const union bits magnitude = {.word = (uint32_t)(x & 0x7f) << 20};
    const union bits scaled = {.value = magnitude.value * 0x1p120f};
    const union bits bits = {.word = scaled.word | (uint32_t)(x & 0x80) << 24};
    return bits.value;
}

ALWAYS_INLINE float load_key(const void *restrict keys, int64_t i, int is_e4m3) {
    return is_e4m3 ? from_e4m3(((const uint8_t *)keys)[i]) : load_bf16(&((const uint16_t *)keys)[i]);
}

ALWAYS_INLINE void *key_head(const struct bench_loop *part, int64_t token, int64_t head, int is_e4m3) {
    const int64_t row = part->slots[token] * part->heads + head;
    return (char *)part->y + row * part->head_dim * (is_e4m3 ? 1 : 2);
}

ALWAYS_INLINE void shift_in_place(const struct bench_loop given, int is_e4m3) {
    const struct bench_loop *const part = &given;
    const float *restrict const cos = part->cos, *restrict const sin = part->sin;
    const int64_t pairs = part->head_dim / 2;
    for (int64_t t = 0; t < part->tokens; t++) {
        for (int64_t h = 0; h < part->heads; h++) {
            void *const head = key_head(part, t, h, is_e4m3);
            for (int64_t k = 0; k < pairs; k++) {
                const float x0 = load_key(head, k, is_e4m3), x1 = load_key(head, k + pairs, is_e4m3);
                store_e4m3_or_bf16(head, k, x0 * cos[k] - x1 * sin[k], is_e4m3);
                store_e4m3_or_bf16(head, k + pairs, x1 * cos[k] + x0 * sin[k], is_e4m3);
            }
        }
    }
}

/// Rotates a head of n elements in f32.
ALWAYS_INLINE void rotate_head(float *restrict v, const float *restrict cos, const float *restrict sin, int64_t n) {
    for (int64_t k = 0; k < n / 2; k++) {
        const float v0 = v[k], v1 = v[k + n / 2];
        v[k] = v0 * cos[k] - v1 * sin[k];
        v[k + n / 2] = v1 * cos[k] + v0 * sin[k];
    }
}

#define SHIFT(name, is_e4m3)                                                                                           \
    BENCH_LOOP(shift_##name) {                                                                                         \
        shift_in_place(*(const struct bench_loop *)self, is_e4m3);                                                     \
        return 0;                                                                                                      \
    }

// ---- Records of ggml's q8_0. head_dim 128 is compiled as a constant ------------------------------------------------

enum { GROUP = 32, GROUP_BYTES = 34, LONGEST_HEAD = 256 };

/// A Hadamard transform. Each step reads neighbours and writes all sums before all differences, which compilers can
/// vectorise; after all steps the elements are in their original order.
ALWAYS_INLINE void hadamard(float *restrict v, int64_t n) {
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

/// Writes a head as q8_0 groups. Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the sum.
ALWAYS_INLINE void store_groups(uint8_t *restrict y, const float *restrict v, int64_t n) {
    for (int64_t first = 0; first < n; first += GROUP, y += GROUP_BYTES) {
        union bits largest = {.word = 0};  // magnitudes compare like their bits
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

/// Loads head h of token t as floats, and rotates it if the tensor is rotated.
ALWAYS_INLINE void load_rotated(const struct bench_loop *part, int64_t t, int64_t h, float *restrict v, int64_t n) {
    const uint16_t *restrict const x = (const uint16_t *)part->x + t * part->stride_token + h * part->stride_head;
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

/// The record of head i, counted over the heads of all tokens.
ALWAYS_INLINE uint8_t *record_at(const struct bench_loop *part, int64_t i, int64_t n) {
    const int64_t row = part->slots[i / part->heads] * part->heads + i % part->heads;
    return (uint8_t *)part->y + row * (n / GROUP * GROUP_BYTES);
}

ALWAYS_INLINE void run_records(const struct bench_loop given, int is_shift, int is_transformed, int64_t n) {
    const struct bench_loop *const part = &given;
    for (int64_t i = 0; i < part->tokens * part->heads; i++) {
        float v[LONGEST_HEAD];
        uint8_t *const record = record_at(part, i, n);
        if (is_shift) {
            load_groups(v, record, n);
            if (is_transformed) {
                hadamard(v, n);
            }
            rotate_head(v, part->cos, part->sin, n);
        } else {
            load_rotated(part, i / part->heads, i % part->heads, v, n);
        }
        if (is_transformed) {
            hadamard(v, n);
        }
        store_groups(record, v, n);
    }
}

#define RECORDS(name, is_shift, is_transformed)                                                                        \
    BENCH_LOOP(name) {                                                                                                 \
        const struct bench_loop *const given = self;                                                                   \
        if (given->head_dim == 128) {                                                                                  \
            run_records(*given, is_shift, is_transformed, 128);                                                        \
        } else {                                                                                                       \
            run_records(*given, is_shift, is_transformed, given->head_dim);                                            \
        }                                                                                                              \
        return 0;                                                                                                      \
    }
KV(half_bf16, 0, 0)
KV(interleaved_bf16, 0, 1)
KV(half_e4m3, 1, 0)
KV(interleaved_e4m3, 1, 1)
SHIFT(bf16, 0)
SHIFT(e4m3, 1)
RECORDS(kv_half_q8_0, 0, 0)
RECORDS(kv_half_q8_0_hadamard, 0, 1)
RECORDS(shift_q8_0, 1, 0)
RECORDS(shift_q8_0_hadamard, 1, 1)
