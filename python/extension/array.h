// Arrays of any library that speaks DLPack, read without a copy.
#pragma once

#include "errors.h"

#include <nanobind/ndarray.h>

namespace halyard::python {
namespace dlpack {  // the parts of DLPack 1 (dmlc.github.io/dlpack) that nanobind does not declare

using Dtype = nb::dlpack::dtype;
using Tensor = nb::dlpack::dltensor;

enum : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3 };  // device types; cuda_host: pinned memory of the CPU
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

/// The struct behind a type's __dlpack_c_exchange_api__ (DLPack 1.2): C functions that read an array without a capsule.
struct ExchangeApi {
    Version version;
    const ExchangeApi *previous;
    void (*allocate)();
    void (*managed_from_object)();
    void (*managed_to_object)();
    int (*tensor_from_object)(void *object, Tensor *out);  // 0, or Python's error is set; the object keeps the memory
    int (*current_stream)(std::int32_t device, std::int32_t device_id, void **out);  // 0, or Python's error is set
};

}  // namespace dlpack

constexpr int max_dims = 6;

/// The dtypes that arrays may have: the name in Halyard, the name in NumPy and PyTorch, the value in the C ABI, and
/// DLPack's struct.
struct KnownDtype {
    const char *name, *long_name;
    std::int32_t value;
    dlpack::Dtype dtype;
};
inline constexpr KnownDtype known_dtypes[] = {{"f32", "float32", HALYARD_F32, {dlpack::float_code, 32, 1}},
                                              {"f16", "float16", HALYARD_F16, {dlpack::float_code, 16, 1}},
                                              {"bf16", "bfloat16", HALYARD_BF16, {dlpack::bfloat_code, 16, 1}},
                                              {"e4m3", "float8_e4m3fn", HALYARD_E4M3, {dlpack::e4m3fn_code, 8, 1}},
                                              {"e5m2", "float8_e5m2", HALYARD_E5M2, {dlpack::e5m2_code, 8, 1}},
                                              {"int8", "int8", HALYARD_INT8, {dlpack::int_code, 8, 1}}};
static_assert(std::size(known_dtypes) == HALYARD_INT8);  // none is left out

/// Their names in Halyard, by value.
inline constexpr auto dtypes = [] {
    std::array<const char *, std::size(known_dtypes) + 1> names = {};
    for (const auto &known : known_dtypes) {
        names[static_cast<std::size_t>(known.value)] = known.name;
    }
    return names;
}();

/// The key of a bound run: shapes, strides and dtypes of a call's arrays, but not their addresses.
using CallKey = std::vector<std::int64_t>;

/// One array. The object keeps the array's memory alive. Make and destroy it with the GIL held.
class Array {
public:
    static constexpr std::int32_t on_cpu = -1, anywhere = -2;  ///< values of `device` beside numbers of CUDA devices

    /// `name` is what error messages call the array. `object` has __dlpack__ or __dlpack_c_exchange_api__ (NumPy,
    /// PyTorch, JAX), or is a DLPack capsule, which is consumed, or a NumPy array with a dtype of ml_dtypes. Throws
    /// TypeError for other objects, and halyard::error for an array on another device than `device`, for too many
    /// dimensions and, if checks_torch_state, for PyTorch tensors that Halyard cannot read correctly.
    Array(nb::handle object, std::string name, std::int32_t device = on_cpu, bool checks_torch_state = true);

    const std::string &name() const { return name_; }
    const nb::object &owner() const { return owner_; }
    void *data() const { return data_; }
    /// on_cpu, or the number of a CUDA device.
    std::int32_t device() const { return device_; }
    /// The current stream of the array's library on its device; throws if the library does not tell it.
    void *stream() const;
    int n_dims() const { return n_dims_; }
    std::int64_t size(int dim) const { return shape_[static_cast<std::size_t>(dim)]; }
    /// In elements.
    std::int64_t stride(int dim) const { return strides_[static_cast<std::size_t>(dim)]; }
    std::int64_t n_elements() const { return n_elements_; }
    bool is_dense() const { return is_dense_; }
    /// HALYARD_F32 … HALYARD_INT8, or 0 for any other dtype.
    std::int32_t dtype() const;
    /// HALYARD_INT32 or HALYARD_INT64; throws for other elements.
    std::int32_t index_type() const;
    template <typename T>
    bool holds() const {
        return dtype_ == nb::dtype<T>();
    }
    std::string dtype_name() const;
    std::string shape_text() const;
    std::string kind_text() const { return dtype_name() + " " + shape_text(); }
    /// Throw an error that says which shape (or dtype and shape) the array has, and that it has to be `wanted`.
    [[noreturn]] void refuse_shape(const std::string &wanted) const;
    [[noreturn]] void refuse_kind(const std::string &wanted) const;
    /// Throws if the array may not be written.
    void require_writable() const;
    /// Appends the array's dtype, shape and strides.
    void append_to(CallKey &key) const {
        key.push_back(n_dims_ + 8 * (dtype_.code + 256 * dtype_.bits));
        key.insert(key.end(), shape_.begin(), shape_.begin() + n_dims_);
        key.insert(key.end(), strides_.begin(), strides_.begin() + n_dims_);
    }

private:
    void read(const dlpack::Tensor &tensor);
    void read_capsule(nb::handle capsule);
    template <typename Managed>
    Managed *take(nb::handle capsule, const char *used_name);

    std::string name_;
    nb::object owner_;
    std::unique_ptr<void, void (*)(void *)> memory_{nullptr, nullptr};  // the capsule's tensor, with its deleter
    const dlpack::ExchangeApi *exchange_ = nullptr;
    std::int32_t device_;  // before read(): the required device; after it: the array's
    void *data_ = nullptr;
    dlpack::Dtype dtype_{};
    int n_dims_ = 0;
    bool tells_flags_ = true, is_dense_ = true;
    std::uint64_t flags_ = 0;
    std::int64_t n_elements_ = 1;
    std::array<std::int64_t, max_dims> shape_{}, strides_{};
};

}  // namespace halyard::python
