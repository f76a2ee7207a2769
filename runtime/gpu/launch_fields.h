// The fields of a launch: what a GPU's kernels are told, listed once, for the generators and for the runtime.
//
// Side says what a field is: an input of a generator (generators/gpu/fields.h), or an argument of a call
// (argument_addresses.h). Its Scalar<T>, OfTensors<T> (a scalar for each tensor) and Array<T, n_dims> take an owner and
// a name, and the next place among what the owner has. C++ constructs members as they are declared, so the order below
// is that of every kernel. What is not listed comes behind these: x, where kernels differ in its type, and the output.
#pragma once

#include "base/storage.h"

#include <array>
#include <cstdint>

namespace halyard {

/// How kernels get cos and sin.
enum class AngleForm : std::int32_t { rows_f32, rows_f16, rows_bf16, phase };

/// What there is to say of a tensor's groups, in fields of bits: a device takes 1024 bytes of arguments, or not many
/// more.
struct GroupBits {
    static constexpr int n_groups = 0, group = 8;  // 8 bits each; a group is so many times 16 elements
    static constexpr int scale = 16;               // 2 bits: how scales are stored
    static constexpr int is_int8 = 18;             // 1 bit: elements are int8, halves away from zero; else e4m3
    static constexpr int place = 19;               // 2 bits: where
    static constexpr int stride_bits = 15;         // of group_strides
};
/// How the scale of a group is stored: as f32, or as a power of two in a byte, rounded up or as OCP has it.
enum class ScaleForm : std::int32_t { f32, power_up, power_ocp };
/// Where groups and their scales lie: in records that begin on 16 bytes, the scales there or apart; or in other
/// records, and then all places of the tensor are counted in bytes.
enum class GroupPlace : std::int32_t { by_quads, scales_apart, by_bytes };

/// The number of a dtype.
constexpr std::int32_t number_of(Dtype dtype) noexcept { return static_cast<std::int32_t>(index_of(dtype)); }

/// Memory of more than 2^31 elements: [word, quad, row] with quads of 16 bytes and rows of 2^22 quads. Each tensor
/// begins at a quad, whose number names the place. Kernels of plain tensors take it as lines: [element, element, row],
/// of which the first are counted from the second.
struct FlatMemory {
    static constexpr int quad_bytes = 16, quads_in_row = 1 << 22, most = 1 << 28;

    struct Dimension {
        int extent, stride;
    };
    /// Of memory whose quads have so many elements.
    static constexpr std::array<Dimension, 3> dimensions(int in_quad, bool as_lines) noexcept {
        return {{{as_lines ? most : in_quad, 1}, {most, as_lines ? 1 : in_quad}, {most, quads_in_row * in_quad}}};
    }
};

/// How many heads of a token a block of the road's kernel takes.
inline constexpr int road_heads_in_block = 4;

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
        Array<std::int32_t, 3> positions{to, "positions"};  // [offset + word, token, axis]
        Scalar<std::int32_t> n_words{to, "n_words"};        // 1, or 2 for int64 with the lower word first
        Scalar<std::int32_t> offset{to, "position_offset"};
        Scalar<std::int64_t> start{to, "start"};                    // is added to every position,
        Scalar<std::int32_t> step{to, "step"};                      // and this, 0 or 1, times the token's number
        Scalar<std::int32_t> first{to, "first"}, last{to, "last"};  // the positions that there are angles for
    };

    /// An angle source of any kind.
    struct Angles {
        Owner &to;
        Positions positions{to};
        Array<std::int32_t, 1> axis_of_pair{to, "axis_of_pair"};  // [pair]
        Scalar<std::int32_t> clamps{to, "clamps"};       // 1: other positions count as the nearest; 0: as position 0
        Scalar<std::int32_t> form{to, "form"};           // an AngleForm
        Array<float, 2> first_rows{to, "first_rows"};    // [offset + pair, row]: cos. phase: bits of turns_high
        Array<float, 2> second_rows{to, "second_rows"};  // likewise sin, or of turns_low, see phase_angle
        Array<std::uint16_t, 2> first_halves{to, "first_halves"};  // the same memory
        Array<std::uint16_t, 2> second_halves{to, "second_halves"};
        Scalar<std::int32_t> first_offset{to, "first_offset"}, second_offset{to, "second_offset"};
        Scalar<std::int32_t> row_of_zero{to, "row_of_zero"};  // position 0's; first those of first … last
        Scalar<float> scale_high{to, "scale_high"}, scale_low{to, "scale_low"};
    };

    /// Where x and y begin: elements to the first pair or column. The fields of a copy.
    struct Offsets {
        Owner &to;
        Scalar<std::int32_t> x{to, "x_offset"}, y{to, "y_offset"};
    };

    struct Rotation {
        Owner &to;
        Angles angles{to};
        Scalar<std::uint32_t> sin_sign{to, "sin_sign"};  // 0; the inverse 0x80000000
        Offsets offsets{to};
    };

    /// A check of positions, or of slots.
    struct Check {
        Owner &to;
        Positions positions{to};
        Scalar<std::int32_t> has_slots{to, "has_slots"};  // 1: the positions of tokens with slot -1 are not checked
        Array<std::int32_t, 2> slots{to, "slots"};        // [offset + word, token], or anything where there are none
        Scalar<std::int32_t> slots_offset{to, "slots_offset"}, n_slot_words{to, "n_slot_words"};
        Scalar<std::int32_t> code{to, "code"};  // what the word is set to
        Scalar<std::int32_t> word_offset{to, "word_offset"};
    };

    /// All stages of all tensors.
    struct Road {
        Owner &to;
        Angles angles{to};
        Scalar<std::uint32_t> sin_sign{to, "sin_sign"};
        Scalar<std::int32_t> n_pairs{to, "n_pairs"};        // that are rotated
        Scalar<std::int32_t> stores_bad{to, "stores_bad"};  // 1: tokens whose positions have no angles are stored, too
        Scalar<std::int32_t> dtype{to, "dtype"};            // of x, by number_of()
        Scalar<std::int32_t> has_norms{to, "has_norms"}, has_roundings{to, "has_roundings"};  // of any tensor
        Scalar<std::int32_t> head_dim{to, "head_dim"}, n_heads{to, "n_heads"}, n_tokens{to, "n_tokens"};
        Array<std::int32_t, 2> slots{to, "slots"};  // [offset + word, token]
        Scalar<std::int32_t> slots_offset{to, "slots_offset"}, n_slot_words{to, "n_slot_words"}, n_slots{to, "n_slots"};
        OfTensors<std::int32_t> end{to, "end"};    // the first head that is none of this tensor's and those before it
        OfTensors<std::int64_t> x_at{to, "x_at"};  // the first head of the first token, and strides, in quads
        OfTensors<std::int64_t> x_head{to, "x_head"}, x_token{to, "x_token"};
        OfTensors<std::int64_t> y_at{to, "y_at"}, y_head{to, "y_head"}, y_token{to, "y_token"}, y_block{to, "y_block"};
        OfTensors<std::int32_t> block_size{to, "block_size"};        // of a cache; 0: y is a view
        OfTensors<std::int32_t> out{to, "out"};                      // the dtype, by number_of()
        OfTensors<float> reciprocal{to, "reciprocal"};               // of the scale
        OfTensors<std::int32_t> rotary_offset{to, "rotary_offset"};  // -1: it is not rotated
        OfTensors<std::int32_t> interleaves{to, "interleaves"};
        OfTensors<std::int32_t> norm_offset{to, "norm_offset"}, norm_size{to, "norm_size"};  // 0: it is not normed
        OfTensors<float> eps{to, "eps"};
        OfTensors<std::int32_t> rounding{to, "rounding"};        // of the normed: 1 before the weight, 2 after it
        OfTensors<std::int32_t> weight_kind{to, "weight_kind"};  // 0: none; else kind_of() its dtype, and maybe a bit
        OfTensors<std::int64_t> weight_at{to, "weight_at"};      // in halves of a word
        Array<std::uint16_t, 3> weights{to, "weights"};          // FlatMemory, as x and y are
        Array<std::uint32_t, 3> x{to, "x"};                      // and may be y

        static constexpr int input_interleaves = 1, output_interleaves = 2;  // bits of interleaves
        static constexpr int adds_one = 4;  // the bit of weight_kind: the weight is 1 + w
        static constexpr std::int32_t kind_of(Dtype weight) { return number_of(weight) + 1; }
    };

    /// What the road has besides where heads become records. Elements of groups that begin on 16 bytes are stored by
    /// quads in y, like those that are in no group. Of other groups each byte is stored by itself in `bytes`, as scales
    /// are.
    struct Records {
        Owner &to;
        Scalar<std::int32_t> most_groups{to, "most_groups"};  // of a head of any tensor
        Scalar<std::int32_t> most_bytes{to, "most_bytes"};    // of a head, that are stored by themselves
        OfTensors<std::int32_t> groups{to, "groups"};         // what GroupBits say; 0: the tensor has no records
        OfTensors<float> floor{to, "floor"};                  // of scales
        OfTensors<std::int32_t> rest_at{to, "rest_at"};  // from y_at to the elements that are in no group, in quads;
                                                         // or from the first scale to the groups, in bytes
        OfTensors<std::int64_t> scale_at{to,
                                         "scale_at"};  // bytes to a head's first scale: in `bytes`, from where y_at,
                                                       // y_head and so on lead, or without those by these strides
        OfTensors<std::int32_t> scale_head{to, "scale_head"}, scale_token{to, "scale_token"},
            scale_block{to, "scale_block"};
        OfTensors<std::int32_t> group_strides{to, "group_strides"};  // bytes from scale to scale; above stride_bits
                                                                     // those from group to group
    };
};

}  // namespace halyard
