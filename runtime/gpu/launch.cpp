#include "gpu/launch.h"

#include "gpu/gpu_kernels.h"
#include "gpu/view.h"

#include <algorithm>
#include <optional>

namespace halyard::gpu {

namespace {

// What one launch can hold.
constexpr std::int64_t most_blocks = 65535;                 // CUDA's limit to a grid's second and third dimension
constexpr std::int64_t most_pairs = std::int64_t{1} << 15;  // of a rotation, however few of them a block takes
static_assert(most_pairs <= most_blocks);
constexpr std::int64_t fewest_columns_a_block = 8;            // of a copy
constexpr std::int64_t most_columns = std::int64_t{1} << 18;  // likewise
static_assert(most_columns / fewest_columns_a_block <= most_blocks);

/// Whether every access of 128 bits is aligned: addresses, strides and as many elements as lie together are multiples
/// of 16 bytes.
bool goes_by_128_bits(const Launch &launch, const DevicePiece &piece, std::int64_t together) {
    const std::int64_t strides = piece.in.token | piece.in.head | piece.out.token | piece.out.head | together;
    const auto bytes = static_cast<std::uint64_t>(strides * element_bytes(piece.dtype));
    return piece.in.element == 1 && piece.out.element == 1 &&
           ((address_bits(launch, piece.x) | address_bits(launch, piece.y) | bytes) % wide_bytes) == 0;
}

/// From one pair of a head to the next.
std::int64_t pair_stride(Pairing pairing, const RunTensor::Strides &strides) {
    return pairing == Pairing::half ? strides.element : 2 * strides.element;
}

/// Some pairs of each head.
struct PairRange {
    std::int64_t first, count;

    Location in(const Location &tensor, const DevicePiece &piece, Pairing pairing,
                const RunTensor::Strides &strides) const {
        return moved(tensor, first * pair_stride(pairing, strides) * element_bytes(piece.dtype));
    }
    /// Of an array that has four bytes for each pair.
    Location in_list(void *list) const { return {list, 4 * first}; }
};

/// The pairing of the kernel that serves a piece: none where accesses of 128 bits cannot.
std::optional<Pairing> pairing_of(const Launch &launch, const DevicePiece &piece) {
    const std::int64_t together = piece.pairing == Pairing::half ? piece.rotary_dim / 2 : piece.rotary_dim;
    const bool is_fast = piece.pairing == piece.out_pairing && goes_by_128_bits(launch, piece, together);
    return is_fast ? std::optional(piece.pairing) : std::nullopt;
}

/// What a kernel takes elements for. By 128 bits, 16-bit elements go as words of two.
std::uint32_t type_of(Dtype dtype, bool is_fast) {
    switch (dtype) {
    case Dtype::f32: break;
    case Dtype::f16:
    case Dtype::bf16: return is_fast ? type_uint32 : type_uint16;
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::int8: break;  // no input has them
    }
    return type_float;
}

/// A tensor as a rotation kernel sees it: [pair, member, head, token, offset].
void add_pairs(View &view, const DevicePiece &piece, std::int64_t n_pairs, Pairing pairing,
               const RunTensor::Strides &strides, bool is_fast) {
    const int halve = type_of(piece.dtype, is_fast) == type_uint32 ? 1 : 0;  // words of two
    if (pairing == Pairing::half) {
        view.add(n_pairs >> halve, strides.element);
        view.add(2, (piece.rotary_dim / 2 * strides.element) >> halve);
    } else if (halve != 0) {
        view.add(n_pairs, 1);  // a word is a pair
        view.add(1, 4);
    } else {
        view.add(n_pairs, 2 * strides.element);
        view.add(2, strides.element);
    }
    view.add(piece.n_heads, strides.head >> halve);
    view.add(piece.n_tokens, strides.token >> halve);
    view.add_offset();
}

int rotate_part(const Launch &launch, const DevicePiece &piece, const PairRange &pairs, Call &call) {
    const DeviceAngles &angles = *launch.angles;
    const halyard_angle_source &source = angles.source;
    const std::optional<Pairing> pairing = pairing_of(launch, piece);
    const bool is_fast = pairing.has_value(), with_phase = source.kind == AngleKind::phase;
    const GpuKernel &kernel =
        select_gpu_kernel(target_of(launch.queue->device), piece.dtype, pairing, piece.in_place, with_phase);
    const std::uint32_t type = type_of(piece.dtype, is_fast);
    const std::int64_t bytes = type == type_uint16 ? 2 : 4;
    View x(launch, pairs.in(piece.x, piece, piece.pairing, piece.in), type, bytes);
    View y(launch, pairs.in(piece.y, piece, piece.out_pairing, piece.out), type, bytes);
    add_pairs(x, piece, pairs.count, piece.pairing, piece.in, is_fast);
    add_pairs(y, piece, pairs.count, piece.out_pairing, piece.out, is_fast);
    View positions(launch, piece.positions.place, type_int32, 4);
    add_positions(positions, piece.positions, piece.n_tokens, source.axes.n_axes);
    View axis_of_pair(launch, pairs.in_list(angles.axis_of_pair), type_int32, 4);
    axis_of_pair.add(pairs.count, 1);
    const auto first = static_cast<std::int32_t>(source.first), last = static_cast<std::int32_t>(source.last);
    halyard_buffer *const x_or_y = piece.in_place ? y.get() : x.get();
    const std::int32_t x_offset = piece.in_place ? y.offset() : x.offset();
    if (with_phase) {
        View high(launch, pairs.in_list(angles.first_rows), type_uint32, 4);
        View low(launch, pairs.in_list(angles.second_rows), type_uint32, 4);
        high.add(pairs.count, 1);
        low.add(pairs.count, 1);
        return kernel.with_phase(&call, positions.get(), piece.positions.n_words, positions.offset(),
                                 piece.positions.start, piece.positions.step, first, last, axis_of_pair.get(),
                                 launch.clamps, high.get(), low.get(), source.scale_high, source.scale_low,
                                 launch.sin_sign, x_offset, y.offset(), x_or_y, y.get());
    }
    View cos(launch, moved(pairs.in_list(angles.first_rows), angles.first_offset * 4), type_float, 4);
    View sin(launch, moved(pairs.in_list(angles.second_rows), angles.second_offset * 4), type_float, 4);
    for (View *rows : {&cos, &sin}) {
        rows->add(rows->offset() + pairs.count, 1);
        rows->add(source.n_rows, source.stride_row);
    }
    return kernel.with_table(&call, positions.get(), piece.positions.n_words, positions.offset(), piece.positions.start,
                             piece.positions.step, first, last, axis_of_pair.get(), launch.clamps, cos.get(), sin.get(),
                             cos.offset(), sin.offset(), source.identity_row, launch.sin_sign, x_offset, y.offset(),
                             x_or_y, y.get());
}

int copy_part(const Launch &launch, const DevicePiece &piece, std::int64_t n_columns, Call &call) {
    const std::int64_t bytes = element_bytes(piece.dtype);
    const bool is_fast = goes_by_128_bits(launch, piece, n_columns);
    const GpuHelpers &helpers = gpu_helpers(target_of(launch.queue->device));
    const std::int64_t word = is_fast ? 4 : bytes;
    const std::int64_t per_word = word / bytes;
    View x(launch, piece.x, word == 4 ? type_uint32 : type_uint16, word);
    View y(launch, piece.y, word == 4 ? type_uint32 : type_uint16, word);
    for (const auto &[view, strides_of] :
         {std::pair<View *, const RunTensor::Strides *>(&x, &piece.in), {&y, &piece.out}}) {
        view->add(n_columns / per_word, strides_of->element);
        view->add(piece.n_heads, strides_of->head / per_word);
        view->add(piece.n_tokens, strides_of->token / per_word);
        view->add_offset();
    }
    const CopyFunction copy = is_fast ? helpers.copy_128 : bytes == 4 ? helpers.copy_32 : helpers.copy_16;
    return copy(&call, x.offset(), y.offset(), x.get(), y.get());
}

/// How many elements of a stride fit into room; at least the first one does. Halide wants them times the stride, one
/// more than they span, in 32 bits too.
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
    // Halide multiplies all extents of a view, its offset's too. Blocks have a head or more, whatever the schedule, so
    // heads are limited as blocks are. Tokens go along a grid's first dimension, which holds them all.
    const std::int64_t most = most_elements / static_cast<std::int64_t>(launch.part_alignment);
    const std::int64_t reach = (n_columns - 1) * element_stride(whole) + bridge(launch, whole);
    const std::int64_t stride_head = std::max(distance(whole.in.head), distance(whole.out.head));
    const std::int64_t stride_token = std::max(distance(whole.in.token), distance(whole.out.token));
    const std::int64_t heads_at_once = std::min({fitting(whole.n_heads, stride_head, most_elements - reach),
                                                 most_blocks, std::max<std::int64_t>(1, most / n_columns)});
    const std::int64_t heads_reach = reach + (heads_at_once - 1) * stride_head;
    const std::int64_t tokens_at_once = std::min({fitting(whole.n_tokens, stride_token, most_elements - heads_reach),
                                                  most_positions(launch, whole.positions),
                                                  std::max<std::int64_t>(1, most / (n_columns * heads_at_once))});
    DevicePiece piece = whole;
    for (std::int64_t token = 0; token < whole.n_tokens; token += tokens_at_once) {
        piece.n_tokens = std::min(tokens_at_once, whole.n_tokens - token);
        piece.positions.place =
            moved(whole.positions.place, token * whole.positions.stride_token * whole.positions.n_words * 4);
        piece.positions.start = whole.positions.start + token * whole.positions.step;
        for (std::int64_t head = 0; head < whole.n_heads; head += heads_at_once) {
            piece.n_heads = std::min(heads_at_once, whole.n_heads - head);
            piece.x = moved(whole.x, (token * whole.in.token + head * whole.in.head) * bytes);
            piece.y = moved(whole.y, (token * whole.out.token + head * whole.out.head) * bytes);
            if (const int status = part(piece)) {
                return status;
            }
        }
    }
    return 0;
}

}  // namespace

int rotate_on_device(const Launch &launch, const DevicePiece &piece, Call &call) noexcept {
    const std::int64_t n_pairs = piece.rotary_dim / 2;
    for (std::int64_t at = 0; at < n_pairs; at += most_pairs) {
        const PairRange pairs = {at, std::min(most_pairs, n_pairs - at)};
        const int status = in_parts(launch, piece, piece.rotary_dim,
                                    [&](const DevicePiece &part) { return rotate_part(launch, part, pairs, call); });
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

int copy_on_device(const Launch &launch, const DevicePiece &piece, std::int64_t n_columns, Call &call) noexcept {
    const auto most_bridged = static_cast<std::int64_t>(launch.part_alignment);  // by any part, wherever it begins
    const std::int64_t columns_at_once =
        std::min(fitting(n_columns, element_stride(piece), most_elements - most_bridged), most_columns);
    DevicePiece columns = piece;
    for (std::int64_t at = 0; at < n_columns; at += columns_at_once) {
        const std::int64_t n = std::min(columns_at_once, n_columns - at), bytes = element_bytes(piece.dtype);
        columns.x = moved(piece.x, at * piece.in.element * bytes);
        columns.y = moved(piece.y, at * piece.out.element * bytes);
        const int status =
            in_parts(launch, columns, n, [&](const DevicePiece &part) { return copy_part(launch, part, n, call); });
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

int check_on_device(const Launch &launch, const LaunchPositions &positions, std::int64_t n_tokens,
                    const Covered &covered, const Location &word, Call &call) noexcept {
    const std::int64_t tokens_at_once = most_positions(launch, positions);
    for (std::int64_t token = 0; token < n_tokens; token += tokens_at_once) {
        const std::int64_t n = std::min(tokens_at_once, n_tokens - token);
        View view(launch, moved(positions.place, token * positions.stride_token * positions.n_words * 4), type_int32,
                  4);
        add_positions(view, positions, n, covered.n_axes);
        View out(launch, word, type_int32, 4);
        out.add_offset();
        const int status = gpu_helpers(target_of(launch.queue->device))
                               .check_positions(&call, view.get(), positions.n_words, view.offset(),
                                                positions.start + token * positions.step, positions.step, covered.first,
                                                covered.last, covered.code, out.offset(), out.get());
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

const char *obstacle(const Launch &launch, const DevicePiece &piece) noexcept {
    const auto bytes = static_cast<std::uint64_t>(element_bytes(piece.dtype));
    const std::uintptr_t bits = address_bits(launch, piece.x) | address_bits(launch, piece.y);
    if (bits % bytes != 0) {  // NOLINT(*DivideZero): the plan has checked the dtype
        return "is not aligned to its elements";
    }
    // Strides times extents, as in fitting; divided here, because they may not even have 64 bits.
    if (element_stride(piece) > (most_elements - bridge(launch, piece)) / piece.rotary_dim) {
        return "has heads of more than 2^31 elements' reach";
    }
    const bool goes_backwards = piece.in.token < 0 || piece.in.head < 0 || piece.in.element < 0 ||
                                piece.out.token < 0 || piece.out.head < 0 || piece.out.element < 0;
    return launch.queue->device == HALYARD_OPENCL && goes_backwards
               ? "has a negative stride, which OpenCL buffers cannot"
               : "";
}

const char *positions_obstacle(const Launch &launch, const LaunchPositions &positions, std::int32_t n_axes) noexcept {
    if (address_bits(launch, positions.place) % 4 != 0) {
        return "are not aligned to 4 bytes";
    }
    const std::int64_t axes_words = std::int64_t{n_axes} * positions.n_words;
    if (distance(positions.stride_axis) > most_elements / axes_words ||
        distance(positions.stride_token) * positions.n_words > most_elements) {
        return "lie more than 2^31 words apart";
    }
    return launch.queue->device == HALYARD_OPENCL && (positions.stride_token < 0 || positions.stride_axis < 0)
               ? "have a negative stride, which OpenCL buffers cannot"
               : "";
}

}  // namespace halyard::gpu
