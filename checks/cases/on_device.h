// Makes a random case's run on a CUDA device and checks what it leaves there.
#pragma once

#include "checks/cases/case.h"
#include "cuda/cuda_kernels.h"
#include "halyard/halyard_cuda.hpp"

namespace cases {

/// Returns a message that says how the device's results differ from the CPU's, or an empty string. Tokens with a bad
/// position or slot must not be stored, and the error word must report them.
std::string fault_on_device(Case &drawn, const halyard_cuda_queue &queue);

/// The same check for one random run that a kernel serves, in any layout and with any kind of positions.
std::string fault_of_kernel(const halyard::cuda::CudaKernel &kernel, const halyard_cuda_queue &queue,
                            oracle::Random &random);

/// The same check for a kernel of the KV path. Every second run has bad positions and slots.
std::string fault_of_kernel(const halyard::cuda::KvKernel &kernel, const halyard_cuda_queue &queue,
                            oracle::Random &random, int call_number);

}  // namespace cases
