/* The C ABI from C11, with nothing but the static library: rotates, in place and not, on one thread and two. */
#include <halyard/halyard.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { tokens = 3, heads = 2, head_dim = 8, pairs = head_dim / 2, n_elements = tokens * heads * head_dim };

static halyard_error error = {.size = sizeof(halyard_error)};

static void expect(halyard_status expected, halyard_status status) {
    if (status != expected) {
        fprintf(stderr, "%s: %s\n", halyard_status_name(status), error.message);
        exit(1);
    }
}

static double inv_freq(int pair) { return pow(100.0, -2.0 * pair / head_dim); }

static float expected_value(const float *x, int i) {
    const int column = i % head_dim;
    const int token = i / head_dim / heads;
    const int pair = column % pairs;
    const double x0 = (double)x[i - column + pair];
    const double x1 = (double)x[i - column + pair + pairs];
    const double theta = (5 + token) * inv_freq(pair);
    return (float)(column < pairs ? x0 * cos(theta) - x1 * sin(theta) : x0 * sin(theta) + x1 * cos(theta));
}

int main(void) {
    halyard_frequencies *frequencies = NULL;
    expect(HALYARD_OK, halyard_create_frequencies_from_base(100.0, head_dim, &frequencies, &error));
    const halyard_angle_source_desc table = {.size = sizeof table, .kind = HALYARD_ANGLES_AUTO, .first = 0, .last = 9};
    halyard_angle_source *angles = NULL;
    expect(HALYARD_OK, halyard_create_angle_source(frequencies, &table, &angles, &error));
    halyard_destroy_frequencies(frequencies);

    const halyard_tensor_desc tensor = {
        .size = sizeof tensor, .dtype = HALYARD_F32, .pairing = HALYARD_PAIRING_HALF, .head_dim = head_dim};
    const halyard_plan_desc desc = {.size = sizeof desc, .rotary_dim = head_dim, .n_tensors = 1, .tensors = &tensor};
    halyard_plan *plan = NULL;
    expect(HALYARD_OK, halyard_create_plan(&desc, &plan, &error));
    halyard_pool *pool = NULL;
    expect(HALYARD_OK, halyard_create_pool(2, &pool, &error));

    float input[n_elements], in_place[n_elements], output[n_elements];
    for (int i = 0; i < n_elements; i++) {
        input[i] = in_place[i] = (float)(i * 13 % 29) - 14.0f;
    }
    const int32_t start = 5;
    const halyard_positions positions = {.size = sizeof positions,
                                         .type = HALYARD_INT32,
                                         .consecutive = 1,
                                         .data = &start,
                                         .shape = {1, 1},
                                         .strides = {1, 1}};
    halyard_tensor x = {.size = sizeof x,
                        .dtype = HALYARD_F32,
                        .data = input,
                        .shape = {1, tokens, heads, head_dim},
                        .strides = {n_elements, heads * head_dim, head_dim, 1}};
    halyard_tensor y = x;
    halyard_run_args args = {.size = sizeof args, .angles = angles, .positions = &positions, .x = &x, .y = &y};
    y.data = output;
    expect(HALYARD_OK, halyard_run(plan, &args, &error));
    x.data = y.data = in_place;
    args.executor = halyard_get_pool_executor(pool);
    expect(HALYARD_OK, halyard_run(plan, &args, &error));

    for (int i = 0; i < n_elements; i++) {
        if (fabsf(output[i] - expected_value(input, i)) > 1e-5f || memcmp(&output[i], &in_place[i], sizeof output[i])) {
            fprintf(stderr, "element %d is %g and %g, not %g\n", i, (double)output[i], (double)in_place[i],
                    (double)expected_value(input, i));
            return 1;
        }
    }
    args.size = 0;
    expect(HALYARD_ERROR_STRUCT_SIZE, halyard_run(plan, &args, &error));

    halyard_destroy_pool(pool);
    halyard_destroy_plan(plan);
    halyard_destroy_angle_source(angles);
    printf("halyard %s on %s\n", halyard_version(), halyard_status_name(HALYARD_OK));
    return 0;
}
