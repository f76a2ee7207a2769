// What the GPU runtime asks of a CUDA driver: launches, streams, contexts, and what becomes of errors. The driver here
// only records, for most launches reach far out of the memory that there is; test_gpu_kernels.cpp says whether the
// kernels are right.
#include "checks/cuda/driver.h"
#include "checks/sized.h"
#include "halyard/halyard_gpu.hpp"
#include "tool/device_memory.h"

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

/// Calls use(driver) while no call of the driver is under way.
template <typename Use>
void with_driver(Use use) {
    emulated_cuda_access([](Driver &driver, void *argument) { (*static_cast<Use *>(argument))(driver); }, &use);
}

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

std::vector<Call> launches_in(const std::vector<Call> &calls) {
    std::vector<Call> launches;
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(launches),
                 [](const Call &call) { return call.name == "cuLaunchKernel"; });
    return launches;
}

template <typename Action>
std::vector<Call> launches_of(Action action) {
    return launches_in(calls_of(action));
}

char contexts[4], streams[16];  // their addresses stand for a driver's contexts and streams

halyard_gpu_queue queue_of(void *context = &contexts[0]) {
    return halyard::describe_queue(HALYARD_CUDA, context, &streams[0]);
}

/// Device memory without contents.
class Memory : public halyard::tool::DeviceMemory {
public:
    explicit Memory(std::size_t n_bytes = 1 << 16, const halyard_gpu_queue &queue = queue_of())
        : DeviceMemory(queue, nullptr, n_bytes) {}
};

halyard_tensor on_device(halyard_tensor tensor) {
    tensor.device = HALYARD_CUDA;
    return tensor;
}

halyard_tensor view(void *data, halyard::dtype type, std::array<std::int64_t, 4> shape,
                    std::array<std::int64_t, 4> strides) {
    return on_device(halyard::tensor(data, type, shape, strides));
}

halyard::gpu_angles make_angles(std::int64_t rotary_dim = 64, const halyard_gpu_queue &queue = queue_of()) {
    return halyard::gpu_angles(queue,
                               halyard::angle_source::table(halyard::frequencies::from_base(10000, rotary_dim), 0, 99));
}

halyard::gpu_run_options on_stream(int i = 5) {
    halyard::gpu_run_options how;
    how.stream = &streams[i];
    return how;
}

constexpr auto f16 = halyard::dtype::f16;
constexpr auto f32 = halyard::dtype::f32;

/// A plan and memory for one f32 tensor [1, 4, 2, 64].
struct Simple {
    halyard::gpu_angles angles = make_angles();
    halyard::gpu_plan plan = halyard::gpu_plan(
        queue_of(), halyard::plan_desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)}), angles);
    Memory memory;
    halyard_tensor x = view(memory.data(), f32, {1, 4, 2, 64}, {512, 128, 64, 1});

    halyard_status run(const halyard_tensor &from, const halyard_tensor &to, halyard_error &error) const {
        auto args = sized<halyard_gpu_run_args>();
        args.x = &from;
        args.y = &to;
        return halyard_run_gpu(plan.get(), &args, &error);
    }
};

}  // namespace

TEST_CASE("cuda calls: q and k of one buffer take one launch, on the caller's stream and in its context", "[cuda]") {
    const auto angles = make_angles();
    const halyard::gpu_plan plan(queue_of(),
                                 halyard::plan_desc(64, {halyard::describe_tensor(f16, 64, halyard::pairing::half),
                                                         halyard::describe_tensor(f16, 64, halyard::pairing::half)}),
                                 angles);
    const Memory packed, places(64), word(4);
    // [tokens 8, heads 8 + 2 + 2, 64]: q, k and v side by side.
    const halyard_tensor q = view(packed.data(), f16, {1, 8, 8, 64}, {0, 12 * 64, 64, 1});
    const halyard_tensor k = view(packed.data(8 * 64 * 2), f16, {1, 8, 2, 64}, {0, 12 * 64, 64, 1});
    const auto positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, 8});
    const halyard_tensor tensors[] = {q, k};
    auto how = on_stream();
    how.positions = &positions;
    const auto calls = calls_of([&] { halyard::run(plan, tensors, tensors, how); });
    const auto launches = launches_in(calls);
    REQUIRE(launches.size() == 1);
    CHECK(launches[0].stream == &streams[5]);
    CHECK(launches[0].context == &contexts[0]);
    CHECK(launches[0].store_bits == 128);
    CHECK(launches[0].grid[0] == 8);
    // Eight make the launch. Three ask about memory, with the context made current once for all.
    CHECK(calls.size() == 8 + 3 + 3);
    // These neither wait, allocate, copy nor load, so a graph can capture them.
    static const std::set<std::string> harmless = {"cuCtxPushCurrent_v2",   "cuCtxPopCurrent_v2",
                                                   "cuPointerGetAttribute", "cuCtxGetDevice",
                                                   "cuModuleGetFunction",   "cuLaunchKernel"};
    for (const Call &call : calls) {
        CAPTURE(call.name);
        CHECK(harmless.contains(call.name));
    }

    SECTION("an error word takes one more") {
        how.error_word = static_cast<std::int32_t *>(word.data());
        CHECK(launches_of([&] { halyard::run(plan, tensors, tensors, how); }).size() == 2);
    }
    SECTION("buffers of their own take one each, on the same stream, without a wait") {
        const Memory other;
        const halyard_tensor apart[] = {q, view(other.data(), f16, {1, 8, 2, 64}, {0, 128, 64, 1})};
        const auto both = launches_of([&] { halyard::run(plan, apart, apart, how); });
        REQUIRE(both.size() == 2);
        CHECK((both[0].stream == &streams[5] && both[1].stream == &streams[5]));
    }
    SECTION("no heads take none") {
        const halyard_tensor no_k[] = {q, view(packed.data(1), f16, {1, 8, 0, 64}, {0, 12 * 64, 64, 1})};
        CHECK(launches_of([&] { halyard::run(plan, no_k, no_k, how); }).size() == 1);
    }
    SECTION("no tokens take no call at all") {
        const halyard_tensor none[] = {view(packed.data(), f16, {1, 0, 8, 64}, {0, 12 * 64, 64, 1}),
                                       view(packed.data(), f16, {1, 0, 2, 64}, {0, 12 * 64, 64, 1})};
        how.positions = nullptr;
        CHECK(calls_of([&] { halyard::run(plan, none, none, how); }).empty());
        how.error_word = static_cast<std::int32_t *>(word.data());
        CHECK(launches_of([&] { halyard::run(plan, none, none, how); }).empty());
    }
    SECTION("without batch rows or heads, not even positions are checked") {
        how.error_word = static_cast<std::int32_t *>(word.data());
        for (const auto &shape : {std::array<std::int64_t, 4>{0, 8, 8, 64}, {1, 8, 0, 64}}) {
            const halyard_tensor empty = view(packed.data(), f16, shape, {0, 12 * 64, 64, 1});
            const halyard_tensor both[] = {empty, empty};
            CHECK(launches_of([&] { halyard::run(plan, both, both, how); }).empty());
        }
    }
    SECTION("what is no row of heads takes one each") {
        const auto count = [&](const halyard_tensor &second) {
            const halyard_tensor both[] = {q, second};
            return launches_of([&] { halyard::run(plan, both, both, how); }).size();
        };
        CHECK(count(view(packed.data(9 * 64 * 2), f16, {1, 8, 2, 64}, {0, 12 * 64, 64, 1})) == 2);
        CHECK(count(view(packed.data(8 * 64 * 2), f16, {1, 8, 2, 64}, {0, 12 * 64, 128, 1})) == 2);
        CHECK(count(view(packed.data(8 * 64 * 2), f16, {1, 8, 2, 64}, {0, 24 * 64, 64, 1})) == 2);
        CHECK(count(view(packed.data(8 * 64 * 2), f16, {1, 8, 1, 64}, {0, 12 * 64, 64, 2})) == 2);
    }
    SECTION("nor what steps otherwise from batch row to batch row") {
        const std::int64_t token = 12 * 64;
        const auto rows = halyard::positions(static_cast<const std::int32_t *>(places.data()), {2, 4});
        how.positions = &rows;
        for (const std::int64_t gap : {0, 1}) {
            const halyard_tensor both[] = {
                view(packed.data(), f16, {2, 4, 8, 64}, {4 * token, token, 64, 1}),
                view(packed.data(8 * 64 * 2), f16, {2, 4, 2, 64}, {(4 + gap) * token, token, 64, 1})};
            CHECK(launches_of([&] { halyard::run(plan, both, both, how); }).size() == (gap == 0 ? 1 : 3));
        }
    }
}

TEST_CASE("cuda calls: a road of q, k and v takes one launch, wherever they and their caches lie", "[cuda]") {
    const auto angles = make_angles(128);
    const auto norm = halyard::describe_norm(halyard::dtype::bf16);
    const auto cache_desc = halyard::describe_nhd_cache(16, 16, 8, 128);
    const auto scale_desc = halyard::describe_static_scales();
    auto q = halyard::describe_tensor(halyard::dtype::bf16, 128, halyard::pairing::half), k = q, v = q;
    q.norm = k.norm = &norm;
    k.cache = v.cache = &cache_desc;
    k.scale = v.scale = &scale_desc;
    k.out_dtype = v.out_dtype = HALYARD_E4M3;
    v.no_rotation = 1;
    const halyard::gpu_plan plan(queue_of(), halyard::plan_desc(128, {q, k, v}), angles);
    constexpr std::int64_t n_tokens = 8, row = (32 + 8 + 8) * 128;
    const Memory packed(n_tokens * row * 2), k_cache(256 * 8 * 128), v_cache(256 * 8 * 128), q_weight(256),
        k_weight(256), places(64), slots_memory(64), word(4);
    const auto part = [&](std::int64_t first, std::int64_t n) {
        return view(packed.data(first * 128 * 2), halyard::dtype::bf16, {1, n_tokens, n, 128}, {0, row, 128, 1});
    };
    const halyard_tensor tensors[] = {part(0, 32), part(32, 8), part(40, 8)};
    const float scale = 0.5f;
    halyard_stages stages[3] = {sized<halyard_stages>(), sized<halyard_stages>(), sized<halyard_stages>()};
    stages[0].weight = q_weight.data();
    stages[1].weight = k_weight.data();
    stages[0].n_weights = stages[1].n_weights = 128;
    stages[1].cache = k_cache.data();
    stages[2].cache = v_cache.data();
    stages[1].scales = stages[2].scales = &scale;
    stages[1].n_scales = stages[2].n_scales = 1;
    auto slots = sized<halyard_slots>();
    slots.policy = HALYARD_SLOTS_RANGE_ONLY;
    slots.data = slots_memory.data();
    slots.shape[0] = slots.strides[1] = 1;
    slots.shape[1] = slots.strides[0] = n_tokens;
    const auto positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, n_tokens});
    auto how = on_stream();
    how.positions = &positions;
    how.slots = &slots;
    how.stages = stages;
    const auto calls = calls_of([&] { halyard::run(plan, tensors, tensors, how); });
    const auto launches = launches_in(calls);
    REQUIRE(launches.size() == 1);
    CHECK(launches[0].stream == &streams[5]);
    CHECK(launches[0].store_bits == 128);
    CHECK((launches[0].grid[0] == n_tokens && launches[0].grid[1] == 48 / 4 && launches[0].grid[2] == 1));
    CHECK((launches[0].block[0] == 16 && launches[0].block[1] == 4 && launches[0].block[2] == 1));
    CHECK(calls.size() == 8 + 3 + 9);  // three parts of packed, two weights, two caches, positions and slots
    for (const Call &call : calls) {   // as a rotation's
        CAPTURE(call.name);
        CHECK((call.name.starts_with("cuCtx") || call.name == "cuPointerGetAttribute" ||
               call.name == "cuModuleGetFunction" || call.name == "cuLaunchKernel"));
    }

    SECTION("q out of place, in memory of its own, is in the same launch") {
        const Memory other(n_tokens * 32 * 128 * 2);
        const halyard_tensor out =
            view(other.data(), halyard::dtype::bf16, {1, n_tokens, 32, 128}, {0, 32 * 128, 128, 1});
        const halyard_tensor y[] = {out, tensors[1], tensors[2]};
        CHECK(launches_of([&] { halyard::run(plan, tensors, y, how); }).size() == 1);
    }
    SECTION("an error word takes one more for positions, and one for slots") {
        how.error_word = static_cast<std::int32_t *>(word.data());
        CHECK(launches_of([&] { halyard::run(plan, tensors, tensors, how); }).size() == 3);
    }
    SECTION("the longest heads fit in shared memory") {
        const auto long_angles = make_angles(640);
        auto long_head = halyard::describe_tensor(f32, 640, halyard::pairing::half);
        long_head.norm = &norm;
        const halyard::gpu_plan long_plan(queue_of(), halyard::plan_desc(640, {long_head}), long_angles);
        const halyard_tensor x = view(packed.data(), f32, {1, 2, 4, 640}, {0, 4 * 640, 640, 1});
        how = on_stream();
        how.stages = stages;
        stages[0].n_weights = 640;
        const Memory weight(640 * 2);
        stages[0].weight = weight.data();
        CHECK(launches_of([&] { halyard::run(long_plan, x, x, how); }).size() == 1);
    }
    SECTION("a launch that fails is told") {
        fail_at("cuLaunchKernel", 700);
        CHECK_THROWS(halyard::run(plan, tensors, tensors, how));
    }
}

TEST_CASE("cuda calls: misaligned memory goes by a kernel for any layout, columns beside the window by copies",
          "[cuda]") {
    const Simple simple;
    auto x = simple.x;
    x.data = simple.memory.data(4);
    auto launches = launches_of([&] { halyard::run(simple.plan, x, x, on_stream()); });
    REQUIRE(launches.size() == 1);
    CHECK(launches[0].store_bits == 32);
    // So does aligned memory whose elements are no neighbours.
    const Memory to;
    auto y = simple.x;
    y.data = to.data();
    const auto apart = view(simple.memory.data(), f32, {1, 4, 2, 64}, {0, 512, 256, 4});
    for (const bool from_apart : {true, false}) {
        launches = launches_in(
            calls_of([&] { halyard::run(simple.plan, from_apart ? apart : y, from_apart ? y : apart, on_stream()); }));
        REQUIRE(launches.size() == 1);
        CHECK(launches[0].store_bits == 32);
    }

    const auto angles = make_angles(32);
    auto tensor = halyard::describe_tensor(f32, 64, halyard::pairing::half);
    tensor.rotary_offset = 16;
    const halyard::gpu_plan window(queue_of(), halyard::plan_desc(32, {tensor}), angles);
    CHECK(launches_of([&] { halyard::run(window, simple.x, y, on_stream()); }).size() == 3);
    CHECK(launches_of([&] { halyard::run(window, y, y, on_stream()); }).size() == 1);
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
        const auto launches = launches_of([&] { halyard::run(plan, x, y, on_stream()); });
        REQUIRE(!launches.empty());
        return launches[0].store_bits;  // copies follow
    };
    using enum halyard::pairing;
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
    const Simple simple;
    const auto launches_on = [&](std::array<std::int64_t, 4> shape, std::array<std::int64_t, 4> strides) {
        const halyard_tensor x = view(simple.memory.data(), f32, shape, strides);
        return launches_of([&] { halyard::run(simple.plan, x, x, on_stream()); });
    };
    const std::int64_t billion = (std::int64_t{1} << 30) - 64;
    CHECK(launches_on({1, 8, 2, 64}, {0, billion, 64, 1}).size() == 4);
    fail_at("cuLaunchKernel", 719);
    CHECK(launches_in(calls_of([&] {
              const halyard_tensor x = view(simple.memory.data(), f32, {1, 8, 2, 64}, {0, billion, 64, 1});
              CHECK_THROWS_AS(halyard::run(simple.plan, x, x, on_stream()), halyard::error);
          })).size() == 1);
    fail_at("", 0);
    CHECK(launches_on({1, 2, 4, 64}, {0, 4 * billion, billion, 1}).size() == 4);
    CHECK(launches_on({3, 4, 2, 64}, {4 * billion, 128, 64, 1}).size() == 3);
    // A grid's shorter dimensions hold 65,535 blocks, enough for schedules that give a block one head and one pair.
    const auto fits = [](const Call &launch) {
        return launch.result == 0 && launch.grid[1] * launch.block[1] < 65535 + launch.block[1] &&
               launch.grid[2] * launch.block[0] < 65535 + launch.block[0];
    };
    const auto many_heads = launches_on({1, 1, 1 << 21, 64}, {0, 0, 64, 1});
    CHECK(std::ranges::all_of(many_heads, fits));
    const halyard::frequencies wide = halyard::frequencies::from_base(10000, 1 << 20);
    auto phase = sized<halyard_angle_source_desc>();
    phase.kind = HALYARD_ANGLES_PHASE;
    const halyard::gpu_angles wide_angles(queue_of(), halyard::angle_source(wide, phase));
    for (const std::int32_t pairing : {HALYARD_PAIRING_HALF, HALYARD_PAIRING_INTERLEAVED}) {
        const auto tensor = halyard::describe_tensor(f32, 1 << 20, static_cast<halyard::pairing>(pairing));
        const halyard::gpu_plan plan(queue_of(), halyard::plan_desc(1 << 20, {tensor}), wide_angles);
        for (const std::int64_t stride : {1, 2}) {
            const halyard_tensor x = view(simple.memory.data(), f32, {1, 1, 3, 1 << 20}, {0, 0, stride << 20, stride});
            const auto many_pairs = launches_of([&] { halyard::run(plan, x, x, on_stream()); });
            CHECK(many_pairs.size() > 1);
            CHECK(std::ranges::all_of(many_pairs, fits));
        }
    }
    // Batch rows without a gap, at positions without one, are as good as tokens.
    const Memory places(96);
    const auto positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {3, 4});
    auto how = on_stream();
    how.positions = &positions;
    const halyard_tensor rows = view(simple.memory.data(), f32, {3, 4, 2, 64}, {512, 128, 64, 1});
    CHECK(launches_of([&] { halyard::run(simple.plan, rows, rows, how); }).size() == 1);
}

TEST_CASE("cuda calls: a driver's errors are told, and nothing of a failed creation stays", "[cuda]") {
    const halyard::plan_desc desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)});
    auto phase_desc = sized<halyard_angle_source_desc>();
    phase_desc.kind = HALYARD_ANGLES_PHASE;
    const auto frequencies = halyard::frequencies::from_base(10000, 64);
    const halyard::angle_source phase(frequencies, phase_desc);
    const auto factored = halyard::angle_source::factored(frequencies, -1000, 1000);
    const std::int32_t some[] = {3, 90};
    const auto list = halyard::positions(some, {1, 2});
    const auto listed = halyard::angle_source::table(frequencies, 0, 99, list);
    const State before;
    const auto [function, failure, status] = GENERATE(table<const char *, int, halyard_status>({
        {"cuMemAlloc_v2", 2, HALYARD_ERROR_OUT_OF_MEMORY},
        {"cuMemcpyHtoD_v2", 700, HALYARD_ERROR_DEVICE},
        {"cuMemcpyDtoH_v2", 700, HALYARD_ERROR_DEVICE},
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
        {
            try {
                const auto angles = make_angles();
                const halyard::gpu_angles by_phase(queue_of(), phase), by_two(queue_of(), factored),
                    by_list(queue_of(), listed);
                const halyard::gpu_plan plan(queue_of(), desc, angles);
            } catch (const halyard::error &error) {
                failed = true;
                CAPTURE(error.what());
                CHECK(error.status() == status);
                const bool has_number = std::string(error.what()).ends_with("(" + std::to_string(failure) + ")");
                CHECK((has_number || !std::string(function).starts_with("cuMemcpy")));
            }
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
    const auto source = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 99);
    auto error = sized<halyard_error>();
    halyard_gpu_angles *made = nullptr;
    fails_until_there_is(
        2, [&] { return halyard_create_gpu_angles(&queue, source.get(), 0, 0, &made, &error); },
        [&] { halyard_destroy_gpu_angles(made); });
    const auto factored = halyard::angle_source::factored(halyard::frequencies::from_base(10000, 64), -99, 99);
    fails_until_there_is(
        3, [&] { return halyard_create_gpu_angles(&queue, factored.get(), 0, 0, &made, &error); },
        [&] { halyard_destroy_gpu_angles(made); });
    const auto angles = make_angles();
    const halyard::plan_desc desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)});
    const auto given_desc = desc.get();
    halyard_gpu_plan *plan = nullptr;
    fails_until_there_is(
        1, [&] { return halyard_create_gpu_plan(&queue, &given_desc, angles.get(), &plan, &error); },
        [&] { halyard_destroy_gpu_plan(plan); });
}

TEST_CASE("cuda calls: a plan loads the kernels that it may need, until the driver fails", "[cuda]") {
    const auto angles = make_angles();
    const auto count = [&](const halyard::plan_desc &desc) {
        return launches_in(calls_of([&] {
                   try {
                       const halyard::gpu_plan plan(queue_of(), desc, angles);
                   } catch (const halyard::error &) {
                   }
               }))
            .size();
    };
    halyard::plan_desc desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)});
    CHECK(count(desc) == 10);  // by 128 bits, 64 or 32, in place or not, copies, and the check of positions
    fail_at("cuLaunchKernel", 701);
    CHECK(count(desc) == 1);
    fail_at("", 0);
    desc.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    CHECK(count(desc) == 7);  // none is in place
}

TEST_CASE("cuda calls: each batch row's positions are checked, until the driver fails", "[cuda]") {
    const Simple simple;
    const Memory places(128), word(4);
    auto positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {3, 4});
    positions.strides[0] = 6;
    auto how = on_stream();
    how.positions = &positions;
    how.error_word = static_cast<std::int32_t *>(word.data());
    const halyard_tensor x = view(simple.memory.data(), f32, {3, 4, 2, 64}, {512, 128, 64, 1});
    CHECK(launches_of([&] { halyard::run(simple.plan, x, x, how); }).size() == 6);
    const auto launches_until_failure = [&] {
        fail_at("cuLaunchKernel", 719);
        const auto calls = calls_of([&] { CHECK_THROWS_AS(halyard::run(simple.plan, x, x, how), halyard::error); });
        fail_at("", 0);
        return launches_in(calls).size();
    };
    CHECK(launches_until_failure() == 1);
    // Positions that are far apart are checked one by one. They begin behind the tensor, so that it does not lie among
    // them.
    positions.data = simple.memory.data(1 << 15);
    positions.strides[0] = 0;
    positions.strides[1] = INT32_MAX;
    CHECK(launches_until_failure() == 1);
}

TEST_CASE("cuda calls: negative strides and the default stream are fine", "[cuda]") {
    const Simple simple;
    const halyard_tensor x = view(simple.memory.data(4 * 3 * 128), f32, {1, 4, 2, 64}, {512, -128, 64, 1});
    CHECK(launches_of([&] { halyard::run(simple.plan, x, x, on_stream()); }).size() == 1);
    auto queue = queue_of();
    queue.stream = nullptr;
    const auto angles = make_angles(64, queue);
    CHECK(angles.get() != nullptr);
}

TEST_CASE("cuda calls: a launch that fails is told with the driver's number", "[cuda]") {
    const Simple simple;
    fail_at("cuLaunchKernel", 719);
    auto error = sized<halyard_error>();
    CHECK(simple.run(simple.x, simple.x, error) == HALYARD_ERROR_DEVICE);
    INFO(error.message);
    CHECK(std::string(error.message).find("cuLaunchKernel") != std::string::npos);
    fail_at("", 0);
    CHECK(simple.run(simple.x, simple.x, error) == HALYARD_OK);
}

TEST_CASE("cuda calls: given rows are of any dtype, and aligned to its elements", "[cuda]") {
    const Memory rows;
    for (const auto &[type, bytes] : {std::pair{f32, 4}, {f16, 2}, {halyard::dtype::bf16, 2}}) {
        for (const std::int64_t begin : {0, bytes / 2, bytes}) {
            for (const bool is_cos : {true, false}) {
                const void *const cos = rows.data(is_cos ? begin : 0), *const sin = rows.data(is_cos ? 0 : begin);
                const auto source = halyard::angle_source::given(cos, sin, type, 10, 64, 64);
                const auto queue = queue_of();
                auto error = sized<halyard_error>();
                halyard_gpu_angles *made = nullptr;
                const auto status = halyard_create_gpu_angles(&queue, source.get(), 0, 0, &made, &error);
                halyard_destroy_gpu_angles(made);
                CAPTURE(error.message, bytes, begin);
                CHECK(status == (begin == bytes / 2 ? HALYARD_ERROR_UNSUPPORTED : HALYARD_OK));
            }
        }
    }
}

TEST_CASE("cuda calls: memory that is not the device's is refused before any launch", "[cuda]") {
    const Simple simple;
    const Memory other;
    std::vector<float> host(1 << 14);
    auto error = sized<halyard_error>();
    const auto refused = [&](const halyard_tensor &x, const halyard_tensor &y) {
        halyard_status status = HALYARD_OK;
        const auto calls = calls_of([&] { status = simple.run(x, y, error); });
        CHECK(launches_in(calls).empty());
        CHECK(error.message[0] != '\0');
        return status;
    };
    auto wrong = simple.x;
    wrong.data = host.data();
    CHECK(refused(wrong, wrong) == HALYARD_ERROR_UNSUPPORTED);
    CHECK(refused(simple.x, wrong) == HALYARD_ERROR_UNSUPPORTED);
    wrong = simple.x;
    wrong.data = simple.memory.data(2);  // in the middle of an element
    CHECK(refused(wrong, wrong) == HALYARD_ERROR_UNSUPPORTED);
    wrong.data = nullptr;
    CHECK(refused(wrong, wrong) == HALYARD_ERROR_NULL_POINTER);
    wrong = simple.x;
    wrong.device = HALYARD_CPU;
    CHECK(refused(wrong, wrong) == HALYARD_ERROR_UNSUPPORTED);
    wrong.device = HALYARD_OPENCL;
    CHECK(refused(wrong, wrong) == HALYARD_ERROR_UNSUPPORTED);
    wrong = simple.x;
    wrong.shape[1] = 5;
    CHECK(refused(simple.x, wrong) == HALYARD_ERROR_SHAPE);
    wrong = simple.x;
    wrong.data = simple.memory.data(64);  // neither in place nor apart
    CHECK(refused(simple.x, wrong) == HALYARD_ERROR_OVERLAP);

    SECTION("offsets, positions and error words") {
        auto args = sized<halyard_gpu_run_args>();
        args.x = args.y = &simple.x;
        auto positions = halyard::positions(static_cast<const std::int32_t *>(other.data()), {1, 4});
        args.positions = &positions;
        args.error_word = static_cast<std::int32_t *>(other.data(64));
        const auto status_with = [&](const auto &change) {
            const auto changed = [&] {
                auto copy = args;
                change(copy);
                return copy;
            }();
            halyard_status status = HALYARD_OK;
            const auto calls = calls_of([&] { status = halyard_run_gpu(simple.plan.get(), &changed, &error); });
            CHECK(launches_in(calls).empty() == (status != HALYARD_OK));
            return status;
        };
        using Args = halyard_gpu_run_args;
        CHECK(status_with([](Args &) {}) == HALYARD_OK);
        const std::int64_t one = 1;
        CHECK(status_with([&](Args &wrong) { wrong.x_offsets = &one; }) == HALYARD_ERROR_OVERFLOW);
        CHECK(status_with([&](Args &wrong) { wrong.y_offsets = &one; }) == HALYARD_ERROR_OVERFLOW);
        CHECK(status_with([](Args &wrong) { wrong.positions_offset = 1; }) == HALYARD_ERROR_OVERFLOW);
        CHECK(status_with([](Args &wrong) { wrong.error_word_offset = 1; }) == HALYARD_ERROR_OVERFLOW);
        const auto word = [](void *memory) {
            return [=](Args &wrong) { wrong.error_word = static_cast<std::int32_t *>(memory); };
        };
        CHECK(status_with(word(host.data())) == HALYARD_ERROR_UNSUPPORTED);
        CHECK(status_with(word(other.data(66))) == HALYARD_ERROR_UNSUPPORTED);
        positions.data = host.data();
        CHECK(status_with([](Args &) {}) == HALYARD_ERROR_UNSUPPORTED);
        for (const std::int64_t offset : {0, 1}) {
            const auto *const first = static_cast<const float *>(other.data());
            const auto rows = halyard::angle_source::given(first, first + 32, 4, 64, 64);
            halyard_gpu_angles *made = nullptr;
            const auto queue = queue_of();
            CHECK(halyard_create_gpu_angles(&queue, rows.get(), offset, 0, &made, &error) ==
                  (offset == 0 ? HALYARD_OK : HALYARD_ERROR_OVERFLOW));
            halyard_destroy_gpu_angles(made);
        }
    }
    SECTION("another device's") {
        with_driver([](Driver &driver) { driver.device_of_contexts[0] = &contexts[3]; });
        const auto queue = queue_of(&contexts[3]);
        const auto angles = make_angles(64, queue);
        const halyard::gpu_plan plan(
            queue, halyard::plan_desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)}), angles);
        CHECK_THROWS_AS(halyard::run(plan, simple.x, simple.x, on_stream()), halyard::error);
        with_driver([](Driver &driver) { driver.device_of_contexts[0] = nullptr; });
    }
    SECTION("on the CPU") {
        const halyard::plan plan(halyard::plan_desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)}));
        const auto source = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 99);
        CHECK_THROWS_AS(halyard::run(plan, source, simple.x, simple.x), halyard::error);
    }
}

TEST_CASE("cuda calls: what no index of 32 bits can reach is refused before any launch", "[cuda]") {
    const Simple simple;
    auto error = sized<halyard_error>();
    const auto status_of = [&](const halyard::gpu_plan &plan, const halyard_tensor &x,
                               const halyard_positions *positions) {
        auto args = sized<halyard_gpu_run_args>();
        args.x = args.y = &x;
        args.positions = positions;
        halyard_status status = HALYARD_OK;
        const auto calls = calls_of([&] { status = halyard_run_gpu(plan.get(), &args, &error); });
        CAPTURE(error.message);
        CHECK(launches_in(calls).empty() == (status != HALYARD_OK));
        return status;
    };
    SECTION("heads") {
        const auto with_stride = [&](std::int64_t stride) {
            return status_of(simple.plan, view(simple.memory.data(), f32, {1, 4, 2, 64}, {0, 2, 1, stride}), nullptr);
        };
        CHECK(with_stride(INT32_MAX / 64) == HALYARD_OK);
        CHECK(with_stride(INT32_MAX / 64 + 1) == HALYARD_ERROR_UNSUPPORTED);
    }
    SECTION("positions") {
        char *const data = static_cast<char *>(simple.memory.data(1 << 15));  // behind the tensor
        auto positions = halyard::positions(reinterpret_cast<const std::int32_t *>(data), {1, 4});
        positions.strides[1] = INT32_MAX;
        CHECK(status_of(simple.plan, simple.x, &positions) == HALYARD_OK);
        positions.strides[1]++;
        CHECK(status_of(simple.plan, simple.x, &positions) == HALYARD_ERROR_UNSUPPORTED);
        positions.type = HALYARD_INT64;
        positions.strides[1] = INT32_MAX / 2;
        CHECK(status_of(simple.plan, simple.x, &positions) == HALYARD_OK);
        positions.strides[1]++;
        CHECK(status_of(simple.plan, simple.x, &positions) == HALYARD_ERROR_UNSUPPORTED);
        positions.strides[1] = 1;
        positions.data = data + 2;
        CHECK(status_of(simple.plan, simple.x, &positions) == HALYARD_ERROR_UNSUPPORTED);

        auto desc = sized<halyard_angle_source_desc>();
        desc.kind = HALYARD_ANGLES_TABLE;
        desc.last = 99;
        desc.axis_map = HALYARD_AXIS_MAP_SECTIONS;
        desc.n_axes = 3;
        desc.axis_counts[0] = 16;
        desc.axis_counts[1] = desc.axis_counts[2] = 8;
        const halyard::gpu_angles angles(queue_of(),
                                         halyard::angle_source(halyard::frequencies::from_base(10000, 64), desc));
        const halyard::gpu_plan plan(
            queue_of(), halyard::plan_desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)}), angles);
        positions = halyard::positions(reinterpret_cast<const std::int32_t *>(data), {1, 4});
        positions.n_axes = 3;
        positions.stride_axis = INT32_MAX / 3;
        CHECK(status_of(plan, simple.x, &positions) == HALYARD_OK);
        positions.stride_axis++;
        CHECK(status_of(plan, simple.x, &positions) == HALYARD_ERROR_UNSUPPORTED);
    }
}

TEST_CASE("cuda calls: columns beside the window that 32 bits cannot hold are copied in parts", "[cuda]") {
    const auto angles = make_angles(2);
    const halyard::gpu_plan plan(
        queue_of(), halyard::plan_desc(2, {halyard::describe_tensor(f32, 64, halyard::pairing::half)}), angles);
    const Memory from, to;
    const auto apart = [](const Memory &memory) {
        return view(memory.data(), f32, {1, 4, 2, 64}, {0, 2, 1, std::int64_t{1} << 26});
    };
    const auto calls = calls_of([&] { halyard::run(plan, apart(from), apart(to), on_stream()); });
    CHECK(launches_in(calls).size() == 3);  // the window, then 31 columns twice
    fail_at("cuLaunchKernel", 719, 1);
    CHECK(launches_in(calls_of([&] {
              CHECK_THROWS_AS(halyard::run(plan, apart(from), apart(to), on_stream()), halyard::error);
          })).size() == 2);
    fail_at("", 0);
}

TEST_CASE("cuda calls: plans of a context share its modules, and the last one unloads them", "[cuda]") {
    const State before;
    const halyard::plan_desc desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)});
    {
        const auto angles = make_angles(), others = make_angles(64, queue_of(&contexts[1]));
        CHECK_THROWS_AS(halyard::gpu_plan(queue_of(), desc, others), halyard::error);
        const halyard::gpu_plan first(queue_of(), desc, angles);
        const int n_of_one = State().n_modules;
        CHECK(n_of_one > before.n_modules);
        {
            const halyard::gpu_plan second(queue_of(), desc, angles), elsewhere(queue_of(&contexts[1]), desc, others);
            CHECK(State().n_modules == 2 * n_of_one - before.n_modules);
        }
        CHECK(State().n_modules == n_of_one);
        const Memory memory;
        const halyard_tensor x = view(memory.data(), f32, {1, 4, 2, 64}, {512, 128, 64, 1});
        CHECK(launches_of([&] { halyard::run(first, x, x, on_stream()); }).size() == 1);
    }
    CHECK(State() == before);
}

TEST_CASE("cuda calls: threads keep to their streams and contexts", "[cuda][threads]") {
    const halyard::plan_desc desc(64, {halyard::describe_tensor(f32, 64, halyard::pairing::half)});
    const auto angles = make_angles(), others = make_angles(64, queue_of(&contexts[1]));
    const halyard::gpu_plan plan(queue_of(), desc, angles), other(queue_of(&contexts[1]), desc, others);
    const Memory memory;
    const halyard_tensor x = view(memory.data(), f32, {1, 4, 2, 64}, {512, 128, 64, 1});
    const auto calls = calls_of([&] {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; i++) {
            threads.emplace_back([&, i] {
                for (int n = 0; n < 200; n++) {
                    halyard::run(i % 2 == 0 ? plan : other, x, x, on_stream(i));
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

TEST_CASE("cuda calls: no context, and an unknown device", "[cuda]") {
    auto error = sized<halyard_error>();
    halyard_gpu_angles *made = nullptr;
    const auto source = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 99);
    auto queue = queue_of(nullptr);  // NULL means the current context, and there is none
    CHECK(halyard_create_gpu_angles(&queue, source.get(), 0, 0, &made, &error) != HALYARD_OK);
    queue = queue_of();
    queue.device = 7;
    CHECK(halyard_create_gpu_angles(&queue, source.get(), 0, 0, &made, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
    CHECK(made == nullptr);
    CHECK(halyard::gpu_target(HALYARD_CUDA).supported == 1);
}
