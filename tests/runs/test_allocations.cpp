// Checks that runs and make_rows allocate nothing, on one thread or in a pool. Wherever memory runs out while an object
// is made, there must be an error, no object and no leak. This is a program of its own, because it replaces malloc.
#include "checks/make_sources.h"
#include "checks/scene/ways.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
template <typename Object, typename Create, typename... Arguments>
bool mishandles_failures(const char *what, Create create, void (*destroy)(Object *), Arguments... arguments) {
    Object *object = nullptr;
    if (create(arguments..., &object, nullptr) !=
        HALYARD_OK) {  // this call also makes what the C library allocates only once
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
            status = create(arguments..., &object, &error);
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
    bool failed = mishandles_failures("frequencies from a base", halyard_create_frequencies_from_base,
                                      halyard_destroy_frequencies, 10000.0, 64);
    failed |= mishandles_failures("frequencies from a list", halyard_create_frequencies_from_list,
                                  halyard_destroy_frequencies, list, 2, 1.0);
    failed |= mishandles_failures("frequencies from a config", halyard_create_frequencies_from_config,
                                  halyard_destroy_frequencies, config.data(), static_cast<std::int64_t>(config.size()),
                                  nullptr);
    auto scaling = halyard::make_struct<halyard_scaling>();
    scaling.method = HALYARD_SCALING_LONGROPE;
    scaling.base = 10000.0;
    scaling.rotary_dim = 4;
    scaling.factor = 2.0;
    scaling.original_max_position = 4096;
    scaling.short_factor = scaling.long_factor = list;
    scaling.n_factors = 2;
    failed |= mishandles_failures("frequencies from scaling", halyard_create_frequencies_from_scaling,
                                  halyard_destroy_frequencies, &scaling);
    const auto longrope = halyard::frequencies::from_scaling(scaling);
    const auto of_list_of_pairs = halyard::frequencies::from_list(list, 2);
    for (const halyard::frequencies *const from : {&longrope, &of_list_of_pairs}) {
        failed |= mishandles_failures("another length's frequencies", halyard_create_frequencies_for_length,
                                      halyard_destroy_frequencies, from->get(), 9000);
    }
    const auto table = describe_source(HALYARD_ANGLES_TABLE, 0, 100),
               phase = describe_source(HALYARD_ANGLES_PHASE, 0, 9);
    auto of_axes = table;
    of_axes.n_axes = 2;
    of_axes.axis_map = HALYARD_AXIS_MAP_SECTIONS;
    of_axes.axis_counts[0] = of_axes.axis_counts[1] = 16;
    for (const auto &[name, desc] :
         {std::pair("a table", &table), {"a table of two axes", &of_axes}, {"phases", &phase}}) {
        failed |= mishandles_failures(name, halyard_create_angle_source, halyard_destroy_angle_source,
                                      frequencies.get(), desc);
    }
    const auto angles = halyard::angle_source::table(frequencies, 0, 10);
    const halyard::plan_desc description(64,
                                         {halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)});
    const auto desc = description.get();
    failed |= mishandles_failures("plan", halyard_create_plan, halyard_destroy_plan, &desc);
    const halyard::plan plan(description);
    std::vector<float> x(64);
    const halyard_tensor tensor = halyard::tensor(x.data(), halyard::dtype::f32, {1, 1, 1, 64});
    auto args = halyard::make_struct<halyard_run_args>();
    args.angles = angles.get();
    args.x = args.y = &tensor;
    failed |= mishandles_failures("bound run", halyard_bind_run, halyard_destroy_bound_run, plan.get(), &args);
    failed |= mishandles_failures("pool", halyard_create_pool, halyard_destroy_pool, 4);
    return failed;
}

/// How often random runs of a target allocate, whole and in parts, bound and in a pool; and make_rows of their angles.
class Runs {
public:
    explicit Runs(const char *target) : target_(target) {}

    /// Whether any did.
    bool allocate() {
        oracle::Random random(1);
        for (int round = 0; round < 120; round++) {
            const bool is_any = target_ != std::string("reference");  // which rotates and nothing else
            scenes::Choice choice =
                !is_any || random.one_in(2) ? scenes::Choice::of_rotations() : scenes::Choice();
            choice.moves = is_any && random.one_in(3);
            choice.n_tensors = is_any ? 0 : 1;
            choice.level[scenes::of_turn] = is_any ? -1 : round % 4;
            if (random.one_in(4)) {  // worth several threads
                choice.shape = {1, 120, 8};
                choice.head_dim = 512;
                choice.rotary_dim = 64;
            }
            scenes::Draw draw(random);
            scenes::Scene scene(draw, choice);
            make_all(scene);
        }
        std::printf("%s: %ld allocations in %ld runs, of which %ld failed\n", target_, n_, n_runs_, n_refused_);
        return n_ != 0 || n_refused_ != 0;
    }

private:
    const char *target_;
    halyard::pool pool_{4};
    long n_ = 0, n_runs_ = 0, n_refused_ = 0;

    template <typename Run>
    void count(const scenes::Scene &scene, Run run) {
        scene.memory.restore(scene.before);
        const long before = n_allocations;
        const halyard_status status = run();
        n_ += n_allocations - before;
        n_runs_++;
        n_refused_ += status == HALYARD_OK ? 0 : 1;
    }

    void make_all(const scenes::Scene &scene) {
        halyard_plan_desc desc = scene.call.plan;
        desc.target = target_;
        const halyard::plan plan(desc);
        scenes::ScenePointers pointers(scene.call);
        for (const halyard_executor *const executor :
             {static_cast<const halyard_executor *>(nullptr), pool_.executor()}) {
            halyard_run_args args = scene.call.args;
            args.executor = executor;
            halyard_bound_run *made = nullptr;
            halyard_bind_run(plan.get(), &args, &made, nullptr);
            const halyard::bound_run bound(made);
            count(scene, [&] { return halyard_run(plan.get(), &args, nullptr); });
            count(scene, [&] { return halyard_run_bound(made, &pointers.args, nullptr); });
            if (executor == nullptr) {
                args.n_parts = pointers.args.n_parts = 3;
                args.part = pointers.args.part = 1;
                count(scene, [&] { return halyard_run(plan.get(), &args, nullptr); });
                count(scene, [&] { return halyard_run_bound(made, &pointers.args, nullptr); });
                pointers.args.n_parts = pointers.args.part = 0;
            }
        }
        if (scene.call.plan.rerotates == 0 && scene.call.rotates() && scene.angles.desc.by_token == 0) {
            auto args = sized<halyard_rows_args>();
            args.bad_position = HALYARD_BAD_POSITION_CLAMP;  // positions of padding may be any
            args.angles = scene.call.args.angles;
            args.positions = scene.call.args.positions;
            args.n_batch = scene.call.n_batch();
            args.n_tokens = scene.call.n_tokens();
            args.n_floats = args.n_batch * args.n_tokens * scene.call.plan.rotary_dim;
            std::vector<float> rows(static_cast<std::size_t>(args.n_floats + 1));
            args.rows = rows.data();
            count(scene, [&] { return halyard_make_rows(plan.get(), &args, nullptr); });
        }
    }
};

}  // namespace

int main() {
    bool failed = !allocates("(a vector, to see that the count works)",
                             [] { std::vector<int>(100).swap(*new std::vector<int>); });
    for (const halyard_target_info &target : halyard::targets()) {
        failed |= target.built != 0 && target.supported != 0 && Runs(target.name).allocate();
    }
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
