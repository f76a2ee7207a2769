/* What the README's example does, in C11. With DLOPEN the library is loaded while the program runs, from the path that
 * its argument names. */
#include <halyard/halyard.h>

#include <stdio.h>
#include <string.h>

#ifdef DLOPEN
#include <dlfcn.h>
static void *library;
/* dlsym() gives an object's address for a function's: ISO C has no conversion, POSIX promises that the bits are so. */
#define CALL(result, name, ...)                                                                                        \
    do {                                                                                                               \
        void *symbol = dlsym(library, #name);                                                                          \
        if (symbol == NULL) {                                                                                          \
            fprintf(stderr, "%s\n", dlerror());                                                                        \
            return 1;                                                                                                  \
        }                                                                                                              \
        memcpy(&name##_function, &symbol, sizeof(symbol));                                                             \
        result = name##_function(__VA_ARGS__);                                                                         \
    } while (0)
#define FUNCTION(name) __typeof__(name) *name##_function
#else
#define CALL(result, name, ...) result = name(__VA_ARGS__)
#define FUNCTION(name) struct unused_##name
#endif

static int fail(const char *what, const halyard_error *error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

int main(int n_arguments, char **arguments) {
    FUNCTION(halyard_create_frequencies_from_base);
    FUNCTION(halyard_create_angle_source);
    FUNCTION(halyard_create_plan);
    FUNCTION(halyard_run);
    halyard_error error = {.size = sizeof(error)};
    halyard_frequencies *frequencies;
    halyard_angle_source *angles;
    halyard_plan *plan;
    halyard_status status;
    float q[3][4] = {{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 1, 0, 0}};
    int i;
#ifdef DLOPEN
    library = n_arguments == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#else
    (void)n_arguments;
    (void)arguments;
#endif
    CALL(status, halyard_create_frequencies_from_base, 10000.0, 4, &frequencies, &error);
    if (status != HALYARD_OK) {
        return fail("frequencies", &error);
    }
    const halyard_angle_source_desc source = {
        .size = sizeof(source), .kind = HALYARD_ANGLES_TABLE, .n_positions = 4096};
    CALL(status, halyard_create_angle_source, frequencies, &source, &angles, &error);
    if (status != HALYARD_OK) {
        return fail("angles", &error);
    }
    const halyard_tensor_desc tensor = {
        .size = sizeof(tensor), .dtype = HALYARD_F32, .pairing = HALYARD_PAIRING_HALF, .head_dim = 4};
    const halyard_plan_desc desc = {.size = sizeof(desc), .rotary_dim = 4, .n_tensors = 1, .tensors = &tensor};
    CALL(status, halyard_create_plan, &desc, &plan, &error);
    if (status != HALYARD_OK) {
        return fail("plan", &error);
    }
    const halyard_tensor x = {
        .size = sizeof(x), .dtype = HALYARD_F32, .data = q, .shape = {1, 3, 1, 4}, .strides = {12, 4, 4, 1}};
    const int32_t numbers[] = {0, 1, 7};
    const halyard_positions positions = {
        .size = sizeof(positions), .type = HALYARD_INT32, .data = numbers, .shape = {1, 3}, .strides = {3, 1}};
    const halyard_run_args run = {.size = sizeof(run), .angles = angles, .positions = &positions, .x = &x, .y = &x};
    CALL(status, halyard_run, plan, &run, &error);
    if (status != HALYARD_OK) {
        return fail("run", &error);
    }
    for (i = 0; i < 3; i++) {
        printf("%8.5f %8.5f %8.5f %8.5f\n", q[i][0], q[i][1], q[i][2], q[i][3]);
    }
#ifndef DLOPEN
    halyard_destroy_plan(plan);
    halyard_destroy_angle_source(angles);
    halyard_destroy_frequencies(frequencies);
#endif
    return 0;
}
