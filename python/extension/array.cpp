#include "array.h"

#include "cuda.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <iterator>

namespace nb = nanobind;

namespace halyard::python {
namespace {

/// Words that are looked up at each call, made once.
struct Words {
    nb::object exchange = intern("__dlpack_c_exchange_api__"), dlpack = intern("__dlpack__"),
               requires_grad = intern("requires_grad"), is_neg = intern("is_neg"), level = intern("_current_level"),
               forward_mode = intern("torch.autograd.forward_ad"),
               version_keyword = nb::steal(Py_BuildValue("(s)", "max_version")),
               version = nb::steal(Py_BuildValue("(ii)", 1, 1));

    static nb::object intern(const char *text) { return nb::steal(PyUnicode_InternFromString(text)); }
};

const Words &words() {
    static const Words *const once = new Words;  // lives as long as the process, as Python's objects may not outlive it
    return *once;
}

/// What a type of arrays has: DLPack's exchange API or NULL, and what only tensors of PyTorch's are marked with.
struct Kind {
    PyTypeObject *type = nullptr;
    const dlpack::ExchangeApi *exchange = nullptr;
    bool has_marks = false;

    Kind() = default;
    explicit Kind(PyTypeObject *of) : type(of), has_marks(PyObject_HasAttr(object(), words().is_neg.ptr()) != 0) {
        const auto capsule = nb::steal(PyObject_GetAttr(object(), words().exchange.ptr()));
        if (capsule.is_valid()) {
            void *const held = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
            exchange = static_cast<const dlpack::ExchangeApi *>(held);
        }
        PyErr_Clear();
        while (exchange != nullptr && (exchange->version.major > 1 || exchange->tensor_from_object == nullptr)) {
            exchange = exchange->previous;
        }
    }
    PyObject *object() const { return reinterpret_cast<PyObject *>(type); }
};

/// That of an object. Two types are remembered, and kept, because NumPy's and PyTorch's arrays come in turns.
Kind kind_of(nb::handle object) {
    static Kind latest, other;
    PyTypeObject *type = Py_TYPE(object.ptr());
    if (latest.type != type) {
        std::swap(latest, other);
        if (latest.type != type) {
            Py_XDECREF(latest.object());
            latest = Kind(type);
            Py_INCREF(latest.object());
        }
    }
    return latest;
}

/// What __dlpack__ returns, asked for the version that tells whether the memory may be written; invalid, with Python's
/// error set, where it raises.
nb::object call_dlpack(nb::handle object) {
    PyObject *arguments[] = {object.ptr(), words().version.ptr()};
    auto capsule = nb::steal(PyObject_VectorcallMethod(
        words().dlpack.ptr(), arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, words().version_keyword.ptr()));
    if (!capsule.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {  // from before there were versions
        PyErr_Clear();
        capsule = nb::steal(PyObject_CallMethodObjArgs(object.ptr(), words().dlpack.ptr(), nullptr));
    }
    return capsule;
}

/// A refusal in one sentence: PyTorch's go on with the calls that led there.
std::string first_line(const nb::python_error &refusal) {
    const std::string text = nb::str(refusal.value()).c_str();
    return text.substr(0, text.find('\n'));
}

/// Why the memory of a tensor of PyTorch's is not what it computes with, or what Halyard makes of it would be lost to
/// its derivatives; NULL where there is no such reason. (Its own __dlpack__ looks for gradients alone.)
const char *find_mark(nb::handle object) {
    static nb::handle forward_mode;  // lives as long as the process, once there is one
    if (!forward_mode.is_valid()) {
        forward_mode = PyImport_GetModule(words().forward_mode.ptr());
    }
    if (nb::getattr(object, words().requires_grad).is(Py_True)) {
        return " requires a gradient, which only halyard.torch follows: call that, or detach() it";
    }
    const auto negated = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), words().is_neg.ptr()));
    if (negated.is_valid() && negated.is(Py_True)) {
        return " has PyTorch's negative bit, so that its memory holds other numbers: call resolve_neg() before";
    }
    PyErr_Clear();
    if (forward_mode.is_valid() && nb::cast<int>(nb::getattr(forward_mode, words().level)) >= 0 &&
        !forward_mode.attr("unpack_dual")(object).attr("tangent").is_none()) {
        return " has a tangent, but Halyard has no forward-mode derivatives: detach() it";
    }
    return nullptr;
}

std::string name_of(std::int32_t device) {
    return device == Array::on_cpu ? "the CPU" : "CUDA device " + std::to_string(device);
}

/// NumPy's arrays of ml_dtypes as arrays of plain words, which DLPack knows, and what their elements are. An invalid
/// object for other ones.
nb::object view_as_words(nb::handle object, dlpack::Dtype &dtype) {
    if (type_of(object) != "numpy.ndarray") {
        return {};
    }
    const auto name = nb::cast<std::string>(object.attr("dtype").attr("name"));
    for (const auto &known : known_dtypes) {
        if (name == known.name && known.dtype.code >= dlpack::bfloat_code) {  // the others are NumPy's own
            dtype = known.dtype;
            return object.attr("view")(dtype.bits == 16 ? "uint16" : "uint8");
        }
    }
    return {};
}

const KnownDtype *find_known(const dlpack::Dtype &dtype) {
    const auto *const found = std::find_if(std::begin(known_dtypes), std::end(known_dtypes),
                                           [&](const KnownDtype &known) { return known.dtype == dtype; });
    return found != std::end(known_dtypes) ? found : nullptr;
}

}  // namespace

Array::Array(nb::handle object, std::string name, std::int32_t device, bool checks_marks)
    : name_(std::move(name)), owner_(nb::borrow(object)), device_(device) {
    const auto kind = kind_of(object);
    if (const char *const mark = kind.has_marks && checks_marks ? find_mark(object) : nullptr) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + mark);
    }
    if ((exchange_ = kind.exchange) != nullptr) {
        dlpack::Tensor tensor{};
        if (exchange_->tensor_from_object(object.ptr(), &tensor) != 0) {
            const nb::python_error refusal;
            refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " cannot be read by DLPack: " + first_line(refusal));
        }
        read(tensor);
        return;
    }
    if (PyCapsule_CheckExact(object.ptr())) {
        read_capsule(object);
        return;
    }
    if (PyObject_HasAttr(object.ptr(), words().dlpack.ptr()) == 0) {
        const std::string sentence =
            name_ + " is a " + type_of(object) + ", not an array with __dlpack__ (as numpy.asarray makes one)";
        throw nb::type_error(sentence.c_str());
    }
    auto capsule = call_dlpack(object);
    if (capsule.is_valid()) {
        read_capsule(capsule);
        return;
    }
    const nb::python_error refusal;
    dlpack::Dtype dtype;
    const auto viewed = view_as_words(object, dtype);
    if (!viewed.is_valid()) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " cannot be read by DLPack: " + first_line(refusal));
    }
    capsule = call_dlpack(viewed);
    if (!capsule.is_valid()) {
        throw nb::python_error();
    }
    read_capsule(capsule);
    dtype_ = dtype;
}

Array::~Array() {
    if (managed_ != nullptr && managed_->deleter != nullptr) {
        managed_->deleter(managed_);
    }
    if (versioned_ != nullptr && versioned_->deleter != nullptr) {
        versioned_->deleter(versioned_);
    }
}

void Array::read_capsule(nb::handle capsule) {
    // A capsule that is read is renamed: its memory is released by whoever read it.
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
        auto *found =
            static_cast<dlpack::VersionedManagedTensor *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
        if (found->version.major > 1) {
            refuse(HALYARD_ERROR_UNSUPPORTED,
                   name_ + " comes by DLPack " + std::to_string(found->version.major) + ", but only 1 is understood");
        }
        PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
        versioned_ = found;
        flags_ = found->flags;
        read(found->tensor);
    } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
        managed_ = static_cast<dlpack::ManagedTensor *>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
        PyCapsule_SetName(capsule.ptr(), "used_dltensor");
        read(managed_->tensor);
    } else {
        const char *found = PyCapsule_CheckExact(capsule.ptr()) ? PyCapsule_GetName(capsule.ptr()) : nullptr;
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " is no DLPack capsule that can be read: its name is \"" +
                                              (found != nullptr ? found : "") + "\"");
    }
}

void *Array::stream() const {
    void *found = nullptr;
    if (exchange_ == nullptr || exchange_->current_stream == nullptr) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " lies on " + name_of(device_) +
                                              ", but its type has no __dlpack_c_exchange_api__ that tells a stream");
    }
    if (exchange_->current_stream(dlpack::cuda, device_, &found) != 0) {
        throw nb::python_error();
    }
    return found;
}

void Array::read(const dlpack::Tensor &tensor) {
    if (tensor.device != dlpack::cpu && tensor.device != dlpack::cuda_host && tensor.device != dlpack::cuda) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " lies on a device of DLPack's type " +
                                              std::to_string(tensor.device) + ", which Halyard does not know");
    }
    const std::int32_t found = tensor.device == dlpack::cuda ? tensor.device_id : on_cpu;
    if (device_ != anywhere && found != device_) {
        refuse(HALYARD_ERROR_UNSUPPORTED,
               name_ + " lies on " + name_of(found) + ", but has to lie on " + name_of(device_));
    }
    if (found != on_cpu && !has_cuda()) {
        refuse(HALYARD_ERROR_UNSUPPORTED,
               name_ + " lies on " + name_of(found) + ", but this build of Halyard is for CPUs alone");
    }
    device_ = found;
    if (tensor.n_dims < 0 || tensor.n_dims > max_dims) {
        refuse(HALYARD_ERROR_SHAPE, name_ + " has " + std::to_string(tensor.n_dims) + " dimensions, but at most " +
                                        std::to_string(max_dims) + " are taken");
    }
    n_dims_ = tensor.n_dims;
    dtype_ = tensor.dtype;
    std::int64_t stride = 1;
    for (int i = n_dims_; i-- > 0;) {
        const auto at = static_cast<std::size_t>(i);
        shape_[at] = tensor.shape[i];
        strides_[at] = tensor.strides != nullptr ? tensor.strides[i] : stride;
        stride *= shape_[at];
    }
    data_ = tensor.data == nullptr ? nullptr : static_cast<char *>(tensor.data) + tensor.byte_offset;
    if (data_ == nullptr && n_elements() > 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " has no memory");
    }
}

std::int64_t Array::n_elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < n_dims_; ++i) {
        n *= size(i);
    }
    return n;
}

bool Array::is_dense() const {
    std::int64_t expected = 1;
    for (int i = n_dims_; i-- > 0;) {
        if (size(i) != 1 && stride(i) != expected) {
            return n_elements() == 0;
        }
        expected *= size(i);
    }
    return true;
}

std::int32_t Array::dtype() const {
    const auto *known = find_known(dtype_);
    return known != nullptr ? known->value : 0;
}

std::int32_t Array::index_type() const {
    if (dtype_.code != dlpack::int_code || dtype_.lanes != 1 || (dtype_.bits != 32 && dtype_.bits != 64)) {
        refuse(HALYARD_ERROR_MISMATCH, name_ + " holds " + dtype_name() + ", but has to hold int32 or int64");
    }
    return dtype_.bits == 32 ? HALYARD_INT32 : HALYARD_INT64;
}

std::string Array::dtype_name() const {
    if (const auto *known = find_known(dtype_)) {
        return known->name;
    }
    if (dtype_.bits == 0) {
        return "a dtype that Halyard does not know";
    }
    static constexpr const char *codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    const std::string code =
        dtype_.code < std::size(codes) ? codes[dtype_.code] : "dtype " + std::to_string(dtype_.code) + " of ";
    return code + std::to_string(dtype_.bits);
}

std::string Array::shape_text() const {
    std::string text = "[";
    for (int i = 0; i < n_dims_; ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(size(i));
    }
    return text + "]";
}

void Array::refuse_shape(const std::string &wanted) const {
    refuse(HALYARD_ERROR_SHAPE, name_ + " has the shape " + shape_text() + ", but has to be " + wanted);
}

void Array::refuse_kind(const std::string &wanted) const {
    refuse(HALYARD_ERROR_SHAPE, name_ + " is " + dtype_name() + " " + shape_text() + ", but has to be " + wanted);
}

void Array::require_writable() const {
    // JAX's arrays never change, but its capsules don't say so.
    if (managed_ != nullptr && type_of(owner_).rfind("jaxlib", 0) == 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " is an array of JAX's, which cannot be an output");
    }
    if ((flags_ & dlpack::read_only) != 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " is read-only, and cannot be an output");
    }
    if ((flags_ & dlpack::is_copied) != 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_ + " comes as a copy by DLPack, and cannot be an output");
    }
}

}  // namespace halyard::python
