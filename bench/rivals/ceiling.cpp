#include "rivals/ceiling.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace halyard::bench {

namespace {

/// Volatile, so that no compiler leaves the multiplication out.
volatile float one = 1.0f;

[[gnu::noinline]] void multiply_rest(float *data, std::size_t first, std::size_t n, float factor) {
    for (std::size_t i = first; i < n; i++) {
        data[i] *= factor;
    }
}

/// Rows of n floats, a stride of floats apart.
struct FloatRows {
    float *data;
    std::size_t n_rows, n, stride;
};

void multiply_with_scalars(const FloatRows rows, float factor) {
    for (std::size_t row = 0; row < rows.n_rows; row++) {
        multiply_rest(rows.data + row * rows.stride, 0, rows.n, factor);
    }
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void multiply_avx512(const FloatRows rows, float by) {
    const __m512 factor = _mm512_set1_ps(by);
    for (std::size_t row = 0; row < rows.n_rows; row++) {
        float *const data = rows.data + row * rows.stride;
        std::size_t i = 0;
        for (; i + 64 <= rows.n; i += 64) {
            for (std::size_t j = 0; j < 64; j += 16) {
                _mm512_storeu_ps(data + i + j, _mm512_mul_ps(_mm512_loadu_ps(data + i + j), factor));
            }
        }
        for (; i + 16 <= rows.n; i += 16) {
            _mm512_storeu_ps(data + i, _mm512_mul_ps(_mm512_loadu_ps(data + i), factor));
        }
        if (i < rows.n) {
            multiply_rest(data, i, rows.n, by);
        }
    }
}

__attribute__((target("avx2"))) void multiply_avx2(const FloatRows rows, float by) {
    const __m256 factor = _mm256_set1_ps(by);
    for (std::size_t row = 0; row < rows.n_rows; row++) {
        float *const data = rows.data + row * rows.stride;
        std::size_t i = 0;
        for (; i + 32 <= rows.n; i += 32) {
            for (std::size_t j = 0; j < 32; j += 8) {
                _mm256_storeu_ps(data + i + j, _mm256_mul_ps(_mm256_loadu_ps(data + i + j), factor));
            }
        }
        for (; i + 8 <= rows.n; i += 8) {
            _mm256_storeu_ps(data + i, _mm256_mul_ps(_mm256_loadu_ps(data + i), factor));
        }
        if (i < rows.n) {
            multiply_rest(data, i, rows.n, by);
        }
    }
}

__attribute__((target("avx512f"))) std::size_t copy_avx512(float *to, const float *from, std::size_t n) {
    std::size_t i = 0;
    for (; i + 128 <= n; i += 128) {
        for (std::size_t j = 0; j < 128; j += 16) {
            _mm512_store_ps(to + i + j, _mm512_load_ps(from + i + j));
        }
    }
    return i;
}

__attribute__((target("avx2"))) std::size_t copy_avx2(float *to, const float *from, std::size_t n) {
    std::size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (std::size_t j = 0; j < 64; j += 8) {
            _mm256_store_ps(to + i + j, _mm256_load_ps(from + i + j));
        }
    }
    return i;
}

__attribute__((target("avx512f"))) std::size_t stream_avx512(float *to, const float *from, std::size_t n) {
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        _mm512_stream_ps(to + i, _mm512_load_ps(from + i));
    }
    _mm_sfence();
    return i;
}

__attribute__((target("avx2"))) std::size_t stream_avx2(float *to, const float *from, std::size_t n) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
    }
    _mm_sfence();
    return i;
}

#else

constexpr std::nullptr_t copy_avx512 = nullptr, copy_avx2 = nullptr, stream_avx512 = nullptr, stream_avx2 = nullptr;

#endif

using Copy = std::size_t (*)(float *to, const float *from, std::size_t n);

/// Copies with the one of two functions that this machine has, which return how many floats they have done.
void copy_with([[maybe_unused]] Copy avx512, [[maybe_unused]] Copy avx2, void *to, const void *from,
               std::size_t n_bytes) {
    std::size_t done = 0;
#if defined(__x86_64__)
    const Copy copy = __builtin_cpu_supports("avx512f") ? avx512 : __builtin_cpu_supports("avx2") ? avx2 : nullptr;
    if (copy != nullptr) {
        done =
            copy(static_cast<float *>(to), static_cast<const float *>(from), n_bytes / sizeof(float)) * sizeof(float);
    }
#endif
    std::memcpy(static_cast<char *>(to) + done, static_cast<const char *>(from) + done, n_bytes - done);
}

}  // namespace

void copy_with_vectors(void *to, const void *from, std::size_t n_bytes) {
    copy_with(copy_avx512, copy_avx2, to, from, n_bytes);
}

void copy_non_temporally(void *to, const void *from, std::size_t n_bytes) {
    copy_with(stream_avx512, stream_avx2, to, from, n_bytes);
}

void multiply_in_place(void *data, std::size_t n_rows, std::size_t row_bytes, std::size_t stride_bytes) {
    const FloatRows rows = {static_cast<float *>(data), n_rows, row_bytes / sizeof(float),
                            stride_bytes / sizeof(float)};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return multiply_avx512(rows, one);
    }
    if (__builtin_cpu_supports("avx2")) {
        return multiply_avx2(rows, one);
    }
#endif
    multiply_with_scalars(rows, one);
}

}  // namespace halyard::bench
