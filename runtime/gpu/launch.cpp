#include "gpu/launch.h"

#include "gpu/argument_addresses.h"
#include "gpu/gpu_kernels.h"

#include <algorithm>

namespace halyard::gpu {

namespace {

// What one launch can hold.
constexpr std::int64_t most_pairs = std::int64_t{1} << 15;  // of a rotation, however few of them a block takes
static_assert(most_pairs <= most_blocks);
constexpr std::int64_t fewest_columns_a_block = 8;            // of a copy
constexpr std::int64_t most_columns = std::int64_t{1} << 18;  // likewise
static_assert(most_columns / fewest_columns_a_block <= most_blocks);

/// Whether accesses of so many bytes are aligned: addresses, strides and as many elements as lie together are multiples
/// of them.
bool is_aligned(const DevicePiece &piece, std::int64_t together, std::int64_t access_bytes) {
    const std::int64_t strides = piece.in.token | piece.in.head | piece.out.token | piece.out.head | together;
    const auto bytes = static_cast<std::uint64_t>(strides * element_bytes(piece.dtype));
    return piece.in.element == 1 && piece.out.element == 1 &&
           (piece.x | piece.y | bytes) % static_cast<std::uint64_t>(access_bytes) == 0;
}

/// From one pair of a head to the next.
std::int64_t pair_stride(Pairing pairing, const Strides &strides) {
    return pairing == Pairing::half ? strides.element : 2 * strides.element;
}

/// Where some pairs of a head begin.
Address begin_of(const PairRange &pairs, Address tensor, const DevicePiece &piece, Pairing pairing,
                 const Strides &strides) {
    return moved(tensor, pairs.first * pair_stride(pairing, strides) * element_bytes(piece.dtype));
}

/// The kernel that serves a piece: that of the widest accesses for which all is aligned.
const GpuKernel &kernel_of(const DevicePiece &piece) {
    const bool has_halves = piece.pairing == Pairing::half || piece.out_pairing == Pairing::half;
    const std::int64_t together = has_halves ? piece.rotary_dim / 2 : piece.rotary_dim;
    for (const std::int64_t bytes : {std::int64_t{wide_bytes}, 2 * element_bytes(piece.dtype)}) {
        const GpuKernel *const kernel =
            select_gpu_kernel(piece.dtype, {piece.pairing, piece.out_pairing, bytes}, piece.in_place);
        if (kernel != nullptr && is_aligned(piece, together, bytes)) {
            return *kernel;
        }
    }
    return *select_gpu_kernel(piece.dtype, any_layout, piece.in_place);  // NOLINT(*NullDereference): is listed
}

/// The type of what a kernel accesses: a float, a 16-bit element (any layout), or a word of two elements.
std::uint32_t type_of(const GpuKernel &kernel) {
    return kernel.dtype == Dtype::f32    ? halide_type<float>
           : kernel.layout == any_layout ? halide_type<std::uint16_t>
                                         : halide_type<std::uint32_t>;
}

/// A tensor as a rotation kernel sees it: [pair, member, head, token]. In a kernel that takes words of two, a word
/// has two members, of one pair if it is interleaved, or of two.
void add_pairs(View &view, const DevicePiece &piece, std::int64_t n_pairs, Pairing pairing, const Strides &strides,
               std::uint32_t type) {
    const int halve = type == halide_type<std::uint32_t> ? 1 : 0;
    if (pairing == Pairing::half) {
        view.add(n_pairs >> halve, strides.element).add(2, (piece.rotary_dim / 2 * strides.element) >> halve);
    } else if (halve != 0 && piece.pairing == piece.out_pairing) {
        view.add(n_pairs, 1).add(1, 4);  // a word is a pair
    } else {                             // of words: two pairs lie in two neighbours
        view.add(n_pairs >> halve, 2 * strides.element).add(2, strides.element);
    }
    view.add(piece.n_heads, strides.head >> halve).add(piece.n_tokens, strides.token >> halve);
}

int rotate_part(const Launch &launch, const DevicePiece &piece, const PairRange &pairs, Call &call) {
    const GpuKernel &kernel = kernel_of(piece);
    const std::uint32_t type = type_of(kernel);
    View x(begin_of(pairs, piece.x, piece, piece.pairing, piece.in), type);
    View y(begin_of(pairs, piece.y, piece, piece.out_pairing, piece.out), type);
    add_pairs(x, piece, pairs.count, piece.pairing, piece.in, type);
    add_pairs(y, piece, pairs.count, piece.out_pairing, piece.out, type);
    Arguments all;
    Fields::Angles fields{all};
    set_angles(fields, launch, piece.positions, piece.n_tokens, pairs);
    all.add(piece.in_place ? y : x);
    all.add(y);
    return kernel.function(all.get(call));
}

int copy_part(const DevicePiece &piece, std::int64_t n_columns, Call &call) {
    const std::int64_t bytes = element_bytes(piece.dtype);
    const bool is_fast = is_aligned(piece, n_columns, wide_bytes);
    const GpuHelpers &helpers = gpu_helpers();
    const std::int64_t per_word = is_fast ? 4 / bytes : 1;
    const std::uint32_t type = per_word * bytes == 4 ? halide_type<std::uint32_t> : halide_type<std::uint16_t>;
    View x(piece.x, type), y(piece.y, type);
    for (const auto &[view, strides] : {std::pair(&x, &piece.in), std::pair(&y, &piece.out)}) {
        view->add(n_columns / per_word, strides->element)
            .add(piece.n_heads, strides->head / per_word)
            .add(piece.n_tokens, strides->token / per_word);
    }
    Arguments all;
    all.add(x);
    all.add(y);
    const KernelFunction copy = is_fast ? helpers.copy_128 : bytes == 4 ? helpers.copy_32 : helpers.copy_16;
    return copy(all.get(call));
}

/// How many elements of a stride fit into room, at least one. Halide also needs their number times the stride, which is
/// one stride more than they span, in 32 bits.
std::int64_t fitting(std::int64_t count, std::int64_t stride, std::int64_t room) {
    const std::int64_t step = std::max<std::int64_t>(1, distance(stride));
    return std::min({count, 1 + room / step, std::max<std::int64_t>(1, most_elements / step)});
}

std::int64_t element_stride(const DevicePiece &piece) {
    return std::max(distance(piece.in.element), distance(piece.out.element));
}

/// Calls part(piece) for parts whose indices and numbers of elements fit in 32 bits.
template <typename Part>
int in_parts(const DevicePiece &whole, std::int64_t n_columns, const Part &part) {
    const std::int64_t bytes = element_bytes(whole.dtype);
    // Halide multiplies all extents of a view. Each block has at least one head, so the limit of blocks limits heads.
    // Tokens lie along a grid's first dimension, which has no such limit.
    const std::int64_t reach = (n_columns - 1) * element_stride(whole);
    const std::int64_t stride_head = std::max(distance(whole.in.head), distance(whole.out.head));
    const std::int64_t stride_token = std::max(distance(whole.in.token), distance(whole.out.token));
    const std::int64_t heads_at_once = std::min({fitting(whole.n_heads, stride_head, most_elements - reach),
                                                 most_blocks, std::max<std::int64_t>(1, most_elements / n_columns)});
    const std::int64_t heads_reach = reach + (heads_at_once - 1) * stride_head;
    const std::int64_t tokens_at_once =
        std::min({fitting(whole.n_tokens, stride_token, most_elements - heads_reach), most_positions(whole.positions),
                  std::max<std::int64_t>(1, most_elements / (n_columns * heads_at_once))});
    DevicePiece piece = whole;
    return in_steps(whole.n_tokens, tokens_at_once, [&](std::int64_t token, std::int64_t n_tokens) {
        piece.n_tokens = n_tokens;
        piece.positions = from_token(token, whole.positions);
        return in_steps(whole.n_heads, heads_at_once, [&](std::int64_t head, std::int64_t n_heads) {
            piece.n_heads = n_heads;
            piece.x = moved(whole.x, (token * whole.in.token + head * whole.in.head) * bytes);
            piece.y = moved(whole.y, (token * whole.out.token + head * whole.out.head) * bytes);
            return part(piece);
        });
    });
}

}  // namespace

int rotate_on_device(const Launch &launch, const DevicePiece &piece, Call &call) noexcept {
    return in_steps(piece.rotary_dim / 2, most_pairs, [&](std::int64_t first, std::int64_t n_pairs) {
        return in_parts(piece, piece.rotary_dim, [&](const DevicePiece &part) {
            return rotate_part(launch, part, {first, n_pairs}, call);
        });
    });
}

int copy_on_device(const DevicePiece &piece, std::int64_t n_columns, Call &call) noexcept {
    const std::int64_t columns_at_once =
        std::min(fitting(n_columns, element_stride(piece), most_elements), most_columns);
    DevicePiece columns = piece;
    return in_steps(n_columns, columns_at_once, [&](std::int64_t first, std::int64_t n) {
        columns.x = moved(piece.x, first * piece.in.element * element_bytes(piece.dtype));
        columns.y = moved(piece.y, first * piece.out.element * element_bytes(piece.dtype));
        return in_parts(columns, n, [&](const DevicePiece &part) { return copy_part(part, n, call); });
    });
}

int check_on_device(const LaunchPositions &positions, const LaunchPositions &slots, std::int64_t n_tokens,
                    const Covered &covered, std::int32_t code, Address word, Call &call) noexcept {
    const bool has_slots = slots.place != 0;
    const LaunchPositions &any_slots = has_slots ? slots : positions;
    const std::int64_t at_once = std::min(most_positions(positions), most_positions(any_slots));
    return in_steps(n_tokens, at_once, [&](std::int64_t token, std::int64_t n) {
        View out(word, halide_type<std::int32_t>);
        out.add(1, 1);
        Arguments all;
        Fields::Check fields{all};
        set_positions(fields.positions, from_token(token, positions), n, covered);
        fields.has_slots = has_slots;
        set_slots(fields, from_token(token, any_slots), n);
        fields.code = code;
        all.add(out);
        return gpu_helpers().check_positions(all.get(call));
    });
}

const char *why_not(const DevicePiece &piece) noexcept {
    const auto bytes = static_cast<std::uint64_t>(element_bytes(piece.dtype));
    if ((piece.x | piece.y) % bytes != 0) {  // NOLINT(*DivideZero): the plan has checked the dtype
        return "is not aligned to its elements";
    }
    // Strides times extents, as in fitting; divided here, because they may not even have 64 bits.
    return element_stride(piece) > most_elements / piece.rotary_dim ? "has heads of more than 2^31 elements' reach"
                                                                    : "";
}

const char *why_not(const LaunchPositions &positions, std::int32_t n_axes) noexcept {
    if (positions.place % 4 != 0) {
        return "are not aligned to 4 bytes";
    }
    const std::int64_t axes_words = std::int64_t{n_axes} * positions.n_words;
    const bool is_far = distance(positions.stride_axis) > most_elements / axes_words ||
                        distance(positions.stride_token) * positions.n_words > most_elements;
    return is_far ? "lie more than 2^31 words apart" : "";
}

}  // namespace halyard::gpu
