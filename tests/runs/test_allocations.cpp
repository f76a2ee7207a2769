// Checks that runs and make_rows allocate nothing, on one thread or in a pool; and that creating any object fails
// without a leak, whichever allocation fails. This is a separate program because it replaces malloc.
#include "checks/cases/run_modes.h"
#include "checks/make_sources.h"

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

// Not under AddressSanitizer and ThreadSanitizer: they replace malloc too, and are not initialised at its first call.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static std::atomic<long> n_allocations{0}, n_live{0}, n_failed{0};
// Allocations first_to_fail to last_to_fail, counted from the start of a check, return NULL.
static std::atomic<long> first_to_fail{LONG_MAX}, last_to_fail{LONG_MAX};

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static bool runs_out() {
    const long number = n_allocations++;
    const bool fails = number >= first_to_fail && number <= last_to_fail;
    n_failed += fails ? 1 : 0;
    return fails;
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

bool has_failed = false;

void check(bool holds, const std::string &what) {
    std::printf("%s%s\n", holds ? "" : "FAILED: ", what.c_str());
    has_failed = has_failed || !holds;
}

template <typename Work>
long allocations_in(Work work) {
    const long before = n_allocations;
    work();
    return n_allocations - before;
}

// ---- Objects -------------------------------------------------------------------------------------------------------

/// Calls create(out, error) with the first allocation failing, then the second, and so on until creation succeeds: once
/// with only that allocation failing, and once with all later ones failing too.
template <typename Handle, typename Create>
void check_failures(const char *what, Create create) {
    using Object = decltype(std::declval<Handle>().get());
    const std::string of = std::string(what) + ": ";
    Object object = nullptr;
    check(create(&object, nullptr) == HALYARD_OK, of + "can be made");  // makes the C library's one-time allocations
    Handle(std::exchange(object, nullptr));
    for (const bool for_good : {false, true}) {
        halyard_status status = HALYARD_ERROR_OUT_OF_MEMORY;
        long n = 0;
        for (; status != HALYARD_OK && !has_failed; n++) {
            auto *const untouched = reinterpret_cast<Object>(&n);
            object = untouched;
            halyard_error error = {sizeof(error), HALYARD_OK, ""};
            const long live = n_live, failed = n_failed;
            last_to_fail = for_good ? LONG_MAX : n_allocations + n;
            first_to_fail = n_allocations + n;
            status = create(&object, &error);
            first_to_fail = LONG_MAX;
            const bool made = status == HALYARD_OK;
            const bool is_told = status == HALYARD_ERROR_OUT_OF_MEMORY || status == HALYARD_ERROR_THREADS;
            const bool holds = made ? n_failed == failed
                                    : is_told && error.code == status && error.message[0] != '\0' &&
                                          object == untouched && n_failed != failed;
            Handle(made ? object : nullptr);
            if (!holds || n_live != live) {
                check(false, of + "without allocation " + std::to_string(n) + " status " + std::to_string(status) +
                                 ", \"" + error.message + "\", and " + std::to_string(n_live - live) + " left");
            }
        }
        check(n > 1, of + "an error, no object and no leak without each of " + std::to_string(n - 1) + " allocations");
    }
}

void check_all_failures() {
    using halyard::frequencies;
    const auto of_base = frequencies::from_base(10000.0, 64);
    const double list[] = {1.0, 0.5};
    const std::string config = R"({"model_type": "qwen2_vl", "hidden_size": 64, "num_attention_heads": 2,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, "vision_config": {"embed_dim": 64, "num_heads": 2},
        "rope_scaling": {"rope_type": "linear", "factor": 2.0, "mrope_section": [4, 6, 6]}})";
    auto scaling = sized<halyard_scaling>();
    scaling.method = HALYARD_SCALING_LONGROPE;
    scaling.base = 10000.0;
    scaling.rotary_dim = 4;
    scaling.factor = 2.0;
    scaling.original_max_position = 4096;
    scaling.short_factor = scaling.long_factor = list;
    scaling.n_factors = 2;
    check_failures<frequencies>("frequencies from a base",
                                [](auto... out) { return halyard_create_frequencies_from_base(10000.0, 64, out...); });
    check_failures<frequencies>("frequencies from a list", [&](auto... out) {
        return halyard_create_frequencies_from_list(list, 2, 1.0, out...);
    });
    auto options = sized<halyard_config_options>();
    for (const char *const layer_type : {"vision", static_cast<const char *>(nullptr)}) {
        options.layer_type = layer_type;
        check_failures<frequencies>("frequencies from a config", [&](auto... out) {
            return halyard_create_frequencies_from_config(config.data(), std::ssize(config), &options, out...);
        });
    }
    check_failures<frequencies>("frequencies from scaling",
                                [&](auto... out) { return halyard_create_frequencies_from_scaling(&scaling, out...); });
    for (const auto &from : {frequencies::from_scaling(scaling), frequencies::from_list(list, 2)}) {
        check_failures<frequencies>("another length's frequencies", [&](auto... out) {
            return halyard_create_frequencies_for_length(from.get(), 9000, out...);
        });
    }

    auto of_axes = describe_source(HALYARD_ANGLES_TABLE, 0, 100);
    of_axes.n_axes = 2;
    of_axes.axis_map = HALYARD_AXIS_MAP_SECTIONS;
    of_axes.axis_counts[0] = of_axes.axis_counts[1] = 16;
    for (const auto &[name, desc] : {std::pair("a table", describe_source(HALYARD_ANGLES_TABLE, 0, 100)),
                                     {"a table of two axes", of_axes},
                                     {"phases", describe_source(HALYARD_ANGLES_PHASE, 0, 9)}}) {
        check_failures<halyard::angle_source>(
            name, [&, of = &desc](auto... out) { return halyard_create_angle_source(of_base.get(), of, out...); });
    }
    const auto angles = halyard::angle_source::table(of_base, 0, 10);
    const halyard::plan_desc description(64,
                                         {halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)});
    const auto desc = description.get();
    auto kv = sized<halyard_kv_desc>();
    for (const auto &[name, hadamard] : {std::pair("a plan", 0), {"a plan of stages", 64}}) {
        kv.hadamard = hadamard;
        auto tensor = *desc.tensors;
        tensor.kv = &kv;
        auto its_desc = desc;
        its_desc.tensors = &tensor;
        check_failures<halyard::plan>(name, [&](auto... out) { return halyard_create_plan(&its_desc, out...); });
    }
    const halyard::plan plan(description);
    std::vector<float> x(64);
    const halyard_tensor tensor = halyard::tensor(x.data(), halyard::dtype::f32, {1, 1, 1, 64});
    auto args = sized<halyard_run_args>();
    args.angles = angles.get();
    args.x = args.y = &tensor;
    check_failures<halyard::bound_run>("bound run",
                                       [&](auto... out) { return halyard_bind_run(plan.get(), &args, out...); });
    check_failures<halyard::pool>("pool", [](auto... out) { return halyard_create_pool(4, out...); });
}

// ---- Runs ----------------------------------------------------------------------------------------------------------

/// Checks that random runs of a target allocate nothing: whole, in parts, bound, in a pool. Checks make_rows likewise.
void check_runs(const std::string &target) {
    const bool has_stages = target != "reference";
    const halyard::pool pool(4);
    oracle::Random random(1);
    long n = 0, n_runs = 0, n_refused = 0;
    for (int round = 0; round < 120; round++) {
        cases::Choice choice = !has_stages || random.one_in(2) ? cases::Choice::of_rotations() : cases::Choice();
        choice.rerotates = has_stages && random.one_in(3);
        choice.n_tensors = has_stages ? 0 : 1;
        choice.level[cases::of_pairing] = has_stages ? -1 : round % 4;
        if (random.one_in(4)) {  // large enough for several threads
            choice.shape = {1, 120, 8};
            choice.head_dim = 512;
            choice.rotary_dim = 64;
        }
        cases::Draw draw(random);
        const cases::Case drawn(draw, choice);
        const cases::Call &call = drawn.call;
        const auto count = [&](auto run) {
            drawn.memory.restore(drawn.before);
            n += allocations_in([&] { n_refused += run() == HALYARD_OK ? 0 : 1; });
            n_runs++;
        };

        halyard_plan_desc desc = call.plan;
        desc.target = target.c_str();
        const halyard::plan plan(desc);
        BoundPointers pointers(call.plan, call.args);
        for (const bool in_pool : {false, true}) {
            halyard_run_args args = call.args;
            args.executor = in_pool ? pool.executor() : nullptr;
            halyard_bound_run *made = nullptr;
            halyard_bind_run(plan.get(), &args, &made, nullptr);
            const halyard::bound_run bound(made);
            for (std::int32_t n_parts = in_pool ? 0 : 3; n_parts >= 0; n_parts -= 3) {
                args.n_parts = pointers.args.n_parts = n_parts;
                args.part = pointers.args.part = n_parts / 3;
                count([&] { return halyard_run(plan.get(), &args, nullptr); });
                count([&] { return halyard_run_bound(made, &pointers.args, nullptr); });
            }
        }
        if (call.plan.rerotates == 0 && call.rotates() && drawn.angles.desc.by_token == 0) {
            auto args = sized<halyard_rows_args>();
            args.bad_position = HALYARD_BAD_POSITION_CLAMP;  // padding tokens may have any position
            args.angles = call.args.angles;
            args.positions = call.args.positions;
            args.n_batch = call.n_batch();
            args.n_tokens = call.n_tokens();
            args.n_floats = args.n_batch * args.n_tokens * call.plan.rotary_dim;
            std::vector<float> rows(static_cast<std::size_t>(args.n_floats + 1));
            args.rows = rows.data();
            count([&] { return halyard_make_rows(plan.get(), &args, nullptr); });
        }
    }
    check(n == 0 && n_refused == 0, target + ": " + std::to_string(n) + " allocations in " + std::to_string(n_runs) +
                                        " runs, of which " + std::to_string(n_refused) + " failed");
}

}  // namespace

int main() {
    check(allocations_in([] { std::vector<int>(100).swap(*new std::vector<int>); }) > 0, "allocations are counted");
    for (const halyard_target_info &target : halyard::targets()) {
        if (target.built != 0 && target.supported != 0) {
            check_runs(target.name);
        }
    }
    // Error messages are written to the caller's struct.
    auto error = sized<halyard_error>();
    check(allocations_in([&] { halyard_run(nullptr, nullptr, &error); }) == 0, "an error allocates nothing");
    check_all_failures();
    return has_failed ? 1 : 0;
}

#else

int main() {
    std::puts("SKIP: malloc cannot be replaced with this C library, or under this sanitizer");
    return 77;
}

#endif
