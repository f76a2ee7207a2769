// What only a CUDA device can show: runs that are captured in a graph and replayed with other positions.
#include "tests/cuda/working_run.h"

namespace {

using cuda_test::call_driver;

void set_positions(const Working &w, std::int32_t first) {
    w.places.write(std::vector{first, first + 7, first + 1, first + 20});
    w.to.write(w.before);
}

/// What a run leaves that nothing else is at work beside.
std::vector<char> rotated_alone(const Working &w, std::int32_t first) {
    set_positions(w, first);
    REQUIRE(w.run() == HALYARD_OK);
    return w.to.read();
}

}  // namespace

TEST_CASE("cuda device: a captured run replays with other positions", "[cuda]") {
    const Working w;
    const std::vector<char> at_0 = rotated_alone(w, 0), at_70 = rotated_alone(w, 70);
    CHECK((at_0 != at_70));
    const halyard::cuda::CurrentContext current(w.queue.context);
    void *graph = nullptr, *executable = nullptr;
    set_positions(w, 0);
    REQUIRE(call_driver("cuStreamBeginCapture_v2", w.args.stream, 0) == 0);
    REQUIRE(w.run() == HALYARD_OK);
    REQUIRE(call_driver("cuStreamEndCapture", w.args.stream, &graph) == 0);
    REQUIRE(call_driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull) == 0);
    CHECK((w.to.read() == w.before));  // captured, not run
    for (const std::int32_t first : {0, 70, 0}) {
        set_positions(w, first);
        REQUIRE(call_driver("cuGraphLaunch", executable, w.args.stream) == 0);
        CHECK((w.to.read() == (first == 0 ? at_0 : at_70)));
    }
    call_driver("cuGraphExecDestroy", executable);
    call_driver("cuGraphDestroy", graph);
}
