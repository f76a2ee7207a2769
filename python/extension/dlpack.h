// What nanobind does not declare of DLPack 1 (dmlc.github.io/dlpack), by which Python's array libraries hand memory to
// each other.
#pragma once

#include <nanobind/ndarray.h>

namespace halyard::python::dlpack {

using Dtype = nanobind::dlpack::dtype;
using Tensor = nanobind::dlpack::dltensor;

enum : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3 };  // the CPU reads the memory of the first and the last
enum : std::uint8_t { int_code = 0, uint_code = 1, float_code = 2, bfloat_code = 4, e4m3fn_code = 10, e5m2_code = 12 };
enum : std::uint64_t { read_only = 1, is_copied = 2 };  // flags

struct ManagedTensor {
    Tensor tensor;
    void *context;
    void (*deleter)(ManagedTensor *);
};

struct Version {
    std::uint32_t major, minor;
};

struct VersionedManagedTensor {
    Version version;
    void *context;
    void (*deleter)(VersionedManagedTensor *);
    std::uint64_t flags;
    Tensor tensor;
};

/// What a type's __dlpack_c_exchange_api__ points to (DLPack 1.2): tensors without a capsule and a call of Python's.
struct ExchangeApi {
    Version version;
    const ExchangeApi *previous;
    void (*allocate)();
    void (*managed_from_object)();
    void (*managed_to_object)();
    int (*tensor_from_object)(void *object, Tensor *out);  // 0, or Python's error is set; the object keeps the memory
    int (*current_stream)(std::int32_t device, std::int32_t device_id, void **out);  // 0, or Python's error is set
};

}  // namespace halyard::python::dlpack
