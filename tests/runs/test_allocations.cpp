// Checks that runs and make_rows allocate nothing, on one thread or in a pool. Wherever memory runs out while an object
// is made, there must be an error, no object and no leak. This is a program of its own, because it replaces malloc.
#include "halyard/halyard.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <string>
#include <vector>

// AddressSanitizer and ThreadSanitizer replace malloc too, and are not ready when the first call comes.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static std::atomic<long> n_allocations{0};
static std::atomic<long> n_live{0};
static std::atomic<long> n_failed{0};
// How many more allocations succeed before one fails, or before all fail from then on. Negative: none fails.
static std::atomic<long> n_until_failure{-1};
static std::atomic<bool> fails_for_good{false};

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static bool runs_out() {
    n_allocations++;
    if (n_until_failure < 0) {
        return false;
    }
    if (n_until_failure > 0) {
        n_until_failure--;
        return false;
    }
    if (!fails_for_good) {
        n_until_failure = -1;
    }
    n_failed++;
    return true;
}
static void *count(void *memory) {
    n_live += memory == nullptr ? 0 : 1;
    return memory;
}

void *malloc(size_t n_bytes) { return runs_out() ? nullptr : count(__libc_malloc(n_bytes)); }
void *calloc(size_t n, size_t n_bytes) { return runs_out() ? nullptr : count(__libc_calloc(n, n_bytes)); }
void *realloc(void *memory, size_t n_bytes) {
    if (runs_out()) {
        return nullptr;
    }
    n_live -= memory == nullptr ? 0 : 1;
    return count(__libc_realloc(memory, n_bytes));
}
void *aligned_alloc(size_t alignment, size_t n_bytes) {
    return runs_out() ? nullptr : count(__libc_memalign(alignment, n_bytes));
}
int posix_memalign(void **out, size_t alignment, size_t n_bytes) {
    *out = aligned_alloc(alignment, n_bytes);
    return *out == nullptr ? 12 : 0;
}
void free(void *memory) {
    n_live -= memory == nullptr ? 0 : 1;
    __libc_free(memory);
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

/// Makes an object again and again, each time with one allocation more before memory runs out, until it can be made.
template <typename Object>
bool mishandles_failures(const char *what, const std::function<halyard_status(Object **, halyard_error *)> &make,
                         void (*destroy)(Object *)) {
    Object *object = nullptr;
    if (make(&object, nullptr) != HALYARD_OK) {  // this call also makes what the C library allocates only once
        std::printf("%s: cannot be made at all\n", what);
        return true;
    }
    destroy(object);
    for (const bool for_good : {false, true}) {
        halyard_status status = HALYARD_ERROR_OUT_OF_MEMORY;
        long n = 0;
        for (; status != HALYARD_OK; n++) {
            auto *const untouched = reinterpret_cast<Object *>(&n);
            object = untouched;
            halyard_error error = {sizeof(error), HALYARD_OK, ""};
            const long live = n_live, failed = n_failed;
            fails_for_good = for_good;
            n_until_failure = n;
            status = make(&object, &error);
            const bool has_failed = n_failed != failed;
            n_until_failure = -1;
            if (status == HALYARD_OK) {
                destroy(object);
                if (has_failed) {
                    std::printf("%s: made without allocation %ld\n", what, n);
                    return true;
                }
            } else if ((status != HALYARD_ERROR_OUT_OF_MEMORY && status != HALYARD_ERROR_THREADS) ||
                       error.code != status || error.message[0] == '\0' || object != untouched || !has_failed) {
                std::printf("%s: without allocation %ld: status %d, \"%s\"%s\n", what, n, status, error.message,
                            object != untouched ? ", and out was written" : "");
                return true;
            }
            if (n_live != live) {
                std::printf("%s: without allocation %ld: %ld are left\n", what, n, n_live - live);
                return true;
            }
        }
        std::printf("%s: an error, no object and no leak without each of %ld allocations\n", what, n - 1);
        if (n < 2) {
            return true;  // nothing was tried
        }
    }
    return false;
}

bool any_mishandles_failures() {
    const auto frequencies = halyard::frequencies::from_base(10000.0, 64);
    const double list[] = {1.0, 0.5};
    const std::string config = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2,
        "max_position_embeddings": 4096, "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0}})";
    using Frequencies = halyard_frequencies;
    using Source = halyard_angle_source;
    bool failed = mishandles_failures<Frequencies>(
        "frequencies from a base",
        [](Frequencies **out, halyard_error *error) {
            return halyard_create_frequencies_from_base(10000.0, 64, out, error);
        },
        halyard_destroy_frequencies);
    failed |= mishandles_failures<Frequencies>(
        "frequencies from a list",
        [&](Frequencies **out, halyard_error *error) {
            return halyard_create_frequencies_from_list(list, 2, 1.0, out, error);
        },
        halyard_destroy_frequencies);
    failed |= mishandles_failures<Frequencies>(
        "frequencies from a config",
        [&](Frequencies **out, halyard_error *error) {
            return halyard_create_frequencies_from_config(config.data(), static_cast<std::int64_t>(config.size()),
                                                          nullptr, out, error);
        },
        halyard_destroy_frequencies);
    const std::int32_t positions[] = {3, 9, 90};
    const auto listed = halyard::positions(positions, {1, 3});
    for (const std::int32_t kind : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE}) {
        for (const halyard_positions *list_of_table : {static_cast<const halyard_positions *>(nullptr), &listed}) {
            if (kind != HALYARD_ANGLES_TABLE && list_of_table != nullptr) {
                continue;
            }
            const std::string name =
                "angle source " + std::to_string(kind) + (list_of_table != nullptr ? ", listed" : "");
            failed |= mishandles_failures<Source>(
                name.c_str(),
                [&](Source **out, halyard_error *error) {
                    auto desc = halyard_angle_source_desc();
                    desc.size = sizeof(desc);
                    desc.kind = kind;
                    desc.last = 100;
                    desc.listed = list_of_table;
                    return halyard_create_angle_source(frequencies.get(), &desc, out, error);
                },
                halyard_destroy_angle_source);
        }
    }
    const halyard::plan_desc description(64,
                                         {halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)});
    const auto desc = description.get();
    failed |= mishandles_failures<halyard_plan>(
        "plan", [&](halyard_plan **out, halyard_error *error) { return halyard_create_plan(&desc, out, error); },
        halyard_destroy_plan);
    const halyard::plan plan(description);
    const auto angles = halyard::angle_source::table(frequencies, 0, 9);
    std::vector<float> x(64);
    const halyard_tensor tensor = halyard::tensor(x.data(), halyard::dtype::f32, {1, 1, 1, 64});
    auto args = halyard::make_struct<halyard_run_args>();
    args.angles = angles.get();
    args.x = args.y = &tensor;
    failed |= mishandles_failures<halyard_bound_run>(
        "bound run",
        [&](halyard_bound_run **out, halyard_error *error) { return halyard_bind_run(plan.get(), &args, out, error); },
        halyard_destroy_bound_run);
    failed |= mishandles_failures<halyard_pool>(
        "pool", [](halyard_pool **out, halyard_error *error) { return halyard_create_pool(4, out, error); },
        halyard_destroy_pool);
    return failed;
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
        halyard::plan_desc desc(64, {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half)});
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
        halyard::run_options part;
        part.part = {1, 3};
        failed |= allocates("a part", [&] { halyard::run(plan, half, in, out, part); });
        const halyard::bound_run bound(plan, half, in, out), in_pool(plan, half, in, out, threads);
        failed |= allocates("bound", [&] { bound({in.data}, {out.data}); });
        failed |= allocates("bound, a part", [&] { bound({in.data}, {out.data}, nullptr, {1, 3}); });
        failed |= allocates("bound, in a pool", [&] { in_pool({in.data}, {out.data}); });
        // A norm, dynamic scales, 8 bits and slots.
        const auto norm = halyard::describe_norm(halyard::dtype::f32);
        const auto scales = halyard::describe_dynamic_scales();
        const auto cache = halyard::describe_hnd_cache(n_tokens, 1, n_heads, head_dim);
        auto head = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half,
                                             halyard::pairing::interleaved);
        head.out_dtype = HALYARD_E4M3;
        head.norm = &norm;
        head.scale = &scales;
        head.cache = &cache;
        halyard::plan_desc road_desc(64, {head});
        road_desc.target = target.name;
        const halyard::plan road(road_desc);
        std::vector<std::int32_t> slot_values(n_tokens);
        std::iota(slot_values.begin(), slot_values.end(), 0);
        std::vector<unsigned char> bytes(x.size()), scratch(n_tokens / 8 + 1);
        std::vector<float> written(n_tokens * n_heads), weight(head_dim, 1.0f);
        auto stages = halyard::stages(weight.data(), head_dim, bytes.data());
        stages.scales_out = written.data();
        stages.stride_scales[1] = n_heads;
        stages.stride_scales[2] = 1;
        const auto slots = halyard::slots(slot_values.data(), {1, n_tokens}, scratch.data(), n_tokens / 8 + 1);
        auto into = halyard::run_options().into(slots, &stages);
        failed |= allocates("a road", [&] { halyard::run(road, half, in, in, into); });
        const halyard::bound_run bound_road(road, half, in, in, into);
        into.executor = pool.executor();
        failed |= allocates("a road, in a pool", [&] { halyard::run(road, half, in, in, into); });
        const void *const weights[] = {weight.data()};
        void *const caches[] = {bytes.data()};
        float *const scales_out[] = {written.data()};
        halyard::bound_stages pointers;
        pointers.slots = slot_values.data();
        pointers.slots_scratch = scratch.data();
        pointers.weights = weights;
        pointers.caches = caches;
        pointers.scales_out = scales_out;
        failed |= allocates("a road, bound", [&] { bound_road({in.data}, {nullptr}, nullptr, pointers); });
        // Keys that move in their cache, each token otherwise.
        auto key = halyard::describe_tensor(halyard::dtype::e4m3, head_dim, halyard::pairing::half);
        key.scale = &scales;
        key.cache = &cache;
        halyard::plan_desc moves_desc(64, {key});
        moves_desc.target = target.name;
        moves_desc.rerotates = true;
        const halyard::plan moves(moves_desc);
        const auto keys = halyard::tensor(nullptr, halyard::dtype::e4m3, {1, n_tokens, n_heads, head_dim});
        std::fill(written.begin(), written.end(), 1.0f);
        std::vector<std::int32_t> to(n_tokens), from(n_tokens, 7);
        std::iota(to.begin(), to.end(), 0);
        const auto to_view = halyard::positions(to.data(), {1, n_tokens});
        const auto from_view = halyard::positions(from.data(), {1, n_tokens});
        stages = halyard::stages(bytes.data());
        stages.scales_out = written.data();
        stages.stride_scales[1] = n_heads;
        stages.stride_scales[2] = 1;
        auto move = halyard::run_options().at(to_view).into(slots, &stages).moved_from(from_view, half.get());
        failed |= allocates("moves", [&] { halyard::run(moves, half, keys, keys, move); });
        const halyard::bound_run bound_moves(moves, half, keys, keys, move);
        pointers.weights = nullptr;
        pointers.from_positions = from.data();
        failed |= allocates("moves, bound", [&] { bound_moves({nullptr}, {nullptr}, to.data(), pointers); });
        move.executor = pool.executor();
        failed |= allocates("moves, in a pool", [&] { halyard::run(moves, half, keys, keys, move); });
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
                halyard::make_rows(plan, source, nullptr, 1, n_tokens, rows.data(),
                                   static_cast<std::int64_t>(rows.size()));
            });
        }
    }
    // The sentence of an error is written to the caller's memory, too.
    failed |= allocates("an error", [&] {
        halyard_error error = {};
        error.size = sizeof(error);
        halyard_run(nullptr, nullptr, &error);
    });
    failed |= any_mishandles_failures();
    return failed ? 1 : 0;
}

#else

int main() {
    std::puts("SKIP: malloc cannot be replaced with this C library, or under this sanitizer");
    return 77;
}

#endif
