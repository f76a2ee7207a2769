#include "rivals/ceiling.h"

#include <cstring>
#include <vector>

namespace halyard::bench {

namespace {

/// Volatile, so that the compiler does not leave the multiplication out.
volatile float one = 1.0f;

void multiply(const Rows &rows) {
    const float factor = one;
    for (std::size_t row = 0; row < rows.n_rows; row++) {
        auto *const data = reinterpret_cast<float *>(rows.to + row * rows.stride_bytes);
        for (std::size_t i = 0; i < rows.row_bytes / sizeof(float); i++) {
            data[i] *= factor;
        }
    }
}

void copy(const Rows &rows) {
    for (std::size_t row = 0; row < rows.n_rows; row++) {
        std::memcpy(rows.to + row * rows.stride_bytes, rows.from + row * rows.stride_bytes, rows.row_bytes);
    }
}

std::vector<CeilingLoop> find_loops() {
    using Of = CeilingLoop::Of;
    std::vector<CeilingLoop> loops = {{"memcpy", Of::memory, false, true, copy}};
#if defined(__x86_64__)
    const auto add = [&](const auto &some) { loops.insert(loops.end(), std::begin(some), std::end(some)); };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
        add(loops_256);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        add(loops_512);
        if (__builtin_cpu_supports("avx512bf16")) {
            add(loops_bf16);
        }
    }
#endif
    if (loops.size() == 1) {
        loops.push_back({"multiply", Of::memory, true, false, multiply});
    }
    return loops;
}

}  // namespace

std::span<const CeilingLoop> ceiling_loops() {
    static const std::vector<CeilingLoop> loops = find_loops();
    return loops;
}

}  // namespace halyard::bench
