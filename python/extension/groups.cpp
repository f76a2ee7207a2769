#include "groups.h"

#include "enum_names.h"

#include <nanobind/stl/string.h>

namespace halyard::python {

Groups::Groups(nb::handle groups, std::string called, std::int64_t n_elements, const Array *records)
    : name(std::move(called)), scales(groups.attr("scales")), head_dim(n_elements) {
    const nb::object preset = groups.attr("preset");
    if (!PyUnicode_Check(preset.ptr())) {
        throw nb::type_error(text(name, " is a ", type_of(preset), ", not the name of a preset").c_str());
    }
    desc = describe_groups(value_of(presets, name, nb::cast<std::string>(preset)));
    if (records == nullptr) {
        try {
            info = get_groups_info(desc.preset, head_dim);
        } catch (const error &refused) {
            refuse(refused.status(), name, ": ", refused.what());
        }
        return;
    }
    const int n = records->n_dims();
    if (!records->holds<std::uint8_t>() || n == 0) {
        records->refuse_kind("uint8, the bytes of records, because of " + name);
    }
    info = make_struct<halyard_groups_info>();
    for (head_dim = 1; head_dim <= 2048; ++head_dim) {
        if (halyard_get_groups_info(desc.preset, head_dim, &info, nullptr) == HALYARD_OK &&
            info.record_bytes == records->size(n - 1)) {
            return;
        }
    }
    records->refuse_kind(
        text("as wide as a record by ", name, ": no head has one of ", records->size(n - 1), " bytes"));
}

bool Groups::needs_scales() const {
    const bool is_apart = info.scales_apart != 0;
    if (scales.is_none() == is_apart) {
        refuse(HALYARD_ERROR_MISMATCH, "scales of ", name,
               is_apart ? " are None, but it has its" : " are given, but it has no", " scales apart");
    }
    return is_apart;
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

void *Groups::read_scales(const Array &array, const HeadRows &rows, const std::string &wanted) {
    const auto n_groups = info.n_groups, bytes = info.scale_stride;
    const int of_groups = n_groups > 1 ? array.n_dims() - 1 : -1;
    const bool has_dtype = has_powers() ? array.holds<std::uint8_t>() : array.holds<float>();
    if (!has_dtype || !rows.fit(array, n_groups > 1 ? 1 : 0) || (of_groups >= 0 && array.size(of_groups) != n_groups)) {
        array.refuse_kind(text(has_powers() ? "uint8" : "f32", " of ", wanted) +
                          (n_groups > 1 ? text(", and ", n_groups, " groups") : ""));
    }
    if (of_groups >= 0 && array.stride(of_groups) != 1) {
        refuse(HALYARD_ERROR_STRIDE, array.name(), " has scales in steps of ", array.stride(of_groups),
               ", but those of a head are dense");
    }
    std::int64_t strides[3];
    rows.set_strides(array, strides);
    desc.scales_stride_block = strides[0] * bytes;
    desc.scales_stride_token = strides[1] * bytes;
    desc.scales_stride_head = strides[2] * bytes;
    return array.data();
}

}  // namespace halyard::python
