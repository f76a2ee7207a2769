// The extension module halyard._core, through which the package calls the C ABI. This file: version, targets, explain.
#include "array.h"
#include "cuda.h"
#include "enum_names.h"
#include "module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

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

using InAndOut = std::pair<std::string, std::string>;  // of the input and of the output
using Targets = std::pair<std::optional<const char *>, std::optional<const char *>>;  // target, max_target

std::string explain_rotation(const InAndOut &dtype, const InAndOut &pairing, std::int64_t head_dim,
                             std::int64_t rotary_dim, std::int64_t rotary_offset, bool inverse,
                             const Targets &targets) {
    auto tensor = make_struct<halyard_tensor_desc>();
    tensor.dtype = value_of(dtypes, "dtype", dtype.first);
    auto kv = make_struct<halyard_kv_desc>();
    tensor.kv = &kv;
    kv.out_dtype = value_of(dtypes, "out_dtype", dtype.second);
    tensor.pairing = value_of(pairings, "pairing", pairing.first);
    tensor.out_pairing = value_of(pairings, "out_pairing", pairing.second);
    tensor.head_dim = head_dim;
    tensor.rotary_offset = rotary_offset;
    plan_desc desc(rotary_dim, {tensor}, inverse ? direction::inverse : direction::forward);
    desc.target = targets.first.value_or(nullptr);
    desc.max_target = targets.second.value_or(nullptr);
    return explain(desc);
}

}  // namespace
}  // namespace halyard::python

NB_MODULE(_core, module) {
    using namespace halyard::python;
    nb::set_leak_warnings(false);  // other modules' caches may keep objects until the process ends
    module.attr("version") = halyard_version();
    module.attr("has_cuda") = has_cuda;
    nb::dict long_names;  // of dtypes in NumPy and PyTorch, by their names in Halyard
    for (const auto &known : known_dtypes) {
        long_names[known.name] = known.long_name;
    }
    module.attr("dtypes") = long_names;
    module.def("targets", list_targets);
    module.def("explain", explain_rotation, nb::arg("dtypes"), nb::arg("pairings"), nb::arg("head_dim"),
               nb::arg("rotary_dim"), nb::arg("rotary_offset"), nb::arg("inverse"), nb::arg("targets"));
    add_error(module);
    add_frequencies(module);
    add_angles(module);
    add_prepared(module);
    add_rotate(module);
}
