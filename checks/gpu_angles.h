// Angle sources of every kind, on the host and on a device.
#pragma once

#include "checks/gpu_checker.h"
#include "halyard/halyard_gpu.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpu_test {

/// A source of a random kind for positions on one axis or three: a table of all positions or of some, two tables,
/// phases, or given rows of any dtype. It covers all positions from first() to last(), n_positions or more; or where
/// that is 0, any number, and a table of some has gaps.
class RandomAngles {
public:
    RandomAngles(const halyard_gpu_queue &queue, oracle::Random &random, std::int64_t rotary_dim, std::int64_t n_axes,
                 std::int64_t n_positions = 0);

    const halyard::angle_source &on_host() const { return *host_; }
    const halyard::gpu_angles &on_device() const { return *device_; }
    std::int32_t first() const { return desc_.first; }
    std::int32_t last() const { return desc_.last; }
    const std::string &name() const { return name_; }
    bool are_given() const { return desc_.kind == HALYARD_ANGLES_GIVEN; }

private:
    halyard_angle_source_desc desc_;
    std::string name_;
    std::vector<std::int32_t> list_;
    std::vector<char> rows_;
    std::unique_ptr<Memory> memory_;  // given rows on the device
    std::unique_ptr<halyard::angle_source> host_;
    std::unique_ptr<halyard::gpu_angles> device_;

    void draw_range(oracle::Random &random, std::int64_t n_positions);
    void give_rows(const halyard_gpu_queue &queue, oracle::Random &random, std::int64_t rotary_dim);
};

}  // namespace gpu_test
