// What the GPU runtime asks of a CUDA driver: launches, streams, contexts, and what becomes of errors. The driver here
// only records, for most launches reach far out of the memory that there is; test_gpu_kernels.cpp says whether the
// kernels are right.
#include "checks/cuda/driver.h"
#include "checks/sized.h"
#include "checks/gpu_memory.h"
#include "halyard/halyard_gpu.hpp"
#include "tests/changes.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <set>
#include <thread>

// How many more calls of the operator new that may fail succeed before one fails. Negative: none fails.
static thread_local int n_until_failure = -1;

void *operator new(std::size_t n_bytes, const std::nothrow_t &) noexcept {
    return n_until_failure >= 0 && n_until_failure-- == 0 ? nullptr : ::operator new(n_bytes);
}
void *operator new[](std::size_t n_bytes, const std::nothrow_t &) noexcept {
    return n_until_failure >= 0 && n_until_failure-- == 0 ? nullptr : ::operator new[](n_bytes);
}

namespace {

[[maybe_unused]] const int only_records = setenv("HALYARD_EMULATED_CUDA", "records", 1);

using emulated_cuda::Call;
using emulated_cuda::Driver;
using emulated_cuda::with_driver;

void fail_at(const std::string &function, int failure, int calls_until = 0) {
    with_driver([&](Driver &driver) {
        driver.failing = function;
        driver.failure = failure;
        driver.calls_until = calls_until;
    });
}

/// What the driver holds. It must be the same before and after a test.
struct State {
    std::size_t n_regions = 0;
    int n_modules = 0;
    State() {
        with_driver([&](Driver &driver) {
            n_regions = driver.n_regions;
            n_modules = driver.n_modules;
        });
    }
    bool operator==(const State &) const = default;
};

/// All calls that an action makes.
template <typename Action>
std::vector<Call> calls_of(Action action) {
    with_driver([](Driver &driver) { driver.calls.clear(); });
    action();
    std::vector<Call> calls;
    with_driver([&](Driver &driver) { calls = driver.calls; });
    return calls;
}

std::vector<Call> launches_in(std::vector<Call> calls) {
    std::erase_if(calls, [](const Call &call) { return call.name != "cuLaunchKernel"; });
    return calls;
}

/// A graph can capture calls that neither wait, allocate, copy nor load.
void check_capturable(const std::vector<Call> &calls) {
    static const std::set<std::string> harmless = {"cuCtxPushCurrent_v2",   "cuCtxPopCurrent_v2",
                                                   "cuPointerGetAttribute", "cuCtxGetDevice",
                                                   "cuModuleGetFunction",   "cuLaunchKernel"};
    for (const Call &call : calls) {
        CAPTURE(call.name);
        CHECK(harmless.contains(call.name));
    }
}

/// The launches of a run of one tensor, or of an array of them.
template <typename Tensors>
std::vector<Call> launches_of(const halyard::gpu_plan &plan, const Tensors &x, const Tensors &y,
                              const halyard::gpu_run_options &how) {
    return launches_in(calls_of([&] { halyard::run(plan, x, y, how); }));
}
template <typename Tensors>
std::size_t count_launches(const halyard::gpu_plan &plan, const Tensors &x, const Tensors &y,
                           const halyard::gpu_run_options &how) {
    return launches_of(plan, x, y, how).size();
}

/// How many launches a run makes until one of them fails.
std::size_t count_until_failure(const halyard::gpu_plan &plan, const halyard_tensor &x, const halyard_tensor &y,
                                const halyard::gpu_run_options &how, int calls_until = 0) {
    fail_at("cuLaunchKernel", 719, calls_until);
    const auto calls = calls_of([&] { CHECK_THROWS_AS(halyard::run(plan, x, y, how), halyard::error); });
    fail_at("", 0);
    return launches_in(calls).size();
}

char contexts[4], streams[16];  // their addresses stand for a driver's contexts and streams

halyard_gpu_queue queue_of(void *context = &contexts[0]) {
    return halyard::describe_queue(HALYARD_CUDA, context, &streams[0]);
}

/// Device memory without contents.
class Memory : public gpu_test::Memory {
public:
    explicit Memory(std::size_t n_bytes = 1 << 16, const halyard_gpu_queue &queue = queue_of())
        : gpu_test::Memory(queue, n_bytes) {}
};

constexpr auto f16 = halyard::dtype::f16, bf16 = halyard::dtype::bf16, f32 = halyard::dtype::f32;
constexpr auto half = halyard::pairing::half;

halyard_tensor view(void *data, halyard::dtype type, std::array<std::int64_t, 4> shape,
                    std::array<std::int64_t, 4> strides) {
    auto tensor = halyard::tensor(data, type, shape, strides);
    tensor.device = HALYARD_CUDA;
    return tensor;
}

halyard_positions positions_in(const Memory &memory, std::array<std::int64_t, 2> shape, std::int64_t offset = 0) {
    return halyard::positions(static_cast<const std::int32_t *>(memory.data(offset)), shape);
}

halyard::angle_source make_table(std::int64_t rotary_dim = 64) {
    return halyard::angle_source::table(halyard::frequencies::from_base(10000, rotary_dim), 0, 100);
}

halyard::gpu_angles make_angles(std::int64_t rotary_dim = 64, const halyard_gpu_queue &queue = queue_of()) {
    return halyard::gpu_angles(queue, make_table(rotary_dim));
}

/// What comes of making angles, which do not stay.
halyard_status status_of_angles(const halyard::angle_source &source, const halyard_gpu_queue &queue = queue_of()) {
    auto error = sized<halyard_error>();
    halyard_gpu_angles *made = nullptr;
    const auto status = halyard_create_gpu_angles(&queue, source.get(), &made, &error);
    CHECK((made != nullptr) == (status == HALYARD_OK));
    halyard_destroy_gpu_angles(made);
    return status;
}

/// A plan of one f32 head of 64.
halyard::plan_desc describe(std::int64_t rotary_dim = 64) {
    return halyard::plan_desc(rotary_dim, {halyard::describe_tensor(f32, 64, half)});
}

halyard::gpu_run_options on_stream(int i = 5) {
    halyard::gpu_run_options how;
    how.stream = &streams[i];
    return how;
}

/// A plan and memory for one f32 tensor [1, 4, 2, 64].
struct Simple {
    halyard::gpu_angles angles = make_angles();
    halyard::gpu_plan plan{queue_of(), describe(), angles};
    Memory memory;
    halyard_tensor x = view(memory.data(), f32, {1, 4, 2, 64}, {512, 128, 64, 1}), y = x;
    halyard_gpu_run_args args = sized<halyard_gpu_run_args>();
    const halyard_gpu_plan *its_plan = plan.get();

    Simple() {
        args.x = &x;
        args.y = &y;
    }
    Simple(const Simple &) = delete;

    halyard_status run(halyard_error *error = nullptr) const { return halyard_run_gpu(its_plan, &args, error); }

    /// Runs, refused before any launch.
    Table runs{[this](halyard_status status, const Words &words) {
                   const auto calls = calls_of([&] { check_refused(status, words, [&](auto *e) { return run(e); }); });
                   CHECK(launches_in(calls).empty());
               },
               [this] { CHECK(!launches_in(calls_of([&] { CHECK(run() == HALYARD_OK); })).empty()); }};
};

/// q and k of [tokens 8, heads 8 + 2 + 2, 64]: q, k and v lie side by side.
struct Packed {
    static constexpr std::int64_t token = 12 * 64;

    halyard::gpu_angles angles = make_angles();
    halyard::gpu_plan plan{
        queue_of(),
        halyard::plan_desc(64, {halyard::describe_tensor(f16, 64, half), halyard::describe_tensor(f16, 64, half)}),
        angles};
    Memory packed, places{64}, word{4};
    halyard_tensor q = view(packed.data(), f16, {1, 8, 8, 64}, {0, token, 64, 1});
    halyard_tensor k = view(packed.data(8 * 64 * 2), f16, {1, 8, 2, 64}, {0, token, 64, 1});
    halyard_positions positions = positions_in(places, {1, 8});
    halyard::gpu_run_options how = on_stream();

    Packed() { how.positions = &positions; }
    Packed(const Packed &) = delete;

    void tell_errors() { how.error_word = static_cast<std::int32_t *>(word.data()); }
    std::size_t count(const halyard_tensor &first, const halyard_tensor &second) const {
        const halyard_tensor both[] = {first, second};
        return count_launches(plan, both, both, how);
    }
};

}  // namespace

TEST_CASE("cuda calls: q and k of one buffer take one launch, on the caller's stream and in its context", "[cuda]") {
    Packed s;
    const halyard_tensor tensors[] = {s.q, s.k};
    const auto calls = calls_of([&] { halyard::run(s.plan, tensors, tensors, s.how); });
    const auto launches = launches_in(calls);
    REQUIRE(launches.size() == 1);
    CHECK(launches[0].stream == &streams[5]);
    CHECK(launches[0].context == &contexts[0]);
    CHECK(launches[0].store_bits == 128);
    check_capturable(calls);
}

TEST_CASE("cuda calls: buffers of their own take a launch each, and what is empty none", "[cuda]") {
    Packed s;
    SECTION("buffers of their own, on the same stream, without a wait") {
        const Memory other;
        const halyard_tensor apart[] = {s.q, view(other.data(), f16, {1, 8, 2, 64}, {0, 128, 64, 1})};
        const auto both = launches_of(s.plan, apart, apart, s.how);
        REQUIRE(both.size() == 2);
        CHECK((both[0].stream == &streams[5] && both[1].stream == &streams[5]));
    }
    SECTION("no tokens: not even a call") {
        s.q.shape[1] = s.k.shape[1] = 0;
        s.how.positions = nullptr;
        const halyard_tensor none[] = {s.q, s.k};
        CHECK(calls_of([&] { halyard::run(s.plan, none, none, s.how); }).empty());
        s.tell_errors();
        CHECK(s.count(s.q, s.k) == 0);
    }
    SECTION("no batch rows or heads: not even positions are checked") {
        s.tell_errors();
        for (const auto &shape : {std::array<std::int64_t, 4>{0, 8, 8, 64}, {1, 8, 0, 64}}) {
            const auto empty = view(s.packed.data(), f16, shape, {0, 12 * 64, 64, 1});
            CHECK(s.count(empty, empty) == 0);
        }
    }
}

namespace {

/// q and k are normed, k and v go into caches: [tokens 8, heads 32 + 8 + 8, 128].
struct PackedKv {
    static constexpr std::int64_t n_tokens = 8, row = (32 + 8 + 8) * 128;

    halyard::gpu_angles angles = make_angles(128);
    halyard_norm_desc norm = halyard::describe_norm(bf16);
    halyard_cache_desc cache = halyard::describe_nhd_cache(16, 16, 8, 128);
    halyard_kv_desc kv[3] = {sized<halyard_kv_desc>(), sized<halyard_kv_desc>(), sized<halyard_kv_desc>()};
    halyard::gpu_plan plan{queue_of(), describe_kv(), angles};
    Memory packed{n_tokens * row * 2}, k_cache{256 * 8 * 256}, v_cache{256 * 8 * 256}, q_weight{256}, k_weight{256},
        places{64}, slots_memory{64};
    halyard_tensor tensors[3] = {part(0, 32), part(32, 8), part(40, 8)};
    halyard_stages stages[3] = {halyard::stages(q_weight.data(), 128),
                                halyard::stages(k_weight.data(), 128, k_cache.data()),
                                halyard::stages_into(v_cache.data())};
    halyard_slots slots =
        halyard::slots(static_cast<const std::int32_t *>(slots_memory.data()), {1, n_tokens}, halyard::keep_last);
    halyard_kv_args brought = halyard::kv_args(stages, &slots);
    halyard_positions positions = positions_in(places, {1, n_tokens});
    halyard::gpu_run_options how = on_stream();

    PackedKv() {
        how.positions = &positions;
        how.kv = &brought;
    }
    PackedKv(const PackedKv &) = delete;

    halyard::plan_desc describe_kv() {
        auto q = halyard::describe_tensor(bf16, 128, half), k = q, v = q;
        kv[0].norm = kv[1].norm = &norm;
        kv[1].cache = kv[2].cache = &cache;
        kv[2].no_rotation = 1;
        q.kv = &kv[0];
        k.kv = &kv[1];
        v.kv = &kv[2];
        return halyard::plan_desc(128, {q, k, v});
    }
    halyard_tensor part(std::int64_t first, std::int64_t n) const {
        return view(packed.data(first * 128 * 2), bf16, {1, n_tokens, n, 128}, {0, row, 128, 1});
    }
};

}  // namespace

TEST_CASE("cuda calls: the KV path of q, k and v takes one launch, wherever they and their caches lie", "[cuda]") {
    PackedKv s;
    const auto calls = calls_of([&] { halyard::run(s.plan, s.tensors, s.tensors, s.how); });
    const auto launches = launches_in(calls);
    REQUIRE(launches.size() == 1);
    CHECK(launches[0].stream == &streams[5]);
    check_capturable(calls);

    SECTION("q out of place, in memory of its own, is in the same launch") {
        const Memory other(s.n_tokens * 32 * 128 * 2);
        const halyard_tensor y[] = {view(other.data(), bf16, {1, s.n_tokens, 32, 128}, {0, 32 * 128, 128, 1}),
                                    s.tensors[1], s.tensors[2]};
        CHECK(count_launches(s.plan, s.tensors, y, s.how) == 1);
    }
    SECTION("a launch that fails is told") {
        fail_at("cuLaunchKernel", 700);
        CHECK_THROWS(halyard::run(s.plan, s.tensors, s.tensors, s.how));
        fail_at("", 0);
    }
}

TEST_CASE("cuda calls: columns beside the window are copied, but in place", "[cuda]") {
    const Simple s;
    const Memory to;
    const halyard_tensor y = view(to.data(), f32, {1, 4, 2, 64}, {512, 128, 64, 1});
    const auto angles = make_angles(32);
    auto tensor = halyard::describe_tensor(f32, 64, half);
    tensor.rotary_offset = 16;
    const halyard::gpu_plan window(queue_of(), halyard::plan_desc(32, {tensor}), angles);
    CHECK(count_launches(window, s.x, y, on_stream()) > 1);
    CHECK(count_launches(window, y, y, on_stream()) == 1);
}

TEST_CASE("cuda calls: accesses are as wide as memory, strides and halves are aligned", "[cuda]") {
    const Memory from, to;
    const auto bits_of = [&](halyard::dtype type, std::int64_t rotary_dim, std::int64_t begin_bytes,
                             std::int64_t stride_head, halyard::pairing in, halyard::pairing out) {
        const auto angles = make_angles(rotary_dim);
        auto tensor = halyard::describe_tensor(type, 64, in);
        tensor.out_pairing = static_cast<std::int32_t>(out);
        const halyard::gpu_plan plan(queue_of(), halyard::plan_desc(rotary_dim, {tensor}), angles);
        const std::array<std::int64_t, 4> strides = {0, 8 * stride_head, stride_head, 1};
        const auto x = view(from.data(begin_bytes), type, {1, 4, 2, 64}, strides);
        const auto y = view(to.data(begin_bytes), type, {1, 4, 2, 64}, strides);
        const auto launches = launches_of(plan, x, y, on_stream());
        REQUIRE(!launches.empty());
        return launches[0].store_bits;  // copies follow
    };
    constexpr auto interleaved = halyard::pairing::interleaved;
    for (const auto in : {half, interleaved}) {
        for (const auto out : {half, interleaved}) {
            CAPTURE(static_cast<int>(in), static_cast<int>(out));
            const bool converts = in != out;
            CHECK(bits_of(f32, 64, 0, 64, in, out) == 128);
            CHECK(bits_of(f32, 64, 8, 64, in, out) == 32);
            CHECK(bits_of(f32, 64, 0, 66, in, out) == 32);
            CHECK(bits_of(f32, 64, 4, 64, in, out) == 32);
            CHECK(bits_of(f16, 64, 0, 64, in, out) == 128);
            CHECK(bits_of(f16, 64, 4, 64, in, out) == (converts ? 16 : 32));
            CHECK(bits_of(f16, 64, 0, 68, in, out) == (converts ? 16 : 32));
            CHECK(bits_of(f16, 64, 2, 64, in, out) == 16);
            CHECK(bits_of(f16, 64, 0, 65, in, out) == 16);
        }
    }
    // Halves of 24 and of 20 bytes, as GPT-NeoX and StableLM have; all of a head is aligned to 16.
    CHECK(bits_of(f16, 24, 0, 64, half, half) == 32);
    CHECK(bits_of(f32, 20, 0, 64, half, half) == 32);
    CHECK(bits_of(f16, 6, 0, 64, half, half) == 16);
    CHECK(bits_of(f16, 24, 0, 64, half, interleaved) == 16);
    CHECK(bits_of(f16, 24, 0, 64, interleaved, half) == 16);
    CHECK(bits_of(f16, 24, 0, 64, interleaved, interleaved) == 128);
    CHECK(bits_of(f16, 20, 0, 64, interleaved, interleaved) == 32);
}

TEST_CASE("cuda calls: what 32 bits or a grid cannot hold is split", "[cuda]") {
    const Simple s;
    const auto at = [&](std::array<std::int64_t, 4> shape, std::array<std::int64_t, 4> strides) {
        return view(s.memory.data(), f32, shape, strides);
    };
    const auto count = [&](const halyard_tensor &x) { return count_launches(s.plan, x, x, on_stream()); };
    const std::int64_t billion = (std::int64_t{1} << 30) - 64;
    const auto far_tokens = at({1, 8, 2, 64}, {0, billion, 64, 1});
    CHECK(count(far_tokens) == 4);
    CHECK(count_until_failure(s.plan, far_tokens, far_tokens, on_stream()) == 1);
    CHECK(count(at({1, 2, 4, 64}, {0, 4 * billion, billion, 1})) == 4);
    CHECK(count(at({3, 4, 2, 64}, {4 * billion, 128, 64, 1})) == 3);
    // A grid's shorter dimensions hold 65,535 blocks, enough for schedules that give a block one head and one pair.
    const auto fits = [](const Call &launch) {
        return launch.result == 0 && launch.grid[1] * launch.block[1] < 65535 + launch.block[1] &&
               launch.grid[2] * launch.block[0] < 65535 + launch.block[0];
    };
    const auto many_heads = at({1, 1, 1 << 21, 64}, {0, 0, 64, 1});
    CHECK(std::ranges::all_of(launches_of(s.plan, many_heads, many_heads, on_stream()), fits));
    const auto wide = halyard::frequencies::from_base(10000, 1 << 20);
    const halyard::gpu_angles wide_angles(queue_of(), halyard::angle_source::phase(wide));
    for (const auto pairing : {half, halyard::pairing::interleaved}) {
        const auto tensor = halyard::describe_tensor(f32, 1 << 20, pairing);
        const halyard::gpu_plan plan(queue_of(), halyard::plan_desc(1 << 20, {tensor}), wide_angles);
        for (const std::int64_t stride : {1, 2}) {
            const auto x = at({1, 1, 3, 1 << 20}, {0, 0, stride << 20, stride});
            const auto many_pairs = launches_of(plan, x, x, on_stream());
            CHECK(many_pairs.size() > 1);
            CHECK(std::ranges::all_of(many_pairs, fits));
        }
    }
}

TEST_CASE("cuda calls: a driver's errors are told, and nothing of a failed creation stays", "[cuda]") {
    const auto desc = describe();
    const auto frequencies = halyard::frequencies::from_base(10000, 64);
    const auto phase = halyard::angle_source::phase(frequencies);
    const State before;
    const auto [function, failure, status] = GENERATE(table<const char *, int, halyard_status>({
        {"cuMemAlloc_v2", 2, HALYARD_ERROR_OUT_OF_MEMORY},
        {"cuMemcpyHtoD_v2", 700, HALYARD_ERROR_DEVICE},
        {"cuMemcpyDtoH_v2", 700, HALYARD_ERROR_DEVICE},
        {"cuStreamSynchronize", 700, HALYARD_ERROR_DEVICE},
        {"cuModuleLoadData", 218, HALYARD_ERROR_DEVICE},
        {"cuModuleLoadDataEx", 218, HALYARD_ERROR_DEVICE},
        {"cuModuleGetFunction", 500, HALYARD_ERROR_DEVICE},
        {"cuLaunchKernel", 701, HALYARD_ERROR_DEVICE},
    }));
    // The function fails at its first call, at its second, and so on, until there is no such call any more.
    int n_failures = 0;
    for (bool is_done = false; !is_done; n_failures++) {
        CAPTURE(function, n_failures);
        REQUIRE(n_failures < 1000);
        fail_at(function, failure, n_failures);
        bool failed = false;
        try {
            const auto angles = make_angles();
            const halyard::gpu_angles by_phase(queue_of(), phase);
            const halyard::gpu_plan plan(queue_of(), desc, angles);
        } catch (const halyard::error &error) {
            failed = true;
            CAPTURE(error.what());
            CHECK(error.status() == status);
            const bool has_number = std::string(error.what()).ends_with("(" + std::to_string(failure) + ")");
            CHECK((has_number || !std::string(function).starts_with("cuMemcpy")));
        }
        with_driver([&](Driver &driver) { is_done = driver.calls_until >= 0; });
        CHECK(failed == !is_done);
        fail_at("", 0);
        CHECK(State() == before);
    }
    // Halide loads a module by one of two functions.
    CHECK((n_failures > 1 || std::string(function).starts_with("cuModuleLoadData")));
    fail_at(function, failure);
    if (std::string(function).starts_with("cuMem") && !std::string(function).starts_with("cuMemcpyDtoH")) {
        CHECK_THROWS_AS(make_angles(), halyard::error);
    }
    fail_at("", 0);
    // The next one succeeds.
    const auto angles = make_angles();
    const halyard::gpu_plan plan(queue_of(), desc, angles);
    CHECK(plan.get() != nullptr);
}

TEST_CASE("cuda calls: no host memory is an error, and nothing stays", "[cuda]") {
    const auto fails_until_there_is = [&](int n_allocations, const auto &create, const auto &destroy) {
        const State empty;
        for (int n = 0; n <= n_allocations; n++) {
            n_until_failure = n;
            const halyard_status status = create();
            n_until_failure = -1;
            CHECK(status == (n < n_allocations ? HALYARD_ERROR_OUT_OF_MEMORY : HALYARD_OK));
            CHECK((status == HALYARD_OK || State() == empty));
        }
        destroy();
        CHECK(State() == empty);
    };
    const auto queue = queue_of();
    const auto source = make_table();
    auto error = sized<halyard_error>();
    halyard_gpu_angles *made = nullptr;
    fails_until_there_is(
        2, [&] { return halyard_create_gpu_angles(&queue, source.get(), &made, &error); },
        [&] { halyard_destroy_gpu_angles(made); });
    const auto angles = make_angles();
    const auto desc = describe();
    const auto given_desc = desc.get();
    halyard_gpu_plan *plan = nullptr;
    fails_until_there_is(
        1, [&] { return halyard_create_gpu_plan(&queue, &given_desc, angles.get(), &plan, &error); },
        [&] { halyard_destroy_gpu_plan(plan); });
}

TEST_CASE("cuda calls: each batch row's positions are checked, until the driver fails", "[cuda]") {
    const Simple s;
    const Memory places(128), word(4);
    auto positions = positions_in(places, {3, 4});
    positions.strides[0] = 6;
    auto how = on_stream();
    how.positions = &positions;
    how.error_word = static_cast<std::int32_t *>(word.data());
    const halyard_tensor x = view(s.memory.data(), f32, {3, 4, 2, 64}, {512, 128, 64, 1});
    CHECK(count_launches(s.plan, x, x, how) == 6);
    CHECK(count_until_failure(s.plan, x, x, how) == 1);
    // Positions that are far apart are checked one by one. They begin behind the tensor, so that it does not lie among
    // them.
    positions.data = s.memory.data(1 << 15);
    positions.strides[0] = 0;
    positions.strides[1] = INT32_MAX;
    CHECK(count_until_failure(s.plan, x, x, how) == 1);
}

TEST_CASE("cuda calls: a launch that fails is told with the driver's number", "[cuda]") {
    const Simple s;
    check_refused(HALYARD_ERROR_DEVICE, {"cuLaunchKernel"}, [&](auto *error) {
        fail_at("cuLaunchKernel", 719);
        return s.run(error);
    });
    fail_at("", 0);
    s.runs.accept({});
}

TEST_CASE("cuda calls: given rows are of any dtype, and aligned to its elements", "[cuda]") {
    const Memory rows;
    for (const auto &[type, bytes] : {std::pair{f32, 4}, {f16, 2}, {bf16, 2}}) {
        for (const std::int64_t begin : {0, bytes / 2, bytes}) {
            for (const bool is_cos : {true, false}) {
                const void *const cos = rows.data(is_cos ? begin : 0), *const sin = rows.data(is_cos ? 0 : begin);
                const auto source = halyard::angle_source::given(cos, sin, type, 10, 64, 64);
                CAPTURE(bytes, begin, is_cos);
                CHECK(status_of_angles(source) == (begin == bytes / 2 ? HALYARD_ERROR_UNSUPPORTED : HALYARD_OK));
            }
        }
    }
}

TEST_CASE("cuda calls: memory that is not the device's is refused before any launch", "[cuda]") {
    Simple s;
    std::vector<float> host(1 << 14);
    auto &x = s.x, &y = s.y;
    s.runs.refuse({
        {HALYARD_ERROR_UNSUPPORTED, {}, {{x.data, host.data()}, {y.data, host.data()}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{y.data, host.data()}}},
        // In the middle of an element.
        {HALYARD_ERROR_UNSUPPORTED, {}, {{x.data, s.memory.data(2)}, {y.data, s.memory.data(2)}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{x.device, HALYARD_CPU}, {y.device, HALYARD_CPU}}},
        {HALYARD_ERROR_OVERLAP, {}, {{y.data, s.memory.data(64)}}},  // neither in place nor apart
    });
    const Memory other;
    auto positions = positions_in(other, {1, 4});
    s.args.positions = &positions;
    s.args.error_word = static_cast<std::int32_t *>(other.data(64));
    s.runs.accept({});
    s.runs.refuse({
        {HALYARD_ERROR_UNSUPPORTED, {}, {{s.args.error_word, static_cast<void *>(host.data())}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{s.args.error_word, other.data(66)}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{positions.data, host.data()}}},
    });
}

TEST_CASE("cuda calls: a plan of another device, or of the CPU, refuses a device's memory", "[cuda]") {
    const Simple s;
    with_driver([](Driver &driver) { driver.context_of_device_1 = &contexts[3]; });
    const auto queue = queue_of(&contexts[3]);
    const auto angles = make_angles(64, queue);
    const halyard::gpu_plan plan(queue, describe(), angles);
    CHECK_THROWS_AS(halyard::run(plan, s.x, s.x, on_stream()), halyard::error);
    with_driver([](Driver &driver) { driver.context_of_device_1 = nullptr; });
    const halyard::plan of_cpu(describe());
    CHECK_THROWS_AS(halyard::run(of_cpu, make_table(), s.x, s.x), halyard::error);
}

TEST_CASE("cuda calls: what no index of 32 bits can reach is refused before any launch", "[cuda]") {
    Simple s;
    const auto is_the_greatest = [&](auto &field, std::int64_t value, const std::vector<Set> &with = {}) {
        auto changes = with;
        changes.emplace_back(field, value);
        s.runs.accept(changes);
        changes.back() = Set(field, value + 1);
        s.runs.refuse(HALYARD_ERROR_UNSUPPORTED, {}, changes);
    };
    const auto transposed = view(s.memory.data(), f32, {1, 4, 2, 64}, {0, 2, 1, INT32_MAX / 64});
    s.runs.accept({{s.x, transposed}, {s.y, transposed}});
    auto further = transposed;
    further.strides[3]++;
    s.runs.refuse(HALYARD_ERROR_UNSUPPORTED, {}, {{s.x, further}, {s.y, further}});

    auto positions = positions_in(s.memory, {1, 4}, 1 << 15);  // behind the tensor
    s.args.positions = &positions;
    is_the_greatest(positions.strides[1], INT32_MAX);
    is_the_greatest(positions.strides[1], INT32_MAX / 2, {{positions.type, HALYARD_INT64}});
    s.runs.refuse(HALYARD_ERROR_UNSUPPORTED, {},
                  {{positions.data, s.memory.data((1 << 15) + 2)}, {positions.type, HALYARD_INT64}});

    const auto map = halyard::axis_map::sections({16, 8, 8});
    const halyard::gpu_angles angles(
        queue_of(), halyard::angle_source(halyard::frequencies::from_base(10000, 64),
                                          halyard::describe_angles(HALYARD_ANGLES_TABLE, map, 0, 100)));
    const halyard::gpu_plan plan(queue_of(), describe(), angles);
    s.its_plan = plan.get();
    positions.n_axes = 3;
    is_the_greatest(positions.stride_axis, INT32_MAX / 3);
}

TEST_CASE("cuda calls: columns beside the window that 32 bits cannot hold are copied in parts", "[cuda]") {
    const auto angles = make_angles(2);
    const halyard::gpu_plan plan(queue_of(), describe(2), angles);
    const Memory from, to;
    const auto count = [&](std::int64_t stride) {
        const std::array<std::int64_t, 4> shape = {1, 4, 2, 64}, strides = {0, 2, 1, stride};
        return count_launches(plan, view(from.data(), f32, shape, strides), view(to.data(), f32, shape, strides),
                              on_stream());
    };
    CHECK(count(1 << 26) > count(1 << 20));
}

TEST_CASE("cuda calls: plans of a context share its modules, and the last one unloads them", "[cuda]") {
    const State before;
    {
        const Simple s;
        const auto others = make_angles(64, queue_of(&contexts[1]));
        CHECK_THROWS_AS(halyard::gpu_plan(queue_of(), describe(), others), halyard::error);
        const int n_of_one = State().n_modules;
        CHECK(n_of_one > before.n_modules);
        {
            const halyard::gpu_plan second(queue_of(), describe(), s.angles),
                elsewhere(queue_of(&contexts[1]), describe(), others);
            CHECK(State().n_modules == 2 * n_of_one - before.n_modules);
        }
        CHECK(State().n_modules == n_of_one);
        CHECK(count_launches(s.plan, s.x, s.x, on_stream()) == 1);
    }
    CHECK(State() == before);
}

TEST_CASE("cuda calls: a plan unloads its modules, whatever kernels those before it had", "[cuda]") {
    const auto angles = make_angles(128);
    const auto norm = halyard::describe_norm(f32);
    auto kv = sized<halyard_kv_desc>();
    kv.norm = &norm;
    const State before;
    for (const auto type : {bf16, f32, f32, f32, f32, bf16, f32}) {  // of two kernels
        auto normed = halyard::describe_tensor(type, 128, half);
        normed.kv = &kv;
        halyard::gpu_plan(queue_of(), halyard::plan_desc(128, {normed}), angles);
        CHECK(State() == before);
    }
}

TEST_CASE("cuda calls: threads keep to their streams and contexts", "[cuda][threads]") {
    const Simple s;
    const auto others = make_angles(64, queue_of(&contexts[1]));
    const halyard::gpu_plan other(queue_of(&contexts[1]), describe(), others);
    const auto calls = calls_of([&] {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; i++) {
            threads.emplace_back([&, i] {
                for (int n = 0; n < 200; n++) {
                    halyard::run(i % 2 == 0 ? s.plan : other, s.x, s.x, on_stream(i));
                }
            });
        }
    });
    const auto launches = launches_in(calls);
    CHECK(launches.size() == 8 * 200);
    CHECK(std::all_of(launches.begin(), launches.end(), [](const Call &launch) {
        const auto i = static_cast<char *>(launch.stream) - streams;
        return launch.context == &contexts[i % 2];
    }));
}
