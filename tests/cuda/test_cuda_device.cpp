// What only a CUDA device can show: runs that are captured in a graph and replayed with other positions, and threads
// that run at once on streams of their own.
#include "checks/cuda_device.h"
#include "checks/oracle.h"

#include <thread>

namespace {

using cuda_test::call_driver, cuda_test::Memory;

/// A rotation of f32 [1, 64, 40, 128] in place, on the device and by the CPU's reference.
struct Rotation {
    static constexpr std::int64_t n_tokens = 64, n_heads = 40, head_dim = 128;
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    halyard::angle_source source =
        halyard::angle_source::table(halyard::frequencies::from_base(10000, head_dim), 0, 1000);
    halyard::plan_desc desc{head_dim,
                            {halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half)}};
    halyard::cuda_angles angles{queue, source};
    halyard::cuda_plan plan{queue, desc, angles};
    std::vector<float> x = std::vector<float>(n_tokens * n_heads * head_dim);

    Rotation() {
        oracle::Random random(20261121);
        std::ranges::generate(x, [&] { return static_cast<float>(random.unit()); });
        REQUIRE(call_driver("cuCtxPushCurrent_v2", queue.context) == 0);
    }
    Rotation(const Rotation &) = delete;
    ~Rotation() {
        void *popped = nullptr;
        call_driver("cuCtxPopCurrent_v2", &popped);
    }
    static std::vector<std::int32_t> positions_from(std::int32_t start) {
        std::vector<std::int32_t> positions(n_tokens);
        std::ranges::generate(positions, [&] { return start += 7; });
        return positions;
    }
    static halyard_positions describe(const void *positions) {
        return halyard::positions(static_cast<const std::int32_t *>(positions), {1, n_tokens});
    }
    static halyard_tensor view(void *data, std::int32_t device) {
        auto tensor = halyard::tensor(data, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
        tensor.device = device;
        return tensor;
    }
    std::vector<float> expected(std::int32_t start) const {
        std::vector<float> rotated = x;
        auto on_cpu = desc;
        on_cpu.target = "reference";
        const auto at = positions_from(start);
        halyard::run_options how;
        how.positions = describe(at.data());
        const auto tensor = view(rotated.data(), HALYARD_CPU);
        halyard::run(halyard::plan(on_cpu), source, tensor, tensor, how);
        return rotated;
    }
    void enqueue(const Memory &memory, const Memory &places, void *stream) const {
        const auto tensor = view(memory.data(), HALYARD_CUDA);
        const auto positions = describe(places.data());
        halyard::cuda_run_options how;
        how.stream = stream;
        how.positions = &positions;
        halyard::run(plan, tensor, tensor, how);
    }
};

}  // namespace

TEST_CASE("cuda device: a captured run replays with other positions and data", "[cuda]") {
    const Rotation rotation;
    void *const stream = rotation.queue.stream;
    const Memory memory(rotation.queue, rotation.x), places(rotation.queue, Rotation::positions_from(0));
    const halyard::cuda::CurrentContext current(rotation.queue.context);
    void *graph = nullptr, *executable = nullptr;
    REQUIRE(call_driver("cuStreamBeginCapture_v2", stream, 0) == 0);
    rotation.enqueue(memory, places, stream);
    REQUIRE(call_driver("cuStreamEndCapture", stream, &graph) == 0);
    REQUIRE(call_driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull) == 0);
    CHECK((memory.read<float>() == rotation.x));  // captured, not run
    for (const std::int32_t start : {0, 300, 17}) {
        const auto at = Rotation::positions_from(start);
        places.write(at);
        memory.write(rotation.x);
        REQUIRE(call_driver("cuGraphLaunch", executable, stream) == 0);
        CHECK((memory.read<float>() == rotation.expected(start)));
    }
    call_driver("cuGraphExecDestroy", executable);
    call_driver("cuGraphDestroy", graph);
}

TEST_CASE("cuda device: threads rotate at once, each on its own stream", "[cuda]") {
    const Rotation rotation;
    std::array<void *, 4> streams = {};
    std::vector<std::unique_ptr<Memory>> memories, places;
    const halyard::cuda::CurrentContext current(rotation.queue.context);
    for (std::size_t i = 0; i < streams.size(); i++) {
        memories.push_back(std::make_unique<Memory>(rotation.queue, rotation.x));
        places.push_back(
            std::make_unique<Memory>(rotation.queue, Rotation::positions_from(static_cast<std::int32_t>(i * 100))));
        REQUIRE(call_driver("cuStreamCreate", &streams[i], 1u) == 0);
    }
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < streams.size(); i++) {
            threads.emplace_back([&, i] { rotation.enqueue(*memories[i], *places[i], streams[i]); });
        }
    }
    for (std::size_t i = 0; i < streams.size(); i++) {
        REQUIRE(call_driver("cuStreamSynchronize", streams[i]) == 0);
        CHECK((memories[i]->read<float>() == rotation.expected(static_cast<std::int32_t>(i * 100))));
        call_driver("cuStreamDestroy_v2", streams[i]);
    }
}
