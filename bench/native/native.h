/* The native part of the bench, which Python calls by ctypes (native.py): libraries, works, and what is timed.
 *
 * A library is a .so of Halyard, whose C ABI is called by pointers: so two builds of it, or variants of its kernels,
 * are timed in one process. A work is what a row does, ready in memory: positions, slots, rows of cos and sin, tensors.
 * A subject is one way to do a work: Halyard's run, a C loop, a copy. Functions that fail return NULL or -1, and
 * bench_error() says why. Only one thread calls.
 */
#pragma once

#include <stdint.h>

#define BENCH_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bench_library bench_library;
typedef struct bench_work bench_work;
typedef struct bench_subject bench_subject;

/* Why the last function failed, in a sentence. */
BENCH_API const char *bench_error(void);
/* A line for each compiler: "gcc 12.2.0". The first is the one that compiled this. */
BENCH_API const char *bench_compilers(void);

/* ---- Libraries ------------------------------------------------------------------------------------------- */

/* Loads a .so from a path that names a folder. Fails where it lacks a function of halyard.h, or says that it is of
 * another version than the header that this was compiled with. Works and subjects of it must be gone before it is
 * closed. */
BENCH_API bench_library *bench_open(const char *path);
BENCH_API void bench_close(bench_library *library);
/* A line for each target, best first: "x86_avx512 supported active". */
BENCH_API const char *bench_targets(const bench_library *library);

/* ---- Works ----------------------------------------------------------------------------------------------- */

enum { BENCH_MAX_PARTS = 3 };

/* A tensor of a run. x of a token is a row that all parts share. */
typedef struct bench_part {
    int64_t heads, head_dim;
    int64_t offset, stride_head; /* in a token's row, in elements */
    int64_t rotates, is_cached;  /* 0 or 1 */
    int64_t rotary_offset;
    int64_t norm_size; /* 0: it has no norm; else elements from the head's first on */
} bench_part;

/* All fields are int64 or bench_part, so that Python's mirror needs no padding. */
typedef struct bench_desc {
    int64_t size;                 /* sizeof(bench_desc) */
    int64_t dtype, cache;         /* HALYARD_F32 …; HALYARD_UINT8: records of ggml's q8_0. cache: of what is cached */
    int64_t pairing, out_pairing; /* HALYARD_PAIRING_… */
    int64_t angles;               /* HALYARD_ANGLES_TABLE or _PHASE */
    int64_t tokens, rotary_dim;
    int64_t row_elements;   /* of a token's x */
    int64_t in_place, cold; /* cold: each call uses other memory, none of it in a cache */
    int64_t first_position; /* of consecutive ones; -1: those that are usual for so many tokens */
    /* Of the KV path, whose outputs have memory of their own, and of a shift, which moves what caches hold. */
    int64_t n_slots;          /* of a paged cache; 0: a plain rotation */
    int64_t moved_by, layers; /* a shift's positions, 0: none; how many caches it moves, or 1 */
    int64_t unit_offset;      /* norms have weights 1 + w */
    int64_t hadamard;         /* what is cached is transformed over its whole head */
    int64_t n_parts;
    bench_part parts[BENCH_MAX_PARTS];
} bench_desc;

/* Places a work in memory of its own. */
BENCH_API bench_work *bench_prepare(const bench_desc *desc);
BENCH_API void bench_release(bench_work *work); /* and its subjects */

/* Brings the inputs back and poisons the outputs. The next call uses the first copy. */
BENCH_API void bench_reset(bench_work *work);
/* Keeps what lies in the first copy's outputs (a shift: the last layer), at most 64 tokens of it, as what is right. */
BENCH_API void bench_keep(bench_work *work);
/* The largest difference of what lies there now from what was kept, in parts of the root mean square of its head. */
BENCH_API double bench_difference(const bench_work *work);

/* Where things of the work are, for peers: "positions" (int64), "slots" (int64), "x" and "y" of a copy and part,
 * "weight" of a part. NULL: there is none. */
BENCH_API void *bench_place(const bench_work *work, const char *what, int64_t copy, int64_t part);
BENCH_API int64_t bench_copies(const bench_work *work);

/* ---- Subjects -------------------------------------------------------------------------------------------- */

/* A way to do the work, which belongs to it. NULL with no error (an empty sentence): there is no such way here.
 *     run, bound                    Halyard's; a shift is bound
 *     gcc, clang                    a C loop, compiled for this CPU
 *     memcpy, copy, stream, multiply, convert, convert and stream
 *                                   ceilings: of memory, and of the conversion
 * target: NULL, or the name of one. */
BENCH_API bench_subject *bench_subject_of(bench_work *work, const char *way, bench_library *library,
                                          const char *target);
/* The target that the plan took; empty where it is no run of Halyard's. */
BENCH_API const char *bench_target(const bench_subject *subject);
/* Makes n calls and returns for how many seconds this thread had a CPU meanwhile, which leaves out what others had. The
 * calls use the work's copies in turn. -1: a call failed. */
BENCH_API double bench_seconds(bench_subject *subject, int64_t n);

#ifdef __cplusplus
}
#endif
