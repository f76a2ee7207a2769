#include "rotate/stages.h"

#include <cmath>
#include <cstring>

namespace halyard {

namespace {

/// Calls function(token, head) for each head.
template <typename Function>
void for_each_head(const Extents &extents, const Function &function) {
    for (std::int64_t token = 0; token < extents.n_tokens; token++) {
        for (std::int64_t head = 0; head < extents.n_heads; head++) {
            function(token, head);
        }
    }
}

template <typename Storage>
void widen_heads(const Extents &extents, const char *x, const StageStrides &in, float *block, const StageStrides &out) {
    using Word = typename Storage::Word;
    for_each_head(extents, [&](std::int64_t token, std::int64_t head) {
        const char *from = x + (token * in.token + head * in.head) * std::int64_t{sizeof(Word)};
        float *to = block + token * out.token + head * out.head;
        for (std::int64_t i = 0; i < extents.n_elements; i++) {
            to[i * out.element] = Storage::widen(read_word<Word>(from + i * in.element * std::int64_t{sizeof(Word)}));
        }
    });
}

template <typename Storage>
void narrow_heads(const Extents &extents, const float *block, const StageStrides &in, const float *r,
                  const StageStrides &r_strides, char *y, const StageStrides &out) {
    using Word = typename Storage::Word;
    for_each_head(extents, [&](std::int64_t token, std::int64_t head) {
        const float *from = block + token * in.token + head * in.head;
        const float *factor = r + token * r_strides.token + head * r_strides.head;
        char *to = y + (token * out.token + head * out.head) * std::int64_t{sizeof(Word)};
        for (std::int64_t i = 0; i < extents.n_elements; i++) {
            const Word word = Storage::narrow(from[i * in.element] * factor[i * r_strides.element]);
            std::memcpy(to + i * out.element * std::int64_t{sizeof(Word)}, &word, sizeof(Word));
        }
    });
}

float rounded(Dtype dtype, float value) {
    switch (dtype) {
    case Dtype::f16: return F16::widen(F16::narrow(value));
    case Dtype::bf16: return BF16::widen(BF16::narrow(value));
    case Dtype::f32:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8: break;
    }
    return value;
}

}  // namespace

void widen(const StageKernels &, Dtype dtype, const Extents &extents, const char *x, const StageStrides &in,
           float *block, const StageStrides &out) noexcept {
    switch (dtype) {
    case Dtype::f32: widen_heads<F32>(extents, x, in, block, out); break;
    case Dtype::f16: widen_heads<F16>(extents, x, in, block, out); break;
    case Dtype::bf16: widen_heads<BF16>(extents, x, in, block, out); break;
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8: break;  // no input's
    }
}

void normalise(const StageKernels &, const Norm &norm, const Extents &extents, float *block,
               const StageStrides &strides) noexcept {
    for_each_head(extents, [&](std::int64_t token, std::int64_t head) {
        float *v = block + token * strides.token + head * strides.head;
        const float *weight = norm.weight + head * norm.stride_weight_head;
        float sums[16] = {};
        for (std::int64_t i = 0; i < extents.n_elements; i++) {
            sums[i % 16] = std::fma(v[i * strides.element], v[i * strides.element], sums[i % 16]);
        }
        for (int half = 8; half > 0; half /= 2) {
            for (int i = 0; i < half; i++) {
                sums[i] += sums[i + half];
            }
        }
        const float r = 1.0f / std::sqrt(sums[0] / static_cast<float>(extents.n_elements) + norm.eps);
        for (std::int64_t i = 0; i < extents.n_elements; i++) {
            float value = v[i * strides.element] * r;
            if ((norm.rounding & round_before_weight) != 0) {
                value = rounded(norm.round_to, value);
            }
            value *= weight[i];
            if ((norm.rounding & round_after_weight) != 0) {
                value = rounded(norm.round_to, value);
            }
            v[i * strides.element] = value;
        }
    });
}

void find_largest(const StageKernels &, const Extents &extents, const float *block, const StageStrides &strides,
                  float *amax) noexcept {
    for_each_head(extents, [&](std::int64_t token, std::int64_t head) {
        const float *v = block + token * strides.token + head * strides.head;
        float largest = 0.0f;
        for (std::int64_t i = 0; i < extents.n_elements; i++) {
            const float magnitude = std::fabs(v[i * strides.element]);
            largest = magnitude > largest && magnitude < INFINITY ? magnitude : largest;
        }
        amax[token * extents.n_heads + head] = largest;
    });
}

void narrow(const StageKernels &, Dtype out_dtype, const Extents &extents, const float *block, const StageStrides &in,
            const float *r, const StageStrides &r_strides, char *y, const StageStrides &out) noexcept {
    switch (out_dtype) {
    case Dtype::f32: narrow_heads<F32>(extents, block, in, r, r_strides, y, out); break;
    case Dtype::f16: narrow_heads<F16>(extents, block, in, r, r_strides, y, out); break;
    case Dtype::bf16: narrow_heads<BF16>(extents, block, in, r, r_strides, y, out); break;
    case Dtype::e4m3: narrow_heads<E4M3>(extents, block, in, r, r_strides, y, out); break;
    case Dtype::e5m2: narrow_heads<E5M2>(extents, block, in, r, r_strides, y, out); break;
    case Dtype::int8: narrow_heads<Int8>(extents, block, in, r, r_strides, y, out); break;
    }
}

}  // namespace halyard
