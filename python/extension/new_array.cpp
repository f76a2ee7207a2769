// halyard._core.new_array.
#include "array.h"
#include "module.h"
#include "names.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

namespace nb = nanobind;

namespace halyard::python {
namespace {

nb::dlpack::dtype describe(std::int32_t dtype) {
    switch (dtype) {
    case HALYARD_F32: return {dlpack::float_code, 32, 1};
    case HALYARD_F16: return {dlpack::float_code, 16, 1};
    case HALYARD_BF16: return {dlpack::bfloat_code, 16, 1};
    case HALYARD_E4M3: return {dlpack::e4m3fn_code, 8, 1};
    case HALYARD_E5M2: return {dlpack::e5m2_code, 8, 1};
    case HALYARD_UINT8: return {dlpack::uint_code, 8, 1};
    default: return {dlpack::int_code, 8, 1};
    }
}

/// Memory of the shape of another array, dense, that starts on a cache line: what has __dlpack__. `tail` takes the
/// place of the last dimension. The dtype is the array's, one by name, or uint8.
nb::object new_array(nb::handle like, std::optional<const char *> dtype, const char *name,
                     const std::optional<std::vector<std::int64_t>> &tail) {
    const Array array(like, name);
    const auto type = describe(!dtype ? array.dtype()  // another than ours is refused later
                               : std::string_view(*dtype) == "uint8" ? std::int32_t{HALYARD_UINT8}
                                                                     : value_of(dtypes, "dtype", *dtype));
    std::vector<std::size_t> shape;
    for (int i = 0; i < array.n_dims() - (tail ? 1 : 0); ++i) {
        shape.push_back(static_cast<std::size_t>(array.size(i)));
    }
    for (const auto size : tail.value_or(std::vector<std::int64_t>())) {
        shape.push_back(static_cast<std::size_t>(size));
    }
    constexpr std::size_t line = 64;
    auto n_bytes = static_cast<std::size_t>(type.bits) / 8;
    for (const auto size : shape) {
        n_bytes *= size;
    }
    void *memory = std::aligned_alloc(line, n_bytes / line * line + line);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    const nb::capsule owner(memory, [](void *data) noexcept { std::free(data); });
    return nb::cast(nb::ndarray<nb::array_api>(memory, shape.size(), shape.data(), owner, nullptr, type));
}

}  // namespace

void add_new_array(nb::module_ &module) {
    module.def("new_array", new_array, nb::arg("like"), nb::arg("dtype").none(), nb::arg("name"),
               nb::arg("tail") = nb::none());
}

}  // namespace halyard::python
