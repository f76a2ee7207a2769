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
#include <tuple>
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
    const auto of_frequencies = [](const char *what, const auto &make) {
        return mishandles_failures<halyard_frequencies>(what, make, halyard_destroy_frequencies);
    };
    bool failed = of_frequencies("frequencies from a base", [](auto **out, auto *error) {
        return halyard_create_frequencies_from_base(10000.0, 64, out, error);
    });
    failed |= of_frequencies("frequencies from a list", [&](auto **out, auto *error) {
        return halyard_create_frequencies_from_list(list, 2, 1.0, out, error);
    });
    failed |= of_frequencies("frequencies from a config", [&](auto **out, auto *error) {
        return halyard_create_frequencies_from_config(config.data(), static_cast<std::int64_t>(config.size()), nullptr,
                                                      out, error);
    });
    const std::int32_t positions[] = {3, 9, 90};
    const auto listed = halyard::positions(positions, {1, 3});
    const halyard_positions *const none = nullptr;
    for (const auto &[name, kind, list_of_table] : {std::tuple("a table", HALYARD_ANGLES_TABLE, none),
                                                    {"a listed table", HALYARD_ANGLES_TABLE, &listed},
                                                    {"factored angles", HALYARD_ANGLES_FACTORED, none},
                                                    {"phases", HALYARD_ANGLES_PHASE, none}}) {
        auto desc = halyard::make_struct<halyard_angle_source_desc>();
        desc.kind = kind;
        desc.last = 100;
        desc.listed = list_of_table;
        failed |= mishandles_failures<halyard_angle_source>(
            name,
            [&](auto **out, auto *error) { return halyard_create_angle_source(frequencies.get(), &desc, out, error); },
            halyard_destroy_angle_source);
    }
    const halyard::plan_desc description(64,
                                         {halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)});
    const auto desc = description.get();
    failed |= mishandles_failures<halyard_plan>(
        "plan", [&](auto **out, auto *error) { return halyard_create_plan(&desc, out, error); }, halyard_destroy_plan);
    const halyard::plan plan(description);
    const auto angles = halyard::angle_source::table(frequencies, 0, 9);
    std::vector<float> x(64);
    const halyard_tensor tensor = halyard::tensor(x.data(), halyard::dtype::f32, {1, 1, 1, 64});
    auto args = halyard::make_struct<halyard_run_args>();
    args.angles = angles.get();
    args.x = args.y = &tensor;
    failed |= mishandles_failures<halyard_bound_run>(
        "bound run", [&](auto **out, auto *error) { return halyard_bind_run(plan.get(), &args, out, error); },
        halyard_destroy_bound_run);
    failed |= mishandles_failures<halyard_pool>(
        "pool", [](auto **out, auto *error) { return halyard_create_pool(4, out, error); }, halyard_destroy_pool);
    return failed;
}

constexpr std::int64_t n_tokens = 300, n_heads = 8, head_dim = 128, rotary_dim = 64;

/// What is run on each target, whole and in parts, bound and in a pool.
class Runs {
public:
    /// Whether one of them has allocated.
    bool failed = false;

    void run_all(const char *target) {
        std::printf("%s\n", target);
        rotate(target);
        take_a_road(target);
        move(target);
        turn_by_every_source(target);
    }

private:
    /// A plan of one tensor.
    static halyard::plan plan_of(const char *target, const halyard_tensor_desc &tensor, bool rerotates = false) {
        halyard::plan_desc desc(rotary_dim, {tensor});
        desc.target = target;
        desc.rerotates = rerotates;
        return halyard::plan(desc);
    }

    template <typename Work>
    void check(const char *what, Work work) {
        failed |= allocates(what, work);
    }

    void rotate(const char *target) {
        const halyard::plan plan = plan_of(target, head_);
        halyard::run_options threads, part;
        threads.executor = pool_.executor();
        part.part = {1, 3};
        const halyard::bound_run bound(plan, angles_, in_, out_), in_pool(plan, angles_, in_, out_, threads);
        check("out of place", [&] { halyard::run(plan, angles_, in_, out_); });
        check("in place", [&] { halyard::run(plan, angles_, in_, in_); });
        check("in a pool", [&] { halyard::run(plan, angles_, in_, out_, threads); });
        check("a part", [&] { halyard::run(plan, angles_, in_, out_, part); });
        check("bound", [&] { bound({in_.data}, {out_.data}); });
        check("bound, a part", [&] { bound({in_.data}, {out_.data}, nullptr, {1, 3}); });
        check("bound, in a pool", [&] { in_pool({in_.data}, {out_.data}); });
    }

    /// A norm, scales by position and dynamic ones, 8 bits and slots.
    void take_a_road(const char *target) {
        const auto norm = halyard::describe_norm(halyard::dtype::f32);
        auto head = head_;
        head.out_pairing = HALYARD_PAIRING_INTERLEAVED;
        head.out_dtype = HALYARD_E4M3;
        head.norm = &norm;
        head.scale = &scales_;
        head.cache = &cache_;
        head.position_scales = 1;
        const halyard::plan plan = plan_of(target, head);
        auto stages = stages_with(weight_.data(), head_dim);
        stages.position_scales = weight_.data();  // one for all
        auto into = halyard::run_options().into(slots_, stages);
        const halyard::bound_run bound(plan, angles_, in_, in_, into);
        halyard::bound_stages pointers = pointers_;
        const void *const weights[] = {weight_.data()};
        const float *const by_position[] = {weight_.data()};
        pointers.weights = weights;
        pointers.position_scales = by_position;
        check("a road", [&] { halyard::run(plan, angles_, in_, in_, into); });
        into.executor = pool_.executor();
        check("a road, in a pool", [&] { halyard::run(plan, angles_, in_, in_, into); });
        check("a road, bound", [&] { bound({in_.data}, {nullptr}, nullptr, pointers); });
    }

    /// Keys that move in their cache, each token otherwise.
    void move(const char *target) {
        auto key = halyard::describe_tensor(halyard::dtype::e4m3, head_dim, halyard::pairing::half);
        key.scale = &scales_;
        key.cache = &cache_;
        const halyard::plan plan = plan_of(target, key, true);
        const auto keys = halyard::tensor(nullptr, halyard::dtype::e4m3, {1, n_tokens, n_heads, head_dim});
        std::fill(written_.begin(), written_.end(), 1.0f);
        const std::vector<std::int32_t> from(n_tokens, 7);
        const auto to_view = halyard::positions(numbers_.data(), {1, n_tokens});
        const auto from_view = halyard::positions(from.data(), {1, n_tokens});
        const auto stages = stages_with(nullptr, 0);
        auto how = halyard::run_options().at(to_view).into(slots_, stages).moved_from(from_view, angles_.get());
        const halyard::bound_run bound(plan, angles_, keys, keys, how);
        halyard::bound_stages pointers = pointers_;
        pointers.from_positions = from.data();
        check("moves", [&] { halyard::run(plan, angles_, keys, keys, how); });
        how.executor = pool_.executor();
        check("moves, in a pool", [&] { halyard::run(plan, angles_, keys, keys, how); });
        check("moves, bound", [&] { bound({nullptr}, {nullptr}, numbers_.data(), pointers); });
    }

    /// Angles of every other source, and rows that are made of them.
    void turn_by_every_source(const char *target) {
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
        const halyard::plan plan = plan_of(target, head_);
        const std::vector<std::uint16_t> words(n_tokens * rotary_dim);
        std::vector<float> rows(n_tokens * rotary_dim);
        halyard::run_options threads;
        threads.executor = pool_.executor();
        for (const Kind &kind : kinds) {
            auto desc = halyard::make_struct<halyard_angle_source_desc>();
            desc.kind = kind.kind;
            desc.last = n_tokens;
            desc.cos_rows = words.data();
            desc.sin_rows = words.data() + rotary_dim / 2;
            desc.n_rows = n_tokens;
            desc.stride_row = desc.rotary_dim = rotary_dim;
            desc.rows_dtype = HALYARD_BF16;
            desc.axis_map = kind.axis_map;
            desc.n_axes = kind.axis_map == HALYARD_AXIS_MAP_NONE ? 0 : 3;
            desc.axis_counts[0] = desc.n_axes == 0 ? 0 : 12;
            desc.axis_counts[1] = desc.axis_counts[2] = desc.n_axes == 0 ? 0 : 10;
            const halyard::angle_source source(frequencies_, desc);
            check(kind.name, [&] { halyard::run(plan, source, in_, out_); });
            check("in a pool", [&] { halyard::run(plan, source, in_, in_, threads); });
            check("make_rows",
                  [&] { halyard::make_rows(plan, source, nullptr, 1, n_tokens, rows.data(), std::ssize(rows)); });
        }
    }

    halyard_stages stages_with(const void *weight, std::int64_t n_weights) {
        auto stages = halyard::stages(weight, n_weights, bytes_.data());
        stages.scales_out = written_.data();
        stages.stride_scales[1] = n_heads;
        stages.stride_scales[2] = 1;
        return stages;
    }

    halyard::frequencies frequencies_ = halyard::frequencies::from_base(10000.0, rotary_dim);
    halyard::angle_source angles_ = halyard::angle_source::table(frequencies_, 0, n_tokens);
    halyard::pool pool_{4};
    halyard_tensor_desc head_ = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half);
    halyard_scale_desc scales_ = halyard::describe_dynamic_scales();
    halyard_cache_desc cache_ = halyard::describe_hnd_cache(n_tokens, 1, n_heads, head_dim);
    std::vector<float> x_ = std::vector<float>(n_tokens * n_heads * head_dim), y_ = x_;
    std::vector<float> written_ = std::vector<float>(n_tokens * n_heads), weight_ = std::vector<float>(head_dim, 1.0f);
    std::vector<unsigned char> bytes_ = std::vector<unsigned char>(x_.size());
    std::vector<unsigned char> scratch_ = std::vector<unsigned char>(n_tokens / 8 + 1);
    std::vector<std::int32_t> numbers_ = [] {  // slots, and positions
        std::vector<std::int32_t> numbers(n_tokens);
        std::iota(numbers.begin(), numbers.end(), 0);
        return numbers;
    }();
    halyard_tensor in_ = halyard::tensor(x_.data(), halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
    halyard_tensor out_ = halyard::tensor(y_.data(), halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
    halyard_slots slots_ = halyard::slots(numbers_.data(), {1, n_tokens}, scratch_.data(), std::ssize(scratch_));
    void *caches_[1] = {bytes_.data()};
    float *scales_out_[1] = {written_.data()};
    halyard::bound_stages pointers_ = {
        .slots = numbers_.data(), .slots_scratch = scratch_.data(), .caches = caches_, .scales_out = scales_out_};
};

}  // namespace

int main() {
    bool failed = !allocates("(a vector, to see that the count works)",
                             [] { std::vector<int>(100).swap(*new std::vector<int>); });
    Runs runs;
    for (const halyard_target_info &target : halyard::targets()) {
        if (target.built != 0 && target.supported != 0) {
            runs.run_all(target.name);
        }
    }
    failed |= runs.failed;
    // The sentence of an error is written to the caller's memory, too.
    failed |= allocates("an error", [] {
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
