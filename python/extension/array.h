// Arrays of any library that speaks DLPack, read without a copy.
#pragma once

#include "dlpack.h"
#include "refuse.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace halyard::python {

constexpr int max_dims = 6;

/// A dtype as NumPy and PyTorch call it, and as the C ABI does: HALYARD_F32 … HALYARD_INT8, or 0.
struct KnownDtype {
    const char *name;
    std::int32_t value;
    dlpack::Dtype dtype;
};
inline constexpr KnownDtype known_dtypes[] = {{"float32", HALYARD_F32, {dlpack::float_code, 32, 1}},
                                              {"float16", HALYARD_F16, {dlpack::float_code, 16, 1}},
                                              {"bfloat16", HALYARD_BF16, {dlpack::bfloat_code, 16, 1}},
                                              {"float8_e4m3fn", HALYARD_E4M3, {dlpack::e4m3fn_code, 8, 1}},
                                              {"float8_e5m2", HALYARD_E5M2, {dlpack::e5m2_code, 8, 1}},
                                              {"int8", HALYARD_INT8, {dlpack::int_code, 8, 1}},
                                              {"uint8", 0, {dlpack::uint_code, 8, 1}},
                                              {"int32", 0, {dlpack::int_code, 32, 1}},
                                              {"int64", 0, {dlpack::int_code, 64, 1}},
                                              {"float64", 0, {dlpack::float_code, 64, 1}}};

/// What tells calls apart: all that they say, but where their arrays lie.
using Form = std::vector<std::int64_t>;

/// One array, and its memory for as long as the object lives. Make and destroy it with the GIL held.
class Array {
public:
    static constexpr std::int32_t on_cpu = -1, anywhere = -2;  ///< beside the numbers of CUDA devices

    /// `name` is what messages call it. Takes what has __dlpack__ or __dlpack_c_exchange_api__ (NumPy, PyTorch,
    /// JAX), a DLPack capsule, which is used up, and NumPy's arrays of ml_dtypes. Throws TypeError for what is no
    /// array, and halyard::error for other devices than the one that is named, gradients and too many dimensions.
    Array(nanobind::handle object, std::string name, std::int32_t device = on_cpu, bool checks_marks = true);
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array();

    const std::string &name() const { return name_; }
    const nanobind::object &owner() const { return owner_; }
    void *data() const { return data_; }
    /// on_cpu, or the number of a CUDA device.
    std::int32_t device() const { return device_; }
    /// The stream on which the library that it comes from works there now; throws where it does not tell.
    void *stream() const;
    int n_dims() const { return n_dims_; }
    std::int64_t size(int dim) const { return shape_[static_cast<std::size_t>(dim)]; }
    /// In elements.
    std::int64_t stride(int dim) const { return strides_[static_cast<std::size_t>(dim)]; }
    std::int64_t n_elements() const;
    bool is_dense() const;
    /// HALYARD_F32 … HALYARD_INT8, or 0 for another one.
    std::int32_t dtype() const;
    /// HALYARD_INT32 or HALYARD_INT64; throws for other elements.
    std::int32_t index_type() const;
    bool is_uint8() const { return dtype_ == dlpack::Dtype{dlpack::uint_code, 8, 1}; }
    bool is_float64() const { return dtype_ == dlpack::Dtype{dlpack::float_code, 64, 1}; }
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
    void read_capsule(nanobind::handle capsule);

    std::string name_;
    nanobind::object owner_;
    dlpack::ManagedTensor *managed_ = nullptr;
    dlpack::VersionedManagedTensor *versioned_ = nullptr;
    const dlpack::ExchangeApi *exchange_ = nullptr;
    std::int32_t device_;  // where it has to lie, then where it does
    void *data_ = nullptr;
    dlpack::Dtype dtype_{};
    int n_dims_ = 0;
    std::uint64_t flags_ = 0;
    std::array<std::int64_t, max_dims> shape_{};
    std::array<std::int64_t, max_dims> strides_{};
};

}  // namespace halyard::python
