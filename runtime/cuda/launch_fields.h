// The parameters of GPU kernels, listed once for the generators and for the runtime.
//
// Side decides what a field is: an input of a generator (generators/cuda/fields.h), or an argument of a call
// (arguments.h). Its Scalar<T>, OfTensors<T> (a scalar for each tensor) and Array<T, n_dims> are constructed from an
// owner and a name, and append themselves to the owner's list. C++ constructs members in the order of declaration, so
// the order below is that of every kernel's parameters. An x that is not listed and the output come last.
#pragma once

#include "base/storage.h"

#include <array>
#include <cstdint>

namespace halyard {

/// How kernels get cos and sin. none: a launch of the KV path that rotates nothing and reads neither.
enum class AngleForm : std::int32_t { rows_f32, rows_f16, rows_bf16, phase, none };

/// x, y and weights of the KV path are one-dimensional arrays of 32-bit words. Each is all memory
/// around an address. Kernels index them with 64 bits, so line_extent is arbitrary. Heads begin on quads, 16 bytes.
inline constexpr int quad_bytes = 16, line_extent = (1 << 29) - 1;

/// How many heads of a token a thread block of the KV path's kernels processes.
inline constexpr int kv_heads_in_block = 16;

template <typename Side>
struct LaunchFields {
    using Owner = typename Side::Owner;
    template <typename T>
    using Scalar = typename Side::template Scalar<T>;
    template <typename T>
    using OfTensors = typename Side::template OfTensors<T>;
    template <typename T, int n_dims>
    using Array = typename Side::template Array<T, n_dims>;

    /// Positions, and the range of valid ones.
    struct Positions {
        Owner &to;
        Array<std::int32_t, 3> positions{to, "positions"};          // [word, token, axis]; int64: the lower word first
        Scalar<std::int64_t> start{to, "start"};                    // added to every position
        Scalar<std::int32_t> step{to, "step"};                      // 0 or 1; step * (the token's number) is added, too
        Scalar<std::int32_t> first{to, "first"}, last{to, "last"};  // the positions that the source covers
    };

    /// A check of positions, or of slots.
    struct Check {
        Owner &to;
        Positions positions{to};
        Scalar<std::int32_t> has_slots{to, "has_slots"};  // 1: the positions of tokens with slot -1 are not checked
        Array<std::int32_t, 2> slots{to, "slots"};        // [word, token]; ignored if has_slots is 0
        Scalar<std::int32_t> code{to, "code"};            // the error that the error word is set to
    };

    /// Positions and an angle source of any kind: all parameters of a rotation except its tensors.
    struct Angles {
        Owner &to;
        Positions positions{to};
        Array<std::int32_t, 1> axis_of_pair{to, "axis_of_pair"};   // [pair]
        Scalar<std::int32_t> clamps{to, "clamps"};                 // 1: bad positions count as the nearest; 0: as 0
        Scalar<std::int32_t> form{to, "form"};                     // an AngleForm
        Array<float, 2> first_rows{to, "first_rows"};              // [pair, row]: cos. phase: bits of turns_high
        Array<float, 2> second_rows{to, "second_rows"};            // likewise sin, or turns_low, see phase_angle
        Array<std::uint16_t, 2> first_halves{to, "first_halves"};  // the same memory, for rows of f16 and bf16
        Array<std::uint16_t, 2> second_halves{to, "second_halves"};
        Scalar<std::int32_t> row_of_zero{to, "row_of_zero"};  // the row of position 0; row 0 is that of `first`
        Scalar<float> scale_high{to, "scale_high"}, scale_low{to, "scale_low"};
        Scalar<std::uint32_t> sin_sign{to, "sin_sign"};  // 0; the inverse 0x80000000
    };

    /// All tensors of a launch of the KV path.
    struct Kv {
        Owner &to;
        Angles angles{to};
        Scalar<std::int32_t> stores_bad{to, "stores_bad"};  // 1: tokens with a bad position are stored, too
        Scalar<std::int32_t> has_norms{to, "has_norms"};    // 1: some tensor has a norm
        Scalar<std::int32_t> n_heads{to, "n_heads"}, n_slots{to, "n_slots"};
        Array<std::int32_t, 2> slots{to, "slots"};  // [word, token]
        OfTensors<std::int32_t> end{to, "end"};    // one past its last head; heads are numbered through all tensors
        OfTensors<std::int32_t> kind{to, "kind"};  // the stages of its heads: has_weight, is_rotated, is_normed
        OfTensors<std::int64_t> x_at{to, "x_at"};  // offset of the first head of the first token, and strides, in quads
        OfTensors<std::int64_t> x_head{to, "x_head"}, x_token{to, "x_token"};
        OfTensors<std::int64_t> y_at{to, "y_at"}, y_head{to, "y_head"}, y_token{to, "y_token"}, y_block{to, "y_block"};
        OfTensors<std::int32_t> block_size{to, "block_size"};    // of the cache; 0: y is a view
        OfTensors<float> reciprocal{to, "reciprocal"};           // of the scale
        OfTensors<float> eps{to, "eps"};
        OfTensors<std::int64_t> weight_at{to, "weight_at"};      // offset in quads
        Array<std::uint32_t, 1> weights{to, "weights"};
        Array<std::uint32_t, 1> x{to, "x"};  // the same memory as y in place

        static constexpr int has_weight = 1, is_rotated = 2, is_normed = 4;  // bits of kind
    };
};

}  // namespace halyard
