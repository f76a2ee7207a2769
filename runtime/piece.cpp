#include "piece.h"

#include "tensor.h"

#include <algorithm>

namespace halyard {

namespace {

/// A buffer as the kernels read it: they take the address, the extents and the strides from it, and nothing else.
struct Buffer {
    halide_buffer_t header;
    halide_dimension_t dims[4];

    explicit Buffer(const void *data) {
        header.host = static_cast<std::uint8_t *>(const_cast<void *>(data));
        header.dim = dims;
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    void set(int i, std::int64_t extent, std::int64_t stride) {
        dims[i].extent = static_cast<std::int32_t>(extent);
        dims[i].stride = static_cast<std::int32_t>(stride);
    }
};

/// The largest offset that a generated kernel's 32-bit arithmetic can hold.
constexpr std::int64_t max_offset = INT32_MAX;

std::int64_t distance(std::int64_t stride) { return stride < 0 ? -stride : stride; }

/// How many steps of a stride fit into room; at least the first element does.
std::int64_t fitting(std::int64_t count, std::int64_t stride, std::int64_t room) {
    return count <= 1 || stride == 0 ? count : std::min(count, 1 + room / distance(stride));
}

/// Calls a generated kernel on a piece that 32-bit offsets can hold, but perhaps not its rows.
void call_kernel(const Kernel &kernel, const Piece &piece) {
    const bool interleaved = kernel.pairing == Pairing::interleaved;
    const int halve = kernel.packed ? 1 : 0;  // an element of the kernel's is two of the tensor's: strides are even
    const auto describe = [&](Buffer &buffer, const PairStrides &strides) {
        if (kernel.packed && interleaved) {
            buffer.set(0, piece.n_pairs, 1);
            buffer.set(1, 1, 1);
        } else {
            buffer.set(0, piece.n_pairs >> halve, strides.pair);
            buffer.set(1, 2, strides.member >> halve);
        }
        buffer.set(2, piece.n_heads, piece.n_heads > 1 ? strides.head >> halve : 0);
        buffer.set(3, piece.n_tokens, piece.n_tokens > 1 ? strides.token >> halve : 0);
    };
    Buffer x(piece.x), y(piece.y);
    describe(x, piece.in);
    describe(y, piece.out);

    std::int32_t row_of_token[max_piece_tokens];
    for (std::int64_t i = 0; i < piece.n_tokens; i++) {
        row_of_token[i] = static_cast<std::int32_t>(piece.row_of_token[i]);
    }
    Buffer rows(row_of_token), cos(piece.cos_rows), sin(piece.sin_rows);
    rows.set(0, piece.n_tokens, 1);
    for (Buffer *buffer : {&cos, &sin}) {
        buffer->set(0, piece.n_pairs, 1);
        buffer->set(1, piece.n_rows, piece.stride_row);
    }
    kernel.function(&rows.header, &cos.header, &sin.header, piece.sin_sign, &x.header, &y.header);
}

}  // namespace

void rotate_piece(const Kernel &kernel, const Piece &whole) noexcept {
    const auto head_reach = [&](const PairStrides &s) {
        return (whole.n_pairs - 1) * distance(s.pair) + distance(s.member);
    };
    const std::int64_t head = std::max(head_reach(whole.in), head_reach(whole.out));
    if (kernel.function == nullptr || head > max_offset) {
        rotate_reference(whole);
        return;
    }
    const std::int64_t stride_head = std::max(distance(whole.in.head), distance(whole.out.head));
    const std::int64_t stride_token = std::max(distance(whole.in.token), distance(whole.out.token));
    const bool rows_fit = whole.n_rows * whole.stride_row <= max_offset;  // they lie in memory: 64 bits hold the product
    if (rows_fit && head + (whole.n_heads - 1) * stride_head + (whole.n_tokens - 1) * stride_token <= max_offset) {
        call_kernel(kernel, whole);
        return;
    }
    const std::int64_t heads_at_once = fitting(whole.n_heads, stride_head, max_offset - head);
    const std::int64_t heads = head + (heads_at_once - 1) * stride_head;
    const std::int64_t tokens_at_once = rows_fit ? fitting(whole.n_tokens, stride_token, max_offset - heads) : 1;

    const std::int64_t bytes = element_bytes(whole.dtype);
    Piece piece = whole;
    for (std::int64_t token = 0; token < whole.n_tokens; token += tokens_at_once) {
        piece.n_tokens = std::min(tokens_at_once, whole.n_tokens - token);
        piece.row_of_token = whole.row_of_token + token;
        const std::int64_t first_row = 0;
        if (!rows_fit) {
            // One token, so its row can be the only one.
            piece.cos_rows = whole.cos_rows + whole.row_of_token[token] * whole.stride_row;
            piece.sin_rows = whole.sin_rows + whole.row_of_token[token] * whole.stride_row;
            piece.n_rows = 1;
            piece.row_of_token = &first_row;
        }
        for (std::int64_t at = 0; at < whole.n_heads; at += heads_at_once) {
            piece.n_heads = std::min(heads_at_once, whole.n_heads - at);
            piece.x = whole.x + (token * whole.in.token + at * whole.in.head) * bytes;
            piece.y = whole.y + (token * whole.out.token + at * whole.out.head) * bytes;
            call_kernel(kernel, piece);
        }
    }
}

}  // namespace halyard
