/* Halyard: rotary position embedding (RoPE) kernels, compiled ahead of time. The C ABI. halyard_kv.h adds norms,
 * quantisation and stores into KV caches to the rotation; halyard_cuda.h has rotations and part of halyard_kv.h
 * for CUDA devices.
 *
 * What it computes. A head vector of head_dim elements holds rotary_dim / 2 pairs (x0, x1) in a window
 * [rotary_offset, rotary_offset + rotary_dim). Pair k of the token at position p rotates by the angle
 * theta = p * inv_freq[k] (RoFormer, arXiv:2104.09864, eq. 34), scaled by attention_factor f:
 *
 *     y0 = f * (x0 cos theta - x1 sin theta)        y1 = f * (x0 sin theta + x1 cos theta)
 *
 * The inverse rotates by -theta and also scales by f. Elements outside the window are copied (out of place) or left
 * alone (in place). There are two pairings, which differ in the elements of pair k, counted from the window's start:
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
 * Accuracy. With an exact source: |y - exact| <= 2 * 2^-23 * hypot(x0, x1) * f + 2^-149, plus half an ulp if the
 * storage is f16 or bf16. This holds in the default floating-point environment, for pairs with hypot(x0, x1) * f up to
 * 0.999999 of the storage's greatest finite number. Above that a result may be infinite although the exact one is
 * finite, because one of the two products can overflow before the other is added. With HALYARD_ANGLES_GIVEN, f is
 * hypot(cos, sin) of the row. All targets give the same bits, for any number of threads and parts (only a NaN's sign
 * and payload may differ).
 *
 * Errors. Functions return HALYARD_OK (0) or a positive halyard_status, and write a message to `error` when it is
 * not NULL. On an error every out parameter is unchanged and no output tensor has been written, with two exceptions:
 * HALYARD_ERROR_EXECUTOR and HALYARD_ERROR_DEVICE come after the work began and leave outputs incomplete. The library
 * never prints, aborts or throws, and starts no thread unless halyard_create_pool is called.
 *
 * Ownership and threads. Objects are immutable after creation and may be used from any number of threads at once;
 * destroy an object only when no call uses it. After a call the library keeps no pointer to a description, tensor or
 * string. Only the rows of a GIVEN angle source must stay.
 *
 * Structs start with `size`: set it to sizeof the struct. In an array set it in every element: the size in the
 * first element is the distance between elements. Later versions append fields, and will accept structs of an earlier
 * version's size: missing fields take their defaults. So far each struct has one size; any other, 0 too, is an error.
 * A field of 0 means its default, which its comment gives in [brackets]; without brackets the default is 0 itself.
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
    HALYARD_ERROR_STRUCT_SIZE = 2,       /* a struct's size is not set, or not this library's */
    HALYARD_ERROR_UNKNOWN_VALUE = 3,     /* an enumeration holds a value that does not exist */
    HALYARD_ERROR_SHAPE = 4,             /* a negative size, a zero head_dim, or shapes that do not agree */
    HALYARD_ERROR_ROTARY_DIM = 5,        /* rotary_dim is odd, zero or negative */
    HALYARD_ERROR_WINDOW = 6,            /* [rotary_offset, rotary_offset + rotary_dim) is not inside the head */
    HALYARD_ERROR_OVERFLOW = 7,          /* sizes times strides leave the address space */
    HALYARD_ERROR_STRIDE = 8,            /* two elements of an output or a cache could have one address */
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
    HALYARD_ERROR_CONFIG = 20,           /* a config that isn't JSON, lacks fields, contradicts itself or has no RoPE */
    HALYARD_ERROR_NO_DEVICE = 21,        /* no CUDA driver, or no device that it can use */
    HALYARD_ERROR_DEVICE = 22,           /* a GPU's driver refused or failed */
    HALYARD_ERROR_SLOT = 23,             /* a slot outside the cache, or one slot for two tokens */
    HALYARD_ERROR_SCALE = 24             /* a scale, or a norm's eps, that is out of range */
};

/* A call that fails writes its code here, and a message that names the argument and its value. A call that succeeds
 * changes nothing here. If size is not set, the call does nothing and returns HALYARD_ERROR_STRUCT_SIZE. */
typedef struct halyard_error {
    uint32_t size;
    halyard_status code;
    char message[256];
} halyard_error;

/* The name of a status, such as "HALYARD_ERROR_WINDOW"; NULL if the number is not a status. A static string. */
HALYARD_API const char *halyard_status_name(halyard_status status);

/* ---- Enumerations ---------------------------------------------------------------------------------------- */

/* A dtype, a pairing or an axis map is never 0. A field that is 0 is not set, and its comment gives the default. */
enum { HALYARD_F32 = 1, HALYARD_F16 = 2, HALYARD_BF16 = 3 };              /* of elements; arithmetic is always f32 */
enum { HALYARD_E4M3 = 4, HALYARD_E5M2 = 5, HALYARD_INT8 = 6, HALYARD_UINT8 = 7 }; /* of caches: see halyard_kv.h */
enum { HALYARD_PAIRING_HALF = 1, HALYARD_PAIRING_INTERLEAVED = 2 };
enum { HALYARD_FORWARD = 0, HALYARD_INVERSE = 1 };
enum { HALYARD_INT32 = 0, HALYARD_INT64 = 1 };                              /* type of positions in memory */
enum { HALYARD_REAL32 = 2, HALYARD_REAL64 = 3 };                            /* of halyard_linear_angles' positions */
enum { HALYARD_CPU = 0, HALYARD_CUDA = 1 };                                 /* where a tensor's memory lies */
/* Where cos and sin come from. AUTO: TABLE if a table takes at most 64 MiB or `reference` is not EXACT, else PHASE. */
enum { HALYARD_ANGLES_AUTO = 0, HALYARD_ANGLES_TABLE = 1, HALYARD_ANGLES_GIVEN = 2, HALYARD_ANGLES_PHASE = 3 };
/* Which arithmetic a table's cos and sin have. EXACT: correctly rounded. HF_F32: Hugging Face transformers' float32
 * arithmetic, angle = float32(position) * float32(inv_freq), for models that were trained with its errors. Only the
 * angles follow transformers, not the rounding of the rotation. Halyard rounds each operation correctly; transformers
 * may be an ulp off. */
enum { HALYARD_REFERENCE_EXACT = 0, HALYARD_REFERENCE_HF_F32 = 1 };
/* Which axis (time, height, width, say) a pair reads its position from. SECTIONS: consecutive bands of pairs, axis 0
 * first (Qwen2-VL). INTERLEAVED: axis a >= 1 owns the pairs k with k mod n_axes = a and k < n_axes * counts[a], axis 0
 * the others (Qwen3-VL). LIST: any map, given as the axis of each pair. */
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
 * Also NULL_POINTER (out), FREQUENCY (an inverse frequency above 2^20, if base < 1), and OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_base(double base, int64_t rotary_dim,
                                                                halyard_frequencies **out, halyard_error *error);

/* inv_freq[0 … n_pairs - 1] as given, in radians per position, each taken as exact.
 *   n_pairs           1 … 2^19; rotary_dim is 2 * n_pairs.                  Else ROTARY_DIM.
 *   inv_freq          finite, |inv_freq| <= 2^20; zero means no rotation.   Else FREQUENCY.
 *   attention_factor  2^-60 … 2^60; 1 in most models.                       Else FREQUENCY.
 * Also NULL_POINTER and OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_list(const double *inv_freq, int64_t n_pairs,
                                                                double attention_factor, halyard_frequencies **out,
                                                                halyard_error *error);

/* Methods that change a trained model's frequencies for contexts longer than it was trained on. Below, t[k] =
 * base^(-2k / exponent_dim), d = rotary_dim, s = factor, and L = original_max_position. */
enum {
    /* inv_freq = t. RoFormer, arXiv:2104.09864, section 3.2.2. */
    HALYARD_SCALING_DEFAULT = 0,
    /* Position interpolation, inv_freq = t / s. arXiv:2306.15595, equation 4. Reads factor. */
    HALYARD_SCALING_LINEAR = 1,
    /* NTK-aware: t with base * s^(exponent_dim / (d - 2)) as its base, so that the last pair rotates s times slower
     * and the first pair as before. bloc97, reddit.com/r/LocalLLaMA/comments/14lz7j5; arXiv:2309.00071, section 3.1.
     * Reads factor (that is what Hunyuan calls alpha). Needs d >= 4. */
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
     * attention_factor = m(mscale) / m(mscale_all_dim) where both are set (DeepSeek-V2, arXiv:2405.04434: equal ones
     * give 1), else m(1), with m(x) = 0.1 x ln(s) + 1 (section 3.4). Reads factor (0: max_position / L),
     * original_max_position, beta_fast, beta_slow, no_truncate, mscale and mscale_all_dim. Needs base > 1. */
    HALYARD_SCALING_YARN = 4,
    /* Llama 3.1 (github.com/meta-llama/llama-models, apply_scaling): inv_freq = t * ((1 - c) / s + c). With n = L * t /
     * (2 pi), the turns in L tokens, c = (n - low_freq_factor) / (high_freq_factor - low_freq_factor), clamped
     * to 0 … 1. If both factors are equal (Llama 4), c is 0 where n is below them, and 1 otherwise. Reads factor,
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

/* A scaling method and its numbers. A field of 0 means its default in [brackets]; if it has none, the methods that read
 * the field refuse 0. Fields that a method does not read are ignored. */
typedef struct halyard_scaling {
    uint32_t size;
    int32_t method;                /* HALYARD_SCALING_… */
    double base;                   /* finite, > 0; no default */
    int64_t rotary_dim;            /* even, 2 … 2^20; no default */
    int64_t exponent_dim;          /* 2 … 2^20 [rotary_dim]; head_dim for models whose exponents divide by it */
    int64_t rotated_dim;           /* even, <= rotary_dim [rotary_dim]; PROPORTIONAL only */
    double factor;                 /* s: 1 … 2^60 */
    int64_t original_max_position; /* L, in tokens: 1 … 2^53, the context that the model was trained with */
    int64_t max_position;          /* in tokens: 1 … 2^53, the context that the model is meant for */
    int64_t seq_len;               /* in tokens: 0 … 2^53, the context that these frequencies are for [up to L] */
    double attention_factor;       /* 2^-60 … 2^60 [the method's own, or 1 if it has none] */
    double beta_fast;              /* turns: 2^-60 … 2^60, >= beta_slow [32] */
    double beta_slow;              /* turns: 2^-60 … 2^60 [1] */
    int32_t no_truncate;           /* 0 or 1; 1 is Hugging Face's truncate = false */
    int32_t reserved;              /* 0 */
    double mscale;                 /* -2^60 … 2^60; read where mscale_all_dim is set too */
    double mscale_all_dim;
    double low_freq_factor;        /* turns in L tokens: 2^-60 … 2^60; no default */
    double high_freq_factor;       /* >= low_freq_factor, <= 2^60; no default */
    const double *short_factor;    /* n_factors values, 2^-60 … 2^60; read during the call only */
    const double *long_factor;     /* likewise */
    int64_t n_factors;             /* rotary_dim / 2 */
} halyard_scaling;

/* Makes frequencies and attention_factor by a scaling method; frequencies are kept to twice double precision.
 * DYNAMIC_NTK and LONGROPE make them for some context lengths only: see halyard_create_frequencies_for_length.
 * Errors: NULL_POINTER (scaling, out, a factor list), STRUCT_SIZE, UNKNOWN_VALUE (method, no_truncate, reserved),
 * ROTARY_DIM (rotary_dim, exponent_dim, rotated_dim), SHAPE (n_factors, a number of tokens), FREQUENCY (any other
 * number, or an inverse frequency above 2^20), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_scaling(const halyard_scaling *scaling,
                                                                   halyard_frequencies **out, halyard_error *error);

/* What a config leaves open. Zero is the default of every field. */
typedef struct halyard_config_options {
    uint32_t size;
    int64_t seq_len;        /* in tokens, 0 … 2^53: the context for DYNAMIC_NTK and LONGROPE; 0: a short one */
    const char *layer_type; /* one of the config's layer types, such as "sliding_attention", or "vision" for the image
                               encoder. NULL is enough if all layers with RoPE have the same frequencies. */
    const int64_t *layer;   /* a layer, from 0, for configs that list bases, factors or types by layer; NULL: all */
} halyard_config_options;

/* Makes the frequencies of a model from its Hugging Face config.json: JSON text (UTF-8) of n_bytes bytes, no
 * terminating zero needed. These keys are understood (runtime/models.md lists the models that are known by name):
 *   - rope_theta and rope_scaling with `type` or `rope_type`, or rope_parameters, for all layers or per layer type;
 *     the methods default, linear, dynamic, yarn, llama3, longrope (also "su"), proportional and mrope, with
 *     seq_len from the options;
 *   - the width from head_dim (or hidden_size / num_attention_heads) times partial_rotary_factor or rotary_pct, or from
 *     rotary_dim, or qk_rope_head_dim;
 *   - mrope_section and mrope_interleaved (of model types whose order of axes is known), text_config,
 *     rope_local_base_freq, global_head_dim, layer_types, lists by layer, and dual_chunk_attention_config (its first
 *     chunk).
 * Fields for which the model_type documents a default may be absent. A config of an unknown model_type must have them,
 * and its pairing stays unknown. Nothing else is guessed: a field that is missing, contradictory, of the wrong type or
 * absurd is an error that names it. A key about RoPE that is not known is an error, too, at any depth of the objects
 * that describe the model. Fields that have nothing to do with RoPE are not read.
 * Errors: NULL_POINTER (text, out), STRUCT_SIZE, SHAPE (n_bytes or seq_len is negative or too large, layer is negative;
 * a factor list's length; a number of tokens), ROTARY_DIM, FREQUENCY (numbers out of range, as for from_scaling),
 * CONFIG (the rest, with line and column where it is not JSON), MISMATCH (layer_type or layer is needed, not known, or
 * has no RoPE), UNSUPPORTED (a kind of RoPE or of q scale that this version does not know), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_config(const char *text, int64_t n_bytes,
                                                                  const halyard_config_options *options,
                                                                  halyard_frequencies **out, halyard_error *error);

/* Rules for the number that multiplies q at position p, with a = q_scale, n = q_scale_length and d = q_scale_shift of
 * the struct below. */
enum {
    HALYARD_Q_SCALE_NONE = 0,
    HALYARD_Q_SCALE_LOG = 1,  /* 1 + a ln(1 + floor((p + d) / n)), arXiv:2501.19399: Llama 4, Ministral 3, Mistral 4 */
    HALYARD_Q_SCALE_POWER = 2 /* (1 + (p + d) / n)^a: Beam */
};
enum { /* which layers apply that factor */
    HALYARD_LAYERS_NONE = 0,
    HALYARD_LAYERS_ALL = 1,
    HALYARD_LAYERS_UNROTATED = 2 /* only the layers without RoPE */
};

typedef struct halyard_frequencies_info {
    uint32_t size;
    int64_t rotary_dim;
    double attention_factor;
    const double *inv_freq; /* rotary_dim / 2 values, correctly rounded; owned by the frequencies */
    /* Set where the frequencies come from a config, else the values in [brackets]. Plans and angle sources take these
     * fields as defaults. */
    int32_t pairing;        /* HALYARD_PAIRING_… of the rotation's input [0: unknown] */
    int32_t out_pairing;    /* of its output; another than `pairing` in DeepSeek-V3 and related models [0: unknown] */
    const char *method;     /* "default", "list", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope" or
                               "proportional"; a static string */
    int64_t head_dim;       /* elements of a head; with MLA, only those of the slice that is rotated [0: unknown] */
    int32_t axis_map;       /* HALYARD_AXIS_MAP_… [NONE: one axis] */
    int32_t n_axes;         /* [0] */
    int64_t axis_counts[4]; /* pairs that read axis 0 … n_axes - 1; they sum to rotary_dim / 2 [0] */
    /* What the frequencies were made from. */
    double base;                   /* before scaling [0: unknown, as for a list] */
    int64_t original_max_position; /* in tokens, the context that the model was trained with [0: unknown] */
    int64_t max_position;          /* in tokens, the context that the model is meant for: max_position_embeddings or a
                                      like key; for YaRN original_max_position * factor if that is more [0: unknown] */
    /* The frequencies hold for sequences of first_seq_len … last_seq_len tokens, both included: 0 … 2^53, except for
     * two methods, with L = original_max_position. LONGROPE: 0 … L, or L + 1 … 2^53. DYNAMIC_NTK: 0 … L, or L … seq_len
     * if they were made for more than L tokens. last_seq_len is also lower where a config's rule for longer contexts
     * is not supported. For other lengths call halyard_create_frequencies_for_length. */
    int64_t first_seq_len;
    int64_t last_seq_len;
    /* Some models also multiply q by a number that depends on its position p, after the rotation and any norm. A
     * rotation does not do this by itself: see halyard_make_position_scales and position_scales in halyard_kv.h. */
    double q_scale;               /* a [0] */
    int64_t q_scale_length;       /* n, in tokens: >= 1 where there is a rule [0] */
    int32_t q_scale_shift;        /* d: 0 or 1 [0] */
    int32_t q_scale_rule;         /* HALYARD_Q_SCALE_… [NONE] */
    int32_t q_scale_layers;       /* HALYARD_LAYERS_… [NONE] */
    int32_t has_unrotated_layers; /* 1: other layers have no RoPE (Llama 4); linear attention does not count [0] */
} halyard_frequencies_info;

/* Fills in *info (its size must be set). Errors: NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_frequencies_info(const halyard_frequencies *frequencies,
                                                        halyard_frequencies_info *info, halyard_error *error);

/* Makes the frequencies of the same model for another context length, in some tens of microseconds: DYNAMIC_NTK and
 * LONGROPE compute new ones, all other methods copy. Call it when a sequence's length leaves first_seq_len …
 * last_seq_len of its frequencies' info, and then re-rotate its cached keys.
 *   seq_len  in tokens, 0 … 2^53. DYNAMIC_NTK changes with every token above L. So ask for more tokens than the
 *            sequence has: the next multiple of 4096, say. Frequencies that were made for more than L stay valid for
 *            shorter sequences down to L, as in Hugging Face's dynamic_frequency_update.
 * Errors: NULL_POINTER, SHAPE (seq_len), UNSUPPORTED (the first Qwen's use_dynamic_ntk beyond its seq_length, dual
 * chunks beyond the first), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_for_length(const halyard_frequencies *frequencies,
                                                                 int64_t seq_len, halyard_frequencies **out,
                                                                 halyard_error *error);

/* Destroys frequencies. NULL is allowed. Sources made from the frequencies stay valid. */
HALYARD_API void halyard_destroy_frequencies(halyard_frequencies *frequencies);

/* ---- Positions ------------------------------------------------------------------------------------------- */

/* Token positions. Values are int32; int64 is storage only, and a value outside int32 is a bad position.
 * Wherever a pointer to this struct is NULL, token t of every batch row has position t. A batch of several rows with
 * one token each must give positions (else MISMATCH), because no decoding step wants position 0 in all of its rows. */
typedef struct halyard_positions {
    uint32_t size;
    int32_t type;        /* HALYARD_INT32 or HALYARD_INT64 */
    int32_t consecutive; /* 0: data holds every token's position. 1: data holds a start for each batch row, shape
                            {1 or batch, 1}, and token t has position start + t. */
    const void *data;    /* any alignment */
    int64_t shape[2];    /* {1 or batch, tokens}; 1 shares the row between all batch rows */
    int64_t strides[2];  /* in elements, any sign, zero allowed */
    int64_t n_axes;      /* how many such arrays there are, one for each axis of the source's axis map; 0 or 1:
                            all axes read one array, as for text */
    int64_t stride_axis; /* in elements, from one axis's array to the next */
} halyard_positions;

/* ---- Angle sources --------------------------------------------------------------------------------------- */

typedef struct halyard_angle_source halyard_angle_source;

typedef struct halyard_angle_source_desc {
    uint32_t size;
    int32_t kind;      /* HALYARD_ANGLES_… */
    int32_t reference; /* HALYARD_REFERENCE_…; PHASE takes EXACT only (else HALYARD_ERROR_MISMATCH). GIVEN rows are read
                          as they are */

    /* TABLE and PHASE cover n_positions positions from `first` on; 2^32 positions from -2^31 on are every int32.
     *
     * TABLE: a row of cos and a row of sin, float32(f cos theta) and float32(f sin theta), correctly rounded at every
     * int32 position; 4 * rotary_dim bytes a row. PHASE: no table. The angle is the position times a 64-bit fraction of
     * a full turn, which wraps exactly; cos and sin come from polynomials in float32, within 1.2e-7 f everywhere. */
    int32_t first;
    int64_t n_positions; /* >= 1, no position beyond 2^31 - 1, else HALYARD_ERROR_POSITION. GIVEN ignores both fields */

    /* GIVEN: the caller's own rows; position p reads row p, for p in 0 … n_rows - 1. attention_factor is not applied.
     * The memory stays the caller's: it must outlive the source, must not change during a run, and may be rewritten
     * between runs (so one source can serve the rows of every decoding step, see halyard_make_rows). For a fused array
     * [cos | sin] set sin_rows = cos_rows + rotary_dim / 2, and stride_row to its row length. Rows of Hugging Face hold
     * rotary_dim values, the second half equal to the first; only the first half is read. A run with several batch rows
     * must give positions, unless the rows are by_token. */
    const void *cos_rows;  /* the cos rows: [n_rows, rotary_dim / 2], last dimension dense; any alignment */
    const void *sin_rows;  /* the sin rows, likewise */
    int64_t n_rows;        /* 1 … 2^31 - 1, as for a table; else HALYARD_ERROR_SHAPE or HALYARD_ERROR_OVERFLOW */
    int64_t stride_row;    /* elements from one row to the next, >= rotary_dim / 2 */
    int64_t rotary_dim;    /* GIVEN only: even, 2 … 2^20 */
    int32_t rows_dtype;    /* HALYARD_F32, HALYARD_F16 or HALYARD_BF16 [HALYARD_F32] */
    int32_t by_token;      /* GIVEN only. 1: there is a row for each token of a run, in the order in which
                              halyard_make_rows writes them: token t of batch row b reads row b * tokens + t. Such a run
                              has n_rows = batch * tokens (else SHAPE) and no positions (else MISMATCH). 2: likewise,
                              but batch rows share the rows: token t of each reads row t, and n_rows = tokens. */

    /* Positions with several axes: a run's positions then have n_axes arrays, or one for all axes. */
    int32_t axis_map;      /* HALYARD_AXIS_MAP_… [the axis map of the frequencies' config, else NONE] */
    int32_t n_axes;        /* 1 … HALYARD_MAX_AXES; 0 or 1 with HALYARD_AXIS_MAP_NONE; 0 where axis_map is 0 */
    int64_t axis_counts[HALYARD_MAX_AXES]; /* SECTIONS and INTERLEAVED: pairs of each axis, >= 0; their sum is
                                              rotary_dim / 2 (else SHAPE) */
    const int32_t *axis_of_pair; /* LIST: [rotary_dim / 2] axes below n_axes (else SHAPE). Read during creation only */
} halyard_angle_source_desc;

/* Makes an angle source. `frequencies` may be NULL only for GIVEN, which does not read it. Errors: NULL_POINTER,
 * STRUCT_SIZE, UNKNOWN_VALUE, POSITION (n_positions), SHAPE (n_rows, stride_row, the list's shape, the axis map),
 * ROTARY_DIM, MISMATCH, OVERFLOW, OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_angle_source(const halyard_frequencies *frequencies,
                                                       const halyard_angle_source_desc *desc,
                                                       halyard_angle_source **out, halyard_error *error);

typedef struct halyard_angle_source_info {
    uint32_t size;
    int32_t kind;       /* resolved: never HALYARD_ANGLES_AUTO */
    int64_t rotary_dim;
    int64_t first;      /* first … last: the positions that the source covers */
    int64_t last;
    int64_t n_rows;     /* a table that does not cover position 0 holds one more row, for position 0 */
    uint64_t bytes;     /* of memory that the source owns; only re-rotation reads 4 * rotary_dim of a TABLE's */
} halyard_angle_source_info;

/* Fills in *info (its size must be set). Errors: NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_angle_source_info(const halyard_angle_source *source,
                                                         halyard_angle_source_info *info, halyard_error *error);

/* Destroys an angle source. NULL is allowed. */
HALYARD_API void halyard_destroy_angle_source(halyard_angle_source *source);

/* ---- Plans ----------------------------------------------------------------------------------------------- */

enum { HALYARD_MAX_TENSORS = 4 };

/* The KV path: stages of a tensor beside the rotation, and a run's arguments for them; halyard_kv.h defines both. */
typedef struct halyard_kv_desc halyard_kv_desc;
typedef struct halyard_kv_args halyard_kv_args;

/* One tensor that a plan rotates (q or k, say), as far as it is the same in all runs. */
typedef struct halyard_tensor_desc {
    uint32_t size;
    int32_t dtype;         /* HALYARD_F32, HALYARD_F16 or HALYARD_BF16: of input and output. (8 bits: see kv) */
    int32_t pairing;       /* HALYARD_PAIRING_… of the input [the frequencies' pairing, or their out_pairing if the plan
                              rerotates] */
    int32_t out_pairing;   /* of the output [the same as pairing; if that is 0, the frequencies' out_pairing] */
    int64_t head_dim;      /* >= rotary_offset + rotary_dim [the frequencies' head_dim] */
    int64_t rotary_offset; /* >= 0 */
    const halyard_kv_desc *kv; /* stages beside the rotation, see halyard_kv.h; NULL: none. Read during the call only */
} halyard_tensor_desc;

typedef struct halyard_plan_desc {
    uint32_t size;
    int32_t direction;      /* HALYARD_FORWARD or HALYARD_INVERSE */
    int64_t rotary_dim;     /* even, >= 2 [the frequencies' rotary_dim]; may be 0 where no tensor is rotated */
    const halyard_frequencies *frequencies; /* may be NULL. Else rotary_dim, pairing, out_pairing and head_dim take
                               their values from these where they are 0, and another rotary_dim is a MISMATCH. Read
                               during the call only */
    int32_t n_tensors;      /* 1 … HALYARD_MAX_TENSORS */
    int32_t rerotates;      /* 1: runs re-rotate keys that were rotated in `direction`, see halyard_kv.h */
    const halyard_tensor_desc *tensors; /* [n_tensors] */
    const char *target;     /* NULL: the best one that is built and that this machine runs, subject to the
                               environment: HALYARD_TARGET forces a target, HALYARD_MAX_TARGET sets a ceiling. A name
                               forces exactly that target, and the environment is not read. */
    const char *max_target; /* NULL, or the best target to consider; the environment is not read then */
} halyard_plan_desc;

typedef struct halyard_plan halyard_plan;

/* Makes a plan: checks a description and chooses its kernels. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE
 * (n_tensors, head_dim), ROTARY_DIM, WINDOW, UNKNOWN_TARGET, TARGET_NOT_BUILT, TARGET_UNSUPPORTED, MISMATCH (target and
 * max_target both given; rotary_dim not the frequencies'), UNSUPPORTED (a dtype), OUT_OF_MEMORY, the errors of kv. */
HALYARD_API halyard_status halyard_create_plan(const halyard_plan_desc *desc, halyard_plan **out,
                                               halyard_error *error);

/* The name of the target that the plan resolved to; a static string. NULL when plan is NULL. */
HALYARD_API const char *halyard_get_plan_target(const halyard_plan *plan);

/* Destroys a plan. NULL is allowed. */
HALYARD_API void halyard_destroy_plan(halyard_plan *plan);

/* Angles that are linear in positions which need not be integers, as models of images, video and audio have them
 * (DINOv3, LTX, Mochi): pair k of a token at positions p rotates by theta = sum over the axes a of p[a] * matrix[a, k].
 * cos and sin are within 1.2e-7 * attention_factor of those of the exact theta, even where the terms of theta cancel.
 * Every |theta| must be <= 2^31, and every |p[a] * matrix[a, k]| <= 2^40 (else POSITION, before anything is written).
 * If each head has a matrix of its own, make rows for each head, and rotate the heads as tensors of one head each. */
typedef struct halyard_linear_angles {
    uint32_t size;
    int32_t type;            /* HALYARD_REAL32 or HALYARD_REAL64 [none] */
    int32_t n_axes;          /* 1 … HALYARD_MAX_AXES, else SHAPE */
    int32_t reserved;        /* 0 */
    const void *positions;   /* [n_axes, n_batch, n_tokens], any alignment; finite, else POSITION */
    int64_t stride_axis;     /* in elements, any sign, as the next two; 0: all axes share positions */
    int64_t stride_batch;    /* 0: all batch rows share positions */
    int64_t stride_token;    /* 0: all tokens share positions */
    const double *matrix;    /* [n_axes, rotary_dim / 2] dense, any alignment; radians per position, finite, else
                                FREQUENCY */
    double attention_factor; /* 2^-60 … 2^60, else FREQUENCY [0: 1] */
} halyard_linear_angles;

typedef struct halyard_rows_args {
    uint32_t size;
    int32_t bad_position;               /* HALYARD_BAD_POSITION_… */
    const halyard_angle_source *angles; /* its rotary_dim must be the plan's, and it must not be by_token */
    const halyard_positions *positions; /* NULL: 0, 1, 2, … in every batch row */
    int64_t n_batch;                    /* >= 0 */
    int64_t n_tokens;                   /* >= 0, of each batch row */
    float *rows;                        /* the output, aligned to 4 bytes; may be NULL if there are no tokens */
    int64_t n_floats;                   /* the capacity of rows, >= n_batch * n_tokens * rotary_dim, else SHAPE */
    const halyard_linear_angles *linear; /* NULL: `angles` gives the rows. Else this does, and then angles and positions
                                           must be NULL and bad_position 0 (else MISMATCH) */
} halyard_rows_args;

/* Writes the rows of n_batch * n_tokens tokens, [n_batch, n_tokens, 2, rotary_dim / 2] dense: a cos row, then a sin
 * row, for each token. All layers of a decoding step can then share them: make a GIVEN source that is by_token, with
 * cos_rows = rows, sin_rows = rows + rotary_dim / 2, n_rows = n_batch * n_tokens and stride_row = rotary_dim. Kernels
 * of the plan's target make the rows; linear angles use the kernels of PHASE, and have the same bits on every target.
 * Allocates nothing, and reads no environment. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE, OVERFLOW,
 * POSITION, FREQUENCY, OVERLAP, MISMATCH. */
HALYARD_API halyard_status halyard_make_rows(const halyard_plan *plan, const halyard_rows_args *args,
                                             halyard_error *error);

/* ---- Run ------------------------------------------------------------------------------------------------- */

typedef struct halyard_tensor {
    uint32_t size;
    int32_t dtype;      /* must be the plan's */
    int32_t device;     /* HALYARD_CPU; HALYARD_CUDA in halyard_cuda.h only */
    int32_t reserved;   /* 0 */
    void *data;         /* the element [0, 0, 0, 0]; any alignment; inputs' data are never written. If the outputs of a
                           run take 32 MiB or more, and all heads and their halves begin on 64 bytes, heads that are
                           rotated as a whole are written by non-temporal stores, past the CPU's caches. */
    int64_t shape[4];   /* batch, tokens, heads, head_dim; the first three >= 0, head_dim the plan's */
    int64_t strides[4]; /* in elements, any sign; strides of inputs may be 0 */
} halyard_tensor;

/* The caller's threads. parallel_for runs task(data, i) once for each i in 0 … n_tasks - 1, in any order and on any
 * threads, and returns 0 when all have finished. Any other value, an exception, or a task left out makes the run fail
 * (EXECUTOR), with outputs incomplete. A run has one task for each 256 KiB of f32 elements (or 48 KiB of 16-bit
 * elements) that it rotates in all tensors together, at most n_threads. With one task it does not call the executor. */
typedef struct halyard_executor {
    uint32_t size;
    int32_t n_threads; /* how many tasks can run at once, 1 … 1024 */
    void *context;
    int32_t (*parallel_for)(void *context, int64_t n_tasks, void (*task)(void *data, int64_t index), void *data);
} halyard_executor;

typedef struct halyard_run_args {
    uint32_t size;
    int32_t bad_position;                /* HALYARD_BAD_POSITION_… */
    const halyard_angle_source *angles;  /* its rotary_dim must be the plan's; may be NULL where no tensor is rotated,
                                            and then neither angles nor positions are read */
    const halyard_positions *positions;  /* NULL: 0, 1, 2, … in every batch row */
    const halyard_tensor *x;             /* the plan's n_tensors inputs, with equal batch sizes and numbers of tokens */
    const halyard_tensor *y;             /* outputs with the inputs' shapes and dtypes. In place: an output that also
                                            has the data, strides and pairing of its input */
    int32_t n_tensors;                   /* how many tensors x and y hold: the plan's number, else SHAPE [that] */
    int32_t reserved;                    /* 0 */
    const halyard_executor *executor;    /* NULL: the calling thread does everything */
    int32_t part;                        /* 0 … n_parts - 1, see below */
    int32_t n_parts;                     /* 0 … 1024; 0 and 1: the run is whole */
    const halyard_kv_args *kv;           /* arguments of the plan's KV stages, see halyard_kv.h; NULL: they need none */
} halyard_run_args;

/* Rotates the plan's tensors from x to y, with the stages of their kv. Positions are checked before the first write.
 * Allocates nothing. With zero batch rows, tokens or heads it succeeds and does nothing. Errors: NULL_POINTER,
 * STRUCT_SIZE, UNKNOWN_VALUE, SHAPE, MISMATCH (dtype, head_dim or rotary_dim is not the plan's; positions are missing
 * beside GIVEN rows that need them, or given beside rows by token), OVERFLOW, STRIDE, OVERLAP, POSITION, THREADS,
 * EXECUTOR, UNSUPPORTED (device).
 * Outputs must not overlap positions or GIVEN rows (else OVERLAP). This check compares whole address ranges, so an
 * output in a gap between elements of positions or rows is refused, too.
 * Parts. A caller with threads of its own makes the same call on each thread, with another `part`. Together the calls
 * give the bits of the whole run, in any order. Every part checks everything, so that all return the same status and
 * none writes on an error. Parts take no executor (else MISMATCH). A part without work does nothing. */
HALYARD_API halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error);

/* ---- Bound runs ------------------------------------------------------------------------------------------ */

/* A run whose arguments have been checked, except its pointers. It is for calls that differ only in these, such
 * as those of decoding steps and layers, and gives the bits of halyard_run. */
typedef struct halyard_bound_run halyard_bound_run;

/* Checks a run as halyard_run does, but does not run it. The values of positions and slots are not read.
 * The pointers in args (data of tensors and positions) are examples: each bound run passes its own. A tensor that is in
 * place here must be in place in each of them. The plan, args->angles and from_angles must outlive the bound run, and
 * so must what args->executor calls. args->part and n_parts must be 0.
 * Errors: as halyard_run, and OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_bind_run(const halyard_plan *plan, const halyard_run_args *args,
                                            halyard_bound_run **out, halyard_error *error);

typedef struct halyard_bound_run_args {
    uint32_t size;
    int32_t part;           /* as in halyard_run_args */
    int32_t n_parts;
    int32_t n_tensors;      /* how many pointers x and y hold: the plan's number of tensors, else HALYARD_ERROR_SHAPE */
    const halyard_angle_source *angles; /* NULL: those it was bound with. If these are GIVEN, another GIVEN source
                               whose rows have the same properties is allowed (else MISMATCH) */
    const void *positions;  /* halyard_positions' data; NULL where the run was bound without positions */
    const void *const *x;   /* [n_tensors] the inputs' data; ignored for a tensor without elements */
    void *const *y;         /* [n_tensors] the outputs' data: the same as x's for a tensor that was bound in place */
    const halyard_kv_args *kv; /* as in halyard_run_args, but only these pointers of it are used: data and scratch of
                               slots, data of from_positions, and all in stages */
} halyard_bound_run_args;

/* Runs a bound run on other memory. It checks pointers, positions, the values of slots and scales, and overlap:
 * that outputs share no element with inputs, positions, GIVEN rows and each other. Allocates nothing. Errors:
 * NULL_POINTER, STRUCT_SIZE, SHAPE (n_tensors, part), MISMATCH (positions or kv where the run was bound without them,
 * or none where it was bound with them; y other than x for a tensor that was bound in place; angles; parts of a run
 * with an executor), OVERFLOW, OVERLAP (also y the same as x for a tensor that was bound out of place), POSITION,
 * EXECUTOR, and those of kv. */
HALYARD_API halyard_status halyard_run_bound(const halyard_bound_run *bound, const halyard_bound_run_args *args,
                                             halyard_error *error);

/* Destroys a bound run. NULL is allowed. */
HALYARD_API void halyard_destroy_bound_run(halyard_bound_run *bound);

/* ---- Threads --------------------------------------------------------------------------------------------- */

typedef struct halyard_pool halyard_pool;

/* Starts n_threads - 1 threads (n_threads 1 … 1024) that wait for work: they spin briefly, then sleep. If two
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
    const char *name;   /* "x86_avx2", for example; a static string, as isa is */
    const char *isa;    /* the instruction sets that it requires, in words */
    char reason[256];   /* why it is not active; empty when it is */
} halyard_target_info;

/* How many targets there are. They are numbered from 0, best first; the last is the portable reference. */
HALYARD_API int32_t halyard_get_target_count(void);

/* Fills in *info (its size must be set) for target 0 … count - 1. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE. */
HALYARD_API halyard_status halyard_get_target_info(int32_t index, halyard_target_info *info, halyard_error *error);

/* Explains which kernels a plan of this description would use: a line for each candidate, and why it is refused, if it
 * is. Writes at most n_bytes to text, ended by a zero byte when n_bytes > 0, and the length of the whole text (without
 * the zero byte) to *n_needed when it is not NULL. text may be NULL when n_bytes is 0. Errors: as halyard_create_plan,
 * and SHAPE for a negative n_bytes. A target that cannot be used is explained in the text, not an error. */
HALYARD_API halyard_status halyard_explain_plan(const halyard_plan_desc *desc, char *text, int64_t n_bytes,
                                                int64_t *n_needed, halyard_error *error);

#ifdef __cplusplus
}
#endif

#endif /* HALYARD_H */
