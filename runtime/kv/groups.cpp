#include "kv/groups.h"

#include "base/error.h"
#include "base/versioned.h"
#include "kv/scale.h"

#include <cstdio>

namespace halyard {

namespace {

using enum GroupScale;
using enum GroupRule;
using enum Packing;
constexpr Dtype int8 = Dtype::int8, uint8 = Dtype::uint8, e4m3 = Dtype::e4m3;
constexpr bool in_record = false, apart = true, even = false, away = true, by_largest = true;
constexpr float mla_floor = 1e-4f / 448.0f;  // of the largest magnitude 1e-4

/// In the order of HALYARD_GROUPS_…. Fields are in the order of GroupsDesc, and the last ones are left out where they
/// have its defaults: element, scale, group, floor, data and its stride, scales and their stride, …
constexpr GroupsDesc presets[] = {
    {int8, f16, 32, 0, 2, 34, 0, 34, in_record, even, by_largest},                      // GGML_Q8_0
    {int8, f16, 32, 0, 2, 34, 0, 34},                                                   // …_NEON
    {int8, f16, 32, 0, 2, 34, 0, 34, in_record, away},                                  // …_REFERENCE
    {uint8, f16, 32, 0, 2, 18, 0, 18, in_record, even, false, signed_largest, halves},  // GGML_Q4_0
    {int8, f32, 0, 1e-6f, 0, 0, 0, 4, apart, away},                                     // VLLM_INT8
    {e4m3, f32, 0, 1e-6f, 0, 0, 0, 4, apart},                                           // VLLM_FP8
    {uint8, f32, 0, 1e-4f, 8, 0, 0, 0, in_record, even, false, range, none, 4},         // OPENVINO_U8
    {uint8, f32, 0, 1e-4f, 8, 0, 0, 0, in_record, even, false, range, high_first, 4},   // OPENVINO_U4
    {e4m3, f32, 128, mla_floor, 0, 128, 512, 4, in_record, even, false, largest, none, 0, 64, 528, 576},  // MLA_V32
    {e4m3, power_up, 64, mla_floor, 0, 64, 0, 1, apart, even, false, largest, none, 0, 64, 448, 512},     // MLA_V4
    {e4m3, power_up, 32, mla_floor, 0, 32, 0, 1, apart, even, false, largest, none, 0, 0, 0, 512},        // MLA_V41
    {e4m3, power_ocp, 32, 0, 1, 33, 0, 33},                                                               // MX
};

}  // namespace

halyard_status read_preset(std::int32_t preset, const char *prefix, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept {
    if (preset < HALYARD_GROUPS_GGML_Q8_0 || preset > HALYARD_GROUPS_MX) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, prefix, "preset is ", preset,
                    preset == 0 ? ", not set, but must be " : ", but must be ", HALYARD_GROUPS_GGML_Q8_0, " to ",
                    HALYARD_GROUPS_MX);
    }
    GroupsDesc &groups = *out = presets[preset - 1];
    if (groups.head_dim != 0 && groups.head_dim != head_dim) {
        return fail(error, HALYARD_ERROR_SHAPE, prefix, "preset is ", preset, ", whose heads have ", groups.head_dim,
                    " elements, but head_dim is ", head_dim);
    }
    const std::int64_t divisor = groups.group != 0 ? groups.group : groups.is_4_bit() ? 2 : 1;
    if (groups.head_dim == 0 && head_dim % divisor != 0) {
        return fail(error, HALYARD_ERROR_SHAPE, prefix, "preset is ", preset, ", whose heads have a multiple of ",
                    divisor, " elements, but head_dim is ", head_dim);
    }
    groups.head_dim = head_dim;
    groups.n_grouped = head_dim - groups.n_raw;
    groups.group = groups.group != 0 ? groups.group : groups.n_grouped;
    groups.n_groups = groups.n_grouped / groups.group;
    groups.record_bytes = groups.n_raw != 0
                              ? groups.raw_offset + groups.n_raw * element_bytes(Dtype::bf16)
                              : groups.data_offset + (groups.n_groups - 1) * groups.data_stride + groups.data_bytes();
    return HALYARD_OK;
}

float GroupsDesc::greatest() const noexcept {
    switch (rule) {
    case GroupRule::signed_largest: return -8.0f;
    case GroupRule::range: return is_4_bit() ? 15.0f : 255.0f;
    case GroupRule::largest: break;
    }
    return greatest_of(element);
}

halyard_status read_groups(const halyard_groups_desc *groups, int index, const char *field, std::int64_t head_dim,
                           GroupsDesc *out, halyard_error *error) noexcept {
    char name[40], prefix[40];
    std::snprintf(name, sizeof(name), "tensors[%d].kv.%s", index, field);
    std::snprintf(prefix, sizeof(prefix), "tensors[%d].kv.%s.", index, field);
    halyard_groups_desc desc = {};
    HALYARD_TRY(read_struct(groups, name, &desc, error));
    HALYARD_TRY(read_preset(desc.preset, prefix, head_dim, out, error));
    out->strides = {desc.scales_stride_block, desc.scales_stride_token, desc.scales_stride_head};
    if (!out->scales_apart && !out->strides.are_zero()) {
        return fail(error, HALYARD_ERROR_MISMATCH, prefix, "scales_stride_… is set, but preset is ", desc.preset,
                    ", whose scales lie in the record");
    }
    return HALYARD_OK;
}

}  // namespace halyard
