#include "angles.h"

#include "enum_names.h"
#include "module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

namespace halyard::python {

std::string key_of(const halyard_plan_desc &desc) {
    std::string key;
    key.reserve(512);
    const auto add = [&](const auto &value) { key.append(reinterpret_cast<const char *>(&value), sizeof(value)); };
    const auto take = [&](const auto *&pointer) {  // adds *pointer, or that it is NULL, and clears the pointer
        add(pointer != nullptr);
        if (pointer != nullptr) {
            add(*pointer);
        }
        pointer = nullptr;
    };
    add(desc.direction);
    add(desc.rotary_dim);
    add(desc.rerotates);
    key += desc.target != nullptr ? desc.target : "";
    key += '\0';
    for (std::int32_t i = 0; i < desc.n_tensors; ++i) {
        auto tensor = desc.tensors[i];
        auto kv = *tensor.kv;
        tensor.kv = nullptr;
        take(kv.norm);
        take(kv.scale);
        take(kv.cache);
        take(kv.groups);
        take(kv.from_groups);
        add(kv);
        add(tensor);
    }
    return key;
}

namespace {

using AxisMap = std::pair<std::string, std::vector<std::int64_t>>;

/// Sets the axis map of a description, and returns the number of axes.
std::int64_t set_axes(const AxisMap &map, halyard_angle_source_desc &desc) {
    desc.axis_map = value_of(axis_maps, "axis_map", map.first);
    desc.n_axes = static_cast<std::int32_t>(map.second.size());  // the library refuses too many
    std::copy_n(map.second.begin(), std::min<std::size_t>(map.second.size(), HALYARD_MAX_AXES), desc.axis_counts);
    return desc.n_axes == 0 ? 1 : desc.n_axes;
}

std::unique_ptr<AngleSource> make(const frequencies &from, const std::string &kind, std::optional<std::int32_t> first,
                                  std::optional<std::int64_t> n_positions, const std::string &reference,
                                  const std::optional<AxisMap> &map) {
    const auto info = from.info();
    auto desc = describe_angles(value_of(angle_kinds, "kind", kind));
    if (first || n_positions) {
        desc.first = first.value_or(0);
        desc.n_positions = n_positions.value_or((std::int64_t{1} << 31) - desc.first);
    }
    if (desc.kind == HALYARD_ANGLES_GIVEN) {
        refuse(HALYARD_ERROR_UNKNOWN_VALUE, "kind is \"given\": AngleSource.given takes what such a source is made of");
    }
    desc.reference = value_of(references, "reference", reference);
    auto made = std::make_unique<AngleSource>();
    made->n_axes = map ? set_axes(*map, desc) : info.n_axes == 0 ? 1 : info.n_axes;
    {
        nb::gil_scoped_release release;  // a table can take seconds
        made->angles->source = angle_source(from, desc);
    }
    made->rotary_dim = info.rotary_dim;
    made->pairing = info.pairing;
    made->out_pairing = info.out_pairing;
    return made;
}

std::unique_ptr<AngleSource> given(nb::handle cos, nb::handle sin, std::int64_t rotary_dim, bool by_token,
                                   const std::optional<AxisMap> &map) {
    auto made = std::make_unique<AngleSource>();
    const auto &of_cos = *(made->angles->cos = std::make_unique<Array>(cos, "cos"));
    const auto &of_sin = *(made->angles->sin = std::make_unique<Array>(sin, "sin"));
    for (const auto *rows : {&of_cos, &of_sin}) {
        if (rows->n_dims() != 2 || (rows->size(1) > 1 && rows->stride(1) != 1) ||
            (rows->size(1) != rotary_dim / 2 && rows->size(1) != rotary_dim)) {
            rows->refuse_shape("[positions, rotary_dim / 2], or of rotary_dim, its last dimension dense");
        }
    }
    if (of_cos.dtype() == 0 || of_cos.dtype() != of_sin.dtype() || of_cos.size(0) != of_sin.size(0) ||
        of_cos.stride(0) != of_sin.stride(0)) {
        refuse(HALYARD_ERROR_MISMATCH, "cos is ", of_cos.kind_text(), " and sin is ", of_sin.kind_text(),
               ", but both have to have one shape, one stride, and one of float32, float16 and bfloat16");
    }
    const auto n_rows = of_cos.size(0), stride_row = n_rows > 1 ? of_cos.stride(0) : rotary_dim;
    auto desc = angle_source::describe_rows(of_cos.data(), of_sin.data(), static_cast<dtype>(of_cos.dtype()), n_rows,
                                            stride_row, rotary_dim);
    desc.by_token = by_token ? 1 : 0;
    made->n_axes = map ? set_axes(*map, desc) : 1;
    made->angles->source = angle_source::given(desc);
    made->rotary_dim = rotary_dim;
    made->by_token = by_token;
    return made;
}

/// The numbers of a float32 or float64 matrix as dense float64.
std::vector<double> read_reals(const Array &matrix) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < matrix.n_elements(); ++i) {
        const auto at = i / matrix.size(1) * matrix.stride(0) + i % matrix.size(1) * matrix.stride(1);
        numbers.push_back(matrix.holds<double>() ? static_cast<const double *>(matrix.data())[at]
                                                 : double{static_cast<const float *>(matrix.data())[at]});
    }
    return numbers;
}

std::unique_ptr<AngleSource> linear(nb::handle positions, nb::handle matrix, double attention_factor) {
    const Array at(positions, "positions"), by(matrix, "matrix");
    const auto is_real = [](const Array &array) { return array.holds<double>() || array.holds<float>(); };
    const bool has_batch = at.n_dims() == 3;
    if (!is_real(at) || (at.n_dims() != 2 && !has_batch)) {
        at.refuse_kind("float32 or float64 [axes, tokens] or [axes, batch, tokens]");
    }
    if (!is_real(by) || by.n_dims() != 2 || by.size(0) != at.size(0)) {
        by.refuse_kind(text("float32 or float64 [axes, pairs], with ", at.size(0), " axes as positions have"));
    }
    const auto numbers = read_reals(by);
    auto angles = make_struct<halyard_linear_angles>();
    angles.type = at.holds<double>() ? HALYARD_REAL64 : HALYARD_REAL32;
    angles.n_axes = static_cast<std::int32_t>(std::min<std::int64_t>(at.size(0), std::numeric_limits<int>::max()));
    angles.positions = at.data();
    angles.stride_axis = at.stride(0);
    angles.stride_batch = has_batch ? at.stride(1) : 0;
    angles.stride_token = at.stride(has_batch ? 2 : 1);
    angles.matrix = numbers.data();
    angles.attention_factor = attention_factor;
    if (numbers.empty() || at.n_elements() == 0 || attention_factor == 0) {
        refuse(attention_factor == 0 ? HALYARD_ERROR_FREQUENCY : HALYARD_ERROR_SHAPE, "positions are ", at.shape_text(),
               ", the matrix ", by.shape_text(), " and attention_factor ", attention_factor,
               ", but none may be empty or 0");
    }
    auto made = std::make_unique<AngleSource>();
    made->rotary_dim = 2 * by.size(1);
    const auto n_batch = has_batch ? at.size(1) : 1, n_tokens = at.size(has_batch ? 2 : 1);
    const auto n_floats = n_batch * n_tokens * made->rotary_dim;
    made->angles->rows = std::make_unique<float[]>(static_cast<std::size_t>(n_floats));
    {
        nb::gil_scoped_release release;
        const plan maker(plan_desc(made->rotary_dim, {describe_tensor(dtype::f32, made->rotary_dim, pairing::half)}));
        make_rows(maker, angles, {n_batch, n_tokens}, made->angles->rows.get(), n_floats);
    }
    made->by_token = true;
    made->angles->source =
        angle_source::given_by_token(made->angles->rows.get(), n_batch * n_tokens, made->rotary_dim, !has_batch);
    return made;
}

}  // namespace

void add_angles(nb::module_ &module) {
    nb::class_<AngleSource>(module, "AngleSource", nb::is_weak_referenceable())
        .def_static("make", make, nb::arg("frequencies"), nb::arg("kind"), nb::arg("first").none(),
                    nb::arg("n_positions").none(), nb::arg("reference"), nb::arg("axis_map").none())
        .def_static("given", given, nb::arg("cos"), nb::arg("sin"), nb::arg("rotary_dim"), nb::arg("by_token"),
                    nb::arg("axis_map").none() = nb::none())
        .def_static("linear", linear, nb::arg("positions"), nb::arg("matrix"), nb::arg("attention_factor"))
        .def_ro("rotary_dim", &AngleSource::rotary_dim)
        .def_ro("by_token", &AngleSource::by_token)
        .def_ro("n_axes", &AngleSource::n_axes)
        .def_prop_ro("pairing", [](const AngleSource &self) { return name_of(pairings, self.pairing); })
        .def_prop_ro("out_pairing", [](const AngleSource &self) { return name_of(pairings, self.out_pairing); })
        .def_prop_ro("kind", [](const AngleSource &self) { return name_of(angle_kinds, self.source().info().kind); })
        .def_prop_ro("first", [](const AngleSource &self) { return self.source().info().first; })
        .def_prop_ro("last", [](const AngleSource &self) { return self.source().info().last; })
        .def_prop_ro("n_bytes", [](const AngleSource &self) { return self.source().info().bytes; });
}

}  // namespace halyard::python
