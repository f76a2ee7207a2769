// Needs a real CUDA device: runs that are captured in a CUDA graph and replayed with other positions.
#include "tests/cuda/working_run.h"

using cuda_test::call_driver;

TEST_CASE("cuda device: a captured run replays with other positions", "[cuda]") {
    const WorkingRun w;
    const auto set_positions = [&](std::int32_t first) {
        w.places.write(std::vector{first, first + 7, first + 1, first + 20});
        w.to.write(w.before);
    };
    const auto rotated = [&](std::int32_t first) {
        set_positions(first);
        REQUIRE(w.run() == HALYARD_OK);
        return w.to.read();
    };
    const std::vector<char> at_0 = rotated(0), at_70 = rotated(70);
    CHECK((at_0 != at_70));
    const halyard::cuda::CurrentContext current(w.queue.context);
    void *graph = nullptr, *executable = nullptr;
    set_positions(0);
    REQUIRE(call_driver("cuStreamBeginCapture_v2", w.args.stream, 0) == 0);
    REQUIRE(w.run() == HALYARD_OK);
    REQUIRE(call_driver("cuStreamEndCapture", w.args.stream, &graph) == 0);
    REQUIRE(call_driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull) == 0);
    CHECK((w.to.read() == w.before));  // only captured so far
    for (const std::int32_t first : {0, 70, 0}) {
        set_positions(first);
        REQUIRE(call_driver("cuGraphLaunch", executable, w.args.stream) == 0);
        CHECK((w.to.read() == (first == 0 ? at_0 : at_70)));
    }
    call_driver("cuGraphExecDestroy", executable);
    call_driver("cuGraphDestroy", graph);
}
