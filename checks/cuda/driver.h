// A CUDA driver without a device, libcuda.so.1: it executes what it is asked to launch, and records what it is asked to
// do. Work waits until something waits for it, as late as a driver may leave it, and a program that does wrong gets one
// error message on stderr and CUDA_ERROR_LAUNCH_FAILED, which stays, as on a device. In the environment
// HALYARD_EMULATED_CUDA_REPLACE=a.ptx:b.ptx has it load the second module where it is given the first.
// What it does not model: several devices' memories, events, graphs whose work is of several streams, and time.
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
    // Only for launches:
    void *stream;
    int store_bits = 0;  // of the widest store in the kernel
    std::array<unsigned, 3> grid = {}, block = {};
};

struct Driver {
    // What a test sets.
    struct {
        std::string function;
        int error = 0, calls_until = 0;  // how many calls of it succeed before
    } failing;                            // once
    void *context_of_device_1 = nullptr;  // all others are of device 0
    bool executes = true;                 // launches

    // What happened.
    std::vector<Call> calls;
    std::string fault;          // what a launch did wrong; a test may clear it
    std::size_t n_regions = 0;  // of memory, allocated now
    int n_modules = 0;          // loaded now
    long n_executed = 0;        // launches
};

/// The driver of a program that is linked with it, to be looked at and set while no other thread's call is under way.
__attribute__((visibility("default"))) Driver &the_driver();

}  // namespace emulated_cuda
