// The fields of a launch: what a GPU's kernels are told, listed once, for the generators and for the runtime.
//
// Side says what a field is: an input of a generator (generators/cuda/fields.h), or an argument of a call
// (arguments.h). Its Scalar<T>, OfTensors<T> (a scalar for each tensor) and Array<T, n_dims> take an owner and
// a name, and the next place among what the owner has. C++ constructs members as they are declared, so the order below
// is that of every kernel. What is not listed comes behind these: x, where kernels differ in its type, and the output.
#pragma once

#include "base/storage.h"

#include <array>
#include <cstdint>

namespace halyard {

/// How kernels get cos and sin. none: a launch of the KV path rotates nothing, and reads neither.
enum class AngleForm : std::int32_t { rows_f32, rows_f16, rows_bf16, phase, none };

/// x, y and weights of the KV path are lines: all of a device's memory around a place, in words (weights: in halves of
/// words). Kernels index them by 64 bits, so the extent says nothing. Heads begin on quads.
inline constexpr int quad_bytes = 16, line_extent = (1 << 29) - 1;

/// How many heads of a token a block of the KV path's kernels takes.
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

    /// Positions, and which of them have angles: those from first to last.
    struct Positions {
        Owner &to;
        Array<std::int32_t, 3> positions{to, "positions"};          // [word, token, axis]; int64: the lower word first
        Scalar<std::int64_t> start{to, "start"};                    // is added to every position,
        Scalar<std::int32_t> step{to, "step"};                      // and this, 0 or 1, times the token's number
        Scalar<std::int32_t> first{to, "first"}, last{to, "last"};  // the positions that there are angles for
    };

    /// A check of positions, or of slots.
    struct Check {
        Owner &to;
        Positions positions{to};
        Scalar<std::int32_t> has_slots{to, "has_slots"};  // 1: the positions of tokens with slot -1 are not checked
        Array<std::int32_t, 2> slots{to, "slots"};        // [word, token], or anything where there are none
        Scalar<std::int32_t> code{to, "code"};            // what the word is set to
    };

    /// An angle source of any kind: all that a rotation is told.
    struct Angles {
        Owner &to;
        Positions positions{to};
        Array<std::int32_t, 1> axis_of_pair{to, "axis_of_pair"};   // [pair]
        Scalar<std::int32_t> clamps{to, "clamps"};                 // 1: other positions count as the nearest; 0: as 0
        Scalar<std::int32_t> form{to, "form"};                     // an AngleForm
        Array<float, 2> first_rows{to, "first_rows"};              // [pair, row]: cos. phase: bits of turns_high
        Array<float, 2> second_rows{to, "second_rows"};            // likewise sin, or of turns_low, see phase_angle
        Array<std::uint16_t, 2> first_halves{to, "first_halves"};  // the same memory
        Array<std::uint16_t, 2> second_halves{to, "second_halves"};
        Scalar<std::int32_t> row_of_zero{to, "row_of_zero"};  // position 0's; first those of first … last
        Scalar<float> scale_high{to, "scale_high"}, scale_low{to, "scale_low"};
        Scalar<std::uint32_t> sin_sign{to, "sin_sign"};  // 0; the inverse 0x80000000
    };

    /// The KV path of all tensors of a launch.
    struct Kv {
        Owner &to;
        Angles angles{to};
        Scalar<std::int32_t> stores_bad{to, "stores_bad"};  // 1: tokens whose positions have no angles are stored, too
        Scalar<std::int32_t> has_norms{to, "has_norms"};    // of any tensor
        Scalar<std::int32_t> n_heads{to, "n_heads"}, n_slots{to, "n_slots"};
        Array<std::int32_t, 2> slots{to, "slots"};  // [word, token]
        OfTensors<std::int32_t> end{to, "end"};    // the first head that is none of this tensor's and those before it
        OfTensors<std::int32_t> kind{to, "kind"};  // bits: what is done to its heads
        OfTensors<std::int64_t> x_at{to, "x_at"};  // the first head of the first token, and strides, in quads
        OfTensors<std::int64_t> x_head{to, "x_head"}, x_token{to, "x_token"};
        OfTensors<std::int64_t> y_at{to, "y_at"}, y_head{to, "y_head"}, y_token{to, "y_token"}, y_block{to, "y_block"};
        OfTensors<std::int32_t> block_size{to, "block_size"};    // of a cache; 0: y is a view
        OfTensors<float> reciprocal{to, "reciprocal"};           // of the scale
        OfTensors<float> eps{to, "eps"};
        OfTensors<std::int64_t> weight_at{to, "weight_at"};      // in halves of a word
        Array<std::uint16_t, 1> weights{to, "weights"};
        Array<std::uint32_t, 1> x{to, "x"};  // and may be y

        static constexpr int has_weight = 1, is_rotated = 2, is_normed = 4;  // bits of kind
    };
};

}  // namespace halyard
