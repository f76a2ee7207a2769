#include "walk/stages.h"

#include "read/stage_desc.h"
#include "walk/piece.h"
#include "walk/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace halyard {

namespace {

// ---- The portable loops --------------------------------------------------------------------------------------------
// This file is compiled without contraction, so nothing is fused but what std::fma fuses.

template <typename Function>
void for_each_element(const Extents &extents, Function function) {
    for (std::int64_t t = 0; t < extents.n_tokens; t++) {
        for (std::int64_t h = 0; h < extents.n_heads; h++) {
            for (std::int64_t e = 0; e < extents.n_elements; e++) {
                function(e, h, t);
            }
        }
    }
}

template <typename T>
T *find(const Elements<T> &elements, std::int64_t element, std::int64_t head, std::int64_t token,
        std::int64_t bytes = 1) {
    const ElementStrides &strides = elements.strides;
    return elements.data + (element * strides.element + head * strides.head + token * strides.token) * bytes;
}

template <typename Storage>
void widen_by_loop(const Extents &extents, const Elements<const char> &x, const Elements<float> &block) {
    using Word = typename Storage::Word;
    for_each_element(extents, [&](std::int64_t e, std::int64_t h, std::int64_t t) {
        *find(block, e, h, t) = Storage::widen(read_word<Word>(find(x, e, h, t, sizeof(Word))));
    });
}

template <typename Storage>
void narrow_by_loop(const Extents &extents, const Elements<const float> &block, const Elements<const float> &r,
                    const Elements<char> &y) {
    using Word = typename Storage::Word;
    for_each_element(extents, [&](std::int64_t e, std::int64_t h, std::int64_t t) {
        const Word word = Storage::narrow(*find(block, e, h, t) * *find(r, e, h, t));
        std::memcpy(find(y, e, h, t, sizeof(Word)), &word, sizeof(Word));
    });
}

float rounded(Dtype dtype, float value) {
    with_storage(dtype, [&](auto storage) { value = storage.widen(storage.narrow(value)); });
    return value;
}

void normalise_by_loop(const Norm &norm, const Extents &extents, const Elements<float> &block) {
    for (std::int64_t t = 0; t < extents.n_tokens; t++) {
        for (std::int64_t h = 0; h < extents.n_heads; h++) {
            Norm of_head = norm;
            of_head.weight += h * norm.stride_weight_head;
            of_head.bias += norm.bias == nullptr ? 0 : h * norm.stride_weight_head;
            RowNorm row(norm.bias != nullptr);
            do {
                row.take(of_head, extents.n_elements, find(block, 0, h, t), block.strides.element);
            } while (row.end_round(norm.eps));
        }
    }
}

void find_largest_by_loop(const Extents &extents, const Elements<const float> &block, float *largest) {
    std::fill_n(largest, extents.n_tokens * extents.n_heads, 0.0f);
    for_each_element(extents, [&](std::int64_t e, std::int64_t h, std::int64_t t) {
        const float magnitude = std::fabs(*find(block, e, h, t));
        float &most = largest[t * extents.n_heads + h];
        most = magnitude > most && magnitude < INFINITY ? magnitude : most;
    });
}

void find_range_by_loop(const Extents &extents, const Elements<const float> &block, float *least, float *greatest) {
    const std::int64_t n_heads = extents.n_tokens * extents.n_heads;
    std::fill_n(least, n_heads, INFINITY);
    std::fill_n(greatest, n_heads, -INFINITY);
    for_each_element(extents, [&](std::int64_t e, std::int64_t h, std::int64_t t) {
        const float v = *find(block, e, h, t);
        const std::int64_t i = t * extents.n_heads + h;
        if (std::fabs(v) < INFINITY) {
            least[i] = std::min(least[i], v);
            greatest[i] = std::max(greatest[i], v);
        }
    });
    for (float *const found : {least, greatest}) {
        std::replace_if(
            found, found + n_heads, [](float v) { return v == 0.0f || std::fabs(v) == INFINITY; }, 0.0f);
    }
}

/// What an integer is before it is clamped.
float integer_of(Quantisation::Mode mode, float v, float r, float z) {
    switch (mode) {
    case Quantisation::Mode::even: return std::nearbyint(std::fma(v, r, z));
    case Quantisation::Mode::away: return std::round(v * r);
    case Quantisation::Mode::offset: break;
    }
    return std::trunc(v * r + z);
}

void quantise_by_loop(const Quantisation &how, const Extents &extents, const Elements<const float> &block,
                      const float *r, const float *z, unsigned char *y) {
    for_each_element(extents, [&](std::int64_t e, std::int64_t h, std::int64_t t) {
        const std::int64_t group = t * extents.n_heads + h;
        const float element = *find(block, e, h, t), by = r[group];
        const float v = std::isnan(element) || by == 0.0f ? 0.0f : element;
        unsigned char &to = y[group * extents.n_elements + e];
        if (how.dtype == Dtype::e4m3) {
            to = E4M3::narrow(v * by);
        } else {
            float q = integer_of(how.mode, v, by, z == nullptr ? 0.0f : z[group]);
            q = q >= how.low ? q : how.low;  // of a NaN too
            q = q <= how.high ? q : how.high;
            to = static_cast<unsigned char>(static_cast<std::int32_t>(q));
        }
    });
}

/// Scales from here on overflow.
inline constexpr float overflow_of_q8 = 127.0f * 65504.0f;

bool store_q8_by_loop(const Q8 &q8, const Extents &extents, const float *heads, const Elements<char> &y,
                      const Elements<char> &scales) {
    using Mode = Quantisation::Mode;
    for (std::int64_t i = 0; i < extents.n_heads * extents.n_tokens; i++, heads += q8_group) {
        std::uint32_t largest = 0;  // its bits, in whose order NaN is the largest
        for (std::int64_t e = 0; e < q8_group; e++) {
            largest = std::max(largest, std::bit_cast<std::uint32_t>(heads[e]) & 0x7fffffffu);
        }
        const auto most = std::bit_cast<float>(largest);
        if (!(most < overflow_of_q8)) {
            return false;
        }
        const std::int64_t t = i / extents.n_heads, h = i - t * extents.n_heads;
        const float scale = most / 127.0f;
        const std::uint16_t word = F16::narrow(scale);
        std::memcpy(find(scales, 0, h, t, sizeof(word)), &word, sizeof(word));
        const float quotient = q8.reciprocal == Q8::of_largest ? 127.0f / most
                               : q8.reciprocal == Q8::of_scale ? 1.0f / scale
                                                                              : 1.0f / F16::widen(word);
        const float r = std::isfinite(quotient) ? quotient : 0.0f;
        for (std::int64_t e = 0; e < q8_group; e++) {
            const float q = integer_of(q8.away ? Mode::away : Mode::even, heads[e], r, 0.0f);
            *find(y, e, h, t) = static_cast<char>(static_cast<std::int32_t>(std::clamp(q, -128.0f, 127.0f)));
        }
    }
    return true;
}

void load_q8_by_loop(const Extents &extents, const Elements<const char> &x, const Elements<const char> &scales,
                     float *heads) {
    for_each_element(extents, [&](std::int64_t e, std::int64_t h, std::int64_t t) {
        const float scale = F16::widen(read_word<std::uint16_t>(find(scales, 0, h, t, sizeof(std::uint16_t))));
        *heads++ = static_cast<float>(static_cast<std::int8_t>(*find(x, e, h, t))) * scale;
    });
}

// ---- Calls of kernels ----------------------------------------------------------------------------------------------

/// An operand as a kernel reads it.
struct Operand {
    const void *data;
    std::int64_t strides[3];
    halyard_buffer buffer;
    halyard_dimension dims[3];

    template <typename T>
    explicit Operand(const Elements<T> &elements)  // NOLINT(*UninitializedObject): see set_buffer
        : data(elements.data), strides{elements.strides.element, elements.strides.head, elements.strides.token} {}
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    std::int64_t reach(const std::int64_t (&extents)[3]) const {
        std::int64_t sum = 0;
        for (int i = 0; i < 3; i++) {
            sum += extents[i] == 1 ? 0 : (extents[i] - 1) * std::abs(strides[i]);  // one's stride may be any number
        }
        return sum;
    }
    halyard_buffer *describe(const std::int64_t (&extents)[3]) {
        set_buffer(buffer, data, dims);
        for (int i = 0; i < 3; i++) {
            set_dimension(dims[i], extents[i], strides[i]);
        }
        return &buffer;
    }
};

/// A call of a kernel with up to three operands of one shape.
template <std::size_t n>
struct Call {
    std::int64_t extents[3];  // of elements, heads and tokens
    Operand *operands[n];

    /// Joins two dimensions into one where all strides allow it, for longer loops and larger groups of heads.
    void join(int inner, int outer) {
        const bool fits = std::all_of(operands, operands + n, [&](const Operand *operand) {
            return operand->strides[outer] == operand->strides[inner] * extents[inner];
        });
        if (fits || extents[outer] == 1) {
            extents[inner] *= extents[outer];
            extents[outer] = 1;
        }
    }
    void join_all() {
        join(0, 1);
        join(extents[1] == 1 ? 0 : 1, 2);
    }
    /// Whether a kernel's 32-bit offsets can hold it.
    bool fits() const {
        return std::all_of(operands, operands + n,
                           [&](const Operand *operand) { return operand->reach(extents) <= max_offset; });
    }
    halyard_buffer *operator[](std::size_t i) { return operands[i]->describe(extents); }
};

std::int64_t padded(std::int64_t n_elements) {
    return (n_elements + whole_vectors - 1) / whole_vectors * whole_vectors;
}

/// What heads are padded with: zeros, which change no sum, or their first element, which changes neither end of a
/// range.
enum class Padding { zeros, first_element };

constexpr std::int64_t room_for_padded = 2048;  // floats

/// Copies heads of a token, the first of them `first`, each padded to whole vectors.
template <typename T>
void copy_padded(Padding padding, const Extents &extents, const Elements<T> &heads, std::int64_t first,
                 std::int64_t token, float *to) {
    for (std::int64_t h = 0; h < extents.n_heads; h++, to += padded(extents.n_elements)) {
        std::copy_n(find(heads, 0, first + h, token), extents.n_elements, to);
        std::fill(to + extents.n_elements, to + padded(extents.n_elements), padding == Padding::zeros ? 0.0f : to[0]);
    }
}

/// Copies heads that are no whole vectors and pads them. `function` is called with the copies of some heads of a token;
/// what it changes of a block that is not const is copied back. False where a head is too long for that.
template <typename T, typename Function>
bool with_padding(Padding padding, const Extents &extents, const Elements<T> &block, Function function) {
    const std::int64_t stride = padded(extents.n_elements), at_once = room_for_padded / stride;
    if (at_once == 0) {
        return false;
    }
    alignas(64) float copy[room_for_padded];
    for (std::int64_t t = 0; t < extents.n_tokens; t++) {
        for (std::int64_t first = 0; first < extents.n_heads; first += at_once) {
            const std::int64_t n_heads = std::min(at_once, extents.n_heads - first);
            copy_padded(padding, {extents.n_elements, n_heads, 1}, block, first, t, copy);
            function(Extents{stride, n_heads, 1}, Elements<float>{copy, {1, stride, 0}}, first, t);
            if constexpr (!std::is_const_v<T>) {
                for (std::int64_t h = 0; h < n_heads; h++) {
                    std::copy_n(copy + h * stride, extents.n_elements, find(block, 0, first + h, t));
                }
            }
        }
    }
    return true;
}

/// A kernel of either kind of norm, or none.
struct NormKernel {
    halyard_norm_kernel *rms = nullptr;
    halyard_layer_norm_kernel *layer = nullptr;

    explicit operator bool() const { return rms != nullptr || layer != nullptr; }
};

NormKernel kernel_of(const StageKernels &kernels, const Norm &norm, std::size_t dtype) {
    return norm.bias == nullptr ? NormKernel{kernels.norm[dtype], nullptr}
                                : NormKernel{nullptr, kernels.layer_norm[dtype]};
}

/// Calls a norm's kernel on heads of whole vectors, of which n elements count. False where it cannot serve.
template <typename T>
bool call_norm(const NormKernel &kernel, const Norm &norm, std::int64_t n, const Extents &extents, const Elements<T> &x,
               const Elements<float> &y) {
    Operand weight(norm.weights()), bias(norm.biases()), from(x), to(y);
    Call<4> call = {{extents.n_elements, extents.n_heads, extents.n_tokens}, {&weight, &bias, &from, &to}};
    call.join(1, 2);
    if (!call.fits()) {
        return false;
    }
    const auto count = static_cast<float>(n);
    if (kernel.layer != nullptr) {
        kernel.layer(call[0], count, norm.eps, norm.rounding, call[1], call[2], call[3]);
    } else {
        kernel.rms(call[0], count, norm.eps, norm.rounding, call[2], call[3]);
    }
    return true;
}

/// The same on heads that are no whole vectors, in place.
bool call_norm_on_copies(const NormKernel &kernel, const Norm &norm, const Extents &extents,
                         const Elements<float> &block) {
    return with_padding(Padding::zeros, extents, block,
                        [&](const Extents &copied, const Elements<float> &copy, std::int64_t first_head, std::int64_t) {
                            alignas(64) float weight[room_for_padded], bias[room_for_padded];
                            const Extents of_weights = {extents.n_elements, copied.n_heads, 1};
                            Norm its = norm;
                            its.stride_weight_head = copied.n_elements;
                            copy_padded(Padding::zeros, of_weights, norm.weights(), first_head, 0, weight);
                            its.weight = weight;
                            if (norm.bias != nullptr) {
                                copy_padded(Padding::zeros, of_weights, norm.biases(), first_head, 0, bias);
                                its.bias = bias;
                            }
                            call_norm(kernel, its, extents.n_elements, copied, copy, copy);
                        });
}

void call_norm_rotate(halyard_norm_rotate_kernel *kernel, const Norm &norm, const Piece &piece) {
    halyard_buffer weight, rows, cos, sin, x, y;
    halyard_dimension weight_dims[2], rows_dim[1], row_dims[2], x_dims[4], y_dims[4];
    set_buffer(weight, norm.weight, weight_dims);
    set_dimension(weight_dims[0], piece.n_pairs, 1);
    set_dimension(weight_dims[1], 2, piece.n_pairs);
    set_rows(piece, rows, rows_dim, cos, sin, row_dims);
    static constexpr Kernel unpacked = {};
    set_tensor(x, x_dims, unpacked, piece, piece.x, piece.in);
    set_tensor(y, y_dims, unpacked, piece, piece.y, piece.out);
    kernel(&weight, norm.eps, &rows, &cos, &sin, piece.sin_sign, &x, &y);
}

}  // namespace

void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const char> &x,
           const Elements<float> &block) noexcept {
    halyard_widen_kernel *const kernel = kernels.widen[index_of(dtype)];
    if (kernel != nullptr && x.strides.element == 1 && block.strides.element == 1) {
        Operand from(x), to(block);
        Call<2> call = {{extents.n_elements, extents.n_heads, extents.n_tokens}, {&from, &to}};
        call.join_all();
        if (call.fits()) {
            kernel(call[0], call[1]);
            return;
        }
    }
    with_storage(dtype, [&](auto storage) { widen_by_loop<decltype(storage)>(extents, x, block); });
}

void normalise(const StageKernels &kernels, const Norm &norm, const Extents &extents,
               const Elements<float> &block) noexcept {
    const NormKernel kernel = kernel_of(kernels, norm, norm.rounding == 0 ? 0 : index_of(norm.round_to));
    bool is_done = false;
    if (kernel && block.strides.element == 1) {
        is_done = extents.n_elements % whole_vectors == 0
                      ? call_norm(kernel, norm, extents.n_elements, extents, block, block)
                      : call_norm_on_copies(kernel, norm, extents, block);
    }
    if (!is_done) {
        normalise_by_loop(norm, extents, block);
    }
}

void RowNorm::take(const Norm &norm, std::int64_t n, float *elements, std::int64_t stride) noexcept {
    for (std::int64_t e = 0; e < n; e++) {
        float &element = elements[e * stride], &sum = sums_[n_++ % 16];
        float v = element - mean_;  // NOLINT(*UndefinedBinaryOperatorResult): it does not see that widen() has written
        if (is_summing_) {
            sum = sums_elements_ ? sum + element : std::fma(v, v, sum);
            continue;
        }
        v *= scale_;
        v = (norm.rounding & round_before_weight) != 0 ? rounded(norm.round_to, v) : v;
        v *= norm.weight[e];
        v = norm.bias == nullptr ? v : v + norm.bias[e];
        element = (norm.rounding & round_after_weight) != 0 ? rounded(norm.round_to, v) : v;
    }
}

bool RowNorm::end_round(float eps) noexcept {
    if (!is_summing_) {
        return false;
    }
    for (int half = 8; half >= 1; half /= 2) {
        for (int i = 0; i < half; i++) {
            sums_[i] += sums_[i + half];
        }
    }
    const float mean = sums_[0] / static_cast<float>(n_);
    if (sums_elements_) {
        mean_ = mean;
    } else {
        scale_ = 1.0f / std::sqrt(mean + eps);
    }
    is_summing_ = sums_elements_;
    sums_elements_ = false;
    std::fill_n(sums_, 16, 0.0f);
    n_ = 0;
    return true;
}

void widen_and_normalise(const StageKernels &kernels, Dtype dtype, const Norm &norm, const Extents &extents,
                         const Elements<const char> &x, const Elements<float> &block) noexcept {
    const bool is_float = dtype == Dtype::f32 && norm.rounding == 0;
    NormKernel kernel = {};
    if (is_float) {
        kernel = kernel_of(kernels, norm, 0);
    } else if (norm.bias == nullptr) {  // no layer norm widens
        kernel.rms = kernels.widen_norm[index_of(dtype)];
    }
    const bool serves = kernel && (norm.rounding == 0 || norm.round_to == dtype) && x.strides.element == 1 &&
                        block.strides.element == 1 && extents.n_elements % whole_vectors == 0;
    if (serves && call_norm(kernel, norm, extents.n_elements, extents, x, block)) {
        return;
    }
    widen(kernels, dtype, extents, x, block);
    normalise(kernels, norm, extents, block);
}

namespace {

/// Stage by stage, a head at a time. (Not inlined, because it would make the stack frame of its caller large.)
[[gnu::noinline]] void norm_and_rotate_by_stages(const StageKernels &kernels, const Norm &norm, const Piece &piece) {
    float head[max_staged_head];
    const std::int64_t bytes = element_bytes(piece.dtype);
    const float one = 1.0f;
    Piece rotated = piece;
    rotated.dtype = Dtype::f32;
    rotated.x = rotated.y = reinterpret_cast<char *>(head);
    rotated.in = rotated.out = {1, piece.n_pairs, 0, 0};
    rotated.n_heads = rotated.n_tokens = 1;
    for (std::int64_t t = 0; t < piece.n_tokens; t++) {
        rotated.row_of_token = piece.row_of_token + t;
        for (std::int64_t h = 0; h < piece.n_heads; h++) {
            // The members of all pairs are two heads of the stages, as far as strides go.
            const Extents extents = {piece.n_pairs, 2, 1};
            const Elements<float> members = {head, {1, piece.n_pairs, 0}};
            const char *const x = piece.x + (t * piece.in.token + h * piece.in.head) * bytes;
            char *const y = piece.y + (t * piece.out.token + h * piece.out.head) * bytes;
            widen(kernels, piece.dtype, extents, {x, {piece.in.pair, piece.in.member, 0}}, members);
            normalise(kernels, norm, {2 * piece.n_pairs, 1, 1}, {head, {1, 0, 0}});
            rotate_reference(rotated);
            narrow(kernels, piece.dtype, extents, {head, members.strides}, {&one, {0, 0, 0}},
                   {y, {piece.out.pair, piece.out.member, 0}});
        }
    }
}

}  // namespace

void norm_and_rotate(const StageKernels &kernels, const Norm &norm, const Piece &piece) noexcept {
    halyard_norm_rotate_kernel *const kernel = kernels.norm_rotate[index_of(piece.dtype)];
    const bool is_dense = piece.in.pair == 1 && piece.out.pair == 1;
    if (kernel != nullptr && is_dense && piece.within_int32 && piece.n_pairs % whole_vectors == 0 &&
        piece.n_rows * piece.stride_row <= max_offset) {
        call_norm_rotate(kernel, norm, piece);
        return;
    }
    norm_and_rotate_by_stages(kernels, norm, piece);
}

namespace {

/// Calls a kernel that finds a number of each head, or n: [token][head], dense. `call` gets the buffers of all heads,
/// or of copies of some. False where the kernel cannot serve.
template <std::size_t n, typename Function>
bool find_by_kernel(const Extents &extents, const Elements<const float> &block, float *const (&found)[n],
                    Function call_kernel) {
    const auto find_in = [&](const Extents &heads, const auto &data, std::int64_t first_head) {
        Operand from(data), to(Elements<float>{found[0] + first_head, {0, 1, heads.n_heads}});
        Call<2> call = {{heads.n_elements, heads.n_heads, heads.n_tokens}, {&from, &to}};
        call.join(1, 2);
        halyard_buffer *const x = call[0], ends[n];
        std::fill_n(ends, n, *call[1]);
        for (std::size_t i = 0; i < n; i++) {
            ends[i].dim++;  // it is [heads, tokens]
            ends[i].host = reinterpret_cast<std::uint8_t *>(found[i] + first_head);
        }
        call_kernel(x, ends);
    };
    if (block.strides.element != 1) {
        return false;
    }
    if (extents.n_elements % whole_vectors == 0) {
        find_in(extents, block, 0);
        return true;
    }
    return with_padding(Padding::first_element, extents, block,
                        [&](const Extents &copied, const Elements<float> &copy, std::int64_t first_head,
                            std::int64_t token) { find_in(copied, copy, token * extents.n_heads + first_head); });
}

}  // namespace

void find_largest(const StageKernels &kernels, const Extents &extents, const Elements<const float> &block,
                  float *largest) noexcept {
    halyard_largest_kernel *const kernel = kernels.largest[0];
    if (kernel == nullptr || !find_by_kernel(extents, block, {largest},
                                             [=](halyard_buffer *x, halyard_buffer(&y)[1]) { kernel(x, &y[0]); })) {
        find_largest_by_loop(extents, block, largest);
    }
}

void find_range(const StageKernels &kernels, const Extents &extents, const Elements<const float> &block, float *least,
                float *greatest) noexcept {
    halyard_range_kernel *const kernel = kernels.range[0];
    if (kernel == nullptr ||
        !find_by_kernel(extents, block, {least, greatest},
                        [=](halyard_buffer *x, halyard_buffer(&y)[2]) { kernel(x, &y[0], &y[1]); })) {
        find_range_by_loop(extents, block, least, greatest);
    }
}

void transform(const StageKernels &kernels, std::int64_t n, std::int64_t n_elements, float *elements) noexcept {
    constexpr std::int64_t n_in_kernel = 64;
    const float scale = 1.0f / std::sqrt(static_cast<float>(n));
    halyard_buffer x, y;
    halyard_dimension dims[3];
    std::int64_t distance = 1;
    const bool has_kernels = kernels.hadamard[0] != nullptr && n >= n_in_kernel;
    if (has_kernels) {
        set_buffer(x, elements, dims);
        set_dimension(dims[0], n_in_kernel, 1);
        set_dimension(dims[1], n_elements / n_in_kernel, n_in_kernel);
        y = x;
        kernels.hadamard[0](scale, &x, &y);
        distance = n_in_kernel;
    } else {
        for (std::int64_t i = 0; i < n_elements; i++) {
            elements[i] *= scale;
        }
    }
    for (; distance < n; distance *= 2) {
        if (has_kernels) {
            set_dimension(dims[0], distance, 1);
            set_dimension(dims[1], 2, distance);
            set_dimension(dims[2], n_elements / (2 * distance), 2 * distance);
            kernels.butterfly[0](&x, &y);
            continue;
        }
        for (std::int64_t first = 0; first < n_elements; first += 2 * distance) {
            for (float *u = elements + first, *v = u + distance; u < elements + first + distance; u++, v++) {
                const float sum = *u + *v, difference = *u - *v;
                *u = sum;
                *v = difference;
            }
        }
    }
}

void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &block,
            const Elements<const float> &r, const Elements<char> &y) noexcept {
    halyard_narrow_kernel *const kernel = kernels.narrow[index_of(dtype)];
    if (kernel != nullptr && block.strides.element == 1 && y.strides.element == 1) {
        Operand from(block), scales(r), to(y);
        Call<3> call = {{extents.n_elements, extents.n_heads, extents.n_tokens}, {&from, &scales, &to}};
        call.join_all();
        if (call.fits()) {
            kernel(call[0], call[1], call[2]);
            return;
        }
    }
    with_storage(dtype, [&](auto storage) { narrow_by_loop<decltype(storage)>(extents, block, r, y); });
}

void quantise(const StageKernels &kernels, const Quantisation &how, const Extents &extents,
              const Elements<const float> &block, const float *r, const float *z, unsigned char *y) noexcept {
    halyard_quantise_kernel *const kernel = kernels.quantise[index_of(how.dtype)];
    if (kernel != nullptr && block.strides.element == 1 && extents.n_elements >= whole_vectors) {
        const float none = 0.0f;
        const ElementStrides of_group = {0, 1, extents.n_heads};
        Operand from(block), by(Elements<const float>{r, of_group}),
            zero(z == nullptr ? Elements<const float>{&none, {}} : Elements<const float>{z, of_group}),
            to(Elements<unsigned char>{y, {1, extents.n_elements, extents.n_elements * extents.n_heads}});
        Call<4> call = {{extents.n_elements, extents.n_heads, extents.n_tokens}, {&from, &by, &zero, &to}};
        call.join(1, 2);
        halyard_buffer *const of_groups[] = {call[1], call[2]};
        for (halyard_buffer *const operand : of_groups) {
            operand->dim++;  // it is [heads, tokens]
        }
        kernel(static_cast<std::int32_t>(how.mode), how.low, how.high, call[0], of_groups[0], of_groups[1], call[3]);
        return;
    }
    quantise_by_loop(how, extents, block, r, z, y);
}

bool store_q8(const StageKernels &kernels, const Q8 &q8, const Extents &extents, const float *heads,
              const Elements<char> &y, const Elements<char> &scales) noexcept {
    halyard_store_groups_kernel *const kernel = kernels.store_groups[index_of(Dtype::int8)];
    Operand from(Elements<const float>{heads, {1, q8_group, 0}}), to(y), of_groups(scales);
    Call<1> all = {{q8_group, extents.n_heads * extents.n_tokens, 1}, {&from}};
    Call<2> call = {{q8_group, extents.n_heads, extents.n_tokens}, {&to, &of_groups}};
    if (kernel == nullptr || !call.fits()) {
        return store_q8_by_loop(q8, extents, heads, y, scales);
    }
    std::int32_t largest = 0;
    halyard_buffer found;
    set_buffer(found, &largest, nullptr);
    halyard_buffer *const numbers = call[1];
    numbers->dim++;  // it is [groups, heads]
    kernel(q8.reciprocal, q8.away ? 1 : 0, all[0], call[0], numbers, &found);
    return std::bit_cast<float>(largest) < overflow_of_q8;  // not of a NaN
}

void load_q8(const StageKernels &kernels, const Extents &extents, const Elements<const char> &x,
             const Elements<const char> &scales, float *heads) noexcept {
    halyard_load_groups_kernel *const kernel = kernels.load_groups[index_of(Dtype::int8)];
    Operand from(x), of_groups(scales), to(Elements<float>{heads, {1, q8_group, q8_group * extents.n_heads}});
    Call<3> call = {{q8_group, extents.n_heads, extents.n_tokens}, {&from, &of_groups, &to}};
    if (kernel == nullptr || !call.fits()) {
        load_q8_by_loop(extents, x, scales, heads);
        return;
    }
    halyard_buffer *const numbers = call[1];
    numbers->dim++;
    kernel(call[0], numbers, call[2]);
}

}  // namespace halyard
