/* Halyard: rotary position embedding (RoPE) kernels, compiled ahead of time. The C ABI.
 *
 * What it computes. A head vector of head_dim elements holds rotary_dim / 2 pairs (x0, x1) in a window
 * [rotary_offset, rotary_offset + rotary_dim). Pair k of the token at position p is turned by the angle
 * theta = p * inv_freq[k] (RoFormer, arXiv:2104.09864, eq. 34), scaled by attention_factor f:
 *
 *     y0 = f * (x0 cos theta - x1 sin theta)        y1 = f * (x0 sin theta + x1 cos theta)
 *
 * The inverse turns by -theta and keeps f. Elements outside the window are copied (out of place) or left
 * alone (in place). Two pairings say where the members of pair k lie, counted from the window's start:
 *
 *     half         (k, k + rotary_dim/2)    a0 a1 a2 a3 b0 b1 b2 b3    NeoX, Llama in Hugging Face layout
 *     interleaved  (2k, 2k + 1)             a0 b0 a1 b1 a2 b2 a3 b3    GPT-J, Llama in Meta layout
 *
 * How it is used. Make halyard_frequencies (from a base, a list or a model's config), then a halyard_angle_source (cos
 * and sin for those frequencies; shared by all layers), then a halyard_plan (checked once, resolved to kernels), and
 * call halyard_run with tensors as often as needed.
 *
 * Shapes. A tensor is [batch, tokens, heads, head_dim] with a free element stride for each dimension, so BSHD,
 * BHSD, slices of a packed QKV buffer and single-head tensors need no copy.
 *
 * Accuracy. With an exact source: |y - exact| <= 2 * 2^-23 * hypot(x0, x1) * f + 2^-149, plus half an ulp of f16 or
 * bf16 storage, for pairs with hypot(x0, x1) * f up to 0.999999 of the greatest finite number of the storage, in the
 * default floating-point environment. Above that a result may be infinite although the exact one is finite, because one
 * of the two products can overflow before the other is added. With given rows, f is hypot(cos, sin) of the row.
 * All targets give the same bits, for any number of threads and parts (any NaN equals any NaN).
 *
 * Errors. Functions return HALYARD_OK (0) or a positive halyard_status, and write a sentence to `error` when it is
 * not NULL. On an error every out parameter is unchanged and no output tensor has been written, with two exceptions:
 * HALYARD_ERROR_EXECUTOR and HALYARD_ERROR_DEVICE come after the work began and leave outputs incomplete. The library
 * never prints, aborts or throws, and starts no thread unless halyard_create_pool is called.
 *
 * Ownership and threads. Objects are immutable after creation and may be used from any number of threads at once;
 * destroy an object only when no call uses it. The library keeps no pointer to a description, tensor or string after a
 * call, but to the rows of a given source.
 *
 * Structs start with `size`: set it to sizeof the struct. In an array set it in every element. The first one's size is
 * the distance from element to element. Later versions append fields. A struct may have the size of an earlier version:
 * the fields that it lacks take their defaults. Any other size is refused, 0 too.
 * A field's default is 0, or what stands in [brackets]: where the field is 0, that holds.
 */
#ifndef HALYARD_H
#define HALYARD_H

#include <stdint.h>

#if defined(_WIN32)
#define HALYARD_API
#else
#define HALYARD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HALYARD_VERSION_MAJOR 0
#define HALYARD_VERSION_MINOR 1
#define HALYARD_VERSION_PATCH 0

/* "major.minor.patch" of the library that is linked; a static string. */
HALYARD_API const char *halyard_version(void);

/* ---- Errors ---------------------------------------------------------------------------------------------- */

typedef int32_t halyard_status;
enum {
    HALYARD_OK = 0,
    HALYARD_ERROR_NULL_POINTER = 1,      /* a required pointer is NULL */
    HALYARD_ERROR_STRUCT_SIZE = 2,       /* a struct's size is not set, or newer than this library */
    HALYARD_ERROR_UNKNOWN_VALUE = 3,     /* an enumeration holds a value that does not exist */
    HALYARD_ERROR_SHAPE = 4,             /* a negative size, a zero head_dim, or shapes that do not agree */
    HALYARD_ERROR_ROTARY_DIM = 5,        /* rotary_dim is odd, zero or negative */
    HALYARD_ERROR_WINDOW = 6,            /* [rotary_offset, rotary_offset + rotary_dim) is not inside the head */
    HALYARD_ERROR_OVERFLOW = 7,          /* sizes times strides leave the address space */
    HALYARD_ERROR_STRIDE = 8,            /* two elements of an output could have one address, or a cache's
                                            tiles leave their block */
    HALYARD_ERROR_OVERLAP = 9,           /* an output shares elements with another argument, other than in place */
    HALYARD_ERROR_POSITION = 10,         /* a position that the angle source does not cover */
    HALYARD_ERROR_FREQUENCY = 11,        /* a base, factor, inverse frequency or the like that is out of range */
    HALYARD_ERROR_UNKNOWN_TARGET = 12,   /* no kernel target has this name */
    HALYARD_ERROR_TARGET_NOT_BUILT = 13, /* this library was built without the target */
    HALYARD_ERROR_TARGET_UNSUPPORTED = 14, /* this machine cannot run the target */
    HALYARD_ERROR_THREADS = 15,          /* a thread count outside 1 … 1024, or threads that could not be started */
    HALYARD_ERROR_EXECUTOR = 16,         /* the executor failed, threw, or did not run every task */
    HALYARD_ERROR_OUT_OF_MEMORY = 17,
    HALYARD_ERROR_MISMATCH = 18,         /* arguments that are valid alone contradict each other */
    HALYARD_ERROR_UNSUPPORTED = 19,      /* a valid request that this version cannot carry out */
    HALYARD_ERROR_CONFIG = 20,           /* a config that isn't JSON, lacks a field, contradicts itself, has no RoPE */
    HALYARD_ERROR_NO_DEVICE = 21,        /* no driver, or no device that it can use */
    HALYARD_ERROR_DEVICE = 22,           /* a GPU's driver refused or failed */
    HALYARD_ERROR_SLOT = 23,             /* a slot that the cache does not have, or that two tokens name */
    HALYARD_ERROR_SCALE = 24             /* a scale, or a norm's eps, that is out of range */
};

/* Caller-owned. A call that fails fills in the code and one sentence ended by a zero byte, naming the argument and its
 * value. A call that succeeds does not change it. If its size is not set, the call does nothing and returns
 * HALYARD_ERROR_STRUCT_SIZE. */
typedef struct halyard_error {
    uint32_t size;
    halyard_status code;
    char message[256];
} halyard_error;

/* The name of a status, such as "HALYARD_ERROR_WINDOW"; NULL if the number is no status. A static string. */
HALYARD_API const char *halyard_status_name(halyard_status status);

/* ---- Enumerations ---------------------------------------------------------------------------------------- */

/* A dtype, a pairing or an axis map is never 0. A field that is 0 is not set, and its comment gives the default. */
enum { HALYARD_F32 = 1, HALYARD_F16 = 2, HALYARD_BF16 = 3 };                /* storage; arithmetic is always f32 */
/* 8 bits, for quantised caches. They are allowed as out_dtype, and as dtype of a plan that rerotates. OCP E4M3 has no
 * infinities and 448 as its largest value, E5M2 57344. Every float is rounded to nearest even. E4M3 and E5M2 keep
 * subnormals and NaN. Larger values and infinities become the largest value. INT8 is clamped to [-128, 127], and a NaN
 * becomes 0. */
enum { HALYARD_E4M3 = 4, HALYARD_E5M2 = 5, HALYARD_INT8 = 6 };
enum { HALYARD_UINT8 = 7 }; /* the bytes of records, see Groups */
enum { HALYARD_PAIRING_HALF = 1, HALYARD_PAIRING_INTERLEAVED = 2 };
enum { HALYARD_FORWARD = 0, HALYARD_INVERSE = 1 };
enum { HALYARD_INT32 = 0, HALYARD_INT64 = 1 };                              /* storage of positions */
enum { HALYARD_REAL32 = 2, HALYARD_REAL64 = 3 };                            /* of positions that are no integers */
enum { HALYARD_CPU = 0, HALYARD_CUDA = 1 };                                 /* where a tensor's memory lies */
/* Where cos and sin come from. AUTO is resolved from the description alone. It becomes TABLE if the rows take at most
 * 64 MiB, or `reference` is not EXACT. Otherwise it becomes PHASE. */
enum {
    HALYARD_ANGLES_AUTO = 0,
    HALYARD_ANGLES_TABLE = 1,
    HALYARD_ANGLES_GIVEN = 2,
    HALYARD_ANGLES_PHASE = 3
};
/* Whose cos and sin a table holds. EXACT: correctly rounded. HF_F32: Hugging Face transformers' float32 arithmetic,
 * angle = float32(position) * float32(inv_freq), for models that were trained with its errors. It repeats angles only,
 * and not transformers' rounding of the rotation. Every operation and function is correctly rounded here, so that the
 * bits are the same everywhere; theirs may be an ulp off. A position is rounded to float32, beyond 2^24 too. */
enum { HALYARD_REFERENCE_EXACT = 0, HALYARD_REFERENCE_HF_F32 = 1 };
/* Which axis (time, height, width, say) a pair reads its position from. SECTIONS: consecutive bands of pairs, axis 0
 * first (Qwen2-VL). INTERLEAVED: axis a >= 1 owns the pairs k with k mod n_axes = a and k < n_axes * counts[a], axis 0
 * the others (Qwen3-VL). LIST: any map, by the axis of each pair. */
enum {
    HALYARD_AXIS_MAP_NONE = 1,
    HALYARD_AXIS_MAP_SECTIONS = 2,
    HALYARD_AXIS_MAP_INTERLEAVED = 3,
    HALYARD_AXIS_MAP_LIST = 4
};
enum { HALYARD_MAX_AXES = 4 };
/* What a run does with a position that the source does not cover. ERROR: it fails. CLAMP: it takes the nearest position
 * that is covered, the lower of two equally near. IDENTITY: it takes position 0, so that only attention_factor applies;
 * with given rows, row 0. */
enum { HALYARD_BAD_POSITION_ERROR = 0, HALYARD_BAD_POSITION_CLAMP = 1, HALYARD_BAD_POSITION_IDENTITY = 2 };

/* ---- Frequencies ----------------------------------------------------------------------------------------- */

typedef struct halyard_frequencies halyard_frequencies;

/* inv_freq[k] = base^(-2k / rotary_dim) for k = 0 … rotary_dim/2 - 1 (RoFormer, arXiv:2104.09864, section 3.2.2),
 * kept to twice double precision. attention_factor is 1.
 *   base        finite, > 0 (10000 in most models).           Else HALYARD_ERROR_FREQUENCY.
 *   rotary_dim  even, 2 … 2^20.                               Else HALYARD_ERROR_ROTARY_DIM.
 * Also HALYARD_ERROR_NULL_POINTER (out), HALYARD_ERROR_FREQUENCY when an inverse frequency would exceed 2^20 (a base
 * below 1), and HALYARD_ERROR_OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_base(double base, int64_t rotary_dim,
                                                                halyard_frequencies **out, halyard_error *error);

/* inv_freq[0 … n_pairs - 1] as given, in radians per position, each taken as exact.
 *   n_pairs           1 … 2^19; rotary_dim is 2 * n_pairs.    Else HALYARD_ERROR_ROTARY_DIM.
 *   inv_freq          finite, |inv_freq| <= 2^20; zero means no rotation.   Else HALYARD_ERROR_FREQUENCY.
 *   attention_factor  2^-60 … 2^60; 1 in most models.         Else HALYARD_ERROR_FREQUENCY.
 * Also HALYARD_ERROR_NULL_POINTER and HALYARD_ERROR_OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_list(const double *inv_freq, int64_t n_pairs,
                                                                double attention_factor, halyard_frequencies **out,
                                                                halyard_error *error);

/* How a trained model's frequencies are changed for contexts longer than it was trained on. Below, t[k] =
 * base^(-2k / exponent_dim), d = rotary_dim, s = factor, and L = original_max_position. */
enum {
    /* inv_freq = t. RoFormer, arXiv:2104.09864, section 3.2.2. */
    HALYARD_SCALING_DEFAULT = 0,
    /* Position interpolation, inv_freq = t / s. arXiv:2306.15595, equation 4. Reads factor. */
    HALYARD_SCALING_LINEAR = 1,
    /* NTK-aware: t with base * s^(exponent_dim / (d - 2)) as its base, so that the last pair turns s times slower and
     * the first as before. bloc97, reddit.com/r/LocalLLaMA/comments/14lz7j5; arXiv:2309.00071, section 3.1. Reads
     * factor (that is what Hunyuan calls alpha). Needs d >= 4. */
    HALYARD_SCALING_NTK = 2,
    /* NTK-aware with s * max(seq_len, L) / L - (s - 1) in the place of s: nothing changes up to L tokens. emozilla,
     * reddit.com/r/LocalLLaMA/comments/14mrgpr; arXiv:2309.00071, section 3.3. Reads factor, original_max_position
     * (Hugging Face puts max_position_embeddings there) and seq_len. Needs d >= 4. */
    HALYARD_SCALING_DYNAMIC_NTK = 3,
    /* YaRN, arXiv:2309.00071, section 3.2: inv_freq[k] = t[k] * (r / s + 1 - r), where r rises from 0 at pair `low` to
     * 1 at pair `high`. A pair p makes turns(p) = L * base^(-2p / exponent_dim) / (2 pi) in L tokens. low is the real p
     * with turns(p) = beta_fast, rounded down, and at least 0. high is the p with turns(p) = beta_slow, rounded up, and
     * at most d - 1 (as in the authors' code; no_truncate leaves out the rounding). If low = high, they are set 0.001
     * apart.
     * attention_factor = m(mscale) / m(mscale_all_dim) where both are stated (DeepSeek-V2, arXiv:2405.04434: equal ones
     * give 1), else m(1), with m(x) = 0.1 x ln(s) + 1 (section 3.4). Reads factor (0: max_position / L),
     * original_max_position, beta_fast, beta_slow, no_truncate, mscale and mscale_all_dim. Needs base > 1. */
    HALYARD_SCALING_YARN = 4,
    /* Llama 3.1 (github.com/meta-llama/llama-models, apply_scaling): inv_freq = t * ((1 - c) / s + c). With the turns in
     * L tokens, n = L * t / (2 pi), c = (n - low_freq_factor) / (high_freq_factor - low_freq_factor), clamped to 0 … 1.
     * If both factors are equal (Llama 4), c is 0 where n is below them, and 1 otherwise. Reads factor,
     * original_max_position, low_freq_factor and high_freq_factor. */
    HALYARD_SCALING_LLAMA3 = 5,
    /* LongRoPE, arXiv:2402.13753: inv_freq[k] = t[k] / short_factor[k] up to L tokens, t[k] / long_factor[k] when
     * seq_len > L. attention_factor = sqrt(1 + ln(s) / ln(L)), whatever seq_len is, or 1 when s <= 1. Reads factor (0:
     * max_position / L), original_max_position, seq_len, short_factor, long_factor and n_factors. */
    HALYARD_SCALING_LONGROPE = 6,
    /* p-RoPE, arXiv:2410.06205: inv_freq[k] = t[k] / s for the first rotated_dim / 2 pairs, and 0 (no rotation) for the
     * rest. Set rotary_dim to head_dim: then the exponents divide by head_dim, and half pairing pairs k with k +
     * head_dim / 2. Reads rotated_dim and factor (0: 1). */
    HALYARD_SCALING_PROPORTIONAL = 7
};

/* A field that is 0 is not stated. Then the default in brackets holds. Where there is none, the methods that read the
 * field refuse it. Fields that a method does not read are ignored. */
typedef struct halyard_scaling {
    uint32_t size;
    int32_t method;                /* HALYARD_SCALING_… */
    double base;                   /* finite, > 0; no default */
    int64_t rotary_dim;            /* even, 2 … 2^20; no default */
    int64_t exponent_dim;          /* >= 2, <= 2^20 [rotary_dim]; head_dim for models whose exponents divide
                                      by it */
    int64_t rotated_dim;           /* even, <= rotary_dim [rotary_dim]; PROPORTIONAL only */
    double factor;                 /* s: 1 … 2^60 */
    int64_t original_max_position; /* L, in tokens: 1 … 2^53, the context that the model was trained with */
    int64_t max_position;          /* in tokens: 1 … 2^53, the context that it is meant for */
    int64_t seq_len;               /* in tokens: 0 … 2^53, the context that these frequencies are for [up to L] */
    double attention_factor;       /* 2^-60 … 2^60, in the place of the method's own [that, or 1] */
    double beta_fast;              /* turns: 2^-60 … 2^60, >= beta_slow [32] */
    double beta_slow;              /* turns: 2^-60 … 2^60 [1] */
    int32_t no_truncate;           /* 0 or 1; 1 is Hugging Face's truncate = false */
    int32_t reserved;              /* 0 */
    double mscale;                 /* within 2^60; read where mscale_all_dim is stated too */
    double mscale_all_dim;
    double low_freq_factor;        /* turns in L tokens: 2^-60 … 2^60; no default */
    double high_freq_factor;       /* >= low_freq_factor, <= 2^60; no default */
    const double *short_factor;    /* n_factors values, 2^-60 … 2^60; read during the call only */
    const double *long_factor;     /* likewise */
    int64_t n_factors;             /* rotary_dim / 2 */
} halyard_scaling;

/* The frequencies of a scaling, kept to twice double precision, with its attention_factor. Those of DYNAMIC_NTK and
 * LONGROPE hold for some context lengths only: see halyard_create_frequencies_for_length.
 * Errors: NULL_POINTER (scaling, out, a factor list), STRUCT_SIZE, UNKNOWN_VALUE (method, no_truncate, reserved),
 * ROTARY_DIM (rotary_dim, exponent_dim, rotated_dim), SHAPE (n_factors, a number of tokens), FREQUENCY (any other
 * number, or an inverse frequency above 2^20), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_scaling(const halyard_scaling *scaling,
                                                                   halyard_frequencies **out, halyard_error *error);

/* Zero is the default of every field. */
typedef struct halyard_config_options {
    uint32_t size;
    int64_t seq_len;        /* in tokens, 0 … 2^53: what DYNAMIC_NTK and LONGROPE are made for; 0: a short context */
    const char *layer_type; /* whose frequencies: one of the config's layer types, such as "sliding_attention", or
                               "vision" for the image encoder. NULL is enough where all layers with RoPE share one. */
    const int64_t *layer;   /* the number of a layer, counted from 0, for configs that list bases, factors or types by
                               layer; NULL: those of all layers of the type */
} halyard_config_options;

/* The frequencies of the model whose Hugging Face config.json this is: text in JSON (UTF-8), n_bytes long, no
 * terminating zero needed. What is understood (and the models that are known by name: runtime/models.md):
 *   - rope_theta and rope_scaling with `type` or `rope_type`, or rope_parameters, alike or one for each layer type;
 *     the methods default, linear, dynamic, yarn, llama3, longrope (also "su"), proportional and mrope, with
 *     seq_len from the options;
 *   - the width from head_dim (or hidden_size / num_attention_heads) times partial_rotary_factor or rotary_pct, or from
 *     rotary_dim, or qk_rope_head_dim;
 *   - mrope_section and mrope_interleaved (of model types whose order of axes is known), text_config,
 *     rope_local_base_freq, global_head_dim, layer_types, lists by layer, and dual_chunk_attention_config (its first
 *     chunk).
 * Fields for which the model_type documents a default may be absent. Those of an unknown model_type must be there, and
 * its pairing stays unknown. Otherwise nothing is guessed: what is missing, contradictory, of the wrong type or absurd
 * is an error that names the field. So is a key that speaks of RoPE and is not known, at any depth of what describes
 * the model. Fields that have nothing to do with RoPE are not looked at.
 * Errors: NULL_POINTER (text, out), STRUCT_SIZE, SHAPE (n_bytes or seq_len is negative or too large, layer is negative;
 * a factor list's length; a number of tokens), ROTARY_DIM, FREQUENCY (numbers out of range, as for from_scaling),
 * CONFIG (the rest, with line and column where it is not JSON), MISMATCH (layer_type or layer is needed, not known, or
 * has no RoPE), UNSUPPORTED (RoPE, or a scale of q, of a kind that this version does not know), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_config(const char *text, int64_t n_bytes,
                                                                  const halyard_config_options *options,
                                                                  halyard_frequencies **out, halyard_error *error);

/* By what q is multiplied at position p, with the numbers a, n and d of halyard_frequencies_info. */
enum {
    HALYARD_Q_SCALE_NONE = 0,
    HALYARD_Q_SCALE_LOG = 1,  /* 1 + a ln(1 + floor((p + d) / n)), arXiv:2501.19399: Llama 4, Ministral 3, Mistral 4 */
    HALYARD_Q_SCALE_POWER = 2 /* (1 + (p + d) / n)^a: Beam */
};
enum {
    HALYARD_LAYERS_NONE = 0,
    HALYARD_LAYERS_ALL = 1,
    HALYARD_LAYERS_UNROTATED = 2 /* those that turn neither q nor k */
};

typedef struct halyard_frequencies_info {
    uint32_t size;
    int64_t rotary_dim;
    double attention_factor;
    const double *inv_freq; /* rotary_dim / 2 values, correctly rounded; owned by the frequencies */
    /* Set where the frequencies come from a config; otherwise the values in brackets. Plans and angle sources take them
     * as defaults. */
    int32_t pairing;        /* HALYARD_PAIRING_… that the model reads [0: unknown] */
    int32_t out_pairing;    /* that it writes; differs from pairing in DeepSeek-V3 and its kin [0: unknown] */
    const char *method;     /* "default", "list", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope" or
                               "proportional"; a static string */
    int64_t head_dim;       /* columns of the head that holds the window; of MLA, just its rotated slice [0: unknown] */
    int32_t axis_map;       /* HALYARD_AXIS_MAP_… [NONE: one axis] */
    int32_t n_axes;         /* [0] */
    int64_t axis_counts[4]; /* pairs that read axis 0 … n_axes - 1; they sum to rotary_dim / 2 [0] */
    /* What they were made from. */
    double base;                   /* before scaling [0: unknown, of a list] */
    int64_t original_max_position; /* in tokens, the context that the model was trained with [0: unknown] */
    int64_t max_position;          /* in tokens, the context that it is meant for: what max_position_embeddings or its
                                      like states, or for YaRN original_max_position * factor, if more [0: unknown] */
    /* The frequencies hold for sequences of first_seq_len … last_seq_len tokens, both included: 0 … 2^53, except for
     * two methods, with L = original_max_position. LONGROPE: 0 … L, or L + 1 … 2^53. DYNAMIC_NTK: 0 … L, or, made for
     * more than L, L … seq_len. A sequence whose length leaves the range needs other frequencies
     * (halyard_create_frequencies_for_length), and its cached keys have to be rotated again. last_seq_len is also lower
     * where a config's rule for longer contexts is not supported. */
    int64_t first_seq_len;
    int64_t last_seq_len;
    /* Some models also multiply q by a number that depends on its position p, after the rotation and any norm.
     * q_scale_rule is the formula, q_scale_layers the layers. A rotation does not do this by itself: get the numbers
     * from halyard_make_position_scales, and have tensors take position_scales. */
    double q_scale;               /* a [0] */
    int64_t q_scale_length;       /* n, in tokens: >= 1 where there is a rule [0] */
    int32_t q_scale_shift;        /* d: 0 or 1 [0] */
    int32_t q_scale_rule;         /* HALYARD_Q_SCALE_… [NONE] */
    int32_t q_scale_layers;       /* HALYARD_LAYERS_… [NONE] */
    int32_t has_unrotated_layers; /* 1: other attention layers of the model have no RoPE (Llama 4, SmolLM3,
                                     Cohere 2); linear attention does not count [0] */
} halyard_frequencies_info;

/* Fills in *info (its size must be set). HALYARD_ERROR_NULL_POINTER, HALYARD_ERROR_STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_frequencies_info(const halyard_frequencies *frequencies,
                                                        halyard_frequencies_info *info, halyard_error *error);

/* The frequencies of the same model for another context length: those of DYNAMIC_NTK and LONGROPE are made anew, all
 * others are copied. No config is read again: it takes some tens of microseconds. Call it where a sequence's length has
 * left first_seq_len … last_seq_len of its frequencies' info, and rotate its cached keys again.
 *   seq_len  in tokens, 0 … 2^53. DYNAMIC_NTK changes with every token above L. So ask for more than the sequence
 *            has: the next multiple of 4096, say. Frequencies that were made for more than L stay valid for shorter
 *            sequences down to L, as in Hugging Face's dynamic_frequency_update.
 * Errors: NULL_POINTER, SHAPE (seq_len), UNSUPPORTED (the first Qwen's use_dynamic_ntk beyond its seq_length, dual
 * chunks beyond the first), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_for_length(const halyard_frequencies *frequencies,
                                                                 int64_t seq_len, halyard_frequencies **out,
                                                                 halyard_error *error);

/* NULL is allowed. Sources made from the frequencies stay valid. */
HALYARD_API void halyard_destroy_frequencies(halyard_frequencies *frequencies);

/* ---- Positions ------------------------------------------------------------------------------------------- */

/* Token positions. Values are int32; int64 is storage only, and a value outside int32 is a bad position.
 * Wherever a pointer to this struct is NULL, token t of every batch row has position t. Batch rows of one token each
 * have to name theirs, or a start (else MISMATCH): nobody means position 0 for all. */
typedef struct halyard_positions {
    uint32_t size;
    int32_t type;        /* HALYARD_INT32 or HALYARD_INT64 */
    int32_t consecutive; /* 0: data holds every token's position. 1: data holds a start for each batch row, shape
                            {1 or batch, 1}, and token t has position start + t. */
    const void *data;    /* any alignment */
    int64_t shape[2];    /* {1 or batch, tokens}; 1 shares the row between all batch rows */
    int64_t strides[2];  /* in elements, any sign, zero allowed */
    int64_t n_axes;      /* how many such arrays there are, one for each axis of the source's axis map; 0 or 1:
                            all axes are equal, as of text */
    int64_t stride_axis; /* in elements, from one of them to the next */
} halyard_positions;

/* What q is multiplied by at each position of a model whose frequencies tell such a rule (q_scale_rule), rounded
 * correctly from twice double precision: the position_scales of runs. Allocates nothing.
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

/* ---- Angle sources --------------------------------------------------------------------------------------- */

typedef struct halyard_angle_source halyard_angle_source;

typedef struct halyard_angle_source_desc {
    uint32_t size;
    int32_t kind;      /* HALYARD_ANGLES_… */
    int32_t reference; /* HALYARD_REFERENCE_…; PHASE takes EXACT only (else HALYARD_ERROR_MISMATCH). GIVEN rows are read
                          as they are */

    /* TABLE and PHASE cover n_positions positions from `first` on; 2^32 from -2^31 on are all there are.
     *
     * TABLE: a row of cos and a row of sin, float32(f cos theta) and float32(f sin theta), correctly rounded at every
     * int32 position; 4 * rotary_dim bytes a row. The fastest, while the rows that a run reads stay in the CPU's
     * caches. PHASE: no table. A position times a 64-bit fraction of a turn wraps exactly; cos and sin come from
     * polynomials in float32, within 1.2e-7 f at every int32 position. At scattered positions of a long range, where a
     * table misses the caches, PHASE is the fastest. */
    int32_t first;
    int64_t n_positions; /* >= 1, none of them beyond 2^31 - 1, else HALYARD_ERROR_POSITION. GIVEN reads neither */

    /* GIVEN: the caller's own rows; position p reads row p, covering 0 … n_rows - 1. attention_factor is not applied.
     * The memory stays the caller's: it must outlive the source and hold still during a run, and may be rewritten
     * between runs (that is how halyard_make_rows serves all layers of a decoding step). A fused cache [cos | sin] is
     * sin_rows = cos_rows + rotary_dim / 2 with its own stride_row. Of rows that hold rotary_dim values, the second
     * half equal to the first (Hugging Face), only the first half is read. A run of several batch rows has to name its
     * positions, unless the rows are by_token. */
    const void *cos_rows;  /* [n_rows, rotary_dim / 2], the last dimension dense; any alignment */
    const void *sin_rows;  /* likewise */
    int64_t n_rows;        /* 1 … 2^31 - 1, as for a table; else HALYARD_ERROR_SHAPE or HALYARD_ERROR_OVERFLOW */
    int64_t stride_row;    /* elements from one row to the next, >= rotary_dim / 2 */
    int64_t rotary_dim;    /* GIVEN only: even, 2 … 2^20 */
    int32_t rows_dtype;    /* HALYARD_F32, HALYARD_F16 or HALYARD_BF16 [HALYARD_F32] */
    int32_t by_token;      /* GIVEN only. 1: the rows are those of a run's tokens, in the order in which
                              halyard_make_rows writes them: token t of batch row b reads row b * tokens + t. Such a run
                              has n_rows = batch * tokens and no positions (else SHAPE, MISMATCH). 2: likewise, but
                              batch rows share them: token t of each reads row t, and n_rows = tokens. */

    /* Positions with several axes: a run's positions then have n_axes arrays, or one for all axes. */
    int32_t axis_map;      /* HALYARD_AXIS_MAP_… [what the frequencies were told by a config; else NONE] */
    int32_t n_axes;        /* 1 … HALYARD_MAX_AXES; 0 or 1 with HALYARD_AXIS_MAP_NONE; 0 where axis_map is 0 */
    int64_t axis_counts[HALYARD_MAX_AXES]; /* SECTIONS and INTERLEAVED: pairs of each axis, >= 0; their sum is
                                              rotary_dim / 2 (else SHAPE) */
    const int32_t *axis_of_pair; /* LIST: [rotary_dim / 2] axes, 0 … n_axes - 1 (else SHAPE). Read during creation only */
} halyard_angle_source_desc;

/* Makes an angle source. `frequencies` is required but for GIVEN, which does not read it (may be NULL). Errors:
 * NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, POSITION (n_positions), SHAPE (n_rows, stride_row, the list's shape, the
 * axis map), ROTARY_DIM, MISMATCH, OVERFLOW, OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_angle_source(const halyard_frequencies *frequencies,
                                                       const halyard_angle_source_desc *desc,
                                                       halyard_angle_source **out, halyard_error *error);

typedef struct halyard_angle_source_info {
    uint32_t size;
    int32_t kind;       /* resolved: never HALYARD_ANGLES_AUTO */
    int64_t rotary_dim;
    int64_t first;      /* the range of positions that it covers */
    int64_t last;
    int64_t n_rows;     /* a table that does not cover position 0 holds one row more, for it */
    uint64_t bytes;     /* memory that the source owns, of which 4 * rotary_dim bytes serve keys that move */
} halyard_angle_source_info;

/* Fills in *info (its size must be set). NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_angle_source_info(const halyard_angle_source *source,
                                                         halyard_angle_source_info *info, halyard_error *error);

/* NULL is allowed. */
HALYARD_API void halyard_destroy_angle_source(halyard_angle_source *source);

/* ---- Plans ----------------------------------------------------------------------------------------------- */

enum { HALYARD_MAX_TENSORS = 4 };

/* The stages of a tensor, from a projection to a cache. It goes through those that its description asks for:
 *
 *     load (dtype, or records) -> norm -> rotate -> norm -> scale by position -> Hadamard
 *         -> scale, convert (out_dtype), or groups -> store (view, or cache by slot)
 *
 * Between load and store all is f32. Elements beside the rotary window take every stage but the rotation. Conversions
 * round to nearest even and keep denormals; f16 and bf16 overflow to infinity.
 * The error of a result before conversion is at most c * 2^-23 * len * |p|. p is the scale by position, or 1.
 *   c    2, + 4 + (n / 16 + 5) / 2 for a norm over n elements, whose sum is not compensated, + 1/2 for a scale by
 *        position, + 2 for a scale.
 *   len  the length of the pair; with a norm BEFORE the rotation, of the normed and weighted pair; with a norm AFTER
 *        it, of the pair before the norm, times |r * weight| of the element.
 * What a layer norm and a Hadamard transform add to that is said below.
 * A tensor with other stages than the rotation and a cache whose heads are rows has heads of at most 2048 elements (else
 * UNSUPPORTED), since a thread works in 112 KiB of its stack. Rows that are normed may be of any length; those of more
 * than 8192 elements, by a layer norm of more than 4096, are read once more for each sum. */

enum { HALYARD_NORM_RMS = 0, HALYARD_NORM_LAYER = 1 };
enum { HALYARD_NORM_HEAD = 0, HALYARD_NORM_ROW = 1 };     /* each head by itself; all heads of a token together */
enum { HALYARD_NORM_BEFORE = 0, HALYARD_NORM_AFTER = 1 }; /* the rotation */
/* Flags. Where the normed value is rounded to the input's dtype (Hugging Face's modules do both). */
enum { HALYARD_NORM_ROUND_BEFORE_WEIGHT = 1, HALYARD_NORM_ROUND_AFTER_WEIGHT = 2 }; /* and after the bias */

/* RMS (arXiv:1910.07467): v * r, then times the weight, with r = 1 / sqrt(sum(v^2) / n + eps). Each operation is
 * rounded in f32. The sum has one order. Partial sum i of 16 takes the elements i, i + 16, i + 32, … by fma. These are
 * added as i and i + 8, then i and i + 4, and so on. A sum that overflows gives r = 0. A head of zeros with eps = 0
 * gives NaN.
 *
 * LAYER (LayerNorm, arXiv:1607.06450): the mean is taken off first, c = v - sum(v) / n. Then as RMS with c in the place
 * of v, (c * r) * weight, and plus the bias. Each operation is rounded, and sum(v) has the order of the other sum, by
 * additions. Equal numbers with eps = 0 give NaN, or anything where their mean has to be rounded. A sum(v) that
 * overflows gives NaN.
 * In the bound above, len takes |c * r * weight| + |bias| for each element c * r * weight + bias. AFTER the rotation it
 * also takes |r * weight| times the pair's length before the norm. The mean is rounded, too: the normed value may be
 * off by d * (1 + |c * r|) * |weight| more, with d = (n / 32 + 7) * 2^-23 * r * m and m^2 the mean of v^2 (AFTER: the
 * mean of the pairs' squared lengths, and for d <= 1/4 only). If elements differ by less than they are rounded, the
 * normed values say nothing, and eps limits how far off they are. */
typedef struct halyard_norm_desc {
    uint32_t size;
    int32_t kind;          /* HALYARD_NORM_RMS, or HALYARD_NORM_LAYER */
    int32_t width;         /* HALYARD_NORM_HEAD, or HALYARD_NORM_ROW */
    int32_t order;         /* HALYARD_NORM_BEFORE, or HALYARD_NORM_AFTER */
    int32_t weight_dtype;  /* HALYARD_F32, HALYARD_F16 or HALYARD_BF16; [0: there is no weight] */
    int32_t unit_offset;   /* 1: the weight is f32(1 + w) (Gemma). With a weight only (else MISMATCH) */
    int32_t rounding;      /* flags HALYARD_NORM_ROUND_…; AFTER_WEIGHT with a weight only (else MISMATCH) */
    int32_t no_eps;        /* 1: eps is 0, which the field cannot say (it has to be 0 then) */
    double eps;            /* >= 0, rounded to f32 and finite there; [0: 1e-6] */
    int64_t window_offset; /* HALYARD_NORM_HEAD: the first element of a head that is normed. HALYARD_NORM_ROW: 0 */
    int64_t window_size;   /* HALYARD_NORM_HEAD: how many are normed [all from window_offset on]; the norm leaves the
                              others as they are. HALYARD_NORM_ROW: 0 */
    int32_t has_bias;      /* 1: there is a bias, one for each weight. LAYER with a weight only (else MISMATCH) */
    int32_t weight_per_head; /* 1: each head has weights of its own, [heads, window_size], and biases. HALYARD_NORM_HEAD
                              with a weight only (else MISMATCH) */
} halyard_norm_desc;

enum { HALYARD_SCALE_STATIC = 0, HALYARD_SCALE_DYNAMIC = 1 };
/* How many static scales there are: 1, or one for each head. */
enum { HALYARD_SCALE_PER_TENSOR = 0, HALYARD_SCALE_PER_HEAD = 1 };

/* stored = convert(v * r), r = f32(1 / scale): so value = stored * scale.
 * STATIC: the run brings the scales. DYNAMIC, for outputs of 8 bits only: the run writes a scale for each head of each
 * token, f32(m / M) with m the greatest finite |v| and M the greatest number of out_dtype. The scale is 1 where no v is
 * finite, m is 0, or f32(m / M) is not a normal number. */
typedef struct halyard_scale_desc {
    uint32_t size;
    int32_t kind;     /* HALYARD_SCALE_STATIC, or HALYARD_SCALE_DYNAMIC */
    int32_t per;      /* HALYARD_SCALE_PER_…; 0 of dynamic ones */
    int32_t reserved; /* 0 */
} halyard_scale_desc;

/* A cache of out_dtype, in blocks (pages) of block_size slots each: slot s is token t = s mod block_size of block
 * s / block_size. Element d of token t and head h of that block lies, counted in elements from the cache's first, at
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
 * Strides that could put two elements at one address are refused (STRIDE), and some harmless ones with them, as for
 * outputs. */
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
    int64_t extent;                /* elements from the first one of a block and head on that its tiles must not leave
                                      (else STRIDE) [as many as they take] */
} halyard_cache_desc;

/* Re-rotation. Keys that were rotated for one position move to another, as when a context shifts or a cached prefix is
 * used again: pair k turns by Q * inv_freq[k] - P * inv_freq'[k], where Q and inv_freq are the position and the angle
 * source that it goes to, P and inv_freq' those that it comes from. That is formed in fixed point, not from two
 * rounded angles, and cos and sin of it are within 1.2e-7. Every pair of positions of 32 bits is valid; the ranges of
 * sources do not matter.
 * With one source attention_factor is not applied again. With two, keys are multiplied by its quotient, angles' over
 * from_angles'. Tensors with a cache are read from their slots as well as written there, in any layout. Others are
 * views, in place or not. dtype may be any, and is the output's.
 * Static scales are not applied, because they would cancel: elements w as stored turn into w', which is stored as
 * convert(w'). Dynamic scales are read, and written anew: s' = f32(s * f32(m / M)) with m the greatest finite |w'| and
 * M the greatest number of dtype, or 1 in the cases of other dynamic scales. Then convert(w' * f32(s / s')) is stored.
 * A result before conversion is within 2 * 2^-23 of its pair's length.
 * Each move rounds, and the errors add up. Move keys of few bits seldom and far: a slow pair that turns by less than
 * half an ulp does not change at all. */

/* Hadamard. Quantised caches keep keys and values that a Hadamard transform has spread over the head, so that no
 * element stands out. It is Sylvester's, orthonormal, and so its own inverse; attention takes q and the cache
 * transformed alike. Each n elements, from the head's first on, are multiplied by f32(1 / sqrt(n)), and then u and v
 * that lie 1, 2, 4, … apart become u + v and u - v: ggml's order, to the bit. The error of a result is at most (log2(n)
 * + 2) / 2 * 2^-23 times the length of the n elements, plus the length of the errors that these had before. A plan that
 * rerotates undoes the transform before the rotation and does it again after it. */

/* Groups. What a quantised cache stores of a head is a record of bytes: elements in groups, a scale s for each group,
 * and perhaps a zero point z. Tensors of records have HALYARD_UINT8 as their dtype and record_bytes as their last
 * dimension, whose bytes lie one after the other, in caches too. A preset says how a record is made. With v the
 * elements of a group as they come out of the other stages, in f32 and each operation rounded:
 *
 *     int8, e4m3      s = max(largest |v| / M, floor); M is 127 or 448          q = round(v * r), int8 to -128 … 127
 *     GGML_Q4_0       s = (the v of largest |v|, the first of equals) / -8      q = trunc(v * r + 8.5), to 0 … 15
 *     OPENVINO_U8     s = (max - min) / M, or 1e-4 if that is 0; z = -min / s   q = round(fma(v, r, z)), to 0 … M
 *     and _U4         M is 255 or 15
 *
 * v is read back as q * s, (q - 8) * s and (q - z) * s, with s and z as stored. r is 1 / s, before s is rounded to f16;
 * of GGML_Q8_0 it is 127 / largest |v|. Where nothing else is said, floor is 0, and halves are rounded to even.
 * An s or z that overflows, as f32 or as f16, becomes the largest finite number; z and r are computed from such an s.
 * An E8M0 s is a power of two, within 2^-127 … 2^127: the next one from s on; of MX 2^(floor(log2(largest |v|)) - 8).
 * r is 1 / s as stored then.
 * A v that is not finite does not count for s and z. A NaN counts as a v of 0, and an infinity becomes the nearest q.
 * If no v is finite, s and z are those of zeros. +0 and -0 are equal in max and min. If r would not be finite, r is 0
 * and every v counts as 0.
 * Results are rounded to so few bits that they have no bound of their own; the bounds of v are those of the other
 * stages. All bytes are the same on every target. */
enum {
    HALYARD_GROUPS_GGML_Q8_0 = 1,           /* 34 bytes for 32 elements: f16 s, then int8; as ggml on x86 */
    HALYARD_GROUPS_GGML_Q8_0_NEON = 2,      /* the same with r = 1 / s, as ggml on ARM */
    HALYARD_GROUPS_GGML_Q8_0_REFERENCE = 3, /* and half away from zero, as ggml's portable code */
    HALYARD_GROUPS_GGML_Q4_0 = 4,           /* 18 bytes for 32 elements: f16 s, then 4 bits each, q of element i in the
                                             * low nibble beside that of element i + 16 */
    HALYARD_GROUPS_VLLM_INT8 = 5,           /* int8 per head, half away from zero, floor 1e-6; f32 scales apart,
                                             * [blocks, block_size, heads] */
    HALYARD_GROUPS_VLLM_FP8 = 6,            /* e4m3 per head, floor 1e-6; scales likewise */
    HALYARD_GROUPS_OPENVINO_U8 = 7,         /* f32 s, f32 z, a head of bytes. OpenVINO (2026.4, x86) writes these bytes
                                             * if head_dim is a multiple of 16: for values, and for keys with
                                             * KEY_CACHE_QUANT_MODE BY_TOKEN, which is not its default */
    HALYARD_GROUPS_OPENVINO_U4 = 8,         /* the same in nibbles, even elements in the high ones; head_dim is even */
    HALYARD_GROUPS_MLA_V32 = 9,             /* DeepSeek V3.2: 512 e4m3, 4 f32 scales of 128 each, then 64 bf16; the
                                             * floor is f32(1e-4) / 448, of the next two as well */
    HALYARD_GROUPS_MLA_V4 = 10,             /* V4: 448 e4m3, then 64 bf16; 7 E8M0 scales of 64 each apart */
    HALYARD_GROUPS_MLA_V41 = 11,            /* V4.1: 512 e4m3; 16 E8M0 scales of 32 each apart */
    HALYARD_GROUPS_MX = 12                  /* OCP MXFP8: an E8M0 scale, then 32 e4m3 */
};

typedef struct halyard_groups_desc {
    uint32_t size;
    int32_t preset; /* HALYARD_GROUPS_… */
    /* Of scales that lie apart, in the memory that the run brings (group_scales), in bytes: from one block of the cache
     * to the next, one slot of a block, and one head; of views from batch row to batch row, token and head. [All 0:
     * dense, blocks of slots of heads of scales.] Presets whose scales lie in the record have none (else MISMATCH). */
    int64_t scales_stride_block, scales_stride_token, scales_stride_head;
} halyard_groups_desc;

/* How long a record is, and where its parts lie, in bytes. Group g has its elements at data_offset + g * data_stride,
 * and its scale at scale_offset + g * scale_stride. */
typedef struct halyard_groups_info {
    uint32_t size;
    int32_t scales_apart; /* 1: scales are not in the record: scale_offset, 0, counts from a head's first scale */
    int64_t record_bytes;
    int64_t n_groups, group; /* of a head; elements of each */
    int64_t data_offset, data_stride;
    int64_t scale_offset, scale_stride;
    int64_t zero_offset; /* of OPENVINO_…: the f32 z of the head's one group; else 0 */
    int64_t raw_offset;  /* of MLA_V32 and MLA_V4: the last 64 elements, as bf16; else 0 */
} halyard_groups_info;

/* Writes to *info (its size must be set) what records of a preset are for heads of head_dim elements, so that a caller
 * knows how much memory to bring. Errors, by which *info stays as it is: UNKNOWN_VALUE for a preset that is none, SHAPE
 * for a head_dim that no such record holds, UNSUPPORTED for one of more than 2048, NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_groups_info(int32_t preset, int64_t head_dim, halyard_groups_info *info,
                                                   halyard_error *error);

/* The fixed part of one tensor that a plan rotates: q, say, or k. */
typedef struct halyard_tensor_desc {
    uint32_t size;
    int32_t dtype;         /* HALYARD_F32, HALYARD_F16 or HALYARD_BF16: of the input. Where the plan rerotates: any */
    int32_t out_dtype;     /* any: of the output [dtype] */
    int32_t pairing;       /* HALYARD_PAIRING_… of the input [the frequencies'; where the plan rerotates, their
                              out_pairing] */
    int32_t out_pairing;   /* of the output [pairing; the frequencies' where pairing is theirs] */
    int32_t no_rotation;   /* 1: the tensor takes every stage but the rotation, as v does. Its pairings and
                              rotary_offset are not read */
    int64_t head_dim;      /* >= rotary_offset + rotary_dim [the frequencies'] */
    int64_t rotary_offset; /* >= 0 */
    /* The other stages; NULL: the tensor does not have that one. Read during the call only. */
    const halyard_norm_desc *norm;
    const halyard_scale_desc *scale;
    const halyard_cache_desc *cache; /* where the output goes; NULL: into the run's y */
    int32_t position_scales; /* 1: the run brings a number s for each token and head, and every element v becomes
                                f32(s * v), as some models do to q (see q_scale_rule). The inverse multiplies, too, and
                                so do elements beside the window and tensors with no_rotation */
    int32_t hadamard;        /* n: a Hadamard transform of each n elements of a head, see Hadamard; a power of two, 2 or
                                more, that divides head_dim (else SHAPE) [0: none] */
    /* The records of the output, and of the input; NULL: it has elements of a dtype. With groups, out_dtype is
     * HALYARD_UINT8 [that]; with from_groups, dtype is. A plan that rerotates sets groups only, which then describe
     * input and output, and scales that lie apart are read and written anew in group_scales. A tensor with groups has
     * no scale, and one with from_groups no norm with rounding (else MISMATCH). Read during the call only. */
    const halyard_groups_desc *groups;
    const halyard_groups_desc *from_groups;
} halyard_tensor_desc;

typedef struct halyard_plan_desc {
    uint32_t size;
    int32_t direction;      /* HALYARD_FORWARD or HALYARD_INVERSE */
    int64_t rotary_dim;     /* even, >= 2 [the frequencies']; may be 0 where no tensor is rotated */
    const halyard_frequencies *frequencies; /* NULL, or what gives rotary_dim, pairing, out_pairing and head_dim where
                               they are 0. A rotary_dim that is not theirs is a HALYARD_ERROR_MISMATCH; what they don't
                               know has to be set. Read during the call only. */
    int32_t n_tensors;      /* 1 … HALYARD_MAX_TENSORS */
    int32_t rerotates;      /* 1: runs move keys that were rotated in `direction` from some positions to others; see
                               Re-rotation. No tensor has a norm, no_rotation, position_scales, another out_dtype or
                               another out_pairing then (else MISMATCH) */
    const halyard_tensor_desc *tensors; /* [n_tensors] */
    const char *target;     /* NULL: the best one that is built and that this machine runs, subject to the
                               environment: HALYARD_TARGET forces a target, HALYARD_MAX_TARGET sets a ceiling. A name
                               forces exactly that target, and the environment is not read. */
    const char *max_target; /* NULL, or the best target to consider; the environment is not read then */
} halyard_plan_desc;

typedef struct halyard_plan halyard_plan;

/* Checks a description and resolves it to kernels. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE (n_tensors,
 * head_dim, a cache), ROTARY_DIM, WINDOW (rotary or of a norm), UNKNOWN_TARGET, TARGET_NOT_BUILT, TARGET_UNSUPPORTED,
 * MISMATCH (target and max_target both given; rotary_dim beside the frequencies; fields of stages that contradict each
 * other or rerotates), SCALE (eps), STRIDE (a cache), OVERFLOW (a cache), UNSUPPORTED (a dtype, heads too long for
 * stages), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_plan(const halyard_plan_desc *desc, halyard_plan **out,
                                               halyard_error *error);

/* The name of the target that the plan resolved to; a static string. NULL when plan is NULL. */
HALYARD_API const char *halyard_get_plan_target(const halyard_plan *plan);

/* NULL is allowed. */
HALYARD_API void halyard_destroy_plan(halyard_plan *plan);

/* Angles that are linear in positions which need not be integers, as models of images, video and audio have them
 * (DINOv3, LTX, Mochi): pair k of a token at positions p turns by theta = sum over the axes a of p[a] * matrix[a, k].
 * cos and sin are within 1.2e-7 f of those of the exact sum of exact products, f being attention_factor, whatever
 * cancels in it. Every |theta| has to be <= 2^31, and every |p[a] * matrix[a, k]| <= 2^40 (else POSITION, before
 * anything is written). Where heads have matrices of their own, each head is a view with rows of its own. */
typedef struct halyard_linear_angles {
    uint32_t size;
    int32_t type;            /* HALYARD_REAL32 or HALYARD_REAL64 [none] */
    int32_t n_axes;          /* 1 … HALYARD_MAX_AXES, else SHAPE */
    int32_t reserved;        /* 0 */
    const void *positions;   /* [n_axes, n_batch, n_tokens], any alignment; finite, else POSITION */
    int64_t stride_axis;     /* in elements, any sign, as the next two; 0: all axes share their positions */
    int64_t stride_batch;    /* 0: all batch rows share them */
    int64_t stride_token;    /* 0: all tokens share them */
    const double *matrix;    /* [n_axes, rotary_dim / 2] dense, any alignment; radians per position, finite, else
                                FREQUENCY */
    double attention_factor; /* 2^-60 … 2^60, else FREQUENCY [0: 1] */
} halyard_linear_angles;

typedef struct halyard_rows_args {
    uint32_t size;
    int32_t bad_position;               /* HALYARD_BAD_POSITION_… */
    const halyard_angle_source *angles; /* its rotary_dim must be the plan's; not by_token */
    const halyard_positions *positions; /* NULL: 0, 1, 2, … in every batch row */
    int64_t n_batch;                    /* >= 0 */
    int64_t n_tokens;                   /* >= 0, of each batch row */
    float *rows;                        /* the caller's, aligned to its floats; may be NULL where there are no tokens */
    int64_t n_floats;                   /* the capacity of rows, >= n_batch * n_tokens * rotary_dim, else SHAPE */
    int32_t part;                       /* as in halyard_run_args: each part writes the rows of some of the tokens */
    int32_t n_parts;
    const halyard_linear_angles *linear; /* NULL: the rows are those of angles. Else angles and positions are NULL and
                                           bad_position is 0 (else MISMATCH) */
} halyard_rows_args;

/* Writes the rows of n_batch * n_tokens tokens, [n_batch, n_tokens, 2, rotary_dim / 2] dense: a cos row, then a sin
 * row, for each token. A GIVEN source that is by_token, with cos_rows = rows, sin_rows = rows + rotary_dim / 2, n_rows
 * = n_batch * n_tokens and stride_row = rotary_dim, serves them to the runs of a step. The plan decides by its target
 * which kernels make them; linear angles go by those of PHASE, and have the same bits on every target. Allocates
 * nothing, and reads no environment. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE, OVERFLOW, POSITION,
 * FREQUENCY, OVERLAP, MISMATCH. */
HALYARD_API halyard_status halyard_make_rows(const halyard_plan *plan, const halyard_rows_args *args,
                                             halyard_error *error);

/* ---- Run ------------------------------------------------------------------------------------------------- */

typedef struct halyard_tensor {
    uint32_t size;
    int32_t dtype;      /* must be the plan's */
    int32_t device;     /* HALYARD_CPU; the others are for halyard_gpu.h */
    int32_t reserved;   /* 0 */
    void *data;         /* the element [0, 0, 0, 0]; any alignment; never written through as an input. If the outputs of
                           a run come to 32 MiB, and all heads and halves begin on 64 bytes, they go past the caches. */
    int64_t shape[4];   /* batch, tokens, heads, head_dim; the first three >= 0, head_dim the plan's */
    int64_t strides[4]; /* in elements, any sign; an input's may be 0 */
} halyard_tensor;

/* Runs task(data, i) once for each i in 0 … n_tasks - 1, in any order and on any threads, and returns 0 when all have
 * finished. Any other value, an exception, or a task left out makes the run fail with HALYARD_ERROR_EXECUTOR; the
 * outputs are then incomplete.
 * A run has one task for each 256 KiB of f32 (48 KiB of 16 bits) that it rotates in all tensors together, and at most
 * n_threads. With fewer than two the executor is not called, because handing work over costs more than it saves. */
typedef struct halyard_executor {
    uint32_t size;
    int32_t n_threads; /* how many tasks can run at once, 1 … 1024 */
    void *context;
    int32_t (*parallel_for)(void *context, int64_t n_tasks, void (*task)(void *data, int64_t index), void *data);
} halyard_executor;

/* Two tokens with one slot. CHECK: they are a HALYARD_ERROR_SLOT. RANGE_ONLY: they are allowed, and the later one (in
 * [batch, tokens] order) is stored, with any number of threads. */
enum { HALYARD_SLOTS_CHECK = 0, HALYARD_SLOTS_RANGE_ONLY = 1 };

/* Where tokens go in caches: one slot for each. -1: the token is not stored in caches; outputs that are views are still
 * written. If no output is a view, nobody looks at its positions, as of padding. Any other number that a cache of the
 * plan does not have is a HALYARD_ERROR_SLOT, before anything is written. If every tensor with a cache has 0 heads, the
 * slots are not read. */
typedef struct halyard_slots {
    uint32_t size;
    int32_t type;          /* HALYARD_INT32 or HALYARD_INT64 */
    int32_t policy;        /* HALYARD_SLOTS_CHECK or HALYARD_SLOTS_RANGE_ONLY; to rerotate, CHECK (else MISMATCH) */
    int32_t consecutive;   /* 0: data holds every token's slot. 1: data holds a start for each batch row, shape {batch,
                              1}, and token t has slot start + t; after a start of -1 no token of the row is stored */
    const void *data;      /* any alignment */
    int64_t shape[2];      /* {batch, tokens} */
    int64_t strides[2];    /* in elements, any sign */
    void *scratch;         /* CHECK only: memory of the caller's, shared with nothing else that the run reads or writes,
                              and not with other calls (parts too) at the same time. Any contents, any alignment. */
    int64_t scratch_bytes; /* at least n_slots / 8, rounded up, of the plan's smallest cache; else SHAPE */
} halyard_slots;

/* What a run brings for the stages of one tensor: just what its plan asks for, the rest is 0 (else MISMATCH, or SHAPE
 * for a count). */
typedef struct halyard_stages {
    uint32_t size;
    int32_t reserved;         /* 0 */
    const void *weight;       /* the norm's, of its weight_dtype, dense, any alignment */
    int64_t n_weights;        /* window_size; weight_per_head: heads * window_size; HALYARD_NORM_ROW: heads * head_dim.
                                 In the order of the input before the rotation, of the output after it */
    const float *scales;      /* STATIC, dense */
    int64_t n_scales;         /* 1, or heads */
    float *scales_out;        /* DYNAMIC: [batch, tokens, heads]; of a tensor with a cache [slots, heads], where tokens
                                 without a slot write none. A plan that rerotates reads them first: each token that it
                                 moves must have a scale that is positive and finite, and so must be its reciprocal
                                 (else SCALE) */
    int64_t stride_scales[3]; /* in elements: batch, token, head; with a cache 0 (else MISMATCH), slot, head */
    void *cache;              /* the first element of slot 0 and head 0, any alignment */
    const float *position_scales;      /* [batch, tokens, heads] finite numbers (else SCALE), any alignment */
    int64_t stride_position_scales[3]; /* in elements: batch, token, head; any sign, 0 shares one */
    const void *bias;         /* the norm's, n_weights of its weight_dtype, in their order, dense, any alignment */
    void *group_scales;             /* those of groups that lie apart: of slot 0 or token 0, and head 0; any alignment */
    const void *from_group_scales;  /* those of from_groups, likewise */
} halyard_stages;

typedef struct halyard_run_args {
    uint32_t size;
    int32_t bad_position;                /* HALYARD_BAD_POSITION_… */
    const halyard_angle_source *angles;  /* its rotary_dim must be the plan's; may be NULL where no tensor is rotated,
                                            and then neither it nor positions are read */
    const halyard_positions *positions;  /* NULL: 0, 1, 2, … in every batch row */
    const halyard_tensor *x;             /* the plan's n_tensors inputs, all with one batch and one tokens */
    const halyard_tensor *y;             /* outputs, each of its input's shape and the plan's out_dtype. In place: the
                                            same data, strides, dtype and pairing as its input. y of a tensor with a
                                            cache is not read. If the plan rerotates, x of such a tensor only tells
                                            dtype and shape: its data and strides are not read either */
    const halyard_executor *executor;    /* NULL: the calling thread does everything */
    int32_t part;                        /* 0 … n_parts - 1, see below */
    int32_t n_parts;                     /* 0 … 1024; 0 and 1: the run is whole */
    const halyard_slots *slots;          /* where tokens go in the plan's caches; NULL if it has none */
    const halyard_stages *stages;        /* weights, scales and caches [n_tensors]; NULL if the plan asks for none */
    const halyard_positions *from_positions; /* the positions that keys of a plan that rerotates come from, never NULL;
                                            they go to `positions`. NULL for other plans */
    const halyard_angle_source *from_angles; /* what they were rotated with [angles]; NULL for other plans. Neither may
                                            be GIVEN or have another reference than EXACT, and bad_position must be
                                            ERROR (else MISMATCH) */
    int32_t n_tensors;                   /* how many tensors x, y and stages hold: the plan's, else SHAPE [unchecked: as
                                            many as the plan's] */
    int32_t reserved;                    /* 0 */
} halyard_run_args;

/* Rotates, with the plan's other stages. Positions, slots and scales are checked before the first write. Allocates
 * nothing. Zero batch, tokens or heads succeed and do nothing. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE,
 * MISMATCH (dtype, head_dim or rotary_dim is not the plan's; positions that given rows need, or can't have; what the
 * plan's stages do not ask for; sources by which keys cannot move), OVERFLOW, STRIDE, OVERLAP, POSITION, SLOT, SCALE,
 * THREADS, EXECUTOR, UNSUPPORTED (device).
 * Outputs, caches and scales that are written must not overlap positions, slots, weights, biases, static scales, scales
 * by position or given rows (else OVERLAP). Of these, ranges of addresses are compared: an output between their elements
 * is refused, too.
 * Parts. A caller with threads of its own makes the same call on each of them, with another `part`. Together the calls
 * give the bits of the whole run, in any order. Every part checks everything, so that all return the same status and
 * none writes on an error. Parts take no executor (else MISMATCH). A part without work does nothing. */
HALYARD_API halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error);

/* ---- Bound runs ------------------------------------------------------------------------------------------ */

/* A run whose arguments were checked, all but its pointers. It serves calls that differ in nothing else, such as those
 * of decoding steps and layers, and gives the bits of halyard_run. */
typedef struct halyard_bound_run halyard_bound_run;

/* Checks a run as halyard_run does, and does not run it. The values of positions and slots are not read.
 * The pointers in args (data of tensors and positions) are an example: each run brings its own. A tensor that
 * is in place here is in place there. The plan, args->angles and from_angles must outlive the bound run, and so must
 * what args->executor calls. args->part and n_parts must be 0.
 * Errors: as halyard_run, and OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_bind_run(const halyard_plan *plan, const halyard_run_args *args,
                                            halyard_bound_run **out, halyard_error *error);

typedef struct halyard_bound_run_args {
    uint32_t size;
    int32_t part;           /* as in halyard_run_args */
    int32_t n_parts;
    int32_t n_tensors;      /* how many pointers x and y hold: the plan's, else HALYARD_ERROR_SHAPE */
    const void *positions;  /* halyard_positions' data; NULL where the run was bound without positions */
    const void *const *x;   /* [n_tensors] the inputs' data; of a tensor without elements it is not looked at */
    void *const *y;         /* [n_tensors] the outputs' data: x's where a tensor was bound in place; of a tensor with a
                               cache it is not looked at */
    const void *slots;      /* halyard_slots' data; NULL where the run was bound without slots */
    void *slots_scratch;    /* halyard_slots' scratch; NULL where the run was bound without */
    /* [n_tensors] the data of halyard_stages, each NULL where the tensor has none; an array may be NULL where no tensor
     * has any. */
    const void *const *weights;
    const float *const *scales;
    float *const *scales_out;
    void *const *caches;
    const void *from_positions; /* halyard_positions' data; NULL where the plan does not rerotate */
    const halyard_angle_source *angles; /* NULL: those that the run was bound with. Else, where these are GIVEN, a GIVEN
                                           source like them (else MISMATCH), whose rows lie elsewhere */
    const float *const *position_scales; /* [n_tensors] as the arrays of stages above */
    const void *const *biases;
    void *const *group_scales;
    const void *const *from_group_scales;
} halyard_bound_run_args;

/* Runs. What is checked: pointers, positions, slots, scales that are read, and that outputs share no element with
 * inputs, positions, given rows and each other. Allocates nothing. Errors: NULL_POINTER, STRUCT_SIZE, SHAPE
 * (n_tensors, part), MISMATCH (positions or slots where the run was bound without them, or none where it was bound with
 * them; y other than x where a tensor was bound in place; angles; parts of a run with an executor), OVERFLOW, OVERLAP (also y the same as x where they were bound apart), POSITION,
 * SLOT, SCALE, EXECUTOR. */
HALYARD_API halyard_status halyard_run_bound(const halyard_bound_run *bound, const halyard_bound_run_args *args,
                                             halyard_error *error);

/* NULL is allowed. */
HALYARD_API void halyard_destroy_bound_run(halyard_bound_run *bound);

/* ---- Threads --------------------------------------------------------------------------------------------- */

typedef struct halyard_pool halyard_pool;

/* Starts n_threads - 1 threads (n_threads 1 … 1024) that wait for work, spinning briefly and then asleep. If two
 * runs use one pool at the same time, the later one does not wait: it works on its calling thread alone. Threads don't
 * survive fork(): in a child, runs work on the calling thread. Errors: THREADS, NULL_POINTER, OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_pool(int32_t n_threads, halyard_pool **out, halyard_error *error);

/* The pool as an executor; valid until the pool is destroyed. NULL when pool is NULL. */
HALYARD_API const halyard_executor *halyard_get_pool_executor(const halyard_pool *pool);

/* Joins the threads. NULL is allowed. No run may use the pool. */
HALYARD_API void halyard_destroy_pool(halyard_pool *pool);

/* ---- Targets --------------------------------------------------------------------------------------------- */

typedef struct halyard_target_info {
    uint32_t size;
    int32_t built;      /* 1: this library holds its kernels */
    int32_t supported;  /* 1: this machine can run them */
    int32_t active;     /* 1: plans that name no target take it (the environment applies) */
    const char *name;   /* "x86_avx2"; static strings all three */
    const char *isa;    /* what it requires, in words */
    char reason[256];   /* why it is not active; empty when it is */
} halyard_target_info;

/* How many targets there are, best first; the last is the portable reference. */
HALYARD_API int32_t halyard_get_target_count(void);

/* Fills in *info (its size must be set) for target 0 … count - 1. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE. */
HALYARD_API halyard_status halyard_get_target_info(int32_t index, halyard_target_info *info, halyard_error *error);

/* Tells, for each kernel that could serve the plan description, whether it was taken and if not why: lines of text
 * ended by newlines. Writes at most n_bytes to text, always ended by a zero byte when n_bytes > 0, and the length of
 * the whole to *n_needed (without the zero byte) when it is not NULL. text may be NULL when n_bytes is 0. Errors: as
 * halyard_create_plan, and SHAPE for a negative n_bytes. A target that cannot be had is explained, not an error. */
HALYARD_API halyard_status halyard_explain_plan(const halyard_plan_desc *desc, char *text, int64_t n_bytes,
                                                int64_t *n_needed, halyard_error *error);

#ifdef __cplusplus
}
#endif

#endif /* HALYARD_H */
