// A CUDA driver without a device, which records what it is asked to do. Its memory is the host's, and no kernel runs.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace fake_cuda {

struct Call {
    std::string name;
    int result;
    void *context;  // the calling thread's current context
    // Only for launches:
    void *stream;
    int store_bits;  // of the widest store in the kernel's module
    unsigned grid[3], block[3];
};

struct Driver {
    // What a test sets.
    std::string failing;               // the function that fails once
    int failure = 0;                   // the error that it returns
    int calls_until = 0;               // how many calls of it succeed before
    void *device_of_contexts[2] = {};  // contexts of device 1; all others are of device 0

    // What happened.
    std::vector<Call> calls;
    std::vector<std::pair<void *, std::size_t>> memory;  // allocated now
    int n_modules = 0;                                   // loaded now
};

}  // namespace fake_cuda

/// Calls use(driver, argument) while no other thread's call is under way.
extern "C" void fake_cuda_access(void (*use)(fake_cuda::Driver &driver, void *argument), void *argument);
