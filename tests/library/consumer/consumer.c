/* What the README's example does, in C11. */
#include <halyard/halyard.h>

#include <stdio.h>

static int fail(const char *what, const halyard_error *error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

int main(void) {
    halyard_error error = {.size = sizeof(error)};
    halyard_frequencies *frequencies;
    halyard_angle_source *angles;
    halyard_plan *plan;
    float q[3][4] = {{1, 1, 0, 0}, {1, 1, 0, 0}, {1, 1, 0, 0}};
    int i;
    if (halyard_create_frequencies_from_base(10000.0, 4, &frequencies, &error) != HALYARD_OK) {
        return fail("frequencies", &error);
    }
    const halyard_angle_source_desc source = {
        .size = sizeof(source), .kind = HALYARD_ANGLES_TABLE, .n_positions = 4096};
    if (halyard_create_angle_source(frequencies, &source, &angles, &error) != HALYARD_OK) {
        return fail("angles", &error);
    }
    const halyard_tensor_desc tensor = {
        .size = sizeof(tensor), .dtype = HALYARD_F32, .pairing = HALYARD_PAIRING_HALF, .head_dim = 4};
    const halyard_plan_desc desc = {.size = sizeof(desc), .rotary_dim = 4, .n_tensors = 1, .tensors = &tensor};
    if (halyard_create_plan(&desc, &plan, &error) != HALYARD_OK) {
        return fail("plan", &error);
    }
    const halyard_tensor x = {
        .size = sizeof(x), .dtype = HALYARD_F32, .data = q, .shape = {1, 3, 1, 4}, .strides = {12, 4, 4, 1}};
    const int32_t numbers[] = {0, 1, 7};
    const halyard_positions positions = {
        .size = sizeof(positions), .type = HALYARD_INT32, .data = numbers, .shape = {1, 3}, .strides = {3, 1}};
    const halyard_run_args run = {.size = sizeof(run), .angles = angles, .positions = &positions, .x = &x, .y = &x};
    if (halyard_run(plan, &run, &error) != HALYARD_OK) {
        return fail("run", &error);
    }
    for (i = 0; i < 3; i++) {
        printf("%8.5f %8.5f %8.5f %8.5f\n", q[i][0], q[i][1], q[i][2], q[i][3]);
    }
    halyard_destroy_plan(plan);
    halyard_destroy_angle_source(angles);
    halyard_destroy_frequencies(frequencies);
    return 0;
}
