#include "groups.h"

#include "names.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace halyard::python {
namespace {

std::int32_t read_preset(nb::handle groups, const std::string &name) {
    if (!PyUnicode_Check(groups.ptr())) {
        throw nb::type_error((name + " is a " + type_of(groups) + ", not the name of a preset").c_str());
    }
    return value_of(presets, name.c_str(), nb::cast<std::string>(groups));
}

}  // namespace

Groups::Groups(nb::handle groups, std::int64_t head_dim, const std::string &name)
    : desc(describe_groups(read_preset(groups, name))) {
    try {
        info = get_groups_info(desc.preset, head_dim);
    } catch (const error &refused) {
        refuse(refused.status(), name + ": " + refused.what());
    }
}

bool Groups::needs_scales(nb::handle scales, const std::string &name) const {
    const bool is_apart = info.scales_apart != 0;
    if (scales.is_none() == is_apart) {
        refuse(HALYARD_ERROR_MISMATCH, "scales of " + name +
                                           (is_apart ? " are None, but it has its" : " are given, but it has no") +
                                           " scales apart");
    }
    return is_apart;
}

std::int64_t find_head_dim(nb::handle groups, const Array &records, const std::string &name) {
    const auto preset = read_preset(groups, name);
    const int n = records.n_dims();
    const auto n_bytes = n > 0 ? records.size(n - 1) : 0;
    if (!records.is_uint8() || n == 0) {
        records.refuse_kind("uint8, the bytes of records, because of " + name);
    }
    auto info = make_struct<halyard_groups_info>();
    for (std::int64_t head_dim = 1; head_dim <= 2048; ++head_dim) {
        if (halyard_get_groups_info(preset, head_dim, &info, nullptr) == HALYARD_OK && info.record_bytes == n_bytes) {
            return head_dim;
        }
    }
    records.refuse_kind("as wide as a record by " + name + ": no head has one of " + std::to_string(n_bytes) +
                        " bytes");
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

void *read_group_scales(const Array &array, const HeadRows &rows, Groups &groups, const std::string &wanted) {
    const auto n_groups = groups.info.n_groups, bytes = groups.info.scale_stride;
    const int of_groups = n_groups > 1 ? array.n_dims() - 1 : -1;
    const bool has_dtype = groups.has_powers() ? array.is_uint8() : array.dtype() == HALYARD_F32;
    if (!has_dtype || !rows.fit(array, n_groups > 1 ? 1 : 0) || (of_groups >= 0 && array.size(of_groups) != n_groups)) {
        array.refuse_kind(std::string(groups.has_powers() ? "uint8" : "f32") + " of " + wanted +
                          (n_groups > 1 ? ", and " + std::to_string(n_groups) + " groups" : ""));
    }
    if (of_groups >= 0 && array.stride(of_groups) != 1) {
        refuse(HALYARD_ERROR_STRIDE, array.name() + " has scales in steps of " +
                                         std::to_string(array.stride(of_groups)) + ", but those of a head are dense");
    }
    std::int64_t strides[3];
    rows.set_strides(array, strides);
    groups.desc.scales_stride_block = strides[0] * bytes;
    groups.desc.scales_stride_token = strides[1] * bytes;
    groups.desc.scales_stride_head = strides[2] * bytes;
    return array.data();
}

}  // namespace halyard::python
