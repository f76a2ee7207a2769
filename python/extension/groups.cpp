#include "groups.h"

#include "module.h"
#include "names.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace halyard::python {
namespace {

using Desc = halyard_groups_desc;

void read_word(nb::handle groups, const char *field, std::span<const Name> names, const std::string &name,
               std::int32_t &value) {
    const nb::object word = groups.attr(field);
    if (!word.is_none()) {
        value = value_of(names, (std::string(field) + " of " + name).c_str(), nb::cast<std::string>(word));
    }
}

/// The dtype of scales in arrays, which have E8M0 as bytes.
const char *dtype_of_scales(const Desc &groups) {
    static constexpr const char *names[] = {"f32", "f16", "bf16", "uint8", "uint8"};
    return names[groups.scale_dtype - 1];
}

/// (record_bytes, how many groups a head has, whether scales lie apart, their dtype in arrays)
nb::tuple resolve(nb::handle groups, std::int64_t head_dim, const std::string &name) {
    const auto desc = resolve_groups(read_groups(groups, name), head_dim, name);
    return nb::make_tuple(desc.record_bytes, desc.n_grouped / desc.group, desc.scales_apart != 0,
                          dtype_of_scales(desc));
}

std::int64_t find(nb::handle groups, nb::handle records, const std::string &name, const std::string &name_of_groups) {
    return find_head_dim(read_groups(groups, name_of_groups), Array(records, name, Array::anywhere), name_of_groups);
}

}  // namespace

halyard_groups_desc read_groups(nb::handle groups, const std::string &name) {
    auto desc = make_struct<Desc>();
    if (PyUnicode_Check(groups.ptr())) {
        desc.preset = value_of(words::presets, name.c_str(), nb::cast<std::string>(groups));
        return desc;
    }
    if (!nb::hasattr(groups, "scales_apart")) {
        throw nb::type_error(
            (name + " is a " + type_of(groups) + ", not a halyard.Groups or the name of a preset").c_str());
    }
    read_word(groups, "preset", words::presets, name, desc.preset);
    for (const auto &choice : words::choices) {
        read_word(groups, choice.name, choice.words, name, desc.*choice.field);
    }
    desc.floor = static_cast<float>(nb::cast<double>(groups.attr("floor")));
    for (const auto &[field, member] : words::sizes) {
        desc.*member = nb::cast<std::int64_t>(groups.attr(field));
    }
    desc.scales_apart = nb::cast<bool>(groups.attr("scales_apart")) ? 1 : 0;
    return desc;
}

halyard_groups_desc resolve_groups(const halyard_groups_desc &groups, std::int64_t head_dim, const std::string &name) {
    try {
        return halyard::resolve_groups(groups, head_dim);
    } catch (const error &refused) {
        std::string sentence = refused.what();
        constexpr std::string_view prefix = "groups->";
        if (sentence.rfind(prefix, 0) == 0) {
            sentence = name + ": " + sentence.substr(prefix.size());
        }
        refuse(refused.status(), sentence);
    }
}

std::int64_t find_head_dim(const halyard_groups_desc &groups, const Array &records, const std::string &name) {
    const int n = records.n_dims();
    const auto n_bytes = n > 0 ? records.size(n - 1) : 0;
    if (!records.is_uint8() || n == 0) {
        records.refuse_kind("uint8, the bytes of records, because of " + name);
    }
    const auto found = halyard::find_head_dim(groups, n_bytes);
    if (found == 0) {
        records.refuse_kind("as wide as a record by " + name + ": no head, or more than one, has one of " +
                            std::to_string(n_bytes) + " bytes");
    }
    return found;
}

bool HeadRows::fit(const Array &array, int n_more) const {
    const auto has = [&](int dim, std::int64_t size) { return dim < 0 || array.size(dim) == size; };
    const int n_dims = (block >= 0 ? 1 : 0) + 1 + (head >= 0 ? 1 : 0) + n_more;
    return array.n_dims() == n_dims && has(block, n_blocks) && has(token, n_tokens) && has(head, n_heads);
}

void HeadRows::set_strides(const Array &array, std::int64_t (&strides)[3]) const {
    const int dims[] = {block, token, head};
    for (std::size_t i = 0; i < 3; ++i) {
        strides[i] = dims[i] < 0 || array.size(dims[i]) <= 1 ? 0 : array.stride(dims[i]);
    }
}

void *read_group_scales(const Array &array, const HeadRows &rows, halyard_groups_desc &groups,
                        const std::string &wanted) {
    const auto n_groups = groups.n_grouped / groups.group;
    const int of_groups = n_groups > 1 ? array.n_dims() - 1 : -1;
    const bool is_byte = groups.scale_dtype >= HALYARD_GROUP_SCALE_E8M0_UP;
    const bool has_dtype = is_byte ? array.is_uint8() : array.dtype() == groups.scale_dtype;
    if (!has_dtype || !rows.fit(array, n_groups > 1 ? 1 : 0) || (of_groups >= 0 && array.size(of_groups) != n_groups)) {
        array.refuse_kind(std::string(is_byte ? "uint8" : dtype_of_scales(groups)) + " of " + wanted +
                          (n_groups > 1 ? ", and " + std::to_string(n_groups) + " groups" : ""));
    }
    const std::int64_t bytes = is_byte ? 1 : groups.scale_dtype == HALYARD_GROUP_SCALE_F32 ? 4 : 2;
    if (groups.scale_offset != 0 || (of_groups >= 0 && array.stride(of_groups) * bytes != groups.scale_stride)) {
        refuse(HALYARD_ERROR_STRIDE, array.name() + " has scales in steps of " +
                                         std::to_string(array.stride(of_groups) * bytes) +
                                         " bytes, but scale_stride is " + std::to_string(groups.scale_stride) +
                                         " and scale_offset " + std::to_string(groups.scale_offset));
    }
    std::int64_t strides[3];
    rows.set_strides(array, strides);
    groups.scales_stride_block = strides[0] * bytes;
    groups.scales_stride_token = strides[1] * bytes;
    groups.scales_stride_head = strides[2] * bytes;
    return array.data();
}

void add_groups(nb::module_ &module) {
    module.def("resolve_groups", resolve, nb::arg("groups"), nb::arg("head_dim"), nb::arg("name"));
    module.def("find_head_dim", find, nb::arg("groups"), nb::arg("records"), nb::arg("name"),
               nb::arg("name_of_groups"));
}

}  // namespace halyard::python
