/* Loads the shared library and a copy of it, uses and unloads both, again and again: load_library LIBRARY COPY_OF_IT.
 * Threads may run only while a pool exists, and no file may stay open. */
#include <halyard/halyard.h>

#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>

static int count_entries(const char *path) {
    DIR *folder = opendir(path);
    int n = 0;
    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

/* Whether the process has a single thread. The kernel lists a joined thread for a moment, so this looks again. */
static int is_alone(void) {
    for (int i = 0; i < 100000; i++) {
        if (count_entries("/proc/self/task") == 3) { /* ".", ".." and one thread */
            return 1;
        }
        sched_yield();
    }
    return 0;
}

/* A function of the loaded library. POSIX permits the conversion of dlsym's result to a function pointer. */
#define CALL(name) ((__typeof__(name) *)dlsym(library, #name))

/* Rotates pairs by a right angle per position, on one thread and on a pool. Returns 0 if all results are right. */
static int use(void *library) {
    const double inv_freq = 1.5707963267948966;
    float values[] = {9, 9, 3, 4}; /* the pairs at positions 0 and 1 */
    halyard_frequencies *frequencies = NULL;
    halyard_angle_source *source = NULL;
    halyard_plan *plan = NULL;
    halyard_pool *pool = NULL;
    const halyard_angle_source_desc source_desc = {.size = sizeof(source_desc), .n_positions = 2};
    const halyard_tensor_desc tensor_desc = {
        .size = sizeof(tensor_desc), .dtype = HALYARD_F32, .pairing = HALYARD_PAIRING_HALF, .head_dim = 2};
    const halyard_plan_desc plan_desc = {
        .size = sizeof(plan_desc), .rotary_dim = 2, .n_tensors = 1, .tensors = &tensor_desc};
    const halyard_tensor tensor = {sizeof(tensor), HALYARD_F32, HALYARD_CPU, 0, values, {1, 2, 1, 2}, {4, 2, 2, 1}};
    int failed = CALL(halyard_create_frequencies_from_list)(&inv_freq, 1, 1.0, &frequencies, NULL) != HALYARD_OK ||
                 CALL(halyard_create_angle_source)(frequencies, &source_desc, &source, NULL) != HALYARD_OK ||
                 CALL(halyard_create_plan)(&plan_desc, &plan, NULL) != HALYARD_OK;
    halyard_run_args args = {.size = sizeof(args), .angles = source, .x = &tensor, .y = &tensor};
    failed = failed || CALL(halyard_run)(plan, &args, NULL) != HALYARD_OK || values[2] > -3.99f || !is_alone();
    failed = failed || CALL(halyard_create_pool)(3, &pool, NULL) != HALYARD_OK || count_entries("/proc/self/task") != 5;
    args.executor = CALL(halyard_get_pool_executor)(pool);
    failed = failed || CALL(halyard_run)(plan, &args, NULL) != HALYARD_OK || values[2] > -2.99f;
    CALL(halyard_destroy_pool)(pool);
    CALL(halyard_destroy_plan)(plan);
    CALL(halyard_destroy_angle_source)(source);
    CALL(halyard_destroy_frequencies)(frequencies);
    return failed;
}

int main(int argc, char **argv) {
    const int n_files = count_entries("/proc/self/fd");
    for (int i = 0; i < 20 && argc == 3; i++) {
        void *first = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *second = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (first == NULL || second == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        if (use(first) || use(second) || dlclose(first) != 0 || use(second) || dlclose(second) != 0 ||
            dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL || dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD) != NULL) {
            fprintf(stderr, "failed, or is still there, in round %d\n", i);
            return 1;
        }
    }
    return argc == 3 && count_entries("/proc/self/fd") == n_files ? 0 : 2;
}
