// Angles that a node brings as frequencies, in place of a model's tables.
#pragma once

#include "ort.h"

#include <halyard/halyard.hpp>

#include <memory>

namespace halyard_onnxruntime {

/// The source of a node's attributes inv_freq (double), attention_factor and n_positions (0: every int32 position). It
/// is one for all nodes that have the same. NULL where there is no inv_freq. Throws halyard::error.
std::shared_ptr<const halyard::angle_source> read_angle_source(const Ort::ConstKernelInfo &info);

}  // namespace halyard_onnxruntime
