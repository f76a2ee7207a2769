// ONNX Runtime's C++ face, whose API the library is given when it is loaded.
#pragma once

#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>
#undef ORT_API_MANUAL_INIT

#include <cstddef>
#include <initializer_list>
#include <utility>

namespace halyard_onnxruntime {

/// Which outputs may take which inputs' memory, as OrtCustomOp::GetMayInplace tells it: (input, output) ….
inline std::size_t tell_places(std::initializer_list<std::pair<int, int>> places, int **inputs, int **outputs) {
    *inputs = new int[places.size()];
    *outputs = new int[places.size()];
    std::size_t n = 0;
    for (const auto &[input, output] : places) {
        (*inputs)[n] = input;
        (*outputs)[n++] = output;
    }
    return n;
}

inline void release_places(int *inputs, int *outputs) {
    delete[] inputs;
    delete[] outputs;
}

}  // namespace halyard_onnxruntime
