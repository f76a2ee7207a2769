#include "angles.h"

#include "module.h"
#include "names.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace halyard::python {
namespace {

template <typename Struct>
void append(std::string &key, const Struct &value) {
    key.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

template <typename Struct>
void append_if(std::string &key, const Struct *value) {
    key += value != nullptr ? '1' : '0';
    if (value != nullptr) {
        append(key, *value);
    }
}

}  // namespace

std::string key_of(const halyard_plan_desc &desc) {
    std::string key;
    key.reserve(512);
    append(key, desc.direction);
    append(key, desc.rotary_dim);
    append(key, desc.rerotates);
    key += desc.target != nullptr ? desc.target : "";
    key += '\0';
    for (std::int32_t i = 0; i < desc.n_tensors; ++i) {
        auto tensor = desc.tensors[i];
        append_if(key, tensor.norm);
        append_if(key, tensor.scale);
        append_if(key, tensor.cache);
        tensor.norm = nullptr;
        tensor.scale = nullptr;
        tensor.cache = nullptr;
        append(key, tensor);
    }
    return key;
}

namespace {

using AxisMap = std::pair<std::string, std::vector<std::int64_t>>;

std::unique_ptr<AngleSource> make(const frequencies &from, const std::string &kind, std::optional<std::int32_t> first,
                                  std::optional<std::int32_t> last, const std::string &reference,
                                  const std::optional<AxisMap> &map) {
    const auto info = from.info();
    auto desc =
        describe_angles(value_of(angle_kinds, "kind", kind), first.value_or(std::numeric_limits<std::int32_t>::min()),
                        last.value_or(std::numeric_limits<std::int32_t>::max()));
    if (desc.kind == HALYARD_ANGLES_GIVEN || desc.kind == HALYARD_ANGLES_JOINED) {
        refuse(HALYARD_ERROR_UNKNOWN_VALUE,
               "kind is \"" + kind + "\": AngleSource." + kind + " takes what such a source is made of");
    }
    desc.reference = value_of(references, "reference", reference);
    auto made = std::make_unique<AngleSource>();
    made->n_axes = info.n_axes == 0 ? 1 : info.n_axes;
    if (map) {
        const axis_map axes{value_of(axis_maps, "axis_map", map->first), map->second, {}};
        const auto mapped = describe_angles(desc.kind, axes, desc.first, desc.last);
        desc.axis_map = mapped.axis_map;
        desc.n_axes = mapped.n_axes;
        std::copy(std::begin(mapped.axis_counts), std::end(mapped.axis_counts), desc.axis_counts);
        made->n_axes = desc.n_axes == 0 ? 1 : desc.n_axes;
    }
    {
        nb::gil_scoped_release release;  // a table takes seconds
        made->source = angle_source(from, desc);
    }
    made->rotary_dim = info.rotary_dim;
    made->pairing = info.pairing;
    made->out_pairing = info.out_pairing;
    return made;
}

const Array &check_rows(const Array &rows, std::int64_t pairs) {
    if (rows.n_dims() != 2 || (rows.size(1) > 1 && rows.stride(1) != 1) ||
        (rows.size(1) != pairs && rows.size(1) != 2 * pairs)) {
        rows.refuse_shape("[positions, rotary_dim / 2] or [positions, rotary_dim], its last dimension dense");
    }
    return rows;
}

std::unique_ptr<AngleSource> given(nb::handle cos, nb::handle sin, std::int64_t rotary_dim, bool by_token) {
    auto made = std::make_unique<AngleSource>();
    made->cos = std::make_unique<Array>(cos, "cos");
    made->sin = std::make_unique<Array>(sin, "sin");
    check_rows(*made->cos, rotary_dim / 2);
    check_rows(*made->sin, rotary_dim / 2);
    if (made->cos->size(0) != made->sin->size(0) || made->cos->stride(0) != made->sin->stride(0) ||
        made->cos->dtype() != made->sin->dtype() || made->cos->dtype() == 0) {
        refuse(HALYARD_ERROR_MISMATCH,
               "cos is " + made->cos->dtype_name() + " " + made->cos->shape_text() + " and sin is " +
                   made->sin->dtype_name() + " " + made->sin->shape_text() +
                   ", but both have to have one shape, one stride, and one of float32, float16 and bfloat16");
    }
    const auto n_rows = made->cos->size(0), stride_row = n_rows > 1 ? made->cos->stride(0) : rotary_dim;
    made->source = angle_source::given(made->cos->data(), made->sin->data(), static_cast<dtype>(made->cos->dtype()),
                                       n_rows, stride_row, rotary_dim, by_token);
    made->rotary_dim = rotary_dim;
    return made;
}

/// `sources` is a list of AngleSource.
std::unique_ptr<AngleSource> joined(const nb::list &sources, nb::handle index, bool by_token) {
    auto made = std::make_unique<AngleSource>();
    made->index = std::make_unique<Array>(index, "index");
    const auto &numbers = *made->index;
    if (numbers.n_dims() != (by_token ? 2 : 1) || !numbers.is_dense() || numbers.index_type() != HALYARD_INT32) {
        numbers.refuse_kind(std::string("a dense int32 ") + (by_token ? "[batch, tokens]" : "[batch]"));
    }
    std::vector<const angle_source *> list;
    for (const nb::handle source : sources) {
        const auto &each = *nb::cast<AngleSource *>(source);
        const auto &first = *nb::cast<AngleSource *>(sources[0]);
        if (each.pairing != first.pairing || each.out_pairing != first.out_pairing) {
            refuse(HALYARD_ERROR_MISMATCH, "sources[" + std::to_string(list.size()) +
                                               "] is for other pairings than sources[0], so one call cannot take both");
        }
        made->rotary_dim = first.rotary_dim;
        made->pairing = first.pairing;
        made->out_pairing = first.out_pairing;
        made->n_axes = first.n_axes;
        made->sources.push_back(nb::borrow(source));
        list.push_back(&each.source);
    }
    made->source =
        angle_source::joined(list, static_cast<const std::int32_t *>(numbers.data()), numbers.n_elements(), by_token);
    return made;
}

}  // namespace

void add_angles(nb::module_ &module) {
    nb::class_<AngleSource>(module, "AngleSource")
        .def_static("make", make, nb::arg("frequencies"), nb::arg("kind"), nb::arg("first").none(),
                    nb::arg("last").none(), nb::arg("reference"), nb::arg("axis_map").none())
        .def_static("given", given)
        .def_static("joined", joined)
        .def_ro("rotary_dim", &AngleSource::rotary_dim)
        .def_ro("n_axes", &AngleSource::n_axes)
        .def_prop_ro("pairing", [](const AngleSource &self) { return name_or_none(pairings, self.pairing); })
        .def_prop_ro("out_pairing", [](const AngleSource &self) { return name_or_none(pairings, self.out_pairing); })
        .def_prop_ro("kind", [](const AngleSource &self) { return name_in(angle_kinds, self.source.info().kind); })
        .def_prop_ro("first", [](const AngleSource &self) { return self.source.info().first; })
        .def_prop_ro("last", [](const AngleSource &self) { return self.source.info().last; })
        .def_prop_ro("n_bytes", [](const AngleSource &self) { return self.source.info().bytes; });
}

}  // namespace halyard::python
