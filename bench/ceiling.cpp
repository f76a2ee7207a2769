#include "ceiling.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace halyard::bench {

namespace {

constexpr float almost_one = 1.0000001f;

void multiply_rest(float *data, std::size_t first, std::size_t n) {
    for (std::size_t i = first; i < n; i++) {
        data[i] *= almost_one;
    }
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void multiply_avx512(float *data, std::size_t n) {
    const __m512 factor = _mm512_set1_ps(almost_one);
    std::size_t i = 0;
    for (; i + 128 <= n; i += 128) {
        for (std::size_t j = 0; j < 128; j += 16) {
            _mm512_storeu_ps(data + i + j, _mm512_mul_ps(_mm512_loadu_ps(data + i + j), factor));
        }
    }
    multiply_rest(data, i, n);
}

__attribute__((target("avx2"))) void multiply_avx2(float *data, std::size_t n) {
    const __m256 factor = _mm256_set1_ps(almost_one);
    std::size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (std::size_t j = 0; j < 64; j += 8) {
            _mm256_storeu_ps(data + i + j, _mm256_mul_ps(_mm256_loadu_ps(data + i + j), factor));
        }
    }
    multiply_rest(data, i, n);
}

__attribute__((target("avx512f"))) void copy_avx512(float *to, const float *from, std::size_t n) {
    for (std::size_t i = 0; i + 16 <= n; i += 16) {
        _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
    }
    _mm_sfence();
}

__attribute__((target("avx2"))) void copy_avx2(float *to, const float *from, std::size_t n) {
    for (std::size_t i = 0; i + 8 <= n; i += 8) {
        _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
    }
    _mm_sfence();
}

#endif

}  // namespace

void multiply_in_place(float *data, std::size_t n_bytes) {
    const std::size_t n = n_bytes / sizeof(float);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return multiply_avx512(data, n);
    }
    if (__builtin_cpu_supports("avx2")) {
        return multiply_avx2(data, n);
    }
#endif
    multiply_rest(data, 0, n);
}

void copy_past_caches(float *to, const float *from, std::size_t n_bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return copy_avx512(to, from, n_bytes / sizeof(float));
    }
    if (__builtin_cpu_supports("avx2")) {
        return copy_avx2(to, from, n_bytes / sizeof(float));
    }
#endif
    std::memcpy(to, from, n_bytes);
}

}  // namespace halyard::bench
