// The smallest unit of work, a piece: some heads of some tokens of one tensor, which one call of a kernel rotates. Also
// how a kernel is called.
//
// Units of work from large to small: a run; its share, which one task does; a stretch, which is the tokens of a share
// that lie evenly apart in one tensor; a block, which is as much of a stretch as stages keep in the first-level cache;
// a piece.
#pragma once

#include "base/storage.h"
#include "walk/dispatch.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace halyard {

/// Element strides of a tensor's pairs, as the algorithm sees them.
struct PairStrides {
    std::int64_t pair, member, head, token;
};

/// Tokens in one piece at most: enough to make a kernel's call cheap, few enough for their rows to be on the stack.
inline constexpr std::int64_t max_piece_tokens = 256;

/// Some heads of some tokens of one tensor.
struct Piece {
    Dtype dtype;
    const char *x;  // member 0 of pair 0 of the first head of the first token
    char *y;
    PairStrides in, out;
    std::int64_t n_pairs, n_heads, n_tokens;
    const char *cos_rows, *sin_rows;  // floats, at any address, as x and y
    std::int64_t n_rows;
    std::int64_t stride_row;           // in floats
    const std::int32_t *row_of_token;  // [n_tokens]
    std::uint32_t sin_sign;            // 0x80000000 for the inverse
    bool within_int32;                 // 32-bit offsets are known to reach all of x and y
};

/// Runs a kernel on a piece, in several calls if one would reach beyond the kernel's 32-bit offsets. The reference does
/// what even a call for one head would not reach.
void rotate_in_parts(const Kernel &kernel, const Piece &piece) noexcept;

/// Strides of whole heads, in elements of their own dtype.
struct ElementStrides {
    std::int64_t element, head, token;
};

/// Some elements (a head, or a window of it) of some heads of some tokens. None is 0.
struct Extents {
    std::int64_t n_elements, n_heads, n_tokens;
};

/// Where such elements lie: the first of the first head of the first token. T is char where their dtype stands beside.
template <typename T>
struct Elements {
    T *data;
    ElementStrides strides;
};

/// Copies elements of `bytes` bytes each. Non-temporal stores are fenced.
void copy_elements(std::int64_t bytes, bool non_temporal, Extents extents, const Elements<const char> &x,
                   const Elements<char> &y) noexcept;

/// The largest offset that a generated kernel's 32-bit arithmetic can hold.
inline constexpr std::int64_t max_offset = INT32_MAX;

/// Sets a dimension as a kernel reads it. Kernels do not read min, which is always 0. Both numbers go in one store,
/// because stores are what limits a call for a single head.
inline void set_dimension(halyard_dimension &dim, std::int64_t extent, std::int64_t stride) noexcept {
    const std::int32_t numbers[2] = {static_cast<std::int32_t>(extent), static_cast<std::int32_t>(stride)};
    const auto both = std::bit_cast<std::uint64_t>(numbers);
    static_assert(offsetof(halyard_dimension, stride) == offsetof(halyard_dimension, extent) + sizeof(std::int32_t));
    std::memcpy(&dim.extent, &both, sizeof(both));
}

/// Sets a buffer as a kernel reads it. Kernels read only host and dim, and of a dimension only extent and stride.
inline void set_buffer(halyard_buffer &buffer, const void *host, const halyard_dimension *dims) noexcept {
    buffer.host = static_cast<std::uint8_t *>(const_cast<void *>(host));
    buffer.dim = const_cast<halyard_dimension *>(dims);
}

/// Sets a kernel's view of x or y.
inline void set_tensor(halyard_buffer &buffer, halyard_dimension (&dims)[4], const Kernel &kernel, const Piece &piece,
                       const char *data, const PairStrides &strides) noexcept {
    // An element of a packed kernel is two of the tensor's: strides are even.
    const int halve = kernel.packed ? 1 : 0;
    const bool pair_in_word = kernel.packed && kernel.pairing == Pairing::interleaved;
    set_buffer(buffer, data, dims);
    set_dimension(dims[0], pair_in_word ? piece.n_pairs : piece.n_pairs >> halve, pair_in_word ? 1 : strides.pair);
    set_dimension(dims[1], pair_in_word ? 1 : 2, strides.member >> halve);
    set_dimension(dims[2], piece.n_heads, strides.head >> halve);
    set_dimension(dims[3], piece.n_tokens, strides.token >> halve);
}

/// Sets a kernel's view of the rows.
inline void set_rows(const Piece &piece, halyard_buffer &rows, halyard_dimension (&rows_dim)[1], halyard_buffer &cos,
                     halyard_buffer &sin, halyard_dimension (&row_dims)[2]) noexcept {
    set_buffer(rows, piece.row_of_token, rows_dim);
    set_dimension(rows_dim[0], piece.n_tokens, 1);
    set_buffer(cos, piece.cos_rows, row_dims);
    set_buffer(sin, piece.sin_rows, row_dims);
    set_dimension(row_dims[0], piece.n_pairs, 1);
    set_dimension(row_dims[1], piece.n_rows, piece.stride_row);
}

/// Calls a generated kernel on a piece that 32-bit offsets can hold. (Inline for the cost of a run.)
inline void call_kernel(const Kernel &kernel, const Piece &piece) noexcept {
    halyard_buffer rows, cos, sin, x, y;
    halyard_dimension rows_dim[1], row_dims[2], x_dims[4], y_dims[4];
    set_rows(piece, rows, rows_dim, cos, sin, row_dims);
    set_tensor(y, y_dims, kernel, piece, piece.y, piece.out);
    const bool in_place = kernel.place == Place::in_place;
    if (!in_place) {
        set_tensor(x, x_dims, kernel, piece, piece.x, piece.in);
    }
    kernel.function(&rows, &cos, &sin, piece.sin_sign, in_place ? &y : &x, &y);
}

inline void rotate_piece(const Kernel &kernel, const Piece &piece) noexcept {
    const bool rows_fit =
        piece.n_rows * piece.stride_row <= max_offset;  // they lie in memory: 64 bits hold the product
    if (piece.within_int32 && rows_fit && kernel.function != nullptr) {
        call_kernel(kernel, piece);
    } else {
        const Piece copy = piece;  // the address of `piece` would force it into memory in the other branch too
        rotate_in_parts(kernel, copy);
    }
}

}  // namespace halyard
