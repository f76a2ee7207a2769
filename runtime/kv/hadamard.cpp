// The orthonormal Hadamard transform (Sylvester's) of each n = 2^i elements of a head: all are multiplied by 1 /
// sqrt(n), and then u and v that are 1, 2, 4, … elements apart become u + v and u - v. It is its own inverse.
// An element is rounded log2(n) + 2 times: 1 / sqrt(n), the product with it, and a sum in each of the log2(n) steps.
// Each time the error grows by at most eps_f32 / 2 of the element. A step lengthens the vector of the n elements and
// the vector of their n errors by the same factor, so the error vector is at most eps_f32 (log2(n) + 2) / 2 times as
// long as the element vector.
#include "kv/block.h"

#include <cmath>

namespace halyard {

namespace {

constexpr std::int64_t n_in_kernel = 64;

template <bool is_short>
void hadamard(const KvCall &call, Block &block) noexcept {
    const std::int64_t n = call.stages(block).hadamard;
    const std::int64_t n_elements = block.n_tokens * block.strides.token;  // blocks are dense
    const float scale = 1.0f / std::sqrt(static_cast<float>(n));
    halyard_buffer x;
    halyard_dimension dims[3];
    set_buffer(x, block.work->floats, dims);
    if constexpr (is_short) {  // no known engine has such a cache, so there is no kernel for it
        std::for_each_n(block.work->floats, n_elements, [=](float &element) { element *= scale; });
    } else {
        set_dimension(dims[0], n_in_kernel, 1);
        set_dimension(dims[1], n_elements / n_in_kernel, n_in_kernel);
        call.kernels().hadamard[0](scale, &x, &x);
    }
    for (std::int64_t distance = is_short ? 1 : n_in_kernel; distance < n; distance *= 2) {
        set_dimension(dims[0], distance, 1);
        set_dimension(dims[1], 2, distance);
        set_dimension(dims[2], n_elements / (2 * distance), 2 * distance);
        call.kernels().butterfly[0](&x, &x);
    }
}

}  // namespace

void list_hadamard(const Listing &of) noexcept {
    of.add_if(of.stages.hadamard != 0, "Hadamard", of.stages.hadamard < n_in_kernel ? hadamard<true> : hadamard<false>);
}

}  // namespace halyard
