// ONNX Runtime's C++ face, whose API the library is given when it is loaded.
#pragma once

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>
#undef ORT_API_MANUAL_INIT
