// Stages: what is done to a tensor's elements beside the rotation, between load and store. Each stage goes over a block
// of floats that fits in the first-level cache.
#pragma once

#include "base/storage.h"
#include "walk/dispatch.h"
#include "walk/piece.h"

#include <cstdint>

namespace halyard {

// A stage calls the target's kernel. A portable loop does it where there is no kernel, and where an element stride is
// not 1 or offsets need more than 32 bits. Both give the same bits. Operands share no element unless a stage says
// otherwise. They may lie at any address.

/// Kernels that reduce heads take this many elements at once, and the one that norms and rotates as many pairs.
inline constexpr std::int64_t whole_vectors = 16;

/// Makes floats of elements.
void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const char> &x,
           const Elements<float> &block) noexcept;

/// When a normed value is rounded. Bits.
inline constexpr std::int32_t round_before_weight = 1, round_after_weight = 2;

/// An RMS norm: v (1 / sqrt(mean of v^2 + eps)) weight, each operation rounded to float. The sum has one order, which
/// kernel_abi.h states. A result is within (n / 64 + 3.5) eps_f32 of the exact one, relative to it: half of what the
/// sum (n / 16 roundings of a partial sum, four of the tree), the mean and eps round, and whole that of the root, the
/// quotient and two products. Rounding to a dtype comes on top.
///
/// A layer norm: (c (1 / sqrt(mean of c^2 + eps))) weight + bias, c = v - mean of v. With u = eps_f32 / 2, s = 1 /
/// sqrt(mean of c^2 + eps) and z = |c s|, all exact, a result is within
///
///     (n / 64 + 4.5) eps_f32 |c s weight| + u |result| + (n / 16 + 5) u A s (1 + z / 3) |weight|
///
/// of the exact one. First what an RMS norm rounds, and each c (once itself, and half of twice in the mean of squares);
/// then the last sum. The mean of v is off by D, at most (n / 16 + 5) u of A, the mean of |v|: n / 16 roundings of a
/// partial sum, four of the tree, and the quotient. All c are D off; and as the exact c add up to 0, the mean of
/// squares grows by D^2, so that s becomes s / sqrt(1 + t^2), t = D s. That is off by less than t / 3 of s, whatever t
/// is.
struct Norm {
    float eps;
    const float *weight;              // [n_heads][n_elements], the elements dense; 1 + w where that is meant
    std::int64_t stride_weight_head;  // 0 where heads share it
    std::int32_t rounding;            // round_before_weight and round_after_weight
    Dtype round_to;                   // f16 or bf16, where rounding is not 0; for f32 it changes nothing
    const float *bias = nullptr;      // of a layer norm, as weight; -0.0 where there is none. NULL: it is an RMS norm

    Elements<const float> weights() const { return {weight, {1, stride_weight_head, 0}}; }
    Elements<const float> biases() const { return {bias, {1, stride_weight_head, 0}}; }
};

/// Norms each head of a block in place. A norm of whole rows is that of one head.
void normalise(const StageKernels &kernels, const Norm &norm, const Extents &extents,
               const Elements<float> &block) noexcept;

/// The portable norm of a row, which may come in pieces: round by round, all pieces in each. A layer norm has a round
/// for its mean. Then there is one for the sum of squares, and one in which the elements are normed.
class RowNorm {
public:
    explicit RowNorm(bool is_layer) noexcept : sums_elements_(is_layer) {}

    /// Whether this round changes no elements.
    bool is_summing() const noexcept { return is_summing_; }

    /// Takes the next n elements. The weights of `norm` are theirs; sums don't read them.
    void take(const Norm &norm, std::int64_t n, float *elements, std::int64_t stride = 1) noexcept;

    /// Ends a round; false after the last.
    bool end_round(float eps) noexcept;

private:
    float sums_[16] = {};
    std::int64_t n_ = 0;  // elements of this round
    bool sums_elements_, is_summing_ = true;
    float mean_ = 0.0f, scale_ = 0.0f;
};

/// widen and normalise in one pass, which costs little more than widen alone.
void widen_and_normalise(const StageKernels &kernels, Dtype dtype, const Norm &norm, const Extents &extents,
                         const Elements<const char> &x, const Elements<float> &block) noexcept;

/// widen_and_normalise, the rotation and narrow in one pass, for whole heads in half pairing whose output has the dtype
/// of the input. y may be x if the strides are the same. It is an RMS norm, whose rounding is 0 but for f32. A head has
/// at most max_staged_head elements.
void norm_and_rotate(const StageKernels &kernels, const Norm &norm, const Piece &piece) noexcept;

/// The largest magnitude of the finite elements of each head, 0 where there is none: [token][head], dense.
void find_largest(const StageKernels &kernels, const Extents &extents, const Elements<const float> &block,
                  float *largest) noexcept;

/// The least and the greatest of the finite elements of each head, 0 where there is none: [token][head], dense. No zero
/// has a sign.
void find_range(const StageKernels &kernels, const Extents &extents, const Elements<const float> &block, float *least,
                float *greatest) noexcept;

/// The orthonormal Hadamard transform (Sylvester's) of each n = 2^i elements of some that lie one after the other, in
/// place: all are multiplied by 1 / sqrt(n), and then u and v that lie 1, 2, 4, … apart become u + v and u - v. It is
/// its own inverse. Each of the log2(n) sums and the product round; together they are off by at most (log2(n) + 2) / 2
/// eps_f32 of the length of the n elements, since a transform keeps the length of what an earlier one has rounded.
void transform(const StageKernels &kernels, std::int64_t n, std::int64_t n_elements, float *elements) noexcept;

/// y = block times r, rounded to a dtype. Strides of r may be 0; without scales r is 1.
void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &block,
            const Elements<const float> &r, const Elements<char> &y) noexcept;

/// How numbers of a group become its elements.
struct Quantisation {
    Dtype dtype;  // e4m3, as narrow rounds it; or int8: integers, of which the low byte is kept
    /// Of integers. even: fma(v, r, z), to nearest even. away: v r, halves away from zero; z is not read. offset: v r +
    /// z, each rounded to float, and then towards zero.
    enum class Mode : std::int32_t { even, away, offset } mode;
    float low, high;  // what integers are clamped to: integers themselves, within -2^15 … 2^16
};

/// y = the elements of groups, which stand in the place of heads: one byte each. A NaN counts as 0, as does every v of
/// a group whose r is 0. r and z are [token][head], y is [token][head][element], all dense. r and z are finite. z is
/// read of integers only, but not by halves away from zero; without z it is 0.
void quantise(const StageKernels &kernels, const Quantisation &how, const Extents &extents,
              const Elements<const float> &block, const float *r, const float *z, unsigned char *y) noexcept;

/// ggml's q8_0, as most caches of llama.cpp have it: groups of 32 integers with an f16 scale each, the largest
/// magnitude / 127. Such groups are stored and loaded in one step where they lie.
inline constexpr std::int64_t q8_group = 32;

struct Q8 {
    enum Reciprocal : std::int32_t { of_stored, of_scale, of_largest } reciprocal;  // of halyard_store_groups_kernel
    bool away;                                                                      // halves are rounded away from zero
};

/// Stores heads as [group][element] in y, and the groups' scales, whose strides are in units of 2 bytes. Groups stand
/// in the place of heads, and heads in that of tokens. heads are dense and at most 256 groups. False where a NaN, an
/// infinity or a scale that overflows is among them: then everything has to be written again, by the stages above. They
/// give the same bits where this says true.
bool store_q8(const StageKernels &kernels, const Q8 &q8, const Extents &extents, const float *heads,
              const Elements<char> &y, const Elements<char> &scales) noexcept;

/// Makes floats of such groups.
void load_q8(const StageKernels &kernels, const Extents &extents, const Elements<const char> &x,
             const Elements<const char> &scales, float *heads) noexcept;

}  // namespace halyard
