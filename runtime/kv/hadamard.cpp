#include "kv/hadamard.h"

#include "kv/block.h"

#include <cmath>

namespace halyard {

namespace {

constexpr std::int64_t n_in_kernel = 64;

/// Transforms too short for the kernels, which no cache that we know has.
void transform_few(std::int64_t n, std::int64_t n_elements, float scale, float *elements) {
    for (std::int64_t i = 0; i < n_elements; i++) {
        elements[i] *= scale;
    }
    for (std::int64_t distance = 1; distance < n; distance *= 2) {
        for (std::int64_t first = 0; first < n_elements; first += 2 * distance) {
            for (float *u = elements + first, *v = u + distance; u < elements + first + distance; u++, v++) {
                const float sum = *u + *v, difference = *u - *v;
                *u = sum;
                *v = difference;
            }
        }
    }
}

}  // namespace

void hadamard(const KvCall &call, Block &block) noexcept {
    const std::int64_t n = call.stages(block).hadamard;
    const std::int64_t n_elements = block.n_tokens * block.strides.token;  // blocks are dense
    const float scale = 1.0f / std::sqrt(static_cast<float>(n));
    if (n < n_in_kernel) {
        transform_few(n, n_elements, scale, block.work->floats);
        return;
    }
    halyard_buffer x;
    halyard_dimension dims[3];
    set_buffer(x, block.work->floats, dims);
    set_dimension(dims[0], n_in_kernel, 1);
    set_dimension(dims[1], n_elements / n_in_kernel, n_in_kernel);
    call.kernels().hadamard[0](scale, &x, &x);
    for (std::int64_t distance = n_in_kernel; distance < n; distance *= 2) {
        set_dimension(dims[0], distance, 1);
        set_dimension(dims[1], 2, distance);
        set_dimension(dims[2], n_elements / (2 * distance), 2 * distance);
        call.kernels().butterfly[0](&x, &x);
    }
}

}  // namespace halyard
