// Keeps the angle sources that nodes share.
#include "angles.h"

#include "inputs.h"

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

namespace halyard_onnxruntime {

namespace {

struct Frequencies {
    std::vector<double> inv_freq;
    double attention_factor;
    std::int64_t n_positions;

    auto operator<=>(const Frequencies &) const = default;
};

std::vector<double> read_inv_freq(const Ort::ConstKernelInfo &info) {
    Ort::Value value(nullptr);
    try {
        const Ort::AllocatorWithDefaultOptions allocator;
        value = info.GetTensorAttribute("inv_freq", allocator);
    } catch (const Ort::Exception &) {
        return {};
    }
    const auto about = value.GetTensorTypeAndShapeInfo();
    if (about.GetElementType() != ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE || about.GetShape().size() != 1) {
        refuse(HALYARD_ERROR_FREQUENCY, "inv_freq is not a list of double");
    }
    const auto *data = value.GetTensorData<double>();
    return {data, data + about.GetElementCount()};
}

std::shared_ptr<const halyard::angle_source> make(const Frequencies &from) {
    const auto frequencies = halyard::frequencies::from_list(
        from.inv_freq.data(), static_cast<std::int64_t>(from.inv_freq.size()), from.attention_factor);
    auto desc = halyard::describe_angles(HALYARD_ANGLES_AUTO);
    if (from.n_positions > 0 && from.n_positions <= std::numeric_limits<std::int32_t>::max()) {
        desc.first = 0;
        desc.last = static_cast<std::int32_t>(from.n_positions - 1);
    }
    return std::make_shared<halyard::angle_source>(frequencies, desc);
}

}  // namespace

std::shared_ptr<const halyard::angle_source> read_angle_source(const Ort::ConstKernelInfo &info) {
    static std::mutex mutex;
    static std::map<Frequencies, std::weak_ptr<const halyard::angle_source>> known;

    Frequencies frequencies = {read_inv_freq(info), static_cast<double>(attribute<float>(info, "attention_factor", 1)),
                               attribute<std::int64_t>(info, "n_positions", 0)};
    if (frequencies.inv_freq.empty()) {
        return nullptr;
    }
    const std::lock_guard lock(mutex);
    auto &kept = known[frequencies];
    auto source = kept.lock();
    if (source == nullptr) {
        source = make(frequencies);
        kept = source;
    }
    return source;
}

}  // namespace halyard_onnxruntime
