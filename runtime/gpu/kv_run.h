// A run of the KV path on a device.
#pragma once

#include "gpu/read_gpu_run.h"

namespace halyard::gpu {

/// Refuses memory that the plan's kernels cannot take as it lies.
halyard_status check_kv_run(const GpuRun &run, halyard_error *error) noexcept;

/// Enqueues a checked run. Returns 0 or what a kernel returned.
int enqueue_kv(const halyard_gpu_plan &plan, const GpuRun &run, Call &call) noexcept;

}  // namespace halyard::gpu
