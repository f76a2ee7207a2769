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
bool is_aligned(const Launch &launch, const DevicePiece &piece, std::int64_t together, std::int64_t access_bytes) {
    const std::int64_t strides = piece.in.token | piece.in.head | piece.out.token | piece.out.head | together;
    const auto bytes = static_cast<std::uint64_t>(strides * element_bytes(piece.dtype));
    return piece.in.element == 1 && piece.out.element == 1 &&
           ((address_bits(launch, piece.x) | address_bits(launch, piece.y) | bytes) %
            static_cast<std::uint64_t>(access_bytes)) == 0;
}

/// From one pair of a head to the next.
std::int64_t pair_stride(Pairing pairing, const RunTensor::Strides &strides) {
    return pairing == Pairing::half ? strides.element : 2 * strides.element;
}

/// Where some pairs of a head begin.
Location begin_of(const PairRange &pairs, const Location &tensor, const DevicePiece &piece, Pairing pairing,
                  const RunTensor::Strides &strides) {
    return moved(tensor, pairs.first * pair_stride(pairing, strides) * element_bytes(piece.dtype));
}

/// The kernel that serves a piece: that of the widest accesses for which all is aligned.
const GpuKernel &kernel_of(const Launch &launch, const DevicePiece &piece) {
    const Target target = target_of(launch.queue->device);
    const bool has_halves = piece.pairing == Pairing::half || piece.out_pairing == Pairing::half;
    const std::int64_t together = has_halves ? piece.rotary_dim / 2 : piece.rotary_dim;
    for (const std::int64_t bytes : {std::int64_t{wide_bytes}, 2 * element_bytes(piece.dtype)}) {
        const GpuKernel *const kernel =
            select_gpu_kernel(target, piece.dtype, {piece.pairing, piece.out_pairing, bytes}, piece.in_place);
        if (kernel != nullptr && is_aligned(launch, piece, together, bytes)) {
            return *kernel;
        }
    }
    return *select_gpu_kernel(target, piece.dtype, any_layout, piece.in_place);  // NOLINT(*NullDereference): is listed
}

/// The type of what a kernel accesses: a float, a 16-bit element (any layout), or a word of two elements.
std::uint32_t type_of(const GpuKernel &kernel) {
    return kernel.dtype == Dtype::f32    ? halide_type<float>
           : kernel.layout == any_layout ? halide_type<std::uint16_t>
                                         : halide_type<std::uint32_t>;
}

/// A tensor as a rotation kernel sees it: [pair, member, head, token, offset]. In a kernel that takes words of two, a
/// word has two members, of one pair if it is interleaved, or of two.
void add_pairs(View &view, const DevicePiece &piece, std::int64_t n_pairs, Pairing pairing,
               const RunTensor::Strides &strides, std::uint32_t type) {
    const int halve = type == halide_type<std::uint32_t> ? 1 : 0;
    if (pairing == Pairing::half) {
        view.add(n_pairs >> halve, strides.element).add(2, (piece.rotary_dim / 2 * strides.element) >> halve);
    } else if (halve != 0 && piece.pairing == piece.out_pairing) {
        view.add(n_pairs, 1).add(1, 4);  // a word is a pair
    } else {                             // of words: two pairs lie in two neighbours
        view.add(n_pairs >> halve, 2 * strides.element).add(2, strides.element);
    }
    view.add(piece.n_heads, strides.head >> halve).add(piece.n_tokens, strides.token >> halve).add_offset();
}

/// Adds the last dimension, the offset, and sets the view's place.
void add_x_and_y(Arguments &all, Fields::Offsets &offsets, View &x, View &y) {
    offsets.x = x.offset();
    offsets.y = y.offset();
    all.add(x);
    all.add(y);
}

int rotate_part(const Launch &launch, const DevicePiece &piece, const PairRange &pairs, Call &call) {
    const GpuKernel &kernel = kernel_of(launch, piece);
    const std::uint32_t type = type_of(kernel);
    View x(launch, begin_of(pairs, piece.x, piece, piece.pairing, piece.in), type);
    View y(launch, begin_of(pairs, piece.y, piece, piece.out_pairing, piece.out), type);
    add_pairs(x, piece, pairs.count, piece.pairing, piece.in, type);
    add_pairs(y, piece, pairs.count, piece.out_pairing, piece.out, type);
    Arguments all;
    Fields::Rotation fields{all};
    set_angles(fields.angles, launch, piece.positions, piece.n_tokens, pairs);
    fields.sin_sign = launch.sin_sign;
    add_x_and_y(all, fields.offsets, piece.in_place ? y : x, y);
    return kernel.function(all.get(call));
}

int copy_part(const Launch &launch, const DevicePiece &piece, std::int64_t n_columns, Call &call) {
    const std::int64_t bytes = element_bytes(piece.dtype);
    const bool is_fast = is_aligned(launch, piece, n_columns, wide_bytes);
    const GpuHelpers &helpers = gpu_helpers(target_of(launch.queue->device));
    const std::int64_t per_word = is_fast ? 4 / bytes : 1;
    const std::uint32_t type = per_word * bytes == 4 ? halide_type<std::uint32_t> : halide_type<std::uint16_t>;
    View x(launch, piece.x, type), y(launch, piece.y, type);
    for (const auto &[view, strides] : {std::pair(&x, &piece.in), std::pair(&y, &piece.out)}) {
        view->add(n_columns / per_word, strides->element)
            .add(piece.n_heads, strides->head / per_word)
            .add(piece.n_tokens, strides->token / per_word)
            .add_offset();
    }
    Arguments all;
    Fields::Offsets offsets{all};
    add_x_and_y(all, offsets, x, y);
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

/// The same for a piece, in elements.
std::int64_t bridge(const Launch &launch, const DevicePiece &piece) {
    const std::int64_t n_bytes = std::max(bridged(launch, piece.x), bridged(launch, piece.y));
    return n_bytes / element_bytes(piece.dtype);  // NOLINT(*DivideZero): the plan has checked the dtype
}

/// Calls part(piece) for parts whose indices and numbers of elements fit in 32 bits.
template <typename Part>
int in_parts(const Launch &launch, const DevicePiece &whole, std::int64_t n_columns, const Part &part) {
    const std::int64_t bytes = element_bytes(whole.dtype);
    // Halide multiplies all extents of a view, that of the offset too. Each block has at least one head, so the limit
    // of blocks limits heads. Tokens lie along a grid's first dimension, which has no such limit.
    const std::int64_t most = most_elements / static_cast<std::int64_t>(launch.part_alignment);
    const std::int64_t reach = (n_columns - 1) * element_stride(whole) + bridge(launch, whole);
    const std::int64_t stride_head = std::max(distance(whole.in.head), distance(whole.out.head));
    const std::int64_t stride_token = std::max(distance(whole.in.token), distance(whole.out.token));
    std::int64_t heads_at_once = std::min({fitting(whole.n_heads, stride_head, most_elements - reach), most_blocks,
                                           std::max<std::int64_t>(1, most / n_columns)});
    const std::int64_t heads_reach = reach + (heads_at_once - 1) * stride_head;
    std::int64_t tokens_at_once = std::min({fitting(whole.n_tokens, stride_token, most_elements - heads_reach),
                                            most_positions(launch, whole.positions),
                                            std::max<std::int64_t>(1, most / (n_columns * heads_at_once))});
    if (is_unwalkable(launch, std::min(whole.in.head, whole.out.head))) {
        heads_at_once = 1;
    }
    if (is_unwalkable(launch, std::min(whole.in.token, whole.out.token))) {
        tokens_at_once = 1;
    }
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
        return in_parts(launch, piece, piece.rotary_dim, [&](const DevicePiece &part) {
            return rotate_part(launch, part, {first, n_pairs}, call);
        });
    });
}

int copy_on_device(const Launch &launch, const DevicePiece &piece, std::int64_t n_columns, Call &call) noexcept {
    const auto most_bridged =
        static_cast<std::int64_t>(launch.part_alignment);  // from a sub-buffer's start to a part's
    const std::int64_t columns_at_once =
        std::min(fitting(n_columns, element_stride(piece), most_elements - most_bridged), most_columns);
    DevicePiece columns = piece;
    return in_steps(n_columns, columns_at_once, [&](std::int64_t first, std::int64_t n) {
        columns.x = moved(piece.x, first * piece.in.element * element_bytes(piece.dtype));
        columns.y = moved(piece.y, first * piece.out.element * element_bytes(piece.dtype));
        return in_parts(launch, columns, n, [&](const DevicePiece &part) { return copy_part(launch, part, n, call); });
    });
}

int check_on_device(const Launch &launch, const LaunchPositions &positions, std::int64_t n_tokens,
                    const Covered &covered, std::int32_t code, const Location &word, Call &call) noexcept {
    return in_steps(n_tokens, most_positions(launch, positions), [&](std::int64_t token, std::int64_t n) {
        View out(launch, word, halide_type<std::int32_t>);
        out.add_offset();
        Arguments all;
        Fields::Check fields{all};
        set_positions(fields.positions, launch, from_token(token, positions), n, covered);
        fields.code = code;
        fields.word_offset = out.offset();
        all.add(out);
        return gpu_helpers(target_of(launch.queue->device)).check_positions(all.get(call));
    });
}

const char *why_not(const Launch &launch, const DevicePiece &piece) noexcept {
    const auto bytes = static_cast<std::uint64_t>(element_bytes(piece.dtype));
    const std::uintptr_t bits = address_bits(launch, piece.x) | address_bits(launch, piece.y);
    if (bits % bytes != 0) {  // NOLINT(*DivideZero): the plan has checked the dtype
        return "is not aligned to its elements";
    }
    // Strides times extents, as in fitting; divided here, because they may not even have 64 bits.
    if (element_stride(piece) > (most_elements - bridge(launch, piece)) / piece.rotary_dim) {
        return "has heads of more than 2^31 elements' reach";
    }
    return is_unwalkable(launch, std::min(piece.in.element, piece.out.element))
               ? "has heads whose elements go backwards, which no kernel for OpenCL takes"
               : "";
}

const char *why_not(const Launch &launch, const LaunchPositions &positions, std::int32_t n_axes) noexcept {
    if (address_bits(launch, positions.place) % 4 != 0) {
        return "are not aligned to 4 bytes";
    }
    const std::int64_t axes_words = std::int64_t{n_axes} * positions.n_words;
    if (distance(positions.stride_axis) > most_elements / axes_words ||
        distance(positions.stride_token) * positions.n_words > most_elements) {
        return "lie more than 2^31 words apart";
    }
    return n_axes > 1 && is_unwalkable(launch, positions.stride_axis)
               ? "have axes that go backwards, which no kernel for OpenCL takes"
               : "";
}

}  // namespace halyard::gpu
