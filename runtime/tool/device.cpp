#include "tool/device.h"

#include "device/device_memory.h"
#include "tool/files/refusal.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace halyard::tool {

namespace {

// Above this, what a table takes is more than what x and y are likely to, and phase needs none.
constexpr std::int64_t max_table_bytes = std::int64_t{64} << 20;

std::size_t bytes_of(const halyard_positions &positions) {
    return static_cast<std::size_t>(std::max<std::int64_t>(positions.n_axes, 1) * positions.shape[0] *
                                    positions.shape[1] * 8);
}

}  // namespace

angle_source make_device_source(const frequencies &made, std::int32_t reference, const AngleOptions &options,
                                const TokenPositions &positions) {
    using Limits = std::numeric_limits<std::int32_t>;
    const auto narrow = [](std::int64_t position) {
        return static_cast<std::int32_t>(std::clamp<std::int64_t>(position, Limits::min(), Limits::max()));
    };
    const auto &values = positions.values();
    const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
    const std::int32_t first = options.max_position ? 0 : narrow(*least);
    const std::int32_t last = narrow(options.max_position ? *options.max_position - 1 : *greatest);
    const auto table_bytes = (std::int64_t{last} - first + 1) * made.info().rotary_dim * 4;
    const bool needs_phase = reference == HALYARD_REFERENCE_EXACT && table_bytes > max_table_bytes;
    const auto automatic = needs_phase ? HALYARD_ANGLES_PHASE : HALYARD_ANGLES_TABLE;
    auto desc =
        describe_angles(options.kind == HALYARD_ANGLES_AUTO ? automatic : options.kind, options.map, first, last);
    desc.reference = reference;
    return angle_source(made, desc);
}

void rotate_on_device(const DeviceRotation &rotation) {
    if (const auto target = gpu_target(rotation.device); target.supported == 0) {
        throw error(HALYARD_ERROR_NO_DEVICE,
                    (rotation.device == HALYARD_CUDA ? "CUDA can't be used: " : "OpenCL can't be used: ") +
                        std::string(target.reason));
    }
    const device::DeviceQueue queue(rotation.device);
    const auto &where = queue.get();

    std::optional<device::DeviceMemory> rows;
    gpu_angles angles;
    if (const auto &file = rotation.rows; !file.shape.empty()) {
        const auto n_pairs = file.shape[2];
        rows.emplace(where, file.data.get(), file.n_bytes);
        const auto source = angle_source::given(static_cast<const float *>(rows->data()),
                                                static_cast<const float *>(rows->data(n_pairs * 4)), file.shape[0],
                                                2 * n_pairs, 2 * n_pairs);
        angles = gpu_angles(where, source, 0, rows->offset(n_pairs));
    } else {
        angles = gpu_angles(where, rotation.angles);
    }
    const gpu_plan plan(where, rotation.desc, angles);

    const bool in_place = rotation.x.data == rotation.y.data;
    const device::DeviceMemory x(where, rotation.x.data, rotation.n_bytes);
    std::optional<device::DeviceMemory> separate_y;
    if (!in_place) {
        separate_y.emplace(where, nullptr, rotation.n_bytes);
    }
    const device::DeviceMemory &y = in_place ? x : *separate_y;
    const auto view = [&](halyard_tensor tensor, const device::DeviceMemory &memory) {
        tensor.data = memory.data();
        tensor.device = rotation.device;
        return tensor;
    };

    const std::int32_t nothing = HALYARD_OK;
    const device::DeviceMemory error_word(where, &nothing, sizeof(nothing));
    std::optional<device::DeviceMemory> places;
    halyard_positions positions{};
    gpu_run_options how;
    how.stream = where.stream;
    how.policy = rotation.how.policy;
    how.error_word = how.policy == bad_position::error ? static_cast<std::int32_t *>(error_word.data()) : nullptr;
    if (rotation.how.positions) {
        positions = *rotation.how.positions;
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
