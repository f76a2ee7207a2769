/* The part of the bench that Python would be too slow for: calls in a loop, between two readings of the clock. */
#include "loops.h"

#include <string.h>
#include <time.h>

BENCH_API const char *const bench_compiler = HALYARD_COMPILER;
BENCH_API const char *const bench_halide = HALYARD_HALIDE;

static double thread_cpu_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Makes n calls, and returns this thread's CPU time in seconds, which excludes other programs; -1 - status if a step
 * failed. The calls use the copies of tensors from *next on, where another bench_call stopped, so that they do not find
 * that call's data in the CPU's caches. */
BENCH_API double bench_seconds(struct bench_call *call, int64_t *next, int64_t n) {
    const double start = thread_cpu_seconds();
    for (int64_t i = 0; i < n; i++) {
        if (call->copy != *next) {
            for (int64_t p = 0; p < call->n_places; p++) {
                *call->places[p] += (*next - call->copy) * call->stride;
            }
            call->copy = *next;
        }
        *next = *next + 1 == call->n_copies ? 0 : *next + 1;
        for (const struct bench_step *step = call->steps, *end = step + call->n_steps; step < end; step++) {
            int64_t args[sizeof step->args / sizeof(int64_t)];
            memcpy(args, step->args, sizeof args);
            const int32_t status = step->function(step->self, args, NULL);
            if (status != 0) {
                return -1.0 - status;
            }
        }
    }
    return thread_cpu_seconds() - start;
}
