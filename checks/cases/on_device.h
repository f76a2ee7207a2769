// Makes a random case's run on a CUDA device and checks what it leaves there.
#pragma once

#include "checks/cases/case.h"
#include "cuda/cuda_kernels.h"
#include "halyard/halyard_cuda.hpp"

namespace cases {

/// What is wrong with what a case's run leaves on a device, in words, or nothing. It is to be what it
/// leaves on the CPU, where a token with a bad position or slot is not stored; and the error word tells of it.
std::string fault_on_device(Case &drawn, const halyard_cuda_queue &queue);

/// The same of one random run that a kernel serves, in any layout and with any kind of positions.
std::string fault_of_kernel(const halyard::cuda::CudaKernel &kernel, const halyard_cuda_queue &queue,
                            oracle::Random &random);

/// The same of a kernel of the KV path. Every second run has bad positions and slots.
std::string fault_of_kernel(const halyard::cuda::KvKernel &kernel, const halyard_cuda_queue &queue,
                            oracle::Random &random, int number);

}  // namespace cases
