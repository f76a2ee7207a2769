#include "cuda.h"

#include "errors.h"

#include <halyard/halyard_cuda.hpp>

#include <map>

namespace halyard::python {
namespace {

/// A copy of an angle source in a device's memory, and the plans for it.
struct OnDevice {
    OnDevice(const halyard_cuda_queue &queue, const angle_source &source) : angles(queue, source) {}

    cuda_angles angles;
    run_cache<std::string, cuda_plan> plans{max_plans};
};

using OnDevices = std::map<std::int32_t, OnDevice>;

}  // namespace

void run_on_cuda(AngleSource &source, const halyard_plan_desc &desc, std::int32_t device, void *stream,
                const halyard_run_args &args) {
    if (source.source().info().kind == HALYARD_ANGLES_GIVEN) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "angles are given, which serve tensors on a CPU only");
    }
    const auto queue = describe_queue(HALYARD_CUDA, nullptr, stream);
    if (source.on_devices == nullptr) {
        source.on_devices = std::make_shared<OnDevices>();
    }
    auto &devices = *static_cast<OnDevices *>(source.on_devices.get());
    auto &own = devices.try_emplace(device, queue, source.source()).first->second;
    const auto made = own.plans.find(key_of(desc), [&] { return cuda_plan(queue, desc, own.angles); });
    auto on_cuda = make_struct<halyard_cuda_run_args>();
    on_cuda.bad_position = args.bad_position;
    on_cuda.stream = stream;
    on_cuda.positions = args.positions;
    on_cuda.n_tensors = args.n_tensors;
    on_cuda.x = args.x;
    on_cuda.y = args.y;
    on_cuda.kv = args.kv;
    detail::call(halyard_run_cuda, made->get(), &on_cuda);
}

}  // namespace halyard::python
