#include "cuda/launch.h"

#include "cuda/arguments.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace halyard::cuda {

namespace {

constexpr std::int64_t wide_bytes = 16;  // of an access of 128 bits

/// The larger magnitude of a stride (from element to element, head to head, or token to token) in x and y.
std::int64_t longest(const Heads &heads, std::int64_t Strides::*step) {
    return std::max(std::abs(heads.in.*step), std::abs(heads.out.*step));
}

/// Whether one launch can do a piece: whether its indices and number of elements fit 31 bits, and its heads a grid's
/// dimension. (A thread block has at least one head. Tokens are the first dimension, which has no such limit.)
bool fits(const DevicePiece &piece) {
    if (piece.n_heads > most_blocks) {
        return false;
    }
    double reach = 0.0;  // double, since int64 could overflow
    const std::int64_t columns = piece.rotary_dim != 0 ? piece.rotary_dim : piece.n_columns;
    for (const auto &[n, step] :
         {std::pair(columns, &Strides::element), {piece.n_heads, &Strides::head}, {piece.n_tokens, &Strides::token}}) {
        const auto count = static_cast<double>(n), stride = n > 1 ? static_cast<double>(longest(piece, step)) : 0.0;
        // A kernel multiplies an extent by its stride. This bounds the number of elements, too, because those of y do
        // not overlap.
        if (count * stride > most_elements) {
            return false;
        }
        reach += (count - 1) * stride;
    }
    return reach <= most_elements;  // x may have any strides, so the products do not bound its reach
}

/// Calls part(piece) if one launch can do it, else splits it in two, by tokens or by a token's heads, and does both.
/// One head of one token always fits, because why_not() refuses tensors whose heads are too large.
template <typename Part>
int in_parts(const DevicePiece &piece, const Part &part) {
    if (fits(piece)) {
        return part(piece);
    }
    const bool by_token = piece.n_tokens > 1;
    const auto n = by_token ? &DevicePiece::n_tokens : &DevicePiece::n_heads;
    const auto step = by_token ? &Strides::token : &Strides::head;
    DevicePiece one = piece, other = piece;
    one.*n = piece.*n / 2;
    other.*n -= one.*n;
    other.x = moved(piece.x, one.*n * piece.in.*step * piece.tensor_plan->bytes);
    other.y = moved(piece.y, one.*n * piece.out.*step * piece.tensor_plan->bytes);
    if (by_token) {
        LaunchPositions &positions = other.positions;
        positions.place = moved(positions.place, one.n_tokens * positions.stride_token * positions.n_words * 4);
        positions.start += one.n_tokens * positions.step;
    }
    const int status = in_parts(one, part);
    return status != 0 ? status : in_parts(other, part);
}

/// Whether addresses, strides, and n_contiguous, a number of contiguous elements, are multiples of access_bytes.
bool is_aligned(const DevicePiece &piece, std::int64_t n_contiguous, std::int64_t access_bytes) {
    const std::int64_t strides = piece.in.token | piece.in.head | piece.out.token | piece.out.head | n_contiguous;
    const auto bytes = static_cast<std::uint64_t>(strides * piece.tensor_plan->bytes);
    return piece.in.element == 1 && piece.out.element == 1 &&
           (piece.x | piece.y | bytes) % static_cast<std::uint64_t>(access_bytes) == 0;
}

/// The type of a kernel's buffers: float, 16-bit element (any layout), or word of two 16-bit elements.
std::uint32_t type_of(const CudaKernel &kernel) {
    return kernel.dtype == Dtype::f32    ? halide_type<float>
           : kernel.layout == any_layout ? halide_type<std::uint16_t>
                                         : halide_type<std::uint32_t>;
}

/// Adds a rotation kernel's dimensions [pair, member, head, token] of a tensor. If the kernel takes words of two
/// elements, a word holds a pair (interleaved), or the same member of two pairs (half).
void add_pairs(View &view, const DevicePiece &piece, Pairing pairing, const Strides &strides, std::uint32_t type) {
    const int halve = type == halide_type<std::uint32_t> ? 1 : 0;
    if (pairing == Pairing::half) {
        view.add(piece.n_columns >> halve, strides.element).add(2, (piece.rotary_dim / 2 * strides.element) >> halve);
    } else if (halve != 0 && piece.tensor_plan->pairing == piece.tensor_plan->out_pairing) {
        view.add(piece.n_columns, 1).add(1, 4);  // a word is a pair
    } else {                                     // if the pairing changes: two pairs are in two neighbouring words
        view.add(piece.n_columns >> halve, 2 * strides.element).add(2, strides.element);
    }
    view.add(piece.n_heads, strides.head >> halve).add(piece.n_tokens, strides.token >> halve);
}

}  // namespace

bool takes(const CudaKernel &kernel, const DevicePiece &piece) noexcept {
    const TensorPlan &tensor_plan = *piece.tensor_plan;
    const bool has_halves = tensor_plan.pairing == Pairing::half || tensor_plan.out_pairing == Pairing::half;
    const std::int64_t together = has_halves ? piece.rotary_dim / 2 : piece.rotary_dim;
    return kernel.serves(tensor_plan.dtype, tensor_plan.pairing, tensor_plan.out_pairing, piece.in_place) &&
           (kernel.layout == any_layout || is_aligned(piece, together, kernel.layout.bytes));
}

int launch_rotation(const CudaKernel &kernel, const Launch &launch, const DevicePiece &piece, Call &call) noexcept {
    const std::uint32_t type = type_of(kernel);
    View x(piece.x, type), y(piece.y, type);
    add_pairs(x, piece, piece.tensor_plan->pairing, piece.in, type);
    add_pairs(y, piece, piece.tensor_plan->out_pairing, piece.out, type);
    Arguments all;
    Fields::Angles fields{all};
    set_angles(fields, launch, piece.positions, piece.n_tokens, piece.n_columns);
    all.add(piece.in_place ? y : x);
    all.add(y);
    return kernel.function(all.get(call));
}

int rotate_on_device(const Launch &launch, const DevicePiece &whole, Call &call) noexcept {
    return in_parts(whole, [&](const DevicePiece &piece) {
        const auto taken = [&](const CudaKernel &kernel) { return takes(kernel, piece); };
        return launch_rotation(*std::ranges::find_if(cuda_kernels(), taken), launch, piece, call);
    });
}

int copy_on_device(const DevicePiece &whole, Call &call) noexcept {
    if (whole.n_columns == 0) {
        return 0;
    }
    return in_parts(whole, [&](const DevicePiece &piece) {
        const std::int64_t bytes = piece.tensor_plan->bytes;
        const bool is_fast = is_aligned(piece, piece.n_columns, wide_bytes);
        const CudaHelpers &helpers = cuda_helpers();
        const std::int64_t per_word = is_fast ? 4 / bytes : 1;
        const std::uint32_t type = per_word * bytes == 4 ? halide_type<std::uint32_t> : halide_type<std::uint16_t>;
        View x(piece.x, type), y(piece.y, type);
        Arguments all;
        for (const auto &[view, strides] : {std::pair(&x, &piece.in), std::pair(&y, &piece.out)}) {
            view->add(piece.n_columns / per_word, strides->element)
                .add(piece.n_heads, strides->head / per_word)
                .add(piece.n_tokens, strides->token / per_word);
            all.add(*view);
        }
        return (is_fast ? helpers.copy_128 : bytes == 4 ? helpers.copy_32 : helpers.copy_16)(all.get(call));
    });
}

int check_on_device(const LaunchPositions &positions, const LaunchPositions &slots, std::int64_t n_tokens,
                    const ValidRange &valid, std::int32_t code, Address word, Call &call) noexcept {
    View out(word, halide_type<std::int32_t>);
    out.add(1, 1);
    Arguments all;
    Fields::Check fields{all};
    set_positions(fields.positions, positions, n_tokens, valid);
    fields.has_slots = slots.place != 0;
    set_slots(fields, slots, positions, n_tokens);
    fields.code = code;
    all.add(out);
    return cuda_helpers().check_positions(all.get(call));
}

const char *why_not(const Heads &heads) noexcept {
    if ((heads.x | heads.y) % static_cast<std::uint64_t>(heads.tensor_plan->bytes) != 0) {
        return "has an x or y that is not aligned to its elements";
    }
    return longest(heads, &Strides::element) > most_elements / heads.tensor_plan->head_dim
               ? "has heads of more than 2^31 elements' reach"
               : nullptr;
}

const char *why_not(const LaunchPositions &positions, std::int64_t n_tokens, std::int32_t n_axes) noexcept {
    if (positions.place % 4 != 0) {
        return "are not aligned to 4 bytes";
    }
    if (n_tokens > most_elements) {
        return "have more than 2^31 - 1 tokens";
    }
    const auto distance = [](std::int64_t stride) { return std::max(1.0, std::abs(static_cast<double>(stride))); };
    const double furthest =
        std::max(static_cast<double>(n_tokens) * distance(positions.stride_token), distance(positions.stride_axis));
    return furthest * n_axes * positions.n_words > most_elements ? "lie more than 2^31 words apart" : nullptr;
}

}  // namespace halyard::cuda
