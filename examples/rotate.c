/* Uses Halyard from C11: reads a model's config.json, rotates an f16 tensor [batch, tokens, heads, head_dim] with BHSD
 * layout on a thread pool, rotates the result back by the inverse, and prints an error's message. */
#include <halyard/halyard.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { n_batch = 2, n_tokens = 6, n_heads = 4, head_dim = 64, n_elements = n_batch * n_tokens * n_heads * head_dim };

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 256, \"num_attention_heads\": 4,"
                             " \"rope_theta\": 500000.0, \"max_position_embeddings\": 8192}";

static int report(const halyard_error *error) {
    fprintf(stderr, "%s: %s\n", halyard_status_name(error->code), error->message);
    return 1;
}

/* The frequencies have head_dim and the pairing from the config, so the tensor's description omits both. */
static halyard_status create_plan(const halyard_frequencies *frequencies, int32_t direction, halyard_plan **plan,
                                  halyard_error *error) {
    const halyard_tensor_desc tensor = {.size = sizeof(tensor), .dtype = HALYARD_F16};
    const halyard_plan_desc desc = {
        .size = sizeof(desc), .direction = direction, .frequencies = frequencies, .n_tensors = 1, .tensors = &tensor};
    return halyard_create_plan(&desc, plan, error);
}

/* BHSD: the tokens of one head follow each other. */
static halyard_tensor view(uint16_t *elements) {
    const halyard_tensor tensor = {.size = sizeof(tensor),
                                   .dtype = HALYARD_F16,
                                   .data = elements,
                                   .shape = {n_batch, n_tokens, n_heads, head_dim},
                                   .strides = {n_heads * n_tokens * head_dim, head_dim, n_tokens * head_dim, 1}};
    return tensor;
}

static int count_different(const uint16_t *x, const uint16_t *y) {
    int i, n = 0;
    for (i = 0; i < n_elements; i++) {
        const int distance = (int)x[i] - (int)y[i]; /* in units of the last place */
        n += distance < -2 || distance > 2;
    }
    return n;
}

int main(void) {
    static uint16_t x[n_elements], y[n_elements];
    halyard_error error = {.size = sizeof(error)};
    halyard_frequencies *frequencies = NULL;
    halyard_angle_source *angles = NULL;
    halyard_plan *plans[2] = {NULL, NULL};
    halyard_pool *pool = NULL;
    int i;

    if (halyard_create_frequencies_from_config(config, (int64_t)strlen(config), NULL, &frequencies, &error) !=
        HALYARD_OK) {
        return report(&error);
    }
    const halyard_angle_source_desc source = {.size = sizeof(source), .kind = HALYARD_ANGLES_AUTO, .n_positions = 8192};
    if (halyard_create_angle_source(frequencies, &source, &angles, &error) != HALYARD_OK ||
        halyard_create_pool(2, &pool, &error) != HALYARD_OK) {
        return report(&error);
    }
    if (create_plan(frequencies, HALYARD_FORWARD, &plans[0], &error) != HALYARD_OK ||
        create_plan(frequencies, HALYARD_INVERSE, &plans[1], &error) != HALYARD_OK) {
        return report(&error);
    }

    for (i = 0; i < n_elements; i++) {
        x[i] = (uint16_t)(i % 2 == 0 ? 0x3c00 : 0xb800); /* 1 and -0.5 as f16 */
    }
    /* Each sequence of the batch continues at its own position. */
    const int32_t starts[n_batch] = {0, 4000};
    const halyard_positions positions = {
        .size = sizeof(positions), .consecutive = 1, .data = starts, .shape = {n_batch, 1}, .strides = {1, 0}};
    const halyard_tensor from = view(x);
    halyard_tensor to = view(y);
    halyard_run_args run = {.size = sizeof(run),
                            .angles = angles,
                            .positions = &positions,
                            .x = &from,
                            .y = &to,
                            .executor = halyard_get_pool_executor(pool)};
    if (halyard_run(plans[0], &run, &error) != HALYARD_OK) {
        return report(&error);
    }
    run.x = &to; /* the inverse, in place */
    if (halyard_run(plans[1], &run, &error) != HALYARD_OK) {
        return report(&error);
    }
    const int n_wrong = count_different(x, y);
    printf("%s on %s: %d of %d elements did not come back\n", halyard_version(), halyard_get_plan_target(plans[0]),
           n_wrong, n_elements);

    to.shape[3] = 32; /* not the plan's head_dim: an error */
    if (halyard_run(plans[0], &run, &error) != HALYARD_OK) {
        printf("%s: %s\n", halyard_status_name(error.code), error.message);
    }
    halyard_destroy_pool(pool);
    halyard_destroy_plan(plans[0]);
    halyard_destroy_plan(plans[1]);
    halyard_destroy_angle_source(angles);
    halyard_destroy_frequencies(frequencies);
    return n_wrong == 0 ? 0 : 1;
}
