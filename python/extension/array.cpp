#include "array.h"

#include "cuda.h"
#include "enum_names.h"

#include <nanobind/stl/string.h>

#include <iterator>
#include <string_view>

namespace halyard::python {
namespace {

/// Python strings and tuples that every call needs, made once.
struct Words {
    nb::object exchange = intern("__dlpack_c_exchange_api__"), dlpack = intern("__dlpack__"),
               requires_grad = intern("requires_grad"), is_neg = intern("is_neg"), level = intern("_current_level"),
               forward_mode = intern("torch.autograd.forward_ad"),
               version_keyword = nb::steal(Py_BuildValue("(s)", "max_version")),
               version = nb::steal(Py_BuildValue("(ii)", 1, 1));
};

const Words &python_constants() {
    static const Words *const once = new Words;  // never destroyed, because the interpreter may end before the process
    return *once;
}

/// What Halyard must know of an array's Python type: its DLPack exchange API or NULL, and whether it is PyTorch's.
struct Kind {
    nb::object type;
    const dlpack::ExchangeApi *exchange = nullptr;
    bool is_torch = false;

    Kind() = default;
    explicit Kind(nb::handle of) : type(nb::borrow(of)), is_torch(nb::hasattr(of, python_constants().is_neg)) {
        const nb::object capsule = nb::getattr(of, python_constants().exchange, nb::none());
        if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") != 0) {
            void *const held = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
            exchange = static_cast<const dlpack::ExchangeApi *>(held);
        }
        while (exchange != nullptr && (exchange->version.major > 1 || exchange->tensor_from_object == nullptr)) {
            exchange = exchange->previous;
        }
    }
};

/// The Kind of an object's type. It remembers two types, because calls may alternate between NumPy and PyTorch arrays.
Kind kind_of(nb::handle object) {
    static auto &[latest, other] = *new std::pair<Kind, Kind>;  // never destroyed, like python_constants()
    if (!latest.type.is(object.type())) {
        std::swap(latest, other);
        if (!latest.type.is(object.type())) {
            latest = Kind(object.type());
        }
    }
    return latest;
}

/// Calls __dlpack__ for DLPack 1.1, whose flags tell whether the memory may be written. If it raises, returns an
/// invalid object and leaves Python's error set.
nb::object call_dlpack(nb::handle object) {
    PyObject *arguments[] = {object.ptr(), python_constants().version.ptr()};
    auto capsule = nb::steal(PyObject_VectorcallMethod(python_constants().dlpack.ptr(), arguments,
                                                       1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                                       python_constants().version_keyword.ptr()));
    if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {  // a library without DLPack versions
        PyErr_Clear();
        capsule = nb::steal(PyObject_CallMethodObjArgs(object.ptr(), python_constants().dlpack.ptr(), nullptr));
    }
    return capsule;
}

/// The reason why Halyard must not read a PyTorch tensor: its memory is not its value (negative bit), or autograd would
/// not record what Halyard does with it. NULL if there is none. (PyTorch's __dlpack__ refuses requires_grad only.)
const char *find_torch_fault(nb::handle object) {
    static nb::handle forward_mode;  // torch.autograd.forward_ad once it is imported; never released
    if (!forward_mode.is_valid()) {
        forward_mode = PyImport_GetModule(python_constants().forward_mode.ptr());
    }
    if (nb::getattr(object, python_constants().requires_grad).is(Py_True)) {
        return " requires a gradient, which only halyard.torch follows: call that, or detach() it";
    }
    PyObject *const self = object.ptr();
    const auto negated = nb::steal(PyObject_VectorcallMethod(python_constants().is_neg.ptr(), &self, 1, nullptr));
    if (!negated.is_valid()) {
        PyErr_Clear();
    } else if (negated.is(Py_True)) {
        return " has PyTorch's negative bit, so that its memory holds other numbers: call resolve_neg() before";
    }
    if (forward_mode.is_valid() && nb::cast<int>(nb::getattr(forward_mode, python_constants().level)) >= 0 &&
        !forward_mode.attr("unpack_dual")(object).attr("tangent").is_none()) {
        return " has a tangent, which only halyard.torch follows: call that, or detach() it";
    }
    return nullptr;
}

std::string name_of(std::int32_t device) { return device == Array::on_cpu ? "the CPU" : text("CUDA device ", device); }

const KnownDtype *find_known(const dlpack::Dtype &dtype) {
    const auto *const found = std::find_if(std::begin(known_dtypes), std::end(known_dtypes),
                                           [&](const KnownDtype &known) { return known.dtype == dtype; });
    return found != std::end(known_dtypes) ? found : nullptr;
}

/// For a NumPy array with a dtype of ml_dtypes: returns a view of it as uint8 or uint16, which NumPy can export by
/// DLPack, and sets `dtype` to the array's own dtype. Returns an invalid object for any other array.
nb::object view_as_uint(nb::handle object, dlpack::Dtype &dtype) {
    if (type_of(object) != "numpy.ndarray") {
        return {};
    }
    const auto name = nb::cast<std::string>(object.attr("dtype").attr("name"));
    for (const auto &known : known_dtypes) {
        // NumPy itself exports the other dtypes.
        if (name == known.long_name && known.dtype.code >= dlpack::bfloat_code) {
            dtype = known.dtype;
            return object.attr("view")(dtype.bits == 16 ? "uint16" : "uint8");
        }
    }
    return {};
}

}  // namespace

Array::Array(nb::handle object, std::string name, std::int32_t device, bool checks_torch_state)
    : name_(std::move(name)), owner_(nb::borrow(object)), device_(device) {
    const auto kind = kind_of(object);
    if (const char *const fault = kind.is_torch && checks_torch_state ? find_torch_fault(object) : nullptr) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, fault);
    }
    exchange_ = kind.exchange;
    nb::object capsule;
    if (exchange_ != nullptr) {
        dlpack::Tensor tensor;
        if (exchange_->tensor_from_object(object.ptr(), &tensor) == 0) {
            read(tensor);
            return;
        }
    } else if (PyCapsule_CheckExact(object.ptr())) {
        capsule = nb::borrow(object);
    } else if (nb::hasattr(object, python_constants().dlpack)) {
        capsule = call_dlpack(object);
    } else {
        throw nb::type_error(
            text(name_, " is a ", type_of(object), ", not an array with __dlpack__ (as numpy.asarray makes one)")
                .c_str());
    }
    if (capsule.is_valid()) {
        read_capsule(capsule);
        return;
    }
    const nb::python_error refusal;
    dlpack::Dtype dtype;
    const auto viewed = exchange_ == nullptr ? view_as_uint(object, dtype) : nb::object();
    if (!viewed.is_valid()) {
        const std::string why = nb::str(refusal.value()).c_str();
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " cannot be read by DLPack: ",
               why.substr(0, why.find('\n')));  // PyTorch's messages go on with a stack trace
    }
    capsule = call_dlpack(viewed);
    if (!capsule.is_valid()) {
        throw nb::python_error();
    }
    read_capsule(capsule);
    dtype_ = dtype;
}

/// Takes the tensor out of a capsule. DLPack's rule: whoever renames the capsule to used_name must release its memory.
/// Returns NULL if the capsule's name is not used_name without "used_".
template <typename Managed>
Managed *Array::take(nb::handle capsule, const char *used_name) {
    const char *const name = used_name + std::string_view("used_").size();
    if (PyCapsule_IsValid(capsule.ptr(), name) == 0) {
        return nullptr;
    }
    auto *const found = static_cast<Managed *>(PyCapsule_GetPointer(capsule.ptr(), name));
    if constexpr (requires { found->version; }) {
        if (found->version.major > 1) {
            refuse(HALYARD_ERROR_UNSUPPORTED, name_, " comes by DLPack ", found->version.major,
                   ", but only 1 is understood");
        }
    }
    PyCapsule_SetName(capsule.ptr(), used_name);
    memory_ = {found, [](void *held) {
                   auto *const managed = static_cast<Managed *>(held);
                   if (managed->deleter != nullptr) {
                       managed->deleter(managed);
                   }
               }};
    return found;
}

void Array::read_capsule(nb::handle capsule) {
    if (const auto *found = take<dlpack::VersionedManagedTensor>(capsule, "used_dltensor_versioned")) {
        flags_ = found->flags;
        read(found->tensor);
    } else if (const auto *plain = take<dlpack::ManagedTensor>(capsule, "used_dltensor")) {
        tells_flags_ = false;
        read(plain->tensor);
    } else {
        const char *name = PyCapsule_CheckExact(capsule.ptr()) ? PyCapsule_GetName(capsule.ptr()) : nullptr;
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " is no DLPack capsule that can be read: its name is \"",
               name != nullptr ? name : "", "\"");
    }
}

void *Array::stream() const {
    void *found = nullptr;
    if (exchange_ == nullptr || exchange_->current_stream == nullptr) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " lies on ", name_of(device_),
               ", but its type has no __dlpack_c_exchange_api__ that tells a stream");
    }
    if (exchange_->current_stream(dlpack::cuda, device_, &found) != 0) {
        throw nb::python_error();
    }
    return found;
}

void Array::read(const dlpack::Tensor &tensor) {
    const auto [kind, number] = tensor.device;
    if (kind != dlpack::cpu && kind != dlpack::cuda_host && kind != dlpack::cuda) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " lies on a device of DLPack's type ", kind,
               ", which Halyard does not know");
    }
    const std::int32_t found = kind == dlpack::cuda ? number : on_cpu;
    if (device_ != anywhere && found != device_) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " lies on ", name_of(found), ", but has to lie on ", name_of(device_));
    }
    if (found != on_cpu && !has_cuda) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " lies on ", name_of(found),
               ", but this build of Halyard is for CPUs alone");
    }
    device_ = found;
    if (tensor.ndim < 0 || tensor.ndim > max_dims) {
        refuse(HALYARD_ERROR_SHAPE, name_, " has ", tensor.ndim, " dimensions, but at most ", max_dims, " are taken");
    }
    n_dims_ = tensor.ndim;
    dtype_ = tensor.dtype;
    for (int i = n_dims_; i-- > 0;) {
        const auto at = static_cast<std::size_t>(i);
        shape_[at] = tensor.shape[i];
        strides_[at] = tensor.strides != nullptr ? tensor.strides[i] : n_elements_;
        is_dense_ = is_dense_ && (shape_[at] == 1 || strides_[at] == n_elements_);
        n_elements_ *= shape_[at];
    }
    is_dense_ = is_dense_ || n_elements_ == 0;
    data_ = tensor.data == nullptr ? nullptr : static_cast<char *>(tensor.data) + tensor.byte_offset;
    if (data_ == nullptr && n_elements_ > 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " has no memory");
    }
}

std::int32_t Array::dtype() const {
    const auto *known = find_known(dtype_);
    return known != nullptr ? known->value : 0;
}

std::int32_t Array::index_type() const {
    if (!holds<std::int32_t>() && !holds<std::int64_t>()) {
        refuse(HALYARD_ERROR_MISMATCH, name_, " holds ", dtype_name(), ", but has to hold int32 or int64");
    }
    return dtype_.bits == 32 ? HALYARD_INT32 : HALYARD_INT64;
}

std::string Array::dtype_name() const {
    if (const auto *known = find_known(dtype_)) {
        return known->long_name;
    }
    if (dtype_.bits == 0) {
        return "a dtype that Halyard does not know";
    }
    static constexpr const char *codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    const int code = dtype_.code, bits = dtype_.bits;
    return code < int{std::size(codes)} ? text(codes[code], bits) : text("dtype ", code, " of ", bits);
}

std::string Array::shape_text() const {
    std::string sizes = "[";
    for (int i = 0; i < n_dims_; ++i) {
        sizes += text(i == 0 ? "" : ", ", size(i));
    }
    return sizes + "]";
}

void Array::refuse_shape(const std::string &wanted) const {
    refuse(HALYARD_ERROR_SHAPE, name_, " has the shape ", shape_text(), ", but has to be ", wanted);
}

void Array::refuse_kind(const std::string &wanted) const {
    refuse(HALYARD_ERROR_SHAPE, name_, " is ", kind_text(), ", but has to be ", wanted);
}

void Array::require_writable() const {
    // JAX arrays are immutable, but JAX's capsules have no flag that says so.
    const bool is_jax = !tells_flags_ && type_of(owner_).starts_with("jaxlib");
    if (is_jax || (flags_ & (dlpack::read_only | dlpack::is_copied)) != 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_,
               is_jax                              ? " is an array of JAX's, which"
               : (flags_ & dlpack::read_only) != 0 ? " is read-only, and"
                                                   : " comes as a copy by DLPack, and",
               " cannot be an output");
    }
}

}  // namespace halyard::python
