// Transposes units of a few bytes (elements, or tiles of them) in registers: [token][unit] becomes [unit][token].
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace halyard {

/// Units with their strides in bytes: unit u of head h of token t is at data + u * unit + h * head + t * token.
template <typename T>
struct Units {
    T *data;
    std::int64_t unit, head, token;
};

namespace transposing {

/// A register of 16 bytes, filled with n units.
template <typename Word>
struct Register {
    static constexpr std::size_t n = 16 / sizeof(Word);
    typedef Word Vector __attribute__((vector_size(16)));

    /// Interleaves units of a and b, from unit `first` of each on: a[first], b[first], a[first + 1], …
    template <std::size_t first, std::size_t... i>
    static Vector interleave(Vector a, Vector b, std::index_sequence<i...>) {
        return __builtin_shufflevector(a, b, (first + i / 2 + (i % 2) * n)...);
    }
};

/// Transposes n tokens of n units. `from` is dense within a token, `to` within a unit.
template <typename Word>
void transpose_square(const char *from, std::int64_t stride_token, char *to, std::int64_t stride_unit) {
    using Of = Register<Word>;
    constexpr std::size_t n = Of::n;
    typename Of::Vector rows[n], next[n];
    for (std::size_t t = 0; t < n; t++) {
        std::memcpy(&rows[t], from + static_cast<std::int64_t>(t) * stride_token, 16);
    }
    for (std::size_t step = 1; step < n; step *= 2) {
        for (std::size_t i = 0; i < n / 2; i++) {
            next[2 * i] = Of::template interleave<0>(rows[i], rows[i + n / 2], std::make_index_sequence<n>());
            next[2 * i + 1] = Of::template interleave<n / 2>(rows[i], rows[i + n / 2], std::make_index_sequence<n>());
        }
        std::copy(next, next + n, rows);
    }
    for (std::size_t u = 0; u < n; u++) {
        std::memcpy(to + static_cast<std::int64_t>(u) * stride_unit, &rows[u], 16);
    }
}

/// Interleaves the units of two tokens. `from` is dense within a token; `to` is dense, [unit][token].
template <typename Word>
void interleave_two(std::int64_t n_units, const char *from, std::int64_t stride_token, char *to) {
    using Of = Register<Word>;
    constexpr std::size_t n = Of::n;
    for (std::int64_t u = 0; u < n_units; u += n, from += 16, to += 32) {
        typename Of::Vector a, b, pairs[2];
        std::memcpy(&a, from, 16);
        std::memcpy(&b, from + stride_token, 16);
        pairs[0] = Of::template interleave<0>(a, b, std::make_index_sequence<n>());
        pairs[1] = Of::template interleave<n / 2>(a, b, std::make_index_sequence<n>());
        std::memcpy(to, pairs, 32);
    }
}

template <typename Word>
void copy(std::int64_t n_units, std::int64_t n_heads, std::int64_t n_tokens, Units<const char> from, Units<char> to) {
    constexpr std::int64_t n = 16 / sizeof(Word), bytes = sizeof(Word);
    const bool is_transposed = from.unit == bytes && to.token == bytes;
    const bool are_two = is_transposed && n_tokens == 2 && to.unit == 2 * bytes;
    const std::int64_t units = is_transposed ? n_units / n * n : 0;
    const std::int64_t tokens = are_two ? 2 : is_transposed ? n_tokens / n * n : 0;
    for (std::int64_t h = 0; h < n_heads; h++, from.data += from.head, to.data += to.head) {
        if (are_two) {
            interleave_two<Word>(units, from.data, from.token, to.data);
        }
        for (std::int64_t u = 0; u < units && !are_two; u += n) {
            for (std::int64_t t = 0; t < tokens; t += n) {
                transpose_square<Word>(from.data + u * bytes + t * from.token, from.token,
                                       to.data + u * to.unit + t * bytes, to.unit);
            }
        }
        for (std::int64_t t = 0; t < n_tokens; t++) {
            const char *const source = from.data + t * from.token;
            char *const target = to.data + t * to.token;
            for (std::int64_t u = t < tokens ? units : 0; u < n_units; u++) {
                std::memcpy(target + u * to.unit, source + u * from.unit, bytes);
            }
        }
    }
}

inline void copy_16_bytes(std::int64_t n_units, std::int64_t n_heads, std::int64_t n_tokens, Units<const char> from,
                          Units<char> to) {
    for (std::int64_t u = 0; u < n_units; u++) {
        for (std::int64_t h = 0; h < n_heads; h++) {
            for (std::int64_t t = 0; t < n_tokens; t++) {
                std::memcpy(to.data + u * to.unit + h * to.head + t * to.token,
                            from.data + u * from.unit + h * from.head + t * from.token, 16);
            }
        }
    }
}

}  // namespace transposing

/// Whether there is a function that copies units of this many bytes.
inline bool can_copy_units_of(std::int64_t bytes) {
    return bytes <= 16 && std::has_single_bit(static_cast<std::uint64_t>(bytes));
}

using CopyUnits = void(std::int64_t n_units, std::int64_t n_heads, std::int64_t n_tokens, Units<const char> from,
                       Units<char> to);

/// The function that copies units of `bytes` bytes each, in registers where the copy is a transpose.
inline CopyUnits *copier_of(std::int64_t bytes) {
    switch (bytes) {
    case 1: return transposing::copy<std::uint8_t>;
    case 2: return transposing::copy<std::uint16_t>;
    case 4: return transposing::copy<std::uint32_t>;
    case 8: return transposing::copy<std::uint64_t>;
    default: return transposing::copy_16_bytes;
    }
}

}  // namespace halyard
