// A scene on a device.
#pragma once

#include "checks/scene/scene.h"
#include "halyard/halyard_gpu.hpp"

namespace scenes {

/// What is wrong with what a scene's run leaves on a device, in words, or nothing. It is to be what the portable
/// reference leaves on the CPU, where a token with a bad position or slot is not stored; and the error word tells of
/// it.
std::string fault_on_device(Scene &scene, const halyard_gpu_queue &queue);

}  // namespace scenes
