/* An app that uses an emitted library: it calls a kernel knowing nothing but halyard_kernels.h. */
#include <halyard_kernels.h>

#include <stdio.h>

#if defined(__x86_64__)
#define ROTATE halyard_rotate_half_f32_x86_avx2
#else
#define ROTATE halyard_rotate_half_f32_arm_neon
#endif

enum { n_pairs = 5, n_heads = 2, n_tokens = 3, n_rows = 2, head_dim = 12 };

/* Rotates integers, whose products are exact. Columns 10 and 11 are not rotated. Returns how many results are wrong. */
static int check(uint32_t sin_sign) {
    float cos_rows[n_rows][n_pairs], sin_rows[n_rows][n_pairs];
    float x[n_tokens][n_heads][head_dim], y[n_tokens][n_heads][head_dim];
    int32_t row_of_token[n_tokens] = {1, 0, 1};
    int n, i, n_wrong = 0;
    for (n = 0; n < n_rows * n_pairs; n++) {
        cos_rows[n / n_pairs][n % n_pairs] = 0.25f * (float)n;
        sin_rows[n / n_pairs][n % n_pairs] = 0.5f * (float)(3 - n);
    }
    for (n = 0; n < n_tokens * n_heads * head_dim; n++) {
        x[n / head_dim / n_heads][n / head_dim % n_heads][n % head_dim] = (float)n;
        y[n / head_dim / n_heads][n / head_dim % n_heads][n % head_dim] = -1.0f;
    }

    halyard_dimension tokens[1] = {{0, n_tokens, 1, 0}};
    halyard_dimension rows[2] = {{0, n_pairs, 1, 0}, {0, n_rows, n_pairs, 0}};
    halyard_dimension tensor[4] = {
        {0, n_pairs, 1, 0}, {0, 2, n_pairs, 0}, {0, n_heads, head_dim, 0}, {0, n_tokens, n_heads * head_dim, 0}};
    halyard_buffer row_buffer = {.host = (uint8_t *)row_of_token, .dim = tokens};
    halyard_buffer cos_buffer = {.host = (uint8_t *)cos_rows, .dim = rows};
    halyard_buffer sin_buffer = {.host = (uint8_t *)sin_rows, .dim = rows};
    halyard_buffer x_buffer = {.host = (uint8_t *)x, .dim = tensor};
    halyard_buffer y_buffer = {.host = (uint8_t *)y, .dim = tensor};
    n_wrong += ROTATE(&row_buffer, &cos_buffer, &sin_buffer, sin_sign, &x_buffer, &y_buffer) != 0;

    for (n = 0; n < n_tokens * n_heads; n++) {
        const int32_t row = row_of_token[n / n_heads];
        const float *in = x[n / n_heads][n % n_heads], *out = y[n / n_heads][n % n_heads];
        for (i = 0; i < n_pairs; i++) {
            const float c = cos_rows[row][i], s = (sin_sign == 0 ? 1.0f : -1.0f) * sin_rows[row][i];
            n_wrong += out[i] != in[i] * c - in[n_pairs + i] * s;
            n_wrong += out[n_pairs + i] != in[i] * s + in[n_pairs + i] * c;
        }
        n_wrong += out[10] != -1.0f || out[11] != -1.0f;
    }
    return n_wrong;
}

int main(void) {
    const int n_wrong = check(0) + check(0x80000000u);
    printf("%d numbers of an emitted kernel are wrong\n", n_wrong);
    return n_wrong != 0;
}
