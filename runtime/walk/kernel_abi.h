/* How a generated kernel is called, from C11 or C++17. This text is a part of every emitted halyard_kernels.h.
 *
 * Arrays are passed as halyard_buffer, laid out as Halide's halide_buffer_t (HalideRuntime.h, stable since 2016) under
 * a name of its own: Halide's headers are not needed, and may be included too. Here an array is written with its
 * dimensions in the order of `dim`: float [pairs, rows] has its pairs in dim[0].
 *
 * Kernels check nothing. They read `host` and `dim` of a buffer, `extent` and `stride` of a dimension, and no other
 * field. Extents are at least 1, element offsets from `host` at most 2^31 - 1, and dim[0] has stride 1 where nothing
 * else is said. The arrays of halyard_rotate, but for row_of_token, may lie at any address, and so may x, y, r,
 * weight and bias below; all others are aligned as their elements are in C. A kernel needs a CPU with what its target
 * names, keeps no state and calls nothing, so that calls which write different elements may run at once. It returns 0.
 */
#ifndef HALYARD_KERNEL_ABI_H
#define HALYARD_KERNEL_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct halyard_dimension {
    int32_t min; /* not read */
    int32_t extent;
    int32_t stride; /* from one element to the next, in elements */
    uint32_t flags; /* not read */
} halyard_dimension;

typedef struct halyard_buffer {
    uint64_t device;              /* not read */
    const void *device_interface; /* not read */
    uint8_t *host;                /* the first element: all indices 0 */
    uint64_t flags;               /* not read */
    uint32_t type;                /* not read */
    int32_t dimensions;           /* not read */
    halyard_dimension *dim;
    void *padding; /* not read */
} halyard_buffer;

/* halyard_rotate_<pairing>_<dtype>[_in_place]_<target> turns pair k of each head by the angle in its token's row:
 *
 *     y0 = x0 cos - x1 sin        y1 = x0 sin + x1 cos
 *
 *   row_of_token  int32 [tokens]        the row of each token, 0 to rows - 1
 *   cos_rows      float [pairs, rows]   cos of the angles, times attention_factor if there is one
 *   sin_rows      float [pairs, rows]   sin likewise
 *   sin_sign      0, or 0x80000000 to turn by minus the angle (the inverse)
 *   x, y          dtype [pairs, 2, heads, tokens]   dim[1] are the two members of a pair
 *
 * Strides of x and y between heads and between tokens are free, so columns beside the pairs can be stepped over;
 * nothing but the pairs is read or written. The pairing sets the strides between pairs and between members:
 *
 *     half                  1 and any number (rotary_dim / 2 as a rule)     NeoX, Llama in Hugging Face layout
 *     interleaved           2 and 1                                         GPT-J, Llama in Meta layout
 *     half_to_interleaved   x is half, y interleaved
 *     interleaved_to_half   x is interleaved, y half
 *     strided               any and any
 *
 * With _in_place the result replaces x: pass one buffer as both. Else x and y share no element.
 * f16 is IEEE 754 binary16; bf16 is the upper half of an f32. Both are two bytes.
 *
 * The bf16 kernels of half and of interleaved are packed: to them an element of x and y is a word of two neighbouring
 * bf16. All strides are counted in words, so those in bf16 have to be even.
 *     half          x and y are [pairs / 2, 2, heads, tokens], with strides 1 and half that in bf16; pairs are even
 *     interleaved   x and y are [pairs, 1, heads, tokens], with stride 1: a word is a pair
 * The rows of cos and sin are no different for them: [pairs, rows].
 */
typedef int halyard_rotate_kernel(halyard_buffer *row_of_token, halyard_buffer *cos_rows, halyard_buffer *sin_rows,
                                  uint32_t sin_sign, halyard_buffer *x, halyard_buffer *y);

/* halyard_rows_phase_<target> makes rows of cos and sin from positions and frequencies, at any position:
 *
 *   position      int32 [tokens]
 *   turns_high    uint32 [pairs]   the upper half of a 64-bit number: inv_freq / (2 pi) turns per position, less whole
 *   turns_low     uint32 [pairs]   turns, times 2^64; and its lower half
 *   scale_high    attention_factor as a float, else 1
 *   scale_low     what that float lacks of attention_factor, else 0
 *   rows          float [pairs, 2, tokens]   the results: cos at 0 and sin at 1 of dim[1]
 */
typedef int halyard_rows_phase_kernel(halyard_buffer *position, halyard_buffer *turns_high, halyard_buffer *turns_low,
                                      float scale_high, float scale_low, halyard_buffer *rows);

/* halyard_rows_factored_<target> makes rows of cos and sin of a sum of two angles, from a row of each:
 *
 *   coarse_row    int32 [tokens]   the row of each token's first angle in coarse
 *   fine_row      int32 [tokens]   and of its second angle in fine
 *   coarse        float [pairs, 2, rows]   cos at 0 and sin at 1 of dim[1]
 *   fine          float [pairs, 2, rows]   likewise, with rows and strides of its own
 *   rows          float [pairs, 2, tokens]   the results, likewise
 */
typedef int halyard_rows_factored_kernel(halyard_buffer *coarse_row, halyard_buffer *fine_row, halyard_buffer *coarse,
                                         halyard_buffer *fine, halyard_buffer *rows);

/* What else happens to a tensor between its load and its store. Strides of heads and of tokens are free, and may be 0
 * in what is only read. x and y share no element unless said otherwise. dtypes are those of halyard.h.
 *
 * halyard_widen_<dtype>_<target> makes floats of elements:
 *
 *   x    dtype [elements, heads, tokens]
 *   y    float [elements, heads, tokens]
 */
typedef int halyard_widen_kernel(halyard_buffer *x, halyard_buffer *y);

/* halyard_narrow_<dtype>_<target> rounds x r to a dtype, as halyard.h says:
 *
 *   x    float [elements, heads, tokens]
 *   r    float [elements, heads, tokens]   any strides: of 0 where elements, heads or tokens share a scale; dim[0] of 0
 *                                          and of 1 are fast
 *   y    dtype [elements, heads, tokens]
 */
typedef int halyard_narrow_kernel(halyard_buffer *x, halyard_buffer *r, halyard_buffer *y);

/* halyard_norm_<dtype>_<target> divides each head by the root of its mean square, each operation rounded to float:
 *
 *     y = x (1 / sqrt(sum / n + eps)) weight
 *
 * with a sum of squares that has one order: partial sum i of 16 takes elements i, i + 16, ... by fused multiply-adds;
 * then i takes i + 8, i + 4, i + 2 and i + 1.
 *
 *   weight     float [elements, heads]
 *   n          elements of a head that count, as a float
 *   eps        is added to the mean
 *   rounding   whether the values are rounded to dtype, f16 or bf16: 1 before they are multiplied by the weight, 2
 *              after it, 3 both, 0 neither. norm_f32 does not read it.
 *   x          float [elements, heads, tokens]   elements are a multiple of 16, of which all from n on are zero
 *   y          float [elements, heads, tokens]   may be x, with the same strides
 *
 * halyard_widen_norm_<dtype>_<target> is the same for an x of that dtype, and then y is not x.
 */
typedef int halyard_norm_kernel(halyard_buffer *weight, float n, float eps, int32_t rounding, halyard_buffer *x,
                                halyard_buffer *y);
typedef halyard_norm_kernel halyard_widen_norm_kernel;

/* halyard_layer_norm_<dtype>_<target> takes the mean off before that, and adds a bias, each operation rounded to float:
 *
 *     c = x - sum(x) / n        y = (c (1 / sqrt(sum(c^2) / n + eps))) weight + bias
 *
 * with both sums in the order of halyard_norm, that of x by additions. All else is as there, but for
 *
 *   rounding   2 is after the bias
 *   bias       float [elements, heads]   -0.0 changes nothing
 */
typedef int halyard_layer_norm_kernel(halyard_buffer *weight, float n, float eps, int32_t rounding,
                                      halyard_buffer *bias, halyard_buffer *x, halyard_buffer *y);

/* halyard_norm_rotate_<dtype>_<target> is halyard_widen_norm, halyard_rotate of whole heads in half pairing, and
 * halyard_narrow to the same dtype, at once and with the same bits:
 *
 *   weight       float [pairs, 2]   of elements 0 … pairs - 1, and of the others
 *   eps          is added to the mean
 *   row_of_token, cos_rows, sin_rows, sin_sign   as of halyard_rotate
 *   x, y         dtype [pairs, 2, heads, tokens]   pairs are a multiple of 16; y may be x, with the same strides
 */
typedef int halyard_norm_rotate_kernel(halyard_buffer *weight, float eps, halyard_buffer *row_of_token,
                                       halyard_buffer *cos_rows, halyard_buffer *sin_rows, uint32_t sin_sign,
                                       halyard_buffer *x, halyard_buffer *y);

/* halyard_largest_f32_<target> finds the largest magnitude of each head's finite elements, 0 if there is none:
 *
 *   x    float [elements, heads, tokens]   elements are a multiple of 16
 *   y    float [heads, tokens]             aligned as floats are
 */
typedef int halyard_largest_kernel(halyard_buffer *x, halyard_buffer *y);

/* halyard_range_f32_<target> finds the least and the greatest of each head's finite elements, 0 if there is none, and 0
 * where it is -0:
 *
 *   x                 float [elements, heads, tokens]   elements are a multiple of 16
 *   least, greatest   float [heads, tokens]             aligned as floats are
 */
typedef int halyard_range_kernel(halyard_buffer *x, halyard_buffer *least, halyard_buffer *greatest);

/* halyard_quantise_<dtype>_<target> makes bytes of the elements of groups, which stand in the place of heads. e4m3 and
 * e5m2 are x r, rounded as halyard_narrow does; int8 is the low byte of an integer. An x that is NaN counts as 0, and so
 * does all of a group whose r is 0.
 *
 *   mode        of int8, as the next two and z: 0, x r + z rounded once to the nearest integer, of two the even one;
 *               1, x r to the nearest, of two the one away from 0; 2, x r + z, rounded twice and then towards 0
 *   low, high   what integers are clamped to: integers within -2^15 … 2^16
 *   x           float [elements, groups, tokens]   16 elements or more
 *   r           float [groups, tokens]   finite
 *   z           float [groups, tokens]   finite, any strides
 *   y           uint8 [elements, groups, tokens]
 */
typedef int halyard_quantise_kernel(int32_t mode, float low, float high, halyard_buffer *x, halyard_buffer *r,
                                    halyard_buffer *z, halyard_buffer *y);

/* halyard_hadamard_f32_<target> multiplies blocks of 64 elements by scale, and then makes of each u and v that lie 1, 2,
 * 4, 8, 16 and 32 apart u + v and u - v, in this order:
 *
 *   x, y   float [64, blocks]   y may be x, with the same strides
 *
 * halyard_butterfly_f32_<target> does so for one distance more:
 *
 *   x, y   float [distance, 2, pairs of blocks]   u at 0 and v at 1 of dim[1]; the distance is a multiple of 16
 */
typedef int halyard_hadamard_kernel(float scale, halyard_buffer *x, halyard_buffer *y);
typedef int halyard_butterfly_kernel(halyard_buffer *x, halyard_buffer *y);

#ifdef __cplusplus
}
#endif

#endif
