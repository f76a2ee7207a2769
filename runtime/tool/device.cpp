#include "tool/device.h"

#include "tool/device_memory.h"
#include "tool/refusal.h"

#include <algorithm>
#include <limits>

namespace halyard::tool {

namespace {

// Above this, what a table takes is more than what x and y are likely to, and phase needs none.
constexpr std::int64_t max_table_bytes = std::int64_t{64} << 20;

std::size_t bytes_of(const halyard_positions &positions) {
    return static_cast<std::size_t>(std::max<std::int64_t>(positions.n_axes, 1) * positions.shape[0] *
                                    positions.shape[1] * (positions.type == HALYARD_INT64 ? 8 : 4));
}

}  // namespace

std::int32_t device_of(const std::string &target) {
    return target == "cuda_sm80" ? HALYARD_CUDA : target == "opencl" ? HALYARD_OPENCL : HALYARD_CPU;
}

angle_source make_device_source(const frequencies &frequencies, const std::string &angles, const std::string &reference,
                                const AxisMapOption &axes, std::optional<std::int64_t> max_position,
                                const TokenPositions &positions) {
    using Limits = std::numeric_limits<std::int32_t>;
    const auto narrow = [](std::int64_t position) {
        return static_cast<std::int32_t>(std::clamp<std::int64_t>(position, Limits::min(), Limits::max()));
    };
    const auto [least, greatest] = max_position ? std::pair{std::int64_t{0}, *max_position - 1} : positions.range();
    const std::int32_t first = narrow(least), last = narrow(greatest);
    const auto table_bytes = (std::int64_t{last} - first + 1) * frequencies.info().rotary_dim * 4;
    const bool by_phase = angles == "auto" && reference == "exact" && table_bytes > max_table_bytes;
    return make_source(frequencies, by_phase ? "phase" : angles, reference, axes, first, last, nullptr);
}

void rotate_on_device(const DeviceRotation &rotation) {
    if (const auto target = gpu_target(rotation.device); target.supported == 0) {
        throw error(HALYARD_ERROR_NO_DEVICE,
                    (rotation.device == HALYARD_CUDA ? "CUDA can't be used: " : "OpenCL can't be used: ") +
                        std::string(target.reason));
    }
    const DeviceQueue queue(rotation.device);
    const auto &where = queue.get();

    std::optional<DeviceMemory> rows;
    gpu_angles angles;
    if (rotation.rows != nullptr) {
        const auto &file = *rotation.rows;
        const auto n_pairs = file.shape[2];
        rows.emplace(where, file.data.get(), file.n_bytes);
        const auto source = angle_source::given(static_cast<const float *>(rows->data()),
                                                static_cast<const float *>(rows->data(n_pairs * 4)), file.shape[0],
                                                2 * n_pairs, 2 * n_pairs);
        angles = gpu_angles(where, source, 0, rows->offset(n_pairs));
    } else {
        angles = gpu_angles(where, *rotation.angles);
    }
    const gpu_plan plan(where, rotation.desc, angles);

    const DeviceMemory x(where, rotation.x.data, rotation.n_bytes);
    std::optional<DeviceMemory> separate_y;
    if (!rotation.in_place) {
        separate_y.emplace(where, nullptr, rotation.n_bytes);
    }
    const DeviceMemory &y = rotation.in_place ? x : *separate_y;
    const auto view = [&](halyard_tensor tensor, const DeviceMemory &memory) {
        tensor.data = memory.data();
        tensor.device = rotation.device;
        return tensor;
    };

    const std::int32_t nothing = HALYARD_OK;
    const DeviceMemory error_word(where, &nothing, sizeof(nothing));
    std::optional<DeviceMemory> places;
    halyard_positions positions{};
    gpu_run_options how;
    how.stream = where.stream;
    how.policy = rotation.policy;
    how.error_word = rotation.policy == bad_position::error ? static_cast<std::int32_t *>(error_word.data()) : nullptr;
    if (rotation.positions != nullptr) {
        positions = *rotation.positions;
        places.emplace(where, positions.data, bytes_of(positions));
        positions.data = places->data();
        how.positions = &positions;
    }
    run(plan, view(rotation.x, x), view(rotation.y, y), how);

    std::int32_t told = HALYARD_OK;
    error_word.read(&told, sizeof(told));
    if (told != HALYARD_OK) {
        throw Refusal("a position is not covered by the angles (see --bad-position); the device does not say which");
    }
    y.read(rotation.y.data, rotation.n_bytes);
}

}  // namespace halyard::tool
