// Work to time: a plan with its tensors, positions and angles, ready to run.
#pragma once

#include "halyard/halyard.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

/// Memory that starts on a cache line and is not moved.
class Buffer {
public:
    explicit Buffer(std::size_t n_bytes);
    void *data() const { return data_.get(); }
    std::size_t n_bytes() const { return n_bytes_; }
    void fill_floats() const;

private:
    struct Free {
        void operator()(void *data) const noexcept;
    };
    std::unique_ptr<void, Free> data_;
    std::size_t n_bytes_;
};

struct Shape {
    std::int64_t tokens, heads, head_dim;
};

/// One kernel at one shape. Tokens are at scattered positions below 65536; data are normal numbers around 1.
class Workload {
public:
    /// angles is a HALYARD_ANGLES_… that covers a range.
    Workload(dtype type, pairing in, pairing out, bool in_place, Shape shape, const char *target,
             std::int32_t angles = HALYARD_ANGLES_TABLE);

    void run(const halyard_executor *executor = nullptr) const;

    /// As in the kernel's name: "half_f32_in_place".
    std::string name() const;
    Shape shape() const { return shape_; }
    const char *angles() const;
    const char *target() const { return plan_.target(); }
    /// Bytes that have to be read and written: x and y, without angles.
    std::size_t n_bytes() const { return 2 * x_.n_bytes(); }
    std::size_t tensor_bytes() const { return x_.n_bytes(); }
    bool in_place() const { return in_place_; }

private:
    dtype type_;
    pairing in_, out_;
    bool in_place_;
    Shape shape_;
    std::int32_t angles_kind_;
    std::shared_ptr<const angle_source> angles_;
    plan plan_;
    Buffer x_, y_;
    std::vector<std::int32_t> position_data_;
    halyard_positions positions_;
    halyard_tensor x_view_, y_view_;
};

}  // namespace halyard::bench
