// An emulated CUDA driver, libcuda.so.1, that needs no GPU. It records every call and interprets the PTX of launches.
// Work on a stream runs only when the program waits for it, as late as a driver may run it. When a kernel does wrong,
// the driver prints one message on stderr, and all later calls return CUDA_ERROR_LAUNCH_FAILED, as on a device. With
// HALYARD_EMULATED_CUDA_REPLACE=a.ptx:b.ptx in the environment, it loads b.ptx in place of a.ptx. Not modelled: memory
// of a second device, events, graphs across streams, and time.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace emulated_cuda {

struct Call {
    std::string name;
    int result;
    void *context;  // the calling thread's current context
    // Set for launches only (`stream` also for cuStreamSynchronize):
    void *stream;
    int store_bits = 0;  // the width of the kernel's widest store to global memory
    std::array<unsigned, 3> grid = {}, block = {};
};

struct Driver {
    // Set by a test.
    struct {
        std::string function;
        int error = 0, calls_until = 0;   // how many calls of the function succeed before the one that fails
    } failing;                            // one call of this function returns the error
    void *context_of_device_1 = nullptr;  // all other contexts belong to device 0
    const void *pinned = nullptr;         // host memory that the driver knows
    bool executes = true;                 // whether launches are executed, or only recorded

    // Set by the driver.
    std::vector<Call> calls;
    std::string fault;          // the error message of a kernel that did wrong; a test may clear it
    std::size_t n_regions = 0;  // current allocations of device memory
    int n_modules = 0;          // currently loaded modules
    long n_executed = 0;        // executed launches
};

/// The driver of a program that is linked with it. Use it only while no other thread calls the driver.
__attribute__((visibility("default"))) Driver &the_driver();

}  // namespace emulated_cuda
