#include "library.h"

#include "gpu.h"
#include "names.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <string>

namespace nb = nanobind;

namespace halyard::python {
namespace {

nb::list list_targets() {
    nb::list result;
    for (const auto &info : targets()) {
        result.append(
            nb::make_tuple(info.name, info.isa, info.built != 0, info.supported != 0, info.active != 0, info.reason));
    }
    return result;
}

std::string explain_rotation(const std::string &dtype, const std::string &out_dtype, std::int64_t head_dim,
                             std::int64_t rotary_dim, std::int64_t rotary_offset, const std::string &pairing,
                             const std::string &out_pairing, bool inverse, std::optional<const char *> target,
                             std::optional<const char *> max_target) {
    auto tensor = make_struct<halyard_tensor_desc>();
    tensor.dtype = value_of(dtypes, "dtype", dtype);
    tensor.out_dtype = value_of(dtypes, "out_dtype", out_dtype);
    tensor.pairing = value_of(pairings, "pairing", pairing);
    tensor.out_pairing = value_of(pairings, "out_pairing", out_pairing);
    tensor.head_dim = head_dim;
    tensor.rotary_offset = rotary_offset;
    plan_desc desc(rotary_dim, {tensor}, inverse ? direction::inverse : direction::forward);
    desc.target = target.value_or(nullptr);
    desc.max_target = max_target.value_or(nullptr);
    return explain(desc);
}

}  // namespace

void add_library(nb::module_ &module) {
    module.attr("version") = version();
    module.attr("has_gpu") = has_gpu();
    module.def("targets", list_targets);
    module.def("explain", explain_rotation, nb::arg("dtype"), nb::arg("out_dtype"), nb::arg("head_dim"),
               nb::arg("rotary_dim"), nb::arg("rotary_offset"), nb::arg("pairing"), nb::arg("out_pairing"),
               nb::arg("inverse"), nb::arg("target").none(), nb::arg("max_target").none());
}

}  // namespace halyard::python
