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
 * How it is used. Make halyard_frequencies (from a base or a list), then a halyard_angle_source (cos and sin for
 * those frequencies; shared by all layers), then a halyard_plan (checked once, resolved to kernels), and call
 * halyard_run with tensors as often as needed.
 *
 * Shapes. A tensor is [batch, tokens, heads, head_dim] with a free element stride for each dimension, so BSHD,
 * BHSD, slices of a packed QKV buffer and single-head tensors need no copy.
 *
 * Accuracy. With an exact source: |y - exact| <= 2 * 2^-23 * hypot(x0, x1) * f + 2^-149, plus half an ulp of f16 or
 * bf16 storage, for finite inputs whose result does not overflow, in the default floating-point environment.
 * Every target with fused multiply-add gives the same bits (NaN = NaN), for any thread count and any split.
 *
 * Errors. Functions return HALYARD_OK (0) or a positive halyard_status, and write a sentence to `error` when it is
 * not NULL. On an error no output tensor has been written and every out parameter is unchanged. The library
 * never prints, aborts or throws, and starts no thread unless halyard_create_pool is called.
 *
 * Ownership and threads. Objects are immutable after creation and may be used from any number of threads at once;
 * destroy an object only when no call uses it. Descriptions, tensors and strings are read during the call only,
 * but for the memory of a given source (see halyard_angle_source_desc). Structs start with `size`: set it to
 * sizeof the struct; fields that a smaller size leaves out take their default, and a size larger than this
 * library knows is refused. Zero is the default of every field unless said otherwise.
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
    HALYARD_ERROR_STRUCT_SIZE = 2,       /* a struct's size is newer than this library, or too small to hold it */
    HALYARD_ERROR_UNKNOWN_VALUE = 3,     /* an enumeration holds a value that does not exist */
    HALYARD_ERROR_SHAPE = 4,             /* a negative size, a zero head_dim, or shapes that do not agree */
    HALYARD_ERROR_ROTARY_DIM = 5,        /* rotary_dim is odd, zero or negative */
    HALYARD_ERROR_WINDOW = 6,            /* [rotary_offset, rotary_offset + rotary_dim) is not inside the head */
    HALYARD_ERROR_OVERFLOW = 7,          /* sizes times strides leave the address space */
    HALYARD_ERROR_STRIDE = 8,            /* two elements of an output could meet */
    HALYARD_ERROR_OVERLAP = 9,           /* an output shares elements with another argument, other than in place */
    HALYARD_ERROR_POSITION = 10,         /* a position that the angle source does not cover */
    HALYARD_ERROR_FREQUENCY = 11,        /* a base, inverse frequency or attention factor that is out of range */
    HALYARD_ERROR_UNKNOWN_TARGET = 12,   /* no kernel target has this name */
    HALYARD_ERROR_TARGET_NOT_BUILT = 13, /* this library was built without the target */
    HALYARD_ERROR_TARGET_UNSUPPORTED = 14, /* this machine cannot run the target */
    HALYARD_ERROR_THREADS = 15,          /* a thread count outside 1 … 1024, or threads that could not be started */
    HALYARD_ERROR_EXECUTOR = 16,         /* the executor failed, threw, or did not run every task */
    HALYARD_ERROR_OUT_OF_MEMORY = 17,
    HALYARD_ERROR_MISMATCH = 18,         /* arguments that are valid alone contradict each other */
    HALYARD_ERROR_UNSUPPORTED = 19       /* a valid request that this version cannot carry out */
};

/* Caller-owned. Set size; a call that fails fills in the code and one sentence ended by a zero byte, naming the
 * argument and its value. A call that succeeds leaves it alone. */
typedef struct halyard_error {
    uint32_t size;
    halyard_status code;
    char message[256];
} halyard_error;

/* The name of a status, such as "HALYARD_ERROR_WINDOW"; NULL for a number that is none. A static string. */
HALYARD_API const char *halyard_status_name(halyard_status status);

/* ---- Enumerations ---------------------------------------------------------------------------------------- */

enum { HALYARD_F32 = 0, HALYARD_F16 = 1, HALYARD_BF16 = 2 };                /* storage; arithmetic is always f32 */
enum { HALYARD_PAIRING_HALF = 0, HALYARD_PAIRING_INTERLEAVED = 1 };
enum { HALYARD_FORWARD = 0, HALYARD_INVERSE = 1 };
enum { HALYARD_INT32 = 0, HALYARD_INT64 = 1 };                              /* storage of positions */
enum { HALYARD_CPU = 0 };                                                   /* where a tensor's memory lies */
/* Where cos and sin come from. AUTO is resolved from the description alone: TABLE. */
enum { HALYARD_ANGLES_AUTO = 0, HALYARD_ANGLES_TABLE = 1, HALYARD_ANGLES_GIVEN = 2 };
/* What a position that the source does not cover means: an error; the nearest position that it covers (of two
 * equally near, the lower); or no rotation (position 0; attention_factor still applies). */
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
 *   attention_factor  finite, > 0, <= 2^60; 1 in most models. Else HALYARD_ERROR_FREQUENCY.
 * Also HALYARD_ERROR_NULL_POINTER and HALYARD_ERROR_OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_frequencies_from_list(const double *inv_freq, int64_t n_pairs,
                                                                double attention_factor, halyard_frequencies **out,
                                                                halyard_error *error);

typedef struct halyard_frequencies_info {
    uint32_t size;
    int64_t rotary_dim;
    double attention_factor;
    const double *inv_freq; /* rotary_dim / 2 values, correctly rounded; owned by the frequencies */
} halyard_frequencies_info;

/* Fills in *info (its size must be set). HALYARD_ERROR_NULL_POINTER, HALYARD_ERROR_STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_frequencies_info(const halyard_frequencies *frequencies,
                                                        halyard_frequencies_info *info, halyard_error *error);

/* NULL is allowed. Sources made from the frequencies stay valid. */
HALYARD_API void halyard_destroy_frequencies(halyard_frequencies *frequencies);

/* ---- Positions ------------------------------------------------------------------------------------------- */

/* Token positions. Values are int32; int64 is storage only, and a value outside int32 is a bad position.
 * Wherever a pointer to this struct is NULL, token t of every batch row has position t. */
typedef struct halyard_positions {
    uint32_t size;
    int32_t type;        /* HALYARD_INT32 or HALYARD_INT64 */
    int32_t consecutive; /* 0: data holds every token's position. 1: data holds a start for each batch row, shape
                            {1 or batch, 1}, and token t has position start + t. */
    const void *data;    /* any alignment */
    int64_t shape[2];    /* {1 or batch, tokens}; 1 shares the row between all batch rows */
    int64_t strides[2];  /* in elements, any sign, zero allowed */
} halyard_positions;

/* ---- Angle sources --------------------------------------------------------------------------------------- */

typedef struct halyard_angle_source halyard_angle_source;

typedef struct halyard_angle_source_desc {
    uint32_t size;
    int32_t kind; /* HALYARD_ANGLES_… */

    /* TABLE: a row of cos and a row of sin, float32(f cos theta) and float32(f sin theta), correctly rounded at every
     * int32 position. It covers first … last (both included). With `listed`, rows are made for just the listed
     * positions (those outside first … last count as the nearest end), and the others are not covered. An empty list
     * covers nothing. A list is not consecutive (HALYARD_ERROR_MISMATCH): first … last says that. */
    int32_t first;
    int32_t last; /* >= first, else HALYARD_ERROR_POSITION */
    const halyard_positions *listed; /* NULL: every position in first … last; read during creation only */

    /* GIVEN: the caller's own float32 rows; position p reads row p, covering 0 … n_rows - 1. attention_factor is not
     * applied. The memory stays the caller's: it must outlive the source and hold still during a run, and may be
     * rewritten between runs (that is how halyard_make_rows serves all layers of a decoding step). */
    const float *cos_rows; /* [n_rows, rotary_dim / 2], the last dimension dense */
    const float *sin_rows; /* likewise */
    int64_t n_rows;        /* 1 … 2^31 - 1, as for a table; else HALYARD_ERROR_SHAPE or HALYARD_ERROR_OVERFLOW */
    int64_t stride_row;    /* elements from one row to the next, >= rotary_dim / 2 */
    int64_t rotary_dim;    /* GIVEN only: even, 2 … 2^20 */
} halyard_angle_source_desc;

/* Makes an angle source. `frequencies` is required for TABLE, and is not read for GIVEN (may be NULL). A table costs
 * 4 * rotary_dim bytes a row. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, POSITION (last < first), SHAPE (bad
 * n_rows, stride_row or listed shape), ROTARY_DIM, MISMATCH, OVERFLOW, OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_angle_source(const halyard_frequencies *frequencies,
                                                       const halyard_angle_source_desc *desc,
                                                       halyard_angle_source **out, halyard_error *error);

typedef struct halyard_angle_source_info {
    uint32_t size;
    int32_t kind;       /* resolved: never HALYARD_ANGLES_AUTO */
    int64_t rotary_dim;
    int64_t first;      /* the range of positions that it covers; a listed table covers only some of it */
    int64_t last;
    int64_t n_rows;     /* a table holds position 0 as well, one row more where it does not cover it */
    uint64_t bytes;     /* memory that the source owns */
} halyard_angle_source_info;

/* Fills in *info (its size must be set). NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_angle_source_info(const halyard_angle_source *source,
                                                         halyard_angle_source_info *info, halyard_error *error);

/* NULL is allowed. */
HALYARD_API void halyard_destroy_angle_source(halyard_angle_source *source);

/* Writes the rows of n_batch * n_tokens tokens, [n_batch, n_tokens, 2, rotary_dim / 2] dense: a cos row, then a sin
 * row, for each token. A GIVEN source with cos_rows = rows, sin_rows = rows + rotary_dim / 2 and stride_row =
 * rotary_dim reads them back.
 *   bad_position  HALYARD_BAD_POSITION_…
 *   n_floats      the capacity of rows; at least n_batch * n_tokens * rotary_dim, else HALYARD_ERROR_SHAPE.
 * Allocates nothing. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE, OVERFLOW, POSITION, OVERLAP. */
HALYARD_API halyard_status halyard_make_rows(const halyard_angle_source *source, const halyard_positions *positions,
                                             int32_t bad_position, int64_t n_batch, int64_t n_tokens, float *rows,
                                             int64_t n_floats, halyard_error *error);

/* ---- Plans ----------------------------------------------------------------------------------------------- */

enum { HALYARD_MAX_TENSORS = 4 };

/* The fixed part of one tensor that a plan rotates: q, say, or k. */
typedef struct halyard_tensor_desc {
    int32_t dtype;         /* of input and output */
    int32_t pairing;       /* of the input */
    int32_t out_pairing;   /* of the output */
    int32_t reserved;      /* 0 */
    int64_t head_dim;      /* >= rotary_offset + rotary_dim */
    int64_t rotary_offset; /* >= 0 */
} halyard_tensor_desc;

typedef struct halyard_plan_desc {
    uint32_t size;
    int32_t direction;      /* HALYARD_FORWARD or HALYARD_INVERSE */
    int64_t rotary_dim;     /* even, >= 2 */
    int32_t n_tensors;      /* 1 … HALYARD_MAX_TENSORS */
    halyard_tensor_desc tensors[HALYARD_MAX_TENSORS];
    const char *target;     /* NULL: the best one that is built and that this machine runs, subject to the
                               environment: HALYARD_TARGET forces a target, HALYARD_MAX_TARGET sets a ceiling. A name
                               forces exactly that target, and the environment is not read. */
    const char *max_target; /* NULL, or the best target to consider; the environment is not read then */
} halyard_plan_desc;

typedef struct halyard_plan halyard_plan;

/* Checks a description and resolves it to kernels. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE (n_tensors,
 * head_dim), ROTARY_DIM, WINDOW, UNKNOWN_TARGET, TARGET_NOT_BUILT, TARGET_UNSUPPORTED, MISMATCH (target and max_target
 * both given), OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_plan(const halyard_plan_desc *desc, halyard_plan **out,
                                               halyard_error *error);

/* The name of the target that the plan resolved to; a static string. NULL when plan is NULL. */
HALYARD_API const char *halyard_get_plan_target(const halyard_plan *plan);

/* NULL is allowed. */
HALYARD_API void halyard_destroy_plan(halyard_plan *plan);

/* ---- Run ------------------------------------------------------------------------------------------------- */

typedef struct halyard_tensor {
    void *data;         /* the element [0, 0, 0, 0]; any alignment; never written through as an input */
    int32_t dtype;      /* must be the plan's */
    int32_t device;     /* HALYARD_CPU */
    int64_t shape[4];   /* batch, tokens, heads, head_dim; the first three >= 0, head_dim the plan's */
    int64_t strides[4]; /* in elements, any sign; an input's may be 0 */
} halyard_tensor;

/* Runs task(data, i) once for each i in 0 … n_tasks - 1, in any order and on any threads, and returns 0 when all have
 * finished. Any other value, an exception, or a task left out makes the run fail with HALYARD_ERROR_EXECUTOR; the
 * outputs are then incomplete. */
typedef struct halyard_executor {
    uint32_t size;
    int32_t n_threads; /* how many tasks can run at once, 1 … 1024 */
    void *context;
    int32_t (*parallel_for)(void *context, int64_t n_tasks, void (*task)(void *data, int64_t index), void *data);
} halyard_executor;

typedef struct halyard_run_args {
    uint32_t size;
    int32_t bad_position;                /* HALYARD_BAD_POSITION_… */
    const halyard_angle_source *angles;  /* its rotary_dim must be the plan's */
    const halyard_positions *positions;  /* NULL: 0, 1, 2, … in every batch row */
    const halyard_tensor *x;             /* the plan's n_tensors inputs, all with one batch and one tokens */
    const halyard_tensor *y;             /* outputs, each of its input's shape. In place: the same data, strides and
                                            pairing as its input */
    const halyard_executor *executor;    /* NULL: the calling thread does everything */
} halyard_run_args;

/* Rotates. Positions are checked before the first write. Allocates nothing. Zero batch, tokens or heads succeed and do
 * nothing. Errors: NULL_POINTER, STRUCT_SIZE, UNKNOWN_VALUE, SHAPE, MISMATCH (dtype, head_dim or rotary_dim is not the
 * plan's), OVERFLOW, STRIDE, OVERLAP, POSITION, THREADS, EXECUTOR, UNSUPPORTED (device).
 * Outputs may not share memory with positions or with the rows of a given source either; there spans are compared. */
HALYARD_API halyard_status halyard_run(const halyard_plan *plan, const halyard_run_args *args, halyard_error *error);

/* ---- Threads --------------------------------------------------------------------------------------------- */

typedef struct halyard_pool halyard_pool;

/* Starts n_threads - 1 threads (n_threads 1 … 1024) that wait for work, spinning briefly and then asleep. Runs that
 * meet in one pool don't wait for each other: the later one does its work on its own thread. Threads don't survive
 * fork(): in a child, the work is done on the calling thread. Errors: THREADS, NULL_POINTER, OUT_OF_MEMORY. */
HALYARD_API halyard_status halyard_create_pool(int32_t n_threads, halyard_pool **out, halyard_error *error);

/* The pool as an executor; valid until the pool is destroyed. NULL when pool is NULL. */
HALYARD_API const halyard_executor *halyard_get_pool_executor(const halyard_pool *pool);

/* Joins the threads. NULL is allowed. */
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
