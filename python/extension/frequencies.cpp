// halyard._core.Frequencies.
#include "module.h"
#include "names.h"
#include "refuse.h"
#include "tokens.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace halyard::python {
namespace {

frequencies from_list(const std::vector<double> &inv_freq, double attention_factor) {
    return frequencies::from_list(inv_freq.data(), static_cast<std::int64_t>(inv_freq.size()), attention_factor);
}

frequencies from_config(nb::bytes text, std::int64_t seq_len, const std::optional<std::string> &layer_type) {
    return frequencies::from_config(text.c_str(), static_cast<std::int64_t>(text.size()), seq_len,
                                    layer_type ? layer_type->c_str() : nullptr);
}

nb::tuple inv_freq(const frequencies &self) {
    const auto info = self.info();
    nb::list values;
    for (std::int64_t i = 0; i < info.rotary_dim / 2; ++i) {
        values.append(info.inv_freq[i]);
    }
    return nb::tuple(values);
}

using Info = halyard_frequencies_info;

template <auto field>
auto tell(const frequencies &self) {
    return self.info().*field;
}

/// The same where 0 stands for what is not known.
template <auto field>
auto tell_known(const frequencies &self) {
    const auto number = self.info().*field;
    return number == 0 ? std::nullopt : std::optional(number);
}

template <auto field>
auto tell_pairing(const frequencies &self) {
    return name_or_none(pairings, self.info().*field);
}

/// The axis map as (name, counts), or None where there is one axis.
nb::object axis_map(const frequencies &self) {
    const auto info = self.info();
    if (info.axis_map != HALYARD_AXIS_MAP_SECTIONS && info.axis_map != HALYARD_AXIS_MAP_INTERLEAVED) {
        return nb::none();
    }
    nb::list counts;
    for (std::int32_t i = 0; i < info.n_axes; ++i) {
        counts.append(info.axis_counts[i]);
    }
    return nb::make_tuple(name_in(axis_maps, info.axis_map), nb::tuple(counts));
}

/// What q is scaled by as (rule, scale, length, shift, layers), or None.
nb::object q_scale(const frequencies &self) {
    const auto info = self.info();
    if (info.q_scale_rule == HALYARD_Q_SCALE_NONE) {
        return nb::none();
    }
    return nb::make_tuple(info.q_scale_rule == HALYARD_Q_SCALE_LOG ? "log" : "power", info.q_scale, info.q_scale_length,
                          info.q_scale_shift, info.q_scale_layers == HALYARD_LAYERS_ALL ? "all" : "unrotated");
}

bool has_unrotated_layers(const frequencies &self) { return self.info().has_unrotated_layers != 0; }

/// Fills in a float32 array of the shape of positions.
void position_scales(const frequencies &self, nb::handle positions, nb::handle out) {
    Positions read;
    const auto *const view = read.read("positions", positions, 1);
    const Array array(out, "out");
    const int n = array.n_dims();
    const auto n_batch = n == 2 ? array.size(0) : 1, n_tokens = array.size(n - 1);
    const auto scales = self.position_scales(view, n_batch, n_tokens);
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
        .def_static("from_config", from_config, nb::arg("text"), nb::arg("seq_len"), nb::arg("layer_type").none())
        .def("for_length", &frequencies::for_length, nb::arg("seq_len"))
        .def_prop_ro("inv_freq", inv_freq)
        .def_prop_ro("attention_factor", tell<&Info::attention_factor>)
        .def_prop_ro("rotary_dim", tell<&Info::rotary_dim>)
        .def_prop_ro("head_dim", tell_known<&Info::head_dim>)
        .def_prop_ro("pairing", tell_pairing<&Info::pairing>)
        .def_prop_ro("out_pairing", tell_pairing<&Info::out_pairing>)
        .def_prop_ro("method", tell<&Info::method>)
        .def_prop_ro("base", tell_known<&Info::base>)
        .def_prop_ro("max_position", tell_known<&Info::max_position>)
        .def_prop_ro("original_max_position", tell_known<&Info::original_max_position>)
        .def_prop_ro("first_seq_len", tell<&Info::first_seq_len>)
        .def_prop_ro("last_seq_len", tell<&Info::last_seq_len>)
        .def_prop_ro("axis_map", axis_map)
        .def_prop_ro("q_scale", q_scale)
        .def_prop_ro("has_unrotated_layers", has_unrotated_layers)
        .def("position_scales", position_scales, nb::arg("positions"), nb::arg("out"));
}

}  // namespace halyard::python
