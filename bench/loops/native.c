/* The part of the bench that Python would be too slow for: calls in a loop, between two readings of the clock. */
#include "loops.h"

#include <string.h>
#include <time.h>

BENCH_API const char *const bench_compiler = HALYARD_COMPILER;
BENCH_API const char *const bench_halide = HALYARD_HALIDE;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Makes n calls, and returns for how many seconds this thread had a CPU meanwhile, which leaves out what others had.
 * They use the copies from *next on, where the calls of another way have stopped, so that none finds in a cache what
 * another has left there. -1 - status: a step failed. */
BENCH_API double bench_seconds(struct bench_way *way, int64_t *next, int64_t n) {
    const double start = now();
    for (int64_t i = 0; i < n; i++) {
        if (way->copy != *next) {
            for (int64_t p = 0; p < way->n_places; p++) {
                *way->places[p] += (*next - way->copy) * way->stride;
            }
            way->copy = *next;
        }
        *next = *next + 1 == way->n_copies ? 0 : *next + 1;
        for (const struct bench_step *step = way->steps, *end = step + way->n_steps; step < end; step++) {
            int64_t args[sizeof step->args / sizeof(int64_t)];
            memcpy(args, step->args, sizeof args);
            const int32_t status = step->function(step->self, args, NULL);
            if (status != 0) {
                return -1.0 - status;
            }
        }
    }
    return now() - start;
}
