// Tensors that lie in a CUDA device's memory, where the build has the GPU's part of the library.
#pragma once

#include "angles.h"

namespace halyard::python {

/// Whether this build turns tensors on CUDA devices; else it lacks the function below.
inline constexpr bool has_cuda = HALYARD_PYTHON_CUDA;

/// Enqueues a run on a stream of a device, whose context has to be the calling thread's current one. Of the arguments
/// executor and parts are not looked at. Call it with the GIL held.
void run_on_cuda(AngleSource &angles, const halyard_plan_desc &desc, std::int32_t device, void *stream,
                 const halyard_run_args &args);

}  // namespace halyard::python
