// Runs on CUDA devices, in builds with HALYARD_BUILD_CUDA.
#pragma once

#include "angles.h"

namespace halyard::python {

/// Whether this build can rotate tensors on CUDA devices; else it lacks run_on_cuda().
inline constexpr bool has_cuda = HALYARD_PYTHON_CUDA;

/// Enqueues a run on a stream of a device, whose context must be current in the calling thread. Ignores args.executor
/// and parts. Call it with the GIL held.
void run_on_cuda(AngleSource &angles, const halyard_plan_desc &desc, std::int32_t device, void *stream,
                 const halyard_run_args &args);

}  // namespace halyard::python
