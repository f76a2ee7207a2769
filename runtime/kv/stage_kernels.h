// The kernels of all stages other than the rotation, and functions that call these kernels.
#pragma once

#include "base/storage.h"
#include "core/kernel_abi.h"
#include "core/rotate.h"
#include "core/targets.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace halyard {

/// A target's kernels: an array for each stage, with an entry for each dtype (index_of). Only these entries are NULL:
/// widen and narrow for uint8; largest, range, hadamard and butterfly except for f32; quantise except for e4m3, int8
/// and uint8, whose kernel is that for int8; store_groups and load_groups except for int8.
struct StageKernels {
    Target target;
    halyard_widen_kernel *widen[n_dtypes];
    halyard_norm_kernel *norm[n_input_dtypes];
    halyard_widen_norm_kernel *widen_norm[n_input_dtypes];
    halyard_layer_norm_kernel *layer_norm[n_input_dtypes];
    halyard_norm_rotate_kernel *norm_rotate[n_input_dtypes];
    halyard_narrow_kernel *narrow[n_dtypes];
    halyard_largest_kernel *largest[n_input_dtypes];
    halyard_range_kernel *range[n_input_dtypes];
    halyard_quantise_kernel *quantise[n_dtypes];
    halyard_store_groups_kernel *store_groups[n_dtypes];
    halyard_load_groups_kernel *load_groups[n_dtypes];
    halyard_hadamard_kernel *hadamard[n_input_dtypes];
    halyard_butterfly_kernel *butterfly[n_input_dtypes];
};

/// The kernels of the best allowed target that has any; NULL if none has.
const StageKernels *find_stage_kernels(TargetSet allowed) noexcept;

/// Strides, in elements of the array's own dtype.
struct ElementStrides {
    std::int64_t element, head, token;
};

/// The sizes of an array: some elements (a head, or a window of it) of some heads of some tokens. None is 0.
struct Extents {
    std::int64_t n_elements, n_heads, n_tokens;
};

/// An array of such sizes: the address of the first element of the first head of the first token, and its strides.
template <typename T>
struct Elements {
    T *data;
    ElementStrides strides;
    std::int64_t bytes = sizeof(T);  // of an element; if that depends on a dtype, T is char
    int first_dim = 0;               // 1: one number for each head, so that kernels get no dimension of elements
};

/// A dense array of one number for each head, [token][head].
template <typename T>
Elements<T> one_number_per_head(T *numbers, std::int64_t n_heads) noexcept {
    return {numbers, {0, 1, n_heads}, sizeof(T), 1};
}

/// The factor 1 for each head of each token.
inline constexpr float one_number = 1.0f;
inline constexpr Elements<const float> one = {&one_number, {0, 0, 0}};

/// An operand of a kernel, with the buffer that is passed to the kernel. (Buffer and dims are set by for_each_part.)
struct StageOperand {
    const void *data;
    std::int64_t bytes, strides[3];
    int first_dim;
    halyard_buffer buffer;
    halyard_dimension dims[3];

    template <typename T>
    // NOLINTNEXTLINE(*UninitializedObject)
    explicit StageOperand(const Elements<T> &of)
        : data(of.data), bytes(of.bytes), strides{of.strides.element, of.strides.head, of.strides.token},
          first_dim(of.first_dim) {}
};

/// A call of a kernel whose operands have the same extents.
template <std::size_t n>
struct StageCall {
    std::int64_t extents[3];  // of elements, heads and tokens
    StageOperand operands[n];

    template <typename... T>
    explicit StageCall(const Extents &of, const Elements<T> &...elements)
        : extents{of.n_elements, of.n_heads, of.n_tokens}, operands{StageOperand(elements)...} {}
    StageCall(const StageCall &) = delete;
    StageCall &operator=(const StageCall &) = delete;

    /// Joins two dimensions into one if all strides allow it, for longer loops.
    StageCall &join(int inner, int outer) noexcept {
        bool fits = true;
        for (const StageOperand &operand : operands) {
            fits = fits && operand.strides[outer] == operand.strides[inner] * extents[inner];
        }
        if (fits || extents[outer] == 1) {
            extents[inner] *= extents[outer];
            extents[outer] = 1;
        }
        return *this;
    }
    StageCall &join_all() noexcept { return join(0, 1).join(extents[1] == 1 ? 0 : 1, 2); }

    /// Calls function(buffers...) for all elements: once, or, if 32-bit offsets do not reach all, for one token or head
    /// after the other. They always reach a head, whose elements are contiguous.
    template <typename Function>
    void for_each_part(const Function &function) noexcept {
        const std::int64_t n_tokens = fits() ? 1 : std::exchange(extents[2], 1);
        const std::int64_t n_heads = fits() ? 1 : std::exchange(extents[1], 1);
        for (std::int64_t token = 0; token < n_tokens; token++) {
            for (std::int64_t head = 0; head < n_heads; head++) {
                std::array<halyard_buffer *, n> buffers;
                for (std::size_t i = 0; i < n; i++) {
                    StageOperand &of = operands[i];
                    const std::int64_t offset = token * of.strides[2] + head * of.strides[1];
                    set_buffer(of.buffer, static_cast<const char *>(of.data) + offset * of.bytes, of.dims);
                    for (int dim = 0; dim < 3; dim++) {
                        set_dimension(of.dims[dim], extents[dim], of.strides[dim]);
                    }
                    of.buffer.dim += of.first_dim;
                    buffers[i] = &of.buffer;
                }
                std::apply(function, buffers);
            }
        }
    }

private:
    bool fits() const noexcept {
        bool all_fit = true;
        for (const StageOperand &operand : operands) {
            std::int64_t sum = 0;
            for (int i = 0; i < 3; i++) {
                // The stride of a dimension of one element may be anything.
                sum += extents[i] == 1 ? 0 : (extents[i] - 1) * std::abs(operand.strides[i]);
            }
            all_fit = all_fit && sum <= max_offset;
        }
        return all_fit;
    }
};
template <typename... T>
StageCall(const Extents &, const Elements<T> &...) -> StageCall<sizeof...(T)>;

/// Sets largest, dense [token][head], to the largest magnitude of each head's finite elements, 0 if there is none.
inline void find_largest(const StageKernels &kernels, const Extents &extents, const Elements<float> &block,
                         float *largest) noexcept {
    StageCall(extents, block, one_number_per_head(largest, extents.n_heads))
        .join(1, 2)
        .for_each_part(kernels.largest[0]);
}

// ---- Conversions (convert.cpp) --------------------------------------------------------------------------------------

/// Converts elements to floats. The elements of a head are contiguous. (Inline, for the speed of runs of one token.)
[[gnu::always_inline]] inline void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents,
                                         const Elements<const char> &x, const Elements<float> &to) noexcept {
    StageCall(extents, Elements<const char>{x.data, x.strides, element_bytes(dtype)}, to)
        .join_all()
        .for_each_part(kernels.widen[index_of(dtype)]);
}

/// y = x * r, rounded to a dtype. The elements of a head are contiguous in x and y. Strides of r may be 0.
void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &x,
            const Elements<const float> &r, const Elements<char> &y) noexcept;

}  // namespace halyard
