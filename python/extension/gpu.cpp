#include "gpu.h"

#include "refuse.h"

#ifdef HALYARD_PYTHON_GPU
#include <halyard/halyard_gpu.hpp>

#include <map>
#include <memory>
#include <string>

namespace nb = nanobind;

namespace halyard::python {
namespace {

/// An angle source in a device's memory, and the plans that were made for it.
struct OnDevice {
    OnDevice(const halyard_gpu_queue &queue, const angle_source &source) : angles(queue, source) {}

    gpu_angles angles;
    run_cache<std::string, gpu_plan> plans{max_plans};
};

using OnDevices = std::map<std::int32_t, OnDevice>;

OnDevice &find_device(AngleSource &source, std::int32_t device, const halyard_gpu_queue &queue) {
    if (source.on_devices == nullptr) {
        source.on_devices = std::make_shared<OnDevices>();
    }
    auto &devices = *static_cast<OnDevices *>(source.on_devices.get());
    return devices.try_emplace(device, queue, source.source).first->second;
}

}  // namespace

bool has_gpu() { return true; }

void run_on_gpu(AngleSource &source, const halyard_plan_desc &desc, std::int32_t device, void *stream,
                const halyard_run_args &args) {
    if (source.source.info().kind == HALYARD_ANGLES_GIVEN) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "angles are given, which serve tensors on a CPU only");
    }
    const auto queue = describe_queue(HALYARD_CUDA, nullptr, stream);
    auto &own = find_device(source, device, queue);
    const auto made = own.plans.find(key_of(desc), [&] { return gpu_plan(queue, desc, own.angles); });
    auto on_gpu = make_struct<halyard_gpu_run_args>();
    on_gpu.bad_position = args.bad_position;
    on_gpu.stream = stream;
    on_gpu.positions = args.positions;
    on_gpu.n_tensors = args.n_tensors;
    on_gpu.x = args.x;
    on_gpu.y = args.y;
    on_gpu.kv = args.kv;
    detail::call(halyard_run_gpu, made->get(), &on_gpu);
}

}  // namespace halyard::python

#else

namespace halyard::python {

bool has_gpu() { return false; }

void run_on_gpu(AngleSource &, const halyard_plan_desc &, std::int32_t, void *, const halyard_run_args &) {
    refuse(HALYARD_ERROR_UNSUPPORTED, "this build of Halyard is for CPUs alone");
}

}  // namespace halyard::python

#endif
