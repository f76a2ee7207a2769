#include "checks/kernel_model.h"

#include "checks/oracle.h"
#include "core/plan.h"
#include "core/rotate.h"
#include "kv/stages.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

namespace model {

namespace {

using namespace halyard;

/// The conversions of a dtype of 8 bits, by the oracle.
template <std::int32_t dtype>
struct EightBits {
    using Word = std::uint8_t;
    static float widen(Word word) { return oracle::widen(dtype, word); }
    static Word narrow(float value) { return static_cast<Word>(oracle::narrow(dtype, value)); }
};
using E4M3 = EightBits<HALYARD_E4M3>;
using E5M2 = EightBits<HALYARD_E5M2>;
using Int8 = EightBits<HALYARD_INT8>;

// ---- Elements of buffers -------------------------------------------------------------------------------------------

template <typename Word, typename... Indices>
char *place(const halyard_buffer *buffer, Indices... indices) {
    std::int64_t offset = 0;
    const halyard_dimension *dim = buffer->dim;
    ((offset += std::int64_t{indices} * dim++->stride), ...);
    return reinterpret_cast<char *>(buffer->host) + offset * std::int64_t{sizeof(Word)};
}

template <typename Storage, typename... Indices>
float get(const halyard_buffer *buffer, Indices... indices) {
    return Storage::widen(read_word<typename Storage::Word>(place<typename Storage::Word>(buffer, indices...)));
}

template <typename Word, typename... Indices>
void set_word(Word word, const halyard_buffer *buffer, Indices... indices) {
    std::memcpy(place<Word>(buffer, indices...), &word, sizeof(word));
}

template <typename Storage, typename... Indices>
void set(float value, const halyard_buffer *buffer, Indices... indices) {
    set_word<typename Storage::Word>(Storage::narrow(value), buffer, indices...);
}

template <typename Storage>
float rounded(float value) {
    return Storage::widen(Storage::narrow(value));
}

/// Calls function(head, token) for the heads of a buffer [elements, heads, tokens].
template <typename Function>
void for_each_head(const halyard_buffer *buffer, Function function) {
    for (std::int32_t token = 0; token < buffer->dim[2].extent; token++) {
        for (std::int32_t head = 0; head < buffer->dim[1].extent; head++) {
            function(head, token);
        }
    }
}

/// Calls function(element, head, token) for the elements of a buffer [elements, heads, tokens].
template <typename Function>
void for_each_element(const halyard_buffer *buffer, Function function) {
    for_each_head(buffer, [&](std::int32_t head, std::int32_t token) {
        for (std::int32_t element = 0; element < buffer->dim[0].extent; element++) {
            function(element, head, token);
        }
    });
}

// ---- Conversions ---------------------------------------------------------------------------------------------------

template <typename Storage>
int widen(halyard_buffer *x, halyard_buffer *y) {
    for_each_element(y, [&](auto... at) { set<F32>(get<Storage>(x, at...), y, at...); });
    return 0;
}

template <typename Storage>
int narrow(halyard_buffer *x, halyard_buffer *r, halyard_buffer *y) {
    for_each_element(y, [&](auto... at) { set<Storage>(get<F32>(x, at...) * get<F32>(r, at...), y, at...); });
    return 0;
}

// ---- Norms and rotations -------------------------------------------------------------------------------------------

/// The mean of n elements, summed in the kernels' order, in 16 partial sums: element e goes into number e % 16.
/// add(sum, e) returns sum + element e, where `sum` is that partial sum so far.
template <typename Add>
float mean_of(std::int32_t n_elements, Add add) {
    float sums[16] = {};
    for (std::int32_t e = 0; e < n_elements; e++) {
        sums[e % 16] = add(sums[e % 16], e);
    }
    for (int half = 8; half >= 1; half /= 2) {
        for (int i = 0; i < half; i++) {
            sums[i] += sums[i + half];
        }
    }
    return sums[0] / static_cast<float>(n_elements);
}

/// The factor of an RMS norm: 1 / sqrt(mean square + eps).
template <typename Element>
float rms_norm_factor(std::int32_t n_elements, float eps, Element element) {
    const float mean_square = mean_of(n_elements, [&](float sum, std::int32_t e) {
        const float v = element(e);
        return std::fma(v, v, sum);
    });
    return 1.0f / std::sqrt(mean_square + eps);
}

/// An RMS norm, or a layer norm if there is a bias. X is the input's storage; `Rounded` is the storage to which values
/// are rounded before and after the weight.
template <typename X, typename Rounded>
int normalise(halyard_buffer *weight, float eps, std::int32_t rounding, halyard_buffer *bias, halyard_buffer *x,
              halyard_buffer *y) {
    const std::int32_t n_elements = y->dim[0].extent;
    const bool rounds_before = (rounding & HALYARD_NORM_ROUND_BEFORE_WEIGHT) != 0,
               rounds_after = (rounding & HALYARD_NORM_ROUND_AFTER_WEIGHT) != 0;
    for_each_head(y, [&](std::int32_t head, std::int32_t token) {
        const auto element = [&](std::int32_t e) { return get<X>(x, e, head, token); };
        const float mean =
            bias == nullptr ? 0.0f : mean_of(n_elements, [&](float sum, std::int32_t e) { return sum + element(e); });
        const float scale = rms_norm_factor(n_elements, eps, [&](std::int32_t e) { return element(e) - mean; });
        for (std::int32_t e = 0; e < n_elements; e++) {
            float v = (element(e) - mean) * scale;
            v = rounds_before ? rounded<Rounded>(v) : v;
            v *= get<F32>(weight, e, head);
            v = bias == nullptr ? v : v + get<F32>(bias, e, head);
            set<F32>(rounds_after ? rounded<Rounded>(v) : v, y, e, head, token);
        }
    });
    return 0;
}

template <typename X, typename Rounded>
constexpr halyard_norm_kernel *norm = [](auto *weight, float eps, std::int32_t rounding, auto *x, auto *y) {
    return normalise<X, Rounded>(weight, eps, rounding, nullptr, x, y);
};

/// The arguments of kernels that rotate. If weight is NULL there is no norm before the rotation.
struct RotateArguments {
    const halyard_buffer *weight;
    float eps;
    const halyard_buffer *row_of_token, *cos_rows, *sin_rows;
    std::uint32_t sin_sign;
    const halyard_buffer *x, *y;
};

template <typename Storage>
int rotate_heads(const RotateArguments &of) {
    const std::int32_t n_pairs = of.y->dim[0].extent;
    for (std::int32_t i = 0; i < of.y->dim[2].extent * of.y->dim[3].extent; i++) {
        const std::int32_t head = i % of.y->dim[2].extent, token = i / of.y->dim[2].extent;
        const auto element = [&](std::int32_t k, int member) { return get<Storage>(of.x, k, member, head, token); };
        const float scale = of.weight == nullptr ? 1.0f : rms_norm_factor(2 * n_pairs, of.eps, [&](std::int32_t e) {
            return element(e % n_pairs, e / n_pairs);
        });
        const auto normed = [&](std::int32_t k, int member) {
            const float v = element(k, member);
            return of.weight == nullptr ? v : v * scale * get<F32>(of.weight, k, member);
        };
        const auto row = read_word<std::int32_t>(place<std::int32_t>(of.row_of_token, token));
        for (std::int32_t k = 0; k < n_pairs; k++) {
            const float x0 = normed(k, 0), x1 = normed(k, 1), cos = get<F32>(of.cos_rows, k, row);
            const auto bits = std::bit_cast<std::uint32_t>(get<F32>(of.sin_rows, k, row));
            const auto sin = std::bit_cast<float>(bits ^ of.sin_sign);
            set<Storage>(std::fma(x0, cos, -(x1 * sin)), of.y, k, 0, head, token);
            set<Storage>(std::fma(x1, cos, x0 * sin), of.y, k, 1, head, token);
        }
    }
    return 0;
}

template <typename Storage>
constexpr halyard_norm_rotate_kernel *norm_rotate = [](auto... of) { return rotate_heads<Storage>({of...}); };
template <typename Storage>
constexpr halyard_rotate_kernel *rotate = [](auto... of) { return rotate_heads<Storage>({nullptr, 0.0f, of...}); };

// ---- Reductions and the Hadamard transform -------------------------------------------------------------------------

/// The min and max of a head's finite elements. Each is +0 if no element is finite, or if it would be -0.
std::pair<float, float> finite_min_max(const halyard_buffer *x, std::int32_t head, std::int32_t token) {
    float least = INFINITY, greatest = -INFINITY;
    for (std::int32_t e = 0; e < x->dim[0].extent; e++) {
        if (const float v = get<F32>(x, e, head, token); std::isfinite(v)) {
            least = std::min(least, v);
            greatest = std::max(greatest, v);
        }
    }
    const auto end = [](float found) { return found == 0.0f || std::isinf(found) ? 0.0f : found; };
    return {end(least), end(greatest)};
}

int largest(halyard_buffer *x, halyard_buffer *y) {
    for_each_head(x, [&](auto... at) {
        const auto [least, greatest] = finite_min_max(x, at...);
        set<F32>(std::max(std::fabs(least), std::fabs(greatest)), y, at...);
    });
    return 0;
}

int range(halyard_buffer *x, halyard_buffer *least, halyard_buffer *greatest) {
    for_each_head(x, [&](auto... at) {
        const auto ends = finite_min_max(x, at...);
        set<F32>(ends.first, least, at...);
        set<F32>(ends.second, greatest, at...);
    });
    return 0;
}

int butterfly(halyard_buffer *x, halyard_buffer *y) {
    for (std::int32_t blocks = 0; blocks < y->dim[2].extent; blocks++) {
        for (std::int32_t e = 0; e < y->dim[0].extent; e++) {
            const float u = get<F32>(x, e, 0, blocks), v = get<F32>(x, e, 1, blocks);
            set<F32>(u + v, y, e, 0, blocks);
            set<F32>(u - v, y, e, 1, blocks);
        }
    }
    return 0;
}

int hadamard(float scale, halyard_buffer *x, halyard_buffer *y) {
    const std::int32_t n_elements = y->dim[0].extent, n_blocks = y->dim[1].extent;
    for (std::int32_t i = 0; i < n_blocks * n_elements; i++) {
        set<F32>(get<F32>(x, i % n_elements, i / n_elements) * scale, y, i % n_elements, i / n_elements);
    }
    for (std::int32_t block = 0; block < n_blocks; block++) {
        for (std::int32_t distance = 1; distance < n_elements; distance *= 2) {
            halyard_dimension dims[] = {
                {0, distance, 1, 0}, {0, 2, distance, 0}, {0, n_elements / distance / 2, 2 * distance, 0}};
            halyard_buffer pairs = *y;
            pairs.host = reinterpret_cast<std::uint8_t *>(place<float>(y, 0, block));
            pairs.dim = dims;
            butterfly(&pairs, &pairs);
        }
    }
    return 0;
}

// ---- Groups --------------------------------------------------------------------------------------------------------

/// The integer that v is quantised to, not yet clamped: see halyard_quantise_kernel for the mode.
float integer_of(std::int32_t mode, float v, float r, float z) {
    return mode == 0 ? std::nearbyint(std::fma(v, r, z)) : mode == 1 ? std::round(v * r) : std::trunc(v * r + z);
}

template <bool is_e4m3>
int quantise(std::int32_t mode, float low, float high, halyard_buffer *x, halyard_buffer *r, halyard_buffer *z,
             halyard_buffer *y) {
    for_each_element(y, [&](std::int32_t e, std::int32_t group, std::int32_t token) {
        const float by = get<F32>(r, group, token), element = get<F32>(x, e, group, token);
        const float v = std::isnan(element) || by == 0.0f ? 0.0f : element;
        if (is_e4m3) {
            set<E4M3>(v * by, y, e, group, token);
            return;
        }
        float q = integer_of(mode, v, by, get<F32>(z, group, token));
        q = q >= low ? q : low;  // a NaN becomes low
        q = q <= high ? q : high;
        set_word(static_cast<std::uint8_t>(static_cast<std::int32_t>(q)), y, e, group, token);
    });
    return 0;
}

/// Skips groups whose scale is not finite: their output stays unwritten.
int store_groups(std::int32_t reciprocal, std::int32_t away, halyard_buffer *x, halyard_buffer *y,
                 halyard_buffer *scales, halyard_buffer *largest) {
    const std::int32_t n_groups = y->dim[1].extent, n_elements = y->dim[0].extent;
    std::uint32_t largest_bits = 0;  // compared as integers, so that NaN is the largest
    for (std::int32_t i = 0; i < x->dim[1].extent; i++) {
        const std::int32_t head = i / n_groups, group = i % n_groups;
        std::uint32_t bits = 0;
        for (std::int32_t e = 0; e < n_elements; e++) {
            bits = std::max(bits, std::bit_cast<std::uint32_t>(get<F32>(x, e, i)) & 0x7fffffffu);
        }
        largest_bits = std::max(largest_bits, bits);
        const float most = std::bit_cast<float>(bits), scale = most / 127.0f, stored = rounded<F16>(scale);
        if (!std::isfinite(stored)) {
            continue;
        }
        set<F16>(scale, scales, group, head);
        const float quotient = reciprocal == 2 ? 127.0f / most : 1.0f / (reciprocal == 1 ? scale : stored);
        const float r = std::isfinite(quotient) ? quotient : 0.0f;
        for (std::int32_t e = 0; e < n_elements; e++) {
            const float q = integer_of(away != 0 ? 1 : 0, get<F32>(x, e, i), r, 0.0f);
            set_word(static_cast<std::int8_t>(std::clamp(q, -128.0f, 127.0f)), y, e, group, head);
        }
    }
    std::memcpy(largest->host, &largest_bits, sizeof(largest_bits));
    return 0;
}

int load_groups(halyard_buffer *x, halyard_buffer *scales, halyard_buffer *y) {
    for_each_element(y, [&](std::int32_t e, std::int32_t group, std::int32_t head) {
        set<F32>(get<Int8>(x, e, group, head) * get<F16>(scales, group, head), y, e, group, head);
    });
    return 0;
}

const Kernel rotation_of_floats = [] {
    Kernel kernel = kernels().back();
    kernel.function = rotate<F32>;
    return kernel;
}();

}  // namespace

const StageKernels stage_kernels = {
    .target = Target::reference,
    .widen = {widen<F32>, widen<F16>, widen<BF16>, widen<E4M3>, widen<E5M2>, widen<Int8>},
    .norm = {norm<F32, F32>, norm<F32, F16>, norm<F32, BF16>},
    .widen_norm = {norm<F32, F32>, norm<F16, F16>, norm<BF16, BF16>},
    .layer_norm = {normalise<F32, F32>, normalise<F32, F16>, normalise<F32, BF16>},
    .norm_rotate = {norm_rotate<F32>, norm_rotate<F16>, norm_rotate<BF16>},
    .narrow = {narrow<F32>, narrow<F16>, narrow<BF16>, narrow<E4M3>, narrow<E5M2>, narrow<Int8>},
    .largest = {largest},
    .range = {range},
    .quantise = {nullptr, nullptr, nullptr, quantise<true>, nullptr, quantise<false>, quantise<false>},
    .store_groups = {nullptr, nullptr, nullptr, nullptr, nullptr, store_groups},
    .load_groups = {nullptr, nullptr, nullptr, nullptr, nullptr, load_groups},
    .hadamard = {hadamard},
    .butterfly = {butterfly},
};

int rows_phase(halyard_buffer *position, halyard_buffer *turns_high, halyard_buffer *turns_low, float scale_high,
               float scale_low, halyard_buffer *rows) {
    for (std::int32_t token = 0; token < rows->dim[2].extent; token++) {
        phase_row_reference(read_word<std::int32_t>(place<std::int32_t>(position, token)),
                            {reinterpret_cast<const std::uint32_t *>(turns_high->host),
                             reinterpret_cast<const std::uint32_t *>(turns_low->host), scale_high, scale_low},
                            rows->dim[0].extent, reinterpret_cast<float *>(place<float>(rows, 0, 0, token)),
                            reinterpret_cast<float *>(place<float>(rows, 0, 1, token)));
    }
    return 0;
}

halyard_rotate_kernel *const rotations[n_input_dtypes] = {rotate<F32>, rotate<F16>, rotate<BF16>};

halyard::plan make_plan(halyard_plan_desc desc) {
    desc.target = nullptr;
    halyard::plan made(desc);
    auto &plan = const_cast<halyard_plan &>(*made.get());
    for (TensorPlan &tensor : plan.tensors) {
        for (auto &of_place : tensor.kernels) {
            std::fill(std::begin(of_place), std::end(of_place), &kernels().back());
        }
    }
    plan.row_kernels = select_row_kernels(0);
    if (plan.kv_plan != nullptr) {
        const auto kv_plan = std::make_shared<KvPlan>(*plan.kv_plan);
        kv_plan->kernels = &stage_kernels;
        for (KvTensorPlan &tensor : kv_plan->tensors) {
            tensor.block_rotation = &rotation_of_floats;
        }
        plan.kv_plan = kv_plan;
    }
    return made;
}

}  // namespace model
