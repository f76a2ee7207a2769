// The class halyard._core.Frequencies.
#include "enum_names.h"
#include "errors.h"
#include "module.h"
#include "positions.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace halyard::python {
namespace {

frequencies from_list(const std::vector<double> &inv_freq, double attention_factor) {
    return frequencies::from_list(inv_freq.data(), static_cast<std::int64_t>(inv_freq.size()), attention_factor);
}

frequencies from_config(nb::bytes text, std::int64_t seq_len, std::optional<const char *> layer_type,
                        const std::optional<std::int64_t> &layer) {
    return frequencies::from_config(text.c_str(), static_cast<std::int64_t>(text.size()), seq_len,
                                    layer_type.value_or(nullptr), layer ? &*layer : nullptr);
}

/// The fields of halyard.Frequencies by name; None for unknown ones.
nb::dict get_fields(const frequencies &self) {
    const auto info = self.info();
    const auto known = [](auto number) { return number == 0 ? nb::none() : nb::cast(number); };
    nb::dict fields;
    fields["inv_freq"] = nb::tuple(nb::cast(std::vector<double>(info.inv_freq, info.inv_freq + info.rotary_dim / 2)));
    fields["attention_factor"] = info.attention_factor;
    fields["rotary_dim"] = info.rotary_dim;
    fields["head_dim"] = known(info.head_dim);
    fields["pairing"] = name_of(pairings, info.pairing);
    fields["out_pairing"] = name_of(pairings, info.out_pairing);
    fields["method"] = info.method;
    fields["base"] = known(info.base);
    fields["max_position"] = known(info.max_position);
    fields["original_max_position"] = known(info.original_max_position);
    fields["first_seq_len"] = info.first_seq_len;
    fields["last_seq_len"] = info.last_seq_len;
    fields["has_unrotated_layers"] = info.has_unrotated_layers != 0;
    fields["axis_map"] = nb::none();
    fields["q_scale"] = nb::none();  // or (rule, scale, length, shift, layers)
    if (info.axis_map == HALYARD_AXIS_MAP_SECTIONS || info.axis_map == HALYARD_AXIS_MAP_INTERLEAVED) {
        const std::vector<std::int64_t> counts(info.axis_counts, info.axis_counts + info.n_axes);
        fields["axis_map"] = nb::make_tuple(name_of(axis_maps, info.axis_map), nb::tuple(nb::cast(counts)));
    }
    if (info.q_scale_rule != HALYARD_Q_SCALE_NONE) {
        fields["q_scale"] = nb::make_tuple(info.q_scale_rule == HALYARD_Q_SCALE_LOG ? "log" : "power", info.q_scale,
                                           info.q_scale_length, info.q_scale_shift,
                                           info.q_scale_layers == HALYARD_LAYERS_ALL ? "all" : "unrotated");
    }
    return fields;
}

/// Fills in `out`, a float32 array of the shape of `positions`.
void position_scales(const frequencies &self, nb::handle positions, nb::handle out) {
    Positions read;
    const auto *const view = read.read("positions", positions, 1);
    const Array array(out, "out");
    const int n = array.n_dims();
    const auto n_batch = n == 2 ? array.size(0) : 1, n_tokens = array.size(n - 1);
    const auto scales = halyard::position_scales(self, view, n_batch, n_tokens);
    auto *const to = static_cast<float *>(array.data());
    for (std::int64_t i = 0; i < n_batch * n_tokens; ++i) {
        to[(n == 2 ? i / n_tokens * array.stride(0) : 0) + i % n_tokens * array.stride(n - 1)] =
            scales[static_cast<std::size_t>(i)];
    }
}

}  // namespace

void add_frequencies(nb::module_ &module) {
    nb::class_<frequencies>(module, "Frequencies")
        .def_static("from_base", &frequencies::from_base, nb::arg("base"), nb::arg("rotary_dim"))
        .def_static("from_list", from_list, nb::arg("inv_freq"), nb::arg("attention_factor"))
        .def_static("from_config", from_config, nb::arg("text"), nb::arg("seq_len"), nb::arg("layer_type").none(),
                    nb::arg("layer") = nb::none())
        .def("for_length", &frequencies::for_length, nb::arg("seq_len"))
        .def("get_fields", get_fields)
        .def("position_scales", position_scales, nb::arg("positions"), nb::arg("out"));
}

}  // namespace halyard::python
