// halyard._core.new_array.
#include "array.h"
#include "module.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

namespace nb = nanobind;

namespace halyard::python {
namespace {

/// Memory of the shape of another array, dense, that starts on a cache line: what has __dlpack__. `tail` takes the
/// place of the last dimension. The dtype is the array's or one of known_dtypes.
nb::object new_array(nb::handle like, std::optional<const char *> dtype, const char *name,
                     const std::optional<std::vector<std::int64_t>> &tail) {
    const Array array(like, name);
    const auto *const known = std::find_if(std::begin(known_dtypes), std::end(known_dtypes), [&](const auto &each) {
        return dtype && std::string_view(*dtype) == each.name;
    });
    const auto &type = known != std::end(known_dtypes) ? known->dtype : array.stored();
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
    return nb::cast(nb::ndarray<nb::array_api>(memory, shape.size(), shape.data(), owner, nullptr,
                                               {type.code, type.bits, type.lanes}));
}

}  // namespace

void add_new_array(nb::module_ &module) {
    module.def("new_array", new_array, nb::arg("like"), nb::arg("dtype").none(), nb::arg("name"),
               nb::arg("tail") = nb::none());
}

}  // namespace halyard::python
