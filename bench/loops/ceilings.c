// The loops that set a row's ceilings. Memory ceiling: copies or multiplications of the bytes that a rotation reads and
// writes. Conversion ceiling: each 16-bit element is read, widened to f32, rounded back and written. Elements keep
// their values; x and y may be the same memory. loops.c includes this, after rope.c.
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define VECTOR_REGISTER "+v"
#else
#define VECTOR_REGISTER "+w"
#endif
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define STREAM(to, vector) _mm512_stream_si512((void *)(to), (__m512i)(vector))
#define WIDEN(half) (floats) _mm512_cvtph_ps((__m256i)(half))
#define NARROW(wide) (halves) _mm512_cvtps_ph((__m512)(wide), _MM_FROUND_TO_NEAREST_INT)
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define STREAM(to, vector) _mm256_stream_si256((void *)(to), (__m256i)(vector))
#define WIDEN(half) (floats) _mm256_cvtph_ps((__m128i)(half))
#define NARROW(wide) (halves) _mm256_cvtps_ph((__m256)(wide), _MM_FROUND_TO_NEAREST_INT)
#else
#define VECTOR_BYTES 16
#define STREAM(to, vector) memcpy(to, &(vector), VECTOR_BYTES)
#define WIDEN(half) __builtin_convertvector(half, floats)
#define NARROW(wide) __builtin_convertvector(wide, halves)
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
// Hides the vector from the optimiser, which would otherwise remove a conversion there and back.
#define KEEP(vector) __asm__("" : VECTOR_REGISTER(vector))

typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));
typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef half_float halves __attribute__((vector_size(VECTOR_BYTES / 2)));

// Volatile, so that the compiler does not leave the multiplication out.
static volatile float one = 1.0f;

typedef words change_fn(words x, floats factor);

ALWAYS_INLINE words keep(words x, floats factor) {
    (void)factor;
    KEEP(x);
    return x;
}

ALWAYS_INLINE words times(words x, floats factor) { return (words)((floats)x * factor); }

ALWAYS_INLINE words f16_to_f32_and_back(words x, floats factor) {
    (void)factor;
    union {
        words all;
        halves part[2];
    } elements = {x};
    for (int i = 0; i < 2; i++) {
        floats wide = WIDEN(elements.part[i]);
        KEEP(wide);
        elements.part[i] = NARROW(wide);
    }
    return elements.all;
}

#ifdef __AVX512BF16__
/// Uses an instruction that flushes subnormals to zero, which Halyard's kernels cannot use. A ceiling can, because it
/// measures only what conversion costs.
ALWAYS_INLINE words bf16_to_f32_and_back(words x, floats factor) {
    (void)factor;
    words low = (words)_mm512_unpacklo_epi16((__m512i){0}, (__m512i)x);  // zeros below an element widen it to f32
    words high = (words)_mm512_unpackhi_epi16((__m512i){0}, (__m512i)x);
    KEEP(low);
    KEEP(high);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    return (words)_mm512_permutexvar_epi64(order, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}
#else
/// Converts the two elements of each 32-bit word in place, so that no element changes its lane.
ALWAYS_INLINE words bf16_to_f32_and_back(words x, floats factor) {
    (void)factor;
    words low = x << 16, high = x & 0xffff0000;
    KEEP(low);
    KEEP(high);
    low += 0x7fff + (low >> 16 & 1);
    high += 0x7fff + (high >> 16 & 1);
    return low >> 16 | (high & 0xffff0000);
}
#endif

ALWAYS_INLINE void change_row(const char *x, char *y, int64_t n, change_fn *change, int is_streamed) {
    const floats factor = (floats){0} + one;
    int64_t i = 0;
#pragma GCC unroll 4
    for (; i + VECTOR_BYTES <= n; i += VECTOR_BYTES) {
        words vector;
        memcpy(&vector, x + i, VECTOR_BYTES);
        vector = change(vector, factor);
        if (is_streamed) {
            STREAM(y + i, vector);
        } else {
            memcpy(y + i, &vector, VECTOR_BYTES);
        }
    }
    if (i < n) {
        words vector = {0};
        memcpy(&vector, x + i, (size_t)(n - i));
        vector = change(vector, factor);
        memcpy(y + i, &vector, (size_t)(n - i));
    }
}

/// For rows of one, two or four vectors the length is a constant, because loop overhead would dominate.
ALWAYS_INLINE void change_rows(const char *x, char *y, int64_t n_rows, int64_t row_bytes, int64_t stride,
                               change_fn *change) {
    for (int64_t row = 0; row < n_rows; row++, x += stride, y += stride) {
        if (row_bytes == VECTOR_BYTES) {
            change_row(x, y, VECTOR_BYTES, change, 0);
        } else if (row_bytes == 2 * VECTOR_BYTES) {
            change_row(x, y, 2 * VECTOR_BYTES, change, 0);
        } else if (row_bytes == 4 * VECTOR_BYTES) {
            change_row(x, y, 4 * VECTOR_BYTES, change, 0);
        } else {
            change_row(x, y, row_bytes, change, 0);
        }
    }
}

BENCH_LOOP(memcpy) {
    const struct bench_ceiling *const all = self;
    for (int64_t row = 0; row < all->n_rows; row++) {
        memcpy((char *)all->y + row * all->stride, (const char *)all->x + row * all->stride, (size_t)all->row_bytes);
    }
    return 0;
}

#define CEILING(name, change)                                                                                          \
    BENCH_LOOP(name) {                                                                                                 \
        const struct bench_ceiling *const all = self;                                                                  \
        change_rows(all->x, all->y, all->n_rows, all->row_bytes, all->stride, change);                                 \
        return 0;                                                                                                      \
    }
// Stores that bypass the CPU's caches, on x86 only; all rows are treated as one.
#if VECTOR_BYTES > 16
#define STREAMED(name, change)                                                                                         \
    BENCH_LOOP(name) {                                                                                                 \
        const struct bench_ceiling *const all = self;                                                                  \
        change_row(all->x, all->y, all->n_rows * all->row_bytes, change, 1);                                           \
        _mm_sfence();                                                                                                  \
        return 0;                                                                                                      \
    }
#else
#define STREAMED(name, change)
#endif
CEILING(copy, keep)
STREAMED(stream, keep)
CEILING(multiply_in_place, times)
CEILING(convert_bf16, bf16_to_f32_and_back)
CEILING(convert_bf16_in_place, bf16_to_f32_and_back)
STREAMED(convert_and_stream_bf16, bf16_to_f32_and_back)
CEILING(convert_f16, f16_to_f32_and_back)
CEILING(convert_f16_in_place, f16_to_f32_and_back)
STREAMED(convert_and_stream_f16, f16_to_f32_and_back)
