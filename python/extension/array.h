// Arrays of any library that speaks DLPack, read without a copy.
#pragma once

#include "refuse.h"

#include <nanobind/ndarray.h>

namespace halyard::python {
namespace dlpack {  // what nanobind does not declare of DLPack 1 (dmlc.github.io/dlpack)

using Dtype = nb::dlpack::dtype;
using Tensor = nb::dlpack::dltensor;

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

}  // namespace dlpack

constexpr int max_dims = 6;

/// What tells calls apart: all that they say, but where their arrays lie.
using Form = std::vector<std::int64_t>;

/// One array, and its memory for as long as the object lives. Make and destroy it with the GIL held.
class Array {
public:
    static constexpr std::int32_t on_cpu = -1, anywhere = -2;  ///< beside the numbers of CUDA devices

    /// `name` is what messages call it. Takes what has __dlpack__ or __dlpack_c_exchange_api__ (NumPy, PyTorch,
    /// JAX), a DLPack capsule, which is used up, and NumPy's arrays of ml_dtypes. Throws TypeError for what is no
    /// array, and halyard::error for other devices than the one that is named, gradients and too many dimensions.
    Array(nb::handle object, std::string name, std::int32_t device = on_cpu, bool checks_marks = true);

    const std::string &name() const { return name_; }
    const nb::object &owner() const { return owner_; }
    void *data() const { return data_; }
    /// on_cpu, or the number of a CUDA device.
    std::int32_t device() const { return device_; }
    /// The stream on which the library that it comes from works there now; throws where it does not tell.
    void *stream() const;
    int n_dims() const { return n_dims_; }
    std::int64_t size(int dim) const { return shape_[static_cast<std::size_t>(dim)]; }
    /// In elements.
    std::int64_t stride(int dim) const { return strides_[static_cast<std::size_t>(dim)]; }
    std::int64_t n_elements() const { return n_elements_; }
    bool is_dense() const { return is_dense_; }
    /// HALYARD_F32 … HALYARD_INT8, or 0 for another one.
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
    /// Throw: the shape, or dtype and shape, have to be what is said.
    [[noreturn]] void refuse_shape(const std::string &wanted) const;
    [[noreturn]] void refuse_kind(const std::string &wanted) const;
    /// Throws where the array may not be written.
    void require_writable() const;
    /// Adds all but where it lies.
    void add_to(Form &form) const {
        form.push_back(n_dims_ + 8 * (dtype_.code + 256 * dtype_.bits));
        form.insert(form.end(), shape_.begin(), shape_.begin() + n_dims_);
        form.insert(form.end(), strides_.begin(), strides_.begin() + n_dims_);
    }

private:
    void read(const dlpack::Tensor &tensor);
    void read_capsule(nb::handle capsule);
    template <typename Managed>
    Managed *take(nb::handle capsule, const char *used_name);

    std::string name_;
    nb::object owner_;
    std::unique_ptr<void, void (*)(void *)> memory_{nullptr, nullptr};  // a capsule's
    const dlpack::ExchangeApi *exchange_ = nullptr;
    std::int32_t device_;  // where it has to lie, then where it does
    void *data_ = nullptr;
    dlpack::Dtype dtype_{};
    int n_dims_ = 0;
    bool tells_flags_ = true, is_dense_ = true;
    std::uint64_t flags_ = 0;
    std::int64_t n_elements_ = 1;
    std::array<std::int64_t, max_dims> shape_{}, strides_{};
};

}  // namespace halyard::python
