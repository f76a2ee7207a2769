// A program with a Halide runtime of its own beside halyard::gpu, which has one inside and gives it handlers when a
// context is first used: those of the program have to stay. The driver is checks/cuda/driver.cpp.
#include <halyard/halyard_gpu.hpp>

#include <cstdio>

extern "C" {
using ErrorHandler = void (*)(void *user_context, const char *message);
ErrorHandler halide_set_error_handler(ErrorHandler handler);
void halide_error(void *user_context, const char *message);
}

int main() {
    static int n_heard = 0;
    halide_set_error_handler([](void *, const char *) { ++n_heard; });
    char context = 0;
    const auto queue = halyard::describe_queue(HALYARD_CUDA, &context, nullptr);
    const auto angles = halyard::angle_source::table(halyard::frequencies::from_base(10000.0, 4), 0, 8);
    const halyard::gpu_angles copied(queue, angles);
    const halyard::plan_desc desc(4, {halyard::describe_tensor(halyard::dtype::f32, 4, halyard::pairing::half)});
    const halyard::gpu_plan plan(queue, desc, copied);
    halide_error(nullptr, "the program's own");
    std::printf("heard %d\n", n_heard);
    return 0;
}
