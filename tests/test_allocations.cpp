// A run allocates nothing, on one thread or in a pool, and neither does make_rows. A program of its own, because it
// replaces malloc.
#include "halyard/halyard.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(__GLIBC__)

static std::atomic<long> n_allocations{0};

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t n_bytes) {
    n_allocations++;
    return __libc_malloc(n_bytes);
}
void *calloc(size_t n, size_t n_bytes) {
    n_allocations++;
    return __libc_calloc(n, n_bytes);
}
void *realloc(void *memory, size_t n_bytes) {
    n_allocations++;
    return __libc_realloc(memory, n_bytes);
}
void *aligned_alloc(size_t alignment, size_t n_bytes) {
    n_allocations++;
    return __libc_memalign(alignment, n_bytes);
}
int posix_memalign(void **out, size_t alignment, size_t n_bytes) {
    n_allocations++;
    *out = __libc_memalign(alignment, n_bytes);
    return *out == nullptr ? 12 : 0;
}
}

namespace {

template <typename Work>
bool allocates(const char *what, Work work) {
    const long before = n_allocations;
    for (int i = 0; i < 50; i++) {
        work();
    }
    const long n = n_allocations - before;
    std::printf("%s: %ld allocations in 50 calls\n", what, n);
    return n != 0;
}

}  // namespace

int main() {
    constexpr std::int64_t n_tokens = 300, n_heads = 8, head_dim = 128;
    const auto frequencies = halyard::frequencies::from_base(10000.0, head_dim);
    const auto angles = halyard::angle_source::table(frequencies, 0, n_tokens);
    const halyard::pool pool(4);
    std::vector<float> x(n_tokens * n_heads * head_dim), y(x.size()), rows(n_tokens * head_dim);
    const std::vector<std::uint16_t> words(n_tokens * 64);
    struct Kind {
        const char *name;
        std::int32_t kind, axis_map;
    };
    constexpr Kind kinds[] = {{"factored", HALYARD_ANGLES_FACTORED, HALYARD_AXIS_MAP_NONE},
                              {"phase", HALYARD_ANGLES_PHASE, HALYARD_AXIS_MAP_NONE},
                              {"given bf16", HALYARD_ANGLES_GIVEN, HALYARD_AXIS_MAP_NONE},
                              {"table, sections", HALYARD_ANGLES_TABLE, HALYARD_AXIS_MAP_SECTIONS},
                              {"factored, interleaved", HALYARD_ANGLES_FACTORED, HALYARD_AXIS_MAP_INTERLEAVED},
                              {"phase, interleaved", HALYARD_ANGLES_PHASE, HALYARD_AXIS_MAP_INTERLEAVED}};
    bool failed = !allocates("(a vector, to see that the count works)",
                             [] { std::vector<int>(100).swap(*new std::vector<int>); });
    for (const halyard_target_info &target : halyard::targets()) {
        if (target.built == 0 || target.supported == 0) {
            continue;
        }
        auto desc = halyard::describe_plan(64, {halyard::describe_tensor(halyard::dtype::f32, head_dim)});
        desc.target = target.name;
        const halyard::plan plan(desc);
        auto in = halyard::tensor(x.data(), halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
        auto out = in;
        out.data = y.data();
        const auto narrow = halyard::frequencies::from_base(10000.0, 64);
        const auto half = halyard::angle_source::table(narrow, 0, n_tokens);
        halyard::run_options threads;
        threads.executor = pool.executor();
        std::printf("%s\n", target.name);
        failed |= allocates("out of place", [&] { halyard::run(plan, half, in, out); });
        failed |= allocates("in place", [&] { halyard::run(plan, half, in, in); });
        failed |= allocates("in a pool", [&] { halyard::run(plan, half, in, out, threads); });
        for (const Kind &kind : kinds) {
            auto made = halyard_angle_source_desc();
            made.size = sizeof(made);
            made.kind = kind.kind;
            made.last = n_tokens;
            made.cos_rows = words.data();
            made.sin_rows = words.data() + 32;
            made.n_rows = n_tokens;
            made.stride_row = made.rotary_dim = 64;
            made.rows_dtype = HALYARD_BF16;
            made.axis_map = kind.axis_map;
            made.n_axes = kind.axis_map == HALYARD_AXIS_MAP_NONE ? 0 : 3;
            made.axis_counts[0] = made.n_axes == 0 ? 0 : 12;
            made.axis_counts[1] = made.axis_counts[2] = made.n_axes == 0 ? 0 : 10;
            const halyard::angle_source source(narrow, made);
            failed |= allocates(kind.name, [&] { halyard::run(plan, source, in, out); });
            failed |= allocates("in a pool", [&] { halyard::run(plan, source, in, in, threads); });
            failed |= allocates("make_rows", [&] {
                source.make_rows(nullptr, 1, n_tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
            });
        }
    }
    failed |= allocates("make_rows", [&] {
        angles.make_rows(nullptr, 1, n_tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
    });
    // An error, whose sentence is the caller's memory too.
    failed |= allocates("an error", [&] {
        halyard_error error = {};
        error.size = sizeof(error);
        halyard_run(nullptr, nullptr, &error);
    });
    return failed ? 1 : 0;
}

#else

int main() {
    std::puts("SKIP: this C library does not let malloc be replaced");
    return 77;
}

#endif
