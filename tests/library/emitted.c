/* What an app does with an emitted library: calls a kernel, from what halyard_kernels.h says alone. */
#include <halyard_kernels.h>

#include <stdio.h>

#if defined(__x86_64__)
#define ROTATE halyard_rotate_half_f32_x86_avx2
#else
#define ROTATE halyard_rotate_half_f32_arm_neon
#endif

enum { n_pairs = 5, n_heads = 2, n_tokens = 3, n_rows = 2, head_dim = 12 };

static int check(uint32_t sin_sign) {
    /* Angles whose cos and sin, and all products, are exact: 0.75, 1 and the like. Columns 10 and 11 are no pairs. */
    const float inverse = sin_sign == 0 ? 1.0f : -1.0f;
    float cos_rows[n_rows][n_pairs], sin_rows[n_rows][n_pairs];
    float x[n_tokens][n_heads][head_dim], y[n_tokens][n_heads][head_dim];
    int32_t row_of_token[n_tokens] = {1, 0, 1};
    int row, token, head, i, n_wrong = 0;
    for (row = 0; row < n_rows; row++) {
        for (i = 0; i < n_pairs; i++) {
            cos_rows[row][i] = 0.25f * (float)(row + i);
            sin_rows[row][i] = 0.5f * (float)(row - i);
        }
    }
    for (token = 0; token < n_tokens; token++) {
        for (head = 0; head < n_heads; head++) {
            for (i = 0; i < head_dim; i++) {
                x[token][head][i] = (float)(100 * token + 20 * head + i);
                y[token][head][i] = -1.0f;
            }
        }
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
    if (ROTATE(&row_buffer, &cos_buffer, &sin_buffer, sin_sign, &x_buffer, &y_buffer) != 0) {
        n_wrong++;
    }

    for (token = 0; token < n_tokens; token++) {
        for (head = 0; head < n_heads; head++) {
            const float *in = x[token][head], *out = y[token][head];
            for (i = 0; i < n_pairs; i++) {
                const float c = cos_rows[row_of_token[token]][i], s = inverse * sin_rows[row_of_token[token]][i];
                n_wrong += out[i] != in[i] * c - in[n_pairs + i] * s;
                n_wrong += out[n_pairs + i] != in[i] * s + in[n_pairs + i] * c;
            }
            n_wrong += out[10] != -1.0f || out[11] != -1.0f;
        }
    }
    return n_wrong;
}

int main(void) {
    const int n_wrong = check(0) + check(0x80000000u);
    printf("%d numbers of an emitted kernel are wrong\n", n_wrong);
    return n_wrong != 0;
}
