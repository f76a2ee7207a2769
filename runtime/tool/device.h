// What list and explain ask halyard::gpu, of tools that are built with it.
#pragma once

#include "halyard/halyard_gpu.hpp"

#include <cstdint>
#include <string>

namespace halyard::tool {

#if HALYARD_TOOL_HAS_GPU
inline constexpr bool has_gpu = true;
#else
inline constexpr bool has_gpu = false;
#endif

/// HALYARD_CUDA where that is the target's name, else HALYARD_CPU.
inline std::int32_t device_of(const std::string &target) {
    return has_gpu && target == "cuda_sm80" ? HALYARD_CUDA : HALYARD_CPU;
}

}  // namespace halyard::tool
