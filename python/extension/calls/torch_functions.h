// The few functions of PyTorch's stable C ABI that operators take. They are found in the PyTorch that is loaded, so
// that the extension is built without it.
#pragma once

#include "array.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace halyard::python::torch {

using Value = std::uint64_t;  // an argument or a result of an operator: a number, or what owns a tensor or a text
using Kernel = void (*)(Value *stack, std::uint64_t n_inputs, std::uint64_t n_outputs);
using Status = std::int32_t;  // 0, or PyTorch has printed what is wrong

struct Tensor;
struct Text;
struct Library;

/// As torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h of PyTorch 2.13 declare them. Shapes and
/// strides stay the tensor's.
struct Functions {
    Status (*init_library)(const char *name, const char *key, const char *file, std::uint32_t line, Library **out);
    Status (*implement)(Library *library, const char *name, Kernel kernel, std::uint64_t version);
    Status (*get_data)(Tensor *tensor, void **out);
    Status (*get_n_dims)(Tensor *tensor, std::int64_t *out);
    Status (*get_shape)(Tensor *tensor, std::int64_t **out);
    Status (*get_strides)(Tensor *tensor, std::int64_t **out);
    Status (*get_dtype)(Tensor *tensor, std::int32_t *out);
    Status (*make_tensor)(std::int64_t n_dims, const std::int64_t *shape, const std::int64_t *strides,
                          std::int32_t dtype, std::int32_t device_type, std::int32_t device, Tensor **out);
    Status (*delete_tensor)(Tensor *tensor);
    Status (*get_length)(Text *text, std::size_t *out);
    Status (*get_characters)(Text *text, const char **out);
    Status (*delete_text)(Text *text);
    bool (*follows_gradients)();           // in the calling thread
    Status (*delete_value)(Value *value);  // around one that may be None
    void (*check)(bool holds, const char *function, const char *file, std::uint32_t line, const char *message);

    std::int32_t cpu;                                            // the type of device
    std::vector<std::pair<std::int32_t, dlpack::Dtype>> dtypes;  // their numbers, and what they are

    /// Bits are 0 where Halyard does not know it.
    dlpack::Dtype dtype_of(std::int32_t number) const;
};

/// Those of libtorch_cpu.so at this path. Throws halyard::error where it lacks one.
Functions find_functions(const char *path);

}  // namespace halyard::python::torch
