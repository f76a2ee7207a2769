// Which CUDA driver calls the GPU runtime makes: launches, streams, contexts, and how it reports the driver's errors.
// The emulated driver only records launches here, because most of them reach far outside of its memory.
// test_cuda_kernels.cpp checks the kernels' results.
#include "checks/cuda/driver.h"
#include "checks/sized.h"
#include "cuda/driver.h"
#include "tests/cuda/working_run.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>

#include <algorithm>
#include <new>
#include <set>
#include <thread>

// How many calls of nothrow operator new succeed before one fails; negative if none fails.
static thread_local int n_until_failure = -1;

void *operator new(std::size_t n_bytes, const std::nothrow_t &) noexcept {
    return n_until_failure >= 0 && n_until_failure-- == 0 ? nullptr : ::operator new(n_bytes);
}
void *operator new[](std::size_t n_bytes, const std::nothrow_t &) noexcept {
    return n_until_failure >= 0 && n_until_failure-- == 0 ? nullptr : ::operator new[](n_bytes);
}

namespace {

using emulated_cuda::Call;
using emulated_cuda::the_driver;

[[maybe_unused]] const bool only_records = the_driver().executes = false;

/// Makes a driver function fail once, after `calls_until` calls that succeed.
void make_driver_fail(const std::string &function, int error, int calls_until = 0) {
    the_driver().failing = {function, error, calls_until};
}

/// The driver's current allocations and modules: equal before and after a test, unless something leaks.
std::pair<std::size_t, int> held() { return {the_driver().n_regions, the_driver().n_modules}; }

/// All driver calls that an action makes.
template <typename Action>
std::vector<Call> calls_of(Action action) {
    the_driver().calls.clear();
    action();
    return the_driver().calls;
}

std::vector<Call> launches_in(std::vector<Call> calls) {
    std::erase_if(calls, [](const Call &call) { return call.name != "cuLaunchKernel"; });
    return calls;
}

template <typename Tensors>
std::vector<Call> launches_of(const halyard::cuda_plan &plan, const Tensors &x, const Tensors &y,
                              const halyard::cuda_run_options &how) {
    return launches_in(calls_of([&] { halyard::run(plan, x, y, how); }));
}

char contexts[4], streams[16];  // their addresses serve as handles of contexts and streams

halyard_cuda_queue queue_of(void *context = &contexts[0]) {
    return halyard::describe_queue(HALYARD_CUDA, context, &streams[0]);
}

/// Device memory that is not initialised.
class Memory : public cuda_test::Memory {
public:
    explicit Memory(std::size_t n_bytes = 1 << 16, const halyard_cuda_queue &queue = queue_of())
        : cuda_test::Memory(queue, n_bytes) {}
};

constexpr auto f16 = halyard::dtype::f16, bf16 = halyard::dtype::bf16, f32 = halyard::dtype::f32;
constexpr auto half = halyard::pairing::half, interleaved = halyard::pairing::interleaved;

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

halyard::cuda_angles make_angles(std::int64_t rotary_dim = 64, const halyard_cuda_queue &queue = queue_of()) {
    return halyard::cuda_angles(queue, make_table(rotary_dim));
}

/// A plan of one f32 tensor with head_dim 64.
halyard::plan_desc describe(std::int64_t rotary_dim = 64) {
    return halyard::plan_desc(rotary_dim, {halyard::describe_tensor(f32, 64, half)});
}

halyard::cuda_run_options on_stream(int i = 5) {
    halyard::cuda_run_options how;
    how.stream = &streams[i];
    return how;
}

/// A run in place, without positions and error word.
struct RecordedRun : WorkingRun {
    RecordedRun() : WorkingRun(describe().tensors[0], 1 << 16, queue_of()) {
        y = x;
        args.positions = nullptr;
        args.error_word = nullptr;
    }

    std::vector<Call> launches(halyard_status expected = HALYARD_OK) const {
        return launches_in(calls_of([&] { CHECK(run() == expected); }));
    }

    /// Checks that the run is refused without any launch, or that it launches kernels.
    CallChecker runs{[this](halyard_status status, const Words &words) {
                         check_refused(status, words, [this](auto *error) { return run(error); });
                         CHECK(launches(status).empty());
                     },
                     [this] { CHECK(!launches().empty()); }};
};

}  // namespace

TEST_CASE("cuda calls: tensors of one buffer take one launch, on the caller's stream and in its context", "[cuda]") {
    // While a CUDA graph is captured, only calls that do not wait, allocate, copy or load modules are allowed.
    const std::set<std::string> harmless = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",  "cuPointerGetAttribute",
                                            "cuCtxGetDevice",      "cuModuleGetFunction", "cuLaunchKernel"};
    // A fused QKV tensor of 8 tokens, 8 + 2 + 2 heads, head_dim 128. On the KV path q and k are normed, k and v stored.
    const bool has_kv = GENERATE(false, true);
    const Memory packed, k_cache(1 << 17), v_cache(1 << 17), weights(256), places(64);
    const auto norm = halyard::describe_norm(bf16);
    const auto cache = halyard::describe_nhd_cache(16, 16, 2, 128);
    std::array<halyard_kv_desc, 3> kv = {sized<halyard_kv_desc>(), sized<halyard_kv_desc>(), sized<halyard_kv_desc>()};
    kv[0].norm = kv[1].norm = &norm;
    kv[1].cache = kv[2].cache = &cache;
    kv[2].no_rotation = 1;
    const halyard_stages stages[] = {halyard::stages(weights.data(), 128),
                                     halyard::stages(weights.data(), 128, k_cache.data()),
                                     halyard::stages_into(v_cache.data())};
    const auto slots = halyard::unchecked_slots(static_cast<const std::int32_t *>(places.data()), {1, 8});
    const auto kv_args = halyard::kv_args(stages, &slots);
    const auto positions = positions_in(places, {1, 8});
    auto how = on_stream();
    how.positions = &positions;
    how.kv = has_kv ? &kv_args : nullptr;
    halyard::plan_desc desc(128, {});
    std::vector<halyard_tensor> tensors;
    for (std::size_t i = 0; i < (has_kv ? 3 : 2); i++) {
        desc.tensors.push_back(halyard::describe_tensor(bf16, 128, half));
        desc.tensors[i].kv = has_kv ? &kv[i] : nullptr;
        const std::int64_t first = i == 0 ? 0 : i == 1 ? 8 : 10, n_heads = i == 0 ? 8 : 2;
        tensors.push_back(view(packed.data(first * 128 * 2), bf16, {1, 8, n_heads, 128}, {0, 12 * 128, 128, 1}));
    }
    const auto angles = make_angles(128);
    const halyard::cuda_plan plan(queue_of(), desc, angles);
    const auto calls = calls_of([&] { halyard::run(plan, tensors, tensors, how); });
    const auto launches = launches_in(calls);
    REQUIRE(launches.size() == 1);
    CHECK((launches[0].stream == &streams[5] && launches[0].context == &contexts[0]));
    CHECK(std::ranges::all_of(calls, [&](const Call &call) { return harmless.contains(call.name); }));
}

namespace {

using Tensors = std::array<halyard_tensor, 2>;
using TensorEdit = std::function<void(halyard_tensor_desc &, Tensors &, Tensors &)>;

/// q and k of one buffer: 4 tokens, 2 + 2 heads, head_dim 128. In place rotary_dim is 64, out of place 128.
struct QAndK {
    const Memory from, to;
    const halyard::cuda_angles angles = make_angles(64), all_angles = make_angles(128);

    /// How many launches rotate q and k after change(k's description, both inputs, both outputs).
    std::size_t n_launches(bool in_place, const TensorEdit &change) const {
        halyard::plan_desc desc(in_place ? 64 : 128, {});
        Tensors x, y;
        for (std::size_t i = 0; i < 2; i++) {
            const std::int64_t first = 4096 + static_cast<std::int64_t>(i) * 512;
            desc.tensors.push_back(halyard::describe_tensor(bf16, 128, half));
            x[i] = y[i] = view(from.data(first), bf16, {1, 4, 2, 128}, {0, 1024, 128, 1});
            y[i].data = to.data(first);
        }
        change(desc.tensors[1], x, y);
        const halyard::cuda_plan plan(queue_of(), desc, in_place ? angles : all_angles);
        return launches_of(plan, x, in_place ? x : y, on_stream()).size();
    }
};

}  // namespace

TEST_CASE("cuda calls: heads of several tensors take one launch if they follow each other", "[cuda]") {
    const QAndK of;
    for (const bool in_place : {false, true}) {
        const auto n_launches = [&](const TensorEdit &change) { return of.n_launches(in_place, change); };
        CHECK(n_launches([](auto &, auto &, auto &) {}) == 1);
        CHECK(n_launches([](auto &, auto &x, auto &y) {  // the stride of a single head is ignored
                  x[1].shape[2] = y[1].shape[2] = 1;
                  x[1].strides[2] = y[1].strides[2] = 7;
              }) == 1);
        CHECK(n_launches([&](auto &, auto &x, auto &y) {  // q is a single head
                  x[0].shape[2] = y[0].shape[2] = 1;
                  x[1].data = of.from.data(4096 + 256);
                  y[1].data = of.to.data(4096 + 256);
              }) == 1);
        CHECK(n_launches([](auto &, auto &x, auto &y) { x[1].strides[1] = y[1].strides[1] = 2048; }) == 2);
        CHECK(n_launches([](auto &, auto &x, auto &y) { x[1].strides[2] = y[1].strides[2] = 256; }) == 2);
        CHECK(n_launches([](auto &, auto &x, auto &y) {
                  x[1].shape[2] = y[1].shape[2] = 1;
                  x[1].strides[3] = y[1].strides[3] = 2;
              }) == 2);
    }
    const auto later = [](const Memory &memory) { return memory.data(4096 + 768); };
    CHECK(of.n_launches(true, [&](auto &, auto &x, auto &) { x[1].data = later(of.from); }) == 2);
    CHECK(of.n_launches(false, [&](auto &, auto &x, auto &) { x[1].data = later(of.from); }) == 2);
    CHECK(of.n_launches(false, [&](auto &, auto &, auto &y) { y[1].data = later(of.to); }) == 2);
    // Batch rows take one launch too if they follow each other at the stride of tokens.
    const Memory places;
    const auto positions = positions_in(places, {2, 2});
    auto how = on_stream();
    how.positions = &positions;
    for (const std::int64_t stride : {256, 512}) {
        const std::vector<halyard_tensor> x = {view(of.from.data(), f32, {2, 2, 2, 64}, {stride, 128, 64, 1})};
        const auto launches = launches_of(halyard::cuda_plan(queue_of(), describe(), of.angles), x, x, how);
        CHECK(launches.size() == (stride == 256 ? 1 : 2));
    }
}

TEST_CASE("cuda calls: heads of tensors that are not alike take a launch for each tensor", "[cuda]") {
    const QAndK of;
    for (const bool in_place : {false, true}) {
        CHECK(of.n_launches(in_place, [](auto &desc, auto &x, auto &y) {
                  desc.dtype = x[1].dtype = y[1].dtype = HALYARD_F16;
              }) == 2);
        CHECK(of.n_launches(in_place, [](auto &desc, auto &, auto &) {
                  desc.pairing = desc.out_pairing = HALYARD_PAIRING_INTERLEAVED;
              }) == 2);
    }
    CHECK(of.n_launches(true, [](auto &desc, auto &, auto &) { desc.rotary_offset = 32; }) == 2);
    CHECK(of.n_launches(true, [](auto &desc, auto &x, auto &) { desc.head_dim = x[1].shape[3] = 64; }) == 2);
    for (std::int32_t halyard_tensor_desc::*const pairing :
         {&halyard_tensor_desc::pairing, &halyard_tensor_desc::out_pairing}) {
        CHECK(of.n_launches(false, [&](auto &desc, auto &, auto &) {
                  desc.out_pairing = HALYARD_PAIRING_HALF;
                  desc.*pairing = HALYARD_PAIRING_INTERLEAVED;
              }) == 2);
    }
    CHECK(of.n_launches(false, [&](auto &, auto &x, auto &y) {  // k is in place
              for (Tensors *const tensors : {&x, &y}) {
                  (*tensors)[0].shape[1] = (*tensors)[1].shape[1] = (*tensors)[1].shape[2] = 1;
              }
              y[0].data = of.from.data(4096 + 512 - 2048);
              y[0].strides[2] = 512;
              y[1] = x[1];
          }) == 2);
}

TEST_CASE("cuda calls: what is empty takes no launch", "[cuda]") {
    RecordedRun w;
    w.args.error_word = static_cast<std::int32_t *>(w.word.data());
    w.args.positions = &w.positions;  // checking positions would take a launch
    for (const auto &[batch, tokens, heads] : {std::array{0, 4, 2}, {1, 0, 2}, {1, 4, 0}}) {
        w.positions = halyard::positions(static_cast<const std::int32_t *>(w.places.data()), {batch, tokens});
        w.x = w.y = view(w.from.data(), f32, {batch, tokens, heads, 64}, {512, 128, 64, 1});
        CHECK(w.launches().empty());
    }
}

TEST_CASE("cuda calls: accesses are as wide as memory, strides and halves are aligned", "[cuda]") {
    const Memory from, to;
    struct Row {
        halyard::dtype type;
        std::int64_t rotary_dim, begin_bytes, stride_head;
        std::array<int, 4> bits;  // pairings: half, half to interleaved, interleaved to half, interleaved
    };
    const auto row = GENERATE(values<Row>({{f32, 64, 0, 64, {128, 128, 128, 128}},
                                           {f32, 64, 8, 64, {32, 32, 32, 32}},
                                           {f16, 64, 0, 64, {128, 128, 128, 128}},
                                           {f16, 64, 0, 68, {32, 16, 16, 32}},
                                           {f16, 64, 2, 64, {16, 16, 16, 16}},
                                           // Halves of 24 and 6 bytes, as in GPT-NeoX models.
                                           {f16, 24, 0, 64, {32, 16, 16, 128}},
                                           {f16, 6, 0, 64, {16, 16, 16, 32}}}));
    const auto angles = make_angles(row.rotary_dim);
    for (std::size_t i = 0; i < 4; i++) {
        CAPTURE(static_cast<int>(row.type), row.rotary_dim, row.begin_bytes, row.stride_head, i);
        auto tensor = halyard::describe_tensor(row.type, 64, i < 2 ? half : interleaved);
        tensor.out_pairing = static_cast<std::int32_t>(i % 2 == 0 ? half : interleaved);
        const halyard::cuda_plan plan(queue_of(), halyard::plan_desc(row.rotary_dim, {tensor}), angles);
        auto x =
            view(from.data(row.begin_bytes), row.type, {1, 4, 2, 64}, {0, 8 * row.stride_head, row.stride_head, 1});
        auto y = x;
        y.data = to.data(row.begin_bytes);
        const auto launches = launches_of(plan, x, y, on_stream());
        REQUIRE(!launches.empty());
        CHECK(launches[0].store_bits == row.bits[i]);  // later launches copy unrotated elements
    }
}

TEST_CASE("cuda calls: what 32 bits or a grid cannot hold is split", "[cuda]") {
    const RecordedRun w;
    const auto launches = [&](const halyard::cuda_plan &plan, std::array<std::int64_t, 4> shape,
                              std::array<std::int64_t, 4> strides) {
        const auto x = view(w.from.data(), f32, shape, strides);
        return launches_of(plan, x, x, on_stream());
    };
    const std::int64_t billion = (std::int64_t{1} << 30) - 64;
    CHECK(launches(w.plan, {1, 8, 2, 64}, {0, billion, 64, 1}).size() > 1);
    CHECK(launches(w.plan, {1, 2, 2, 64}, {0, billion, 64, 1}).size() == 1);
    CHECK(launches(w.plan, {1, 2, 2, 64}, {0, billion + 64, 64, 1}).size() == 2);
    CHECK(launches(w.plan, {1, 2, 4, 64}, {0, 4 * billion, billion, 1}).size() > 1);
    CHECK(launches(w.plan, {3, 4, 2, 64}, {4 * billion, 128, 64, 1}).size() > 1);
    // Each of x's dimensions fits into 32 bits, but their sum does not. x overlaps itself, as an input may.
    const auto x = view(w.from.data(), f32, {1, 2, 3, 64}, {0, 1'000'000'000, 700'000'000, 1});
    const auto y = view(w.to.data(), f32, {1, 2, 3, 64}, {0, 192, 64, 1});
    CHECK(launches_of(w.plan, x, y, on_stream()).size() > 1);
    // y and z of a CUDA grid are at most 65,535. This holds even for a schedule with one head per block.
    const auto fits = [](const Call &launch) {
        return launch.grid[1] * launch.block[1] < 65535 + launch.block[1] &&
               launch.grid[2] * launch.block[0] < 65535 + launch.block[0];
    };
    CHECK(std::ranges::all_of(launches(w.plan, {1, 1, 1 << 21, 64}, {0, 0, 64, 1}), fits));
}

TEST_CASE("cuda calls: a driver's errors are told, and nothing of a failed creation stays", "[cuda]") {
    const auto desc = describe();
    const auto frequencies = halyard::frequencies::from_base(10000, 64);
    const auto phase = halyard::angle_source::phase(frequencies);
    const auto before = held();
    const auto [function, failure, status] = GENERATE(table<const char *, int, halyard_status>({
        {"cuMemAlloc_v2", 2, HALYARD_ERROR_OUT_OF_MEMORY},
        {"cuMemcpyHtoD_v2", 700, HALYARD_ERROR_DEVICE},
        {"cuMemcpyDtoH_v2", 700, HALYARD_ERROR_DEVICE},
        {"cuStreamSynchronize", 700, HALYARD_ERROR_DEVICE},
        {"cuModuleLoadData", 218, HALYARD_ERROR_DEVICE},
        {"cuModuleGetFunction", 500, HALYARD_ERROR_DEVICE},
        {"cuLaunchKernel", 701, HALYARD_ERROR_DEVICE},
    }));
    // The function fails at its first call, then at its second, and so on, until creation makes no further call of it.
    bool has_failed = true;
    for (int n = 0; has_failed; n++) {
        CAPTURE(function, n);
        REQUIRE(n < 1000);
        make_driver_fail(function, failure, n);
        try {
            const auto angles = make_angles();
            const halyard::cuda_angles by_phase(queue_of(), phase);
            const halyard::cuda_plan plan(queue_of(), desc, angles);
            has_failed = false;
            CHECK(n > 0);
        } catch (const halyard::error &error) {
            CAPTURE(error.what());
            CHECK(error.status() == status);
            const bool has_number = std::string(error.what()).ends_with("(" + std::to_string(failure) + ")");
            CHECK((has_number || !std::string(function).starts_with("cuMemcpy")));
        }
        CHECK(has_failed == (the_driver().failing.calls_until < 0));
        make_driver_fail("", 0);
        CHECK(held() == before);
    }
}

TEST_CASE("cuda calls: no host memory is an error, and nothing stays", "[cuda]") {
    const auto fails_until_there_is = [&](int n_allocations, const auto &create, const auto &destroy) {
        const auto empty = held();
        for (int n = 0; n <= n_allocations; n++) {
            n_until_failure = n;
            const halyard_status status = create();
            n_until_failure = -1;
            CHECK(status == (n < n_allocations ? HALYARD_ERROR_OUT_OF_MEMORY : HALYARD_OK));
            CHECK((status == HALYARD_OK || held() == empty));
        }
        destroy();
        CHECK(held() == empty);
    };
    const auto queue = queue_of();
    const auto source = make_table();
    const auto angles = make_angles();
    const auto desc = describe();
    const auto given_desc = desc.get();
    halyard_cuda_angles *made = nullptr;
    halyard_cuda_plan *plan = nullptr;
    fails_until_there_is(
        2, [&] { return halyard_create_cuda_angles(&queue, source.get(), &made, nullptr); },
        [&] { halyard_destroy_cuda_angles(made); });
    fails_until_there_is(
        1, [&] { return halyard_create_cuda_plan(&queue, &given_desc, angles.get(), &plan, nullptr); },
        [&] { halyard_destroy_cuda_plan(plan); });
}

TEST_CASE("cuda calls: a launch that fails is told, and the last one of its run", "[cuda]") {
    RecordedRun w;
    w.x = w.y = view(w.from.data(), f32, {3, 4, 2, 64}, {std::int64_t{1} << 34, std::int64_t{1} << 30, 64, 1});
    w.positions.shape[0] = 3;  // per batch row one launch checks positions and several rotate
    w.positions.strides[0] = 6;
    w.args.positions = &w.positions;
    w.args.error_word = static_cast<std::int32_t *>(w.word.data());
    const std::size_t n_launches = w.launches().size();
    CHECK(n_launches > 6);
    for (std::size_t n = 0; n < n_launches; n++) {
        make_driver_fail("cuLaunchKernel", 719, static_cast<int>(n));
        CHECK(w.launches(HALYARD_ERROR_DEVICE).size() == n + 1);
    }
    make_driver_fail("", 0);
    CHECK(w.launches().size() == n_launches);
}

TEST_CASE("cuda calls: memory that is not the device's is refused before any launch", "[cuda]") {
    RecordedRun w;
    std::vector<float> host(1 << 14);
    auto &x = w.x, &y = w.y;
    w.runs.accept({{w.args.positions, &w.positions}, {w.args.error_word, static_cast<std::int32_t *>(w.word.data())}});
    w.runs.refuse({
        {HALYARD_ERROR_UNSUPPORTED, {}, {{x.data, host.data()}, {y.data, host.data()}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{y.data, host.data()}}},
        // Addresses in the middle of an element.
        {HALYARD_ERROR_UNSUPPORTED, {}, {{x.data, w.from.data(2)}, {y.data, w.from.data(2)}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {},
         {{w.args.positions, &w.positions}, {w.args.error_word, static_cast<void *>(host.data())}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{w.args.positions, &w.positions}, {w.args.error_word, w.word.data(2)}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{w.args.positions, &w.positions}, {w.positions.data, host.data()}}},
    });
    the_driver().pinned = host.data();
    CHECK_FALSE(halyard::cuda::MemoryQueries(w.queue).is_device_memory(host.data()));
    the_driver().pinned = nullptr;
}

TEST_CASE("cuda calls: a plan of another device, or of the CPU, refuses a device's memory", "[cuda]") {
    const RecordedRun w;
    the_driver().context_of_device_1 = &contexts[3];
    const auto queue = queue_of(&contexts[3]);
    const auto angles = make_angles(64, queue);
    const halyard::cuda_plan plan(queue, describe(), angles);
    CHECK_THROWS_AS(halyard::run(plan, w.x, w.x, on_stream()), halyard::error);
    the_driver().context_of_device_1 = nullptr;
    CHECK_THROWS_AS(halyard::run(halyard::plan(describe()), make_table(), w.x, w.x), halyard::error);
}

TEST_CASE("cuda calls: what no index of 32 bits can reach is refused before any launch", "[cuda]") {
    RecordedRun w;
    const auto is_the_greatest = [&](auto &field, std::int64_t value, const std::vector<Change> &with = {}) {
        auto changes = with;
        changes.emplace_back(field, value);
        w.runs.accept(changes);
        changes.back() = Change(field, value + 1);
        w.runs.refuse(HALYARD_ERROR_UNSUPPORTED, {}, changes);
    };
    const auto transposed = view(w.from.data(), f32, {1, 4, 2, 64}, {0, 2, 1, INT32_MAX / 64});
    is_the_greatest(w.y.strides[3], INT32_MAX / 64, {{w.x, transposed}, {w.y, transposed}, {w.y.data, w.to.data()}});
    const halyard::plan_desc of_wide(64, {halyard::describe_tensor(f32, 65536, half)});
    CHECK_THROWS_WITH(halyard::cuda_plan(queue_of(), of_wide, w.angles),
                      "tensors[0].head_dim is 65536, but heads on a device have at most 65535 elements");

    auto &positions = w.positions;
    w.args.positions = &positions;
    is_the_greatest(positions.strides[1], INT32_MAX / 4);  // there are four tokens
    is_the_greatest(positions.strides[1], INT32_MAX / 8, {{positions.type, HALYARD_INT64}});
    w.runs.refuse(HALYARD_ERROR_UNSUPPORTED, {},
                  {{positions.data, w.from.data((1 << 15) + 2)}, {positions.type, HALYARD_INT64}});

    w.angles = halyard::cuda_angles(
        w.queue, halyard::angle_source(
                     halyard::frequencies::from_base(10000, 64),
                     halyard::describe_angles(HALYARD_ANGLES_TABLE, halyard::axis_map::sections({16, 8, 8}), 0, 100)));
    w.plan = halyard::cuda_plan(w.queue, describe(), w.angles);
    positions.n_axes = 3;
    is_the_greatest(positions.stride_axis, INT32_MAX / 3);
}

TEST_CASE("cuda calls: plans of a context share its modules, and the last one unloads them", "[cuda]") {
    const auto before = held();
    {
        const RecordedRun w;
        const auto others = make_angles(64, queue_of(&contexts[1]));
        CHECK_THROWS_AS(halyard::cuda_plan(queue_of(), describe(), others), halyard::error);
        const int n_of_one = the_driver().n_modules;
        CHECK(n_of_one > before.second);
        {
            const halyard::cuda_plan second(queue_of(), describe(), w.angles),
                elsewhere(queue_of(&contexts[1]), describe(), others);
            CHECK(the_driver().n_modules == 2 * n_of_one - before.second);
        }
        CHECK(the_driver().n_modules == n_of_one);
        CHECK(!w.launches().empty());
    }
    CHECK(held() == before);
    // A plan that is destroyed unloads its kernels' modules, whichever kernels earlier plans had.
    const auto angles = make_angles(128);
    const auto norm = halyard::describe_norm(f32);
    auto kv = sized<halyard_kv_desc>();
    kv.norm = &norm;
    const auto with_angles = held();
    for (const auto type : {bf16, f32, f32, f32, f32, bf16, f32}) {  // alternates between two kernels
        auto normed = halyard::describe_tensor(type, 128, half);
        normed.kv = &kv;
        halyard::cuda_plan(queue_of(), halyard::plan_desc(128, {normed}), angles);
        CHECK(held() == with_angles);
    }
}

TEST_CASE("cuda calls: threads keep to their streams and contexts", "[cuda][threads]") {
    const RecordedRun w;
    const auto others = make_angles(64, queue_of(&contexts[1]));
    const halyard::cuda_plan other(queue_of(&contexts[1]), describe(), others);
    const auto calls = calls_of([&] {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; i++) {
            threads.emplace_back([&, i] {
                for (int n = 0; n < 200; n++) {
                    halyard::run(i % 2 == 0 ? w.plan : other, w.x, w.x, on_stream(i));
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
