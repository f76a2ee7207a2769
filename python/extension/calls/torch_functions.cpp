#include "calls/torch_functions.h"

#include <dlfcn.h>

namespace halyard::python::torch {
namespace {

template <typename Function>
Function find(void *library, const std::string &name) {
    void *const found = dlsym(library, name.c_str());
    if (found == nullptr) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "this PyTorch has no " + name + ": halyard.torch takes 2.13 or newer");
    }
    return reinterpret_cast<Function>(found);
}

}  // namespace

Functions find_functions(const char *path) {
    void *const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "PyTorch has not loaded " + std::string(path) +
                                              ", where halyard.torch looks for the functions of its C ABI");
    }
    Functions functions{};
    const auto set = [&](auto &function, const char *name) {
        function = find<std::remove_reference_t<decltype(function)>>(library, name);
    };
    set(functions.init_library, "aoti_torch_library_init_impl");
    set(functions.implement, "torch_library_impl");
    set(functions.get_data, "aoti_torch_get_data_ptr");
    set(functions.get_n_dims, "aoti_torch_get_dim");
    set(functions.get_shape, "aoti_torch_get_sizes");
    set(functions.get_strides, "aoti_torch_get_strides");
    set(functions.get_dtype, "aoti_torch_get_dtype");
    set(functions.make_tensor, "aoti_torch_empty_strided");
    set(functions.delete_tensor, "aoti_torch_delete_tensor_object");
    set(functions.get_length, "torch_string_length");
    set(functions.get_characters, "torch_string_c_str");
    set(functions.delete_text, "torch_delete_string");
    set(functions.delete_value, "torch_delete_stable_ivalue");
    set(functions.follows_gradients, "aoti_torch_grad_mode_is_enabled");
    set(functions.check, "aoti_torch_check");
    const auto number = [&](const std::string &name) {
        return find<std::int32_t (*)()>(library, "aoti_torch_" + name)();
    };
    functions.cpu = number("device_type_cpu");
    for (const auto &known : known_dtypes) {
        functions.dtypes.emplace_back(number(std::string("dtype_") + known.name), known.dtype);
    }
    return functions;
}

dlpack::Dtype Functions::dtype_of(std::int32_t number) const {
    for (const auto &[known, dtype] : dtypes) {
        if (known == number) {
            return dtype;
        }
    }
    return {};
}

}  // namespace halyard::python::torch
