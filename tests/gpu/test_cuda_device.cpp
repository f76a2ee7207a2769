// What only a CUDA device can show: runs that are captured in a graph and replayed with other positions, and threads
// that run at once on streams of their own.
#include "checks/gpu_device.h"
#include "checks/oracle.h"

#include <thread>

namespace {

using gpu_test::call_driver, gpu_test::Memory;

/// A rotation of bf16 [1, 64, 40, 128] in place, on the device and by the CPU's reference.
struct Rotation {
    static constexpr std::int64_t n_tokens = 64, n_heads = 40, head_dim = 128;
    const halyard_gpu_queue &queue = gpu_test::device_queue();
    halyard::angle_source source =
        halyard::angle_source::table(halyard::frequencies::from_base(10000, head_dim), 0, 1000);
    halyard::plan_desc desc{head_dim,
                            {halyard::describe_tensor(halyard::dtype::bf16, head_dim, halyard::pairing::half)}};
    halyard::gpu_angles angles{queue, source};
    halyard::gpu_plan plan{queue, desc, angles};
    std::vector<std::uint16_t> x = std::vector<std::uint16_t>(n_tokens * n_heads * head_dim);

    Rotation() {
        oracle::Random random(20261121);
        for (auto &element : x) {
            element = static_cast<std::uint16_t>(oracle::random_word(random, HALYARD_BF16, oracle::Values::ordinary));
        }
    }
    static std::vector<std::int32_t> positions_from(std::int32_t start) {
        std::vector<std::int32_t> positions(n_tokens);
        for (std::size_t t = 0; t < positions.size(); t++) {
            positions[t] = start + static_cast<std::int32_t>(t * 7);
        }
        return positions;
    }
    std::vector<char> expected(std::int32_t start) const {
        const auto *const bytes = reinterpret_cast<const char *>(x.data());
        std::vector<char> turned(bytes, bytes + x.size() * sizeof(x[0]));
        auto on_cpu = desc;
        on_cpu.target = "reference";
        const auto at = positions_from(start);
        const auto positions = halyard::positions(at.data(), {1, n_tokens});
        halyard::run_options how;
        how.positions = positions;
        const auto view = halyard::tensor(turned.data(), halyard::dtype::bf16, {1, n_tokens, n_heads, head_dim});
        halyard::run(halyard::plan(on_cpu), source, view, view, how);
        return turned;
    }
    void enqueue(const Memory &memory, const Memory &places, void *stream) const {
        auto view = halyard::tensor(memory.data(), halyard::dtype::bf16, {1, n_tokens, n_heads, head_dim});
        view.device = HALYARD_CUDA;
        const auto positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, n_tokens});
        halyard::gpu_run_options how;
        how.stream = stream;
        how.positions = &positions;
        halyard::run(plan, view, view, how);
    }
};

}  // namespace

TEST_CASE("cuda device: a captured run replays with other positions and data", "[gpu][cuda]") {
    const Rotation rotation;
    void *const stream = rotation.queue.stream;
    const Memory memory(rotation.queue, rotation.x), places(rotation.queue, Rotation::positions_from(0));
    REQUIRE(call_driver("cuCtxPushCurrent_v2", rotation.queue.context) == 0);
    void *graph = nullptr, *executable = nullptr;
    REQUIRE(call_driver("cuStreamBeginCapture_v2", stream, 0) == 0);
    rotation.enqueue(memory, places, stream);
    REQUIRE(call_driver("cuStreamEndCapture", stream, &graph) == 0);
    REQUIRE(call_driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull) == 0);
    CHECK((memory.read<std::uint16_t>() == rotation.x));  // captured, not run
    for (const std::int32_t start : {0, 300, 17}) {
        const auto at = Rotation::positions_from(start);
        places.write(at);
        memory.write(rotation.x);
        REQUIRE(call_driver("cuGraphLaunch", executable, stream) == 0);
        CHECK(gpu_test::difference(HALYARD_BF16, rotation.expected(start), memory.read()) == "");
    }
    call_driver("cuGraphExecDestroy", executable);
    call_driver("cuGraphDestroy", graph);
    void *popped = nullptr;
    call_driver("cuCtxPopCurrent_v2", &popped);
}

TEST_CASE("cuda device: threads rotate at once, each on its own stream", "[gpu][cuda]") {
    const Rotation rotation;
    constexpr int n_threads = 4;
    std::vector<char> is_right(n_threads, 0);
    std::vector<std::unique_ptr<Memory>> memories, places;
    std::vector<void *> streams(n_threads, nullptr);
    REQUIRE(call_driver("cuCtxPushCurrent_v2", rotation.queue.context) == 0);
    for (int i = 0; i < n_threads; i++) {
        memories.push_back(std::make_unique<Memory>(rotation.queue, rotation.x));
        places.push_back(std::make_unique<Memory>(rotation.queue, Rotation::positions_from(i * 100)));
        REQUIRE(call_driver("cuStreamCreate", &streams[static_cast<std::size_t>(i)], 1u) == 0);
    }
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < n_threads; i++) {
            threads.emplace_back([&, i] { rotation.enqueue(*memories[i], *places[i], streams[i]); });
        }
    }
    for (std::size_t i = 0; i < n_threads; i++) {
        REQUIRE(call_driver("cuStreamSynchronize", streams[i]) == 0);
        const std::vector<char> expected = rotation.expected(static_cast<std::int32_t>(i * 100));
        CHECK(gpu_test::difference(HALYARD_BF16, expected, memories[i]->read()) == "");
        call_driver("cuStreamDestroy_v2", streams[i]);
    }
    void *popped = nullptr;
    call_driver("cuCtxPopCurrent_v2", &popped);
}
