/* Halyard's KV path: everything between a projection and a KV cache, in one pass with the rotation. The conventions of
 * halyard.h hold here too.
 *
 * How it is used. Give a tensor's description a halyard_kv_desc, and a run a halyard_kv_args. The KV path needs a CPU
 * with AVX2 and FMA, or with NEON; on other CPUs such a plan is a HALYARD_ERROR_TARGET_UNSUPPORTED.
 *
 * Stages. A tensor goes through the stages that its description asks for:
 *
 *     load (dtype, or records) -> norm -> rotate -> norm -> scale by position -> Hadamard
 *         -> scale, convert (out_dtype), or groups -> store (view, or cache by slot)
 *
 * Between load and store elements are f32. Elements beside the rotary window take every stage but the rotation.
 * Conversions round to nearest even and keep denormals; f16 and bf16 overflow to infinity.
 * The error of a result before conversion is at most c * 2^-23 * len * |p|. p is the scale by position, or 1.
 *   c    2
 *        + 4 + (n / 16 + 5) / 2 for a norm over n elements, whose sum is not compensated
 *        + 1/2 for a scale by position
 *        + 2 for a scale
 *   len  the length of the pair; with a norm BEFORE the rotation, of the normed and weighted pair; with a norm AFTER
 *        it, of the pair before the norm, times |r * weight| of the element.
 * Layer norms and Hadamard transforms add errors of their own, bounded below.
 * If a tensor has any stage beside the rotation and the store in a cache, or if its cache has tiles of elements, its
 * heads may have at most 2048 elements (else UNSUPPORTED), because a thread works in 112 KiB of its stack.
 * HALYARD_NORM_ROW takes rows of any length; rows of more than 8192 elements (layer norm: 4096) are read once more for
 * each sum. */
#ifndef HALYARD_KV_H
#define HALYARD_KV_H

#include "halyard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dtypes of 8 bits. E4M3, E5M2 and INT8 are allowed as out_dtype, and as dtype of a plan that rerotates. OCP E4M3 has
 * no infinities and 448 as its largest value, E5M2 57344. Every float is rounded to nearest even. E4M3 and E5M2 keep
 * subnormals and NaN. Larger values and infinities become the largest value. INT8 is clamped to [-128, 127], and a NaN
 * becomes 0. UINT8 is for the bytes of records, see Groups. */

/* ---- The stages of a plan -------------------------------------------------------------------------------- */

enum { HALYARD_NORM_RMS = 0, HALYARD_NORM_LAYER = 1 };
enum { HALYARD_NORM_HEAD = 0, HALYARD_NORM_ROW = 1 };     /* each head by itself; all heads of a token together */
enum { HALYARD_NORM_BEFORE = 0, HALYARD_NORM_AFTER = 1 }; /* the norm comes before or after the rotation */
/* Flags: the normed value is rounded to the input's dtype before it is multiplied by the weight, or after the weight
 * and the bias. Hugging Face's modules do both. */
enum { HALYARD_NORM_ROUND_BEFORE_WEIGHT = 1, HALYARD_NORM_ROUND_AFTER_WEIGHT = 2 };

/* RMS (arXiv:1910.07467): (v * r) * weight with r = 1 / sqrt(sum(v^2) / n + eps). Each operation is rounded to f32. The
 * order of the sum is fixed: partial sum i of 16 takes the elements i, i + 16, i + 32, … by fma; then partial sums i
 * and i + 8 are added, then i and i + 4, and so on. A sum that overflows gives r = 0. A head of zeros with eps = 0
 * gives NaN.
 *
 * LAYER (LayerNorm, arXiv:1607.06450): (c * r) * weight + bias with c = v - sum(v) / n, and r as for RMS, but of c.
 * Each operation is rounded, and sum(v) has the order of the RMS sum, without fma. Equal elements with eps = 0 give
 * NaN, or any number if their mean had to be rounded. A sum(v) that overflows gives NaN.
 * In the bound at the top of this file, len is computed with |c * r * weight| + |bias| in place of each element c * r *
 * weight + bias. AFTER the rotation, the pair's length before the norm, times |r * weight|, is added. The mean is
 * rounded, too: the normed value may be off by d * (1 + |c * r|) * |weight| more, with d = (n / 32 + 7) * 2^-23 * r * m
 * and m^2 the mean of v^2 (AFTER: the mean of the pairs' squared lengths, and for d <= 1/4 only). If elements
 * differ by less than their rounding errors, the normed values are meaningless, and only eps limits their error. */
typedef struct halyard_norm_desc {
    uint32_t size;
    int32_t kind;          /* HALYARD_NORM_RMS, or HALYARD_NORM_LAYER */
    int32_t width;         /* HALYARD_NORM_HEAD, or HALYARD_NORM_ROW */
    int32_t order;         /* HALYARD_NORM_BEFORE, or HALYARD_NORM_AFTER */
    int32_t weight_dtype;  /* HALYARD_F32, HALYARD_F16 or HALYARD_BF16; [0: there is no weight] */
    int32_t unit_offset;   /* 1: the weight is f32(1 + w) (Gemma). Needs a weight (else MISMATCH) */
    int32_t rounding;      /* flags HALYARD_NORM_ROUND_…; AFTER_WEIGHT needs a weight (else MISMATCH) */
    int32_t no_eps;        /* 1: eps is 0. The field eps must then be 0, too; without no_eps that means 1e-6 */
    double eps;            /* >= 0, rounded to f32 and finite there; [0: 1e-6] */
    int64_t window_offset; /* HALYARD_NORM_HEAD: the first element of a head that is normed. HALYARD_NORM_ROW: 0 */
    int64_t window_size;   /* HALYARD_NORM_HEAD: how many are normed [all from window_offset on]; the norm leaves the
                              others as they are. HALYARD_NORM_ROW: 0 */
    int32_t has_bias;      /* 1: there is a bias, one for each weight. Needs LAYER and a weight (else MISMATCH) */
    int32_t weight_per_head; /* 1: each head has weights of its own, [heads, window_size], and biases. Needs
                              HALYARD_NORM_HEAD and a weight (else MISMATCH) */
} halyard_norm_desc;

enum { HALYARD_SCALE_STATIC = 0, HALYARD_SCALE_DYNAMIC = 1 };
/* How many static scales there are: 1, or one for each head. */
enum { HALYARD_SCALE_PER_TENSOR = 0, HALYARD_SCALE_PER_HEAD = 1 };

/* stored = convert(v * r), r = f32(1 / scale): so value = stored * scale.
 * STATIC: the caller passes the scales to a run. DYNAMIC, for outputs of 8 bits only: the run writes a scale for each
 * head of each token, f32(m / M) with m the greatest finite |v| and M the greatest number of out_dtype. The scale is 1
 * where no v is finite, m is 0, or f32(m / M) is not a normal number. */
typedef struct halyard_scale_desc {
    uint32_t size;
    int32_t kind;     /* HALYARD_SCALE_STATIC, or HALYARD_SCALE_DYNAMIC */
    int32_t per;      /* HALYARD_SCALE_PER_…; 0 for dynamic scales */
    int32_t reserved; /* 0 */
} halyard_scale_desc;

/* A cache of out_dtype, in blocks (pages) of block_size slots each: slot s is token t = s mod block_size of block
 * s / block_size. Element d of token t and head h of that block is, in elements from the cache's first one, at
 *
 *     block * stride_block + h * stride_head + (t / tile_tokens) * stride_tile_tokens + (t % tile_tokens) *
 *                     stride_token + (d / tile_elements) * stride_tile_elements + (d % tile_elements) * stride_element
 *
 * Common layouts, with H heads, D = head_dim and bs = block_size; fields that are not named stay 0:
 *     [slots, H, D]            n_slots = block_size, stride_head = D, stride_token = H D
 *     [blocks, bs, H, D]       stride_block = bs H D, stride_head = D, stride_token = H D
 *     [blocks, H, bs, D]       stride_block = H bs D, stride_head = bs D, stride_token = D
 *     [blocks, H, D, bs]       the same, stride_token = 1, stride_element = bs
 *     [blocks, H, D/x, bs, x]  the same, stride_token = x, tile_elements = x, stride_tile_elements = bs x
 * Strides that could give two elements one address are refused (STRIDE). The check is strict: like the check of
 * outputs, it refuses some harmless strides, too. */
typedef struct halyard_cache_desc {
    uint32_t size;
    int32_t reserved;              /* 0 */
    int64_t n_slots;               /* >= 1, a multiple of block_size */
    int64_t block_size;            /* >= 1 [n_slots: one block] */
    int64_t stride_block;          /* in elements, any sign */
    int64_t stride_head;           /* in elements, any sign */
    int64_t tile_tokens;           /* >= 1 [block_size] */
    int64_t stride_tile_tokens;    /* in elements, >= 0 as all strides within a block */
    int64_t stride_token;
    int64_t tile_elements;         /* >= 1 [head_dim] */
    int64_t stride_tile_elements;
    int64_t stride_element;        /* [1] */
} halyard_cache_desc;

/* Re-rotation (K-shift). Keys that were rotated for position P are rotated to position Q, as when a context shifts or a
 * cached prefix is used again: pair k rotates by Q * inv_freq[k] - P * inv_freq'[k], with inv_freq of the run's angles
 * and inv_freq' of its from_angles. This difference is computed in fixed point, not from two rounded angles, and its
 * cos and sin are within 1.2e-7. Every P and Q of 32 bits is valid, whatever range the angle sources cover.
 * If angles and from_angles are one source, attention_factor is not applied again. Else keys are multiplied by the
 * factor of angles over that of from_angles. Keys of a tensor with a cache are read from their slots and written back,
 * in any layout. Other tensors are views, in place or not. Input and output have the same dtype, which may be any.
 * Static scales are not applied, because they would cancel: stored elements w rotate to w', which is stored as
 * convert(w'). Dynamic scales are read, and replaced: s' = f32(s * f32(m / M)) with m the greatest finite |w'| and
 * M the greatest number of dtype, or 1 in the cases of other dynamic scales. Then convert(w' * f32(s / s')) is stored.
 * The error of a result before conversion is at most 2 * 2^-23 times its pair's length.
 * Each re-rotation rounds, and the errors add up. So rotate keys of few bits seldom and far, because a slow pair that
 * rotates by less than half an ulp does not change at all. In a plan that rerotates, tensors cannot have a norm,
 * no_rotation, position_scales, another out_dtype or another out_pairing (else MISMATCH). */

/* Hadamard. Quantised caches keep keys and values that a Hadamard transform has spread over the head, so that no
 * element stands out. The transform is Sylvester's and orthonormal, so it is its own inverse; for attention, q must be
 * transformed in the same way. Each n elements, from the head's first on, are multiplied by f32(1 / sqrt(n)). Then all
 * u and v that lie 1 apart become u + v and u - v, then those 2, 4, … apart: the order and bits of ggml. The error of a
 * result is at most (log2(n) + 2) / 2 * 2^-23 times the length of the n elements, plus the length of their errors
 * before the transform. A plan that rerotates undoes the transform before the rotation and does it again after it. */

/* Groups. A quantised cache stores a head as a record of bytes: elements in groups, a scale s for each group, and
 * perhaps a zero point z. Tensors of records have HALYARD_UINT8 as their dtype and record_bytes as their last
 * dimension, whose bytes are contiguous, in caches too. A preset is a record's format. Let v be the elements of a group
 * as the other stages leave them. In f32, with each operation rounded:
 *
 *     int8, e4m3      s = max(largest |v| / M, floor); M is 127 or 448          q = round(v * r), int8 to -128 … 127
 *     GGML_Q4_0       s = (the v of largest |v|, the first of equals) / -8      q = trunc(v * r + 8.5), to 0 … 15
 *     OPENVINO_U8     s = (max - min) / M, or 1e-4 if that is 0; z = -min / s   q = round(fma(v, r, z)), to 0 … M
 *     and _U4         M is 255 or 15
 *
 * Read back, v is q * s (line 1), (q - 8) * s (line 2) or (q - z) * s, with s and z as stored. r is 1 / s, before s is
 * rounded to f16; for GGML_Q8_0 it is 127 / largest |v|. By default floor is 0, and halves round to even.
 * An s or z that overflows, as f32 or as f16, becomes the largest finite number; z and r are computed from such an s.
 * An s stored as E8M0 is a power of two, 2^-127 … 2^127: s rounded up, or for MX 2^(floor(log2(largest |v|)) - 8). Then
 * r is 1 / s as stored.
 * A v that is not finite does not count for s and z. A NaN is stored as a v of 0, and an infinity as the nearest q. If
 * no v is finite, s and z are those of zeros. +0 and -0 are equal in max and min. If r would not be finite, r is 0 and
 * every v counts as 0.
 * No bound is given for the error of quantisation; the bounds of v are those of the other stages. All bytes are the
 * same on every target. */
enum {
    HALYARD_GROUPS_GGML_Q8_0 = 1,           /* 34 bytes for 32 elements: f16 s, then int8; as ggml on x86 */
    HALYARD_GROUPS_GGML_Q8_0_NEON = 2,      /* the same with r = 1 / s, as ggml on ARM */
    HALYARD_GROUPS_GGML_Q8_0_REFERENCE = 3, /* as _NEON, halves away from zero: ggml's portable code */
    HALYARD_GROUPS_GGML_Q4_0 = 4,           /* 18 bytes for 32 elements: f16 s, then 4 bits each: a byte has q of
                                             * element i in the low nibble, of i + 16 in the high one */
    HALYARD_GROUPS_VLLM_INT8 = 5,           /* int8 per head, half away from zero, floor 1e-6; f32 scales outside
                                             * the record, [blocks, block_size, heads] */
    HALYARD_GROUPS_VLLM_FP8 = 6,            /* e4m3 per head, floor 1e-6; scales likewise */
    HALYARD_GROUPS_OPENVINO_U8 = 7,         /* f32 s, f32 z, a head of bytes. OpenVINO (2026.4, x86) writes these bytes
                                             * if head_dim is a multiple of 16: for values, and for keys with
                                             * KEY_CACHE_QUANT_MODE BY_TOKEN, which is not its default */
    HALYARD_GROUPS_OPENVINO_U4 = 8,         /* the same in nibbles, even elements in the high ones; head_dim is even */
    HALYARD_GROUPS_MLA_V32 = 9,             /* DeepSeek V3.2: 512 e4m3, 4 f32 scales for 128 each, then 64 bf16; the
                                             * floor is f32(1e-4) / 448, as in the next two presets */
    HALYARD_GROUPS_MLA_V4 = 10,             /* V4: 448 e4m3, then 64 bf16; 7 E8M0 scales for 64 each, outside */
    HALYARD_GROUPS_MLA_V41 = 11,            /* V4.1: 512 e4m3; 16 E8M0 scales for 32 each, outside */
    HALYARD_GROUPS_MX = 12                  /* OCP MXFP8: an E8M0 scale, then 32 e4m3 */
};

typedef struct halyard_groups_desc {
    uint32_t size;
    int32_t preset; /* HALYARD_GROUPS_… */
    /* Strides, in bytes, of scales outside the record, which lie in a run's group_scales: between blocks of the cache,
     * slots of a block, and heads; for a view between batch rows, tokens and heads. [All 0: dense, [blocks, block_size,
     * heads, n_groups].] Must be 0 if the preset's scales lie in the record (else MISMATCH). */
    int64_t scales_stride_block, scales_stride_token, scales_stride_head;
} halyard_groups_desc;

/* The layout of a record, in bytes. The elements of group g are at data_offset + g * data_stride, its scale is at
 * scale_offset + g * scale_stride. */
typedef struct halyard_groups_info {
    uint32_t size;
    int32_t scales_apart; /* 1: scales lie outside the record, and scale_offset (0) counts from a head's first one */
    int64_t record_bytes;
    int64_t n_groups, group; /* groups of a head, elements of a group */
    int64_t data_offset, data_stride;
    int64_t scale_offset, scale_stride;
    int64_t zero_offset; /* OPENVINO_…: where the f32 z of the head's one group is; else 0 */
    int64_t raw_offset;  /* MLA_V32 and MLA_V4: where the last 64 elements are, as bf16; else 0 */
} halyard_groups_info;

/* Fills in *info (its size must be set) with the layout of a preset's records for heads of head_dim elements, so that a
 * caller can allocate them. Errors: UNKNOWN_VALUE (preset), SHAPE (a head_dim that no such record holds), UNSUPPORTED
 * (a head_dim of more than 2048), NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_groups_info(int32_t preset, int64_t head_dim, halyard_groups_info *info,
                                                   halyard_error *error);

/* A tensor's stages beside the rotation, in the order of Stages above; fields that a later version adds come last. A
 * pointer that is NULL means that the tensor does not have that stage. Read during the call only.
 * Errors that halyard_create_plan returns for it: SHAPE (a cache, hadamard, records), WINDOW (of a norm), SCALE (eps),
 * STRIDE and OVERFLOW (a cache), MISMATCH (fields that contradict each other, or rerotates), UNSUPPORTED (head_dim). */
struct halyard_kv_desc {
    uint32_t size;
    int32_t no_rotation;     /* 1: the tensor takes every stage but the rotation, as v does; its pairings and
                                rotary_offset are not read */
    const halyard_groups_desc *from_groups; /* the format of the input's records; the tensor's dtype must then be
                                HALYARD_UINT8 [HALYARD_UINT8]. NULL: the input has no records. Not together with a norm
                                with rounding (else MISMATCH) */
    const halyard_norm_desc *norm;
    int32_t position_scales; /* 1: a run takes a number s for each token and head, and every element v, also beside the
                                window, becomes f32(s * v), as some models do to q (see q_scale_rule). The same
                                product is taken with HALYARD_INVERSE, and with no_rotation */
    int32_t hadamard;        /* n: a Hadamard transform of each n elements of a head, see Hadamard; a power of two, 2 or
                                more, that divides head_dim (else SHAPE) [0: none] */
    const halyard_scale_desc *scale;
    const halyard_groups_desc *groups; /* the format of the output's records; then there is no scale (else MISMATCH). In
                                a plan that rerotates it is the input's format, too, and from_groups is NULL: scales
                                outside the records are read from group_scales and replaced there */
    int32_t out_dtype;       /* the output's dtype, any [the tensor's dtype]; with groups only HALYARD_UINT8
                                [HALYARD_UINT8] */
    int32_t reserved;        /* 0 */
    const halyard_cache_desc *cache; /* where the output goes; NULL: into the run's y */
};

/* ---- The arguments of a run ------------------------------------------------------------------------------ */

/* Computes the factor of q at each position, for frequencies with a q_scale_rule; runs take these as position_scales.
 * Each is rounded correctly from twice double precision. Allocates nothing.
 *   positions  of one axis, each 0 … 2^31 - 1.                Else POSITION. NULL: 0, 1, 2, … in every batch row.
 *   n_batch    >= 0, as is n_tokens.                          Else SHAPE.
 *   out        [n_batch, n_tokens] dense, aligned to its floats; may be NULL where there are no tokens.
 *   n_floats   the capacity of out, >= n_batch * n_tokens.    Else SHAPE.
 * Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE, OVERFLOW, POSITION (a negative one, or one outside int32),
 * OVERLAP (out and positions), MISMATCH (the frequencies have no such rule). */
HALYARD_API halyard_status halyard_make_position_scales(const halyard_frequencies *frequencies,
                                                        const halyard_positions *positions, int64_t n_batch,
                                                        int64_t n_tokens, float *out, int64_t n_floats,
                                                        halyard_error *error);

/* What a run does if two tokens have one slot. CHECK: it fails with HALYARD_ERROR_SLOT. RANGE_ONLY: it stores the later
 * token, in [batch, tokens] order, with any number of threads. */
enum { HALYARD_SLOTS_CHECK = 0, HALYARD_SLOTS_RANGE_ONLY = 1 };

/* Where tokens go in caches: one slot for each. -1: the token is not stored in caches; outputs that are views are still
 * written. If no output is a view, the positions of such tokens are not checked, so that padding may have any. Any
 * other number must be a slot of each of the plan's caches (else HALYARD_ERROR_SLOT, before anything is written). If
 * every tensor with a cache has 0 heads, the slots are not read. */
typedef struct halyard_slots {
    uint32_t size;
    int32_t type;          /* HALYARD_INT32 or HALYARD_INT64 */
    int32_t policy;        /* HALYARD_SLOTS_CHECK or HALYARD_SLOTS_RANGE_ONLY; to rerotate, CHECK (else MISMATCH) */
    int32_t consecutive;   /* 0: data holds every token's slot. 1: data holds a start for each batch row, shape {batch,
                              1}, and token t has slot start + t; after a start of -1 no token of the row is stored */
    const void *data;      /* any alignment */
    int64_t shape[2];      /* {batch, tokens} */
    int64_t strides[2];    /* in elements, any sign */
    void *scratch;         /* CHECK only: working memory of the caller's. Nothing else in this run may use it, nor any
                              other call or part at the same time. Any contents, any alignment. */
    int64_t scratch_bytes; /* at least n_slots / 8 of the plan's smallest cache, rounded up; else SHAPE */
} halyard_slots;

/* The arguments of a run for the stages of one tensor: set just those of the tensor's stages; all others must be 0
 * (else MISMATCH, or SHAPE for a count). */
typedef struct halyard_stages {
    uint32_t size;
    int32_t reserved;         /* 0 */
    const void *from_group_scales; /* the scales outside the records of from_groups, from token 0, head 0; any alignment
                                      */
    const void *weight;       /* the norm's weights, of its weight_dtype, dense, any alignment */
    const void *bias;         /* the norm's biases, likewise, in the order of the weights */
    int64_t n_weights;        /* window_size; weight_per_head: heads * window_size; HALYARD_NORM_ROW: heads * head_dim.
                                 In element order of the input for a norm BEFORE the rotation, else of the output */
    const float *position_scales;      /* [batch, tokens, heads] finite numbers (else SCALE), any alignment */
    int64_t stride_position_scales[3]; /* in elements: batch, token, head; any sign, 0 shares one */
    const float *scales;      /* STATIC, dense */
    int64_t n_scales;         /* 1, or heads */
    float *scales_out;        /* DYNAMIC: [batch, tokens, heads]; with a cache [slots, heads], and tokens without a slot
                                 write none. A plan that rerotates reads them first: the scale of each token that it
                                 rotates and its reciprocal must be positive and finite (else SCALE) */
    int64_t stride_scales[3]; /* in elements: batch, token, head; with a cache 0 (else MISMATCH), slot, head */
    void *group_scales;       /* the scales outside the records of groups, from slot or token 0, head 0 */
    void *cache;              /* the first element of slot 0 and head 0, any alignment */
} halyard_stages;

/* The arguments of a run beside tensors, positions and angles: set just what its plan's stages need; all else must be
 * NULL (else MISMATCH). y of a tensor with a cache is not read. If the plan rerotates, only dtype and shape are read of
 * such a tensor's x, not its data and strides. Positions, slots and scales are checked before the first write.
 * Outputs, caches and scales that are written must not overlap any of the memory that is read here (else OVERLAP).
 * Errors, beside those of halyard_run: SLOT, SCALE, MISMATCH (what the plan does not need; angle sources that cannot
 * re-rotate). A bound run takes other memory by the same structs: it reads only their pointers (data, scratch, those
 * in stages), which must be NULL where they were NULL when it was bound. It keeps the from_angles of its binding. */
struct halyard_kv_args {
    uint32_t size;
    int32_t reserved;                    /* 0 */
    const halyard_stages *stages;        /* [n_tensors]; NULL if the plan asks for none */
    const halyard_slots *slots;          /* where tokens go in the plan's caches; NULL if it has none */
    const halyard_positions *from_positions; /* for plans that rerotate, else NULL: the positions that keys have now
                                            (they get those of `positions`) */
    const halyard_angle_source *from_angles; /* likewise: the source that keys were rotated with [angles]. Both
                                            sources must have reference EXACT and not be GIVEN, and bad_position
                                            must be ERROR (else MISMATCH) */
};

#ifdef __cplusplus
}
#endif

#endif /* HALYARD_KV_H */
