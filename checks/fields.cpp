#include "checks/fields.h"

#include <cstddef>
#include <sstream>
#include <type_traits>

namespace fields {

namespace {

using enum Kind;

template <typename Member>
Field field(const char *name, std::size_t offset, Kind kind, std::int64_t value, std::int64_t last = 0,
            const Struct *to = nullptr) {
    using Element = std::remove_all_extents_t<Member>;
    return {
        name, offset, sizeof(Element), sizeof(Member) / sizeof(Element), std::is_floating_point_v<Element>, kind, value,
        last, to};
}
template <typename Member>
Field field(const char *name, std::size_t offset, Kind kind) {
    return field<Member>(name, offset, kind, kind == data ? 1 : HALYARD_ERROR_SHAPE);
}
template <typename Member>
Field field(const char *name, std::size_t offset, Kind kind, const Struct &to) {
    return field<Member>(name, offset, kind, 0, 0, &to);
}

}  // namespace

// A row is a field's name, its kind, and the values that Field has for this kind.
#define F(name, ...) field<decltype(S::name)>(#name, offsetof(S, name), __VA_ARGS__)
#define STRUCT(type, ...)                                                                                              \
    template <>                                                                                                        \
    const Struct &of<type>() {                                                                                         \
        using S = type;                                                                                                \
        static const Struct table = {#type, sizeof(S), {F(size, Kind::size), __VA_ARGS__}};                            \
        return table;                                                                                                  \
    }

// ---- Angles --------------------------------------------------------------------------------------------------------

STRUCT(halyard_positions, F(type, choice, 0, 1), F(consecutive, choice, 0, 1), F(data, data), F(shape, shape),
       F(strides, stride), F(n_axes, count), F(stride_axis, number))
STRUCT(halyard_angle_source_desc, F(kind, choice, 0, 3), F(reference, choice, 0, 1), F(first, number),
       F(n_positions, count, HALYARD_ERROR_POSITION), F(cos_rows, data), F(sin_rows, data), F(n_rows, count),
       F(stride_row, count), F(rotary_dim, count, HALYARD_ERROR_ROTARY_DIM), F(rows_dtype, choice, 0, 3),
       F(by_token, choice, 0, 2), F(axis_map, choice, 0, 4), F(n_axes, count), F(axis_counts, shape),
       F(axis_of_pair, option))

// ---- Plans ---------------------------------------------------------------------------------------------------------

STRUCT(halyard_norm_desc, F(kind, choice, 0, 1), F(width, choice, 0, 1), F(order, choice, 0, 1),
       F(weight_dtype, choice, 0, 3), F(unit_offset, choice, 0, 1), F(rounding, choice, 0, 3), F(no_eps, choice, 0, 1),
       F(eps, real, HALYARD_ERROR_SCALE), F(window_offset, count, HALYARD_ERROR_WINDOW),
       F(window_size, count, HALYARD_ERROR_WINDOW), F(has_bias, choice, 0, 1), F(weight_per_head, choice, 0, 1))
STRUCT(halyard_scale_desc, F(kind, choice, 0, 1), F(per, choice, 0, 1), F(reserved, reserved))
STRUCT(halyard_groups_desc, F(preset, choice, 1, HALYARD_GROUPS_MX), F(scales_stride_block, number),
       F(scales_stride_token, number), F(scales_stride_head, number))
STRUCT(halyard_cache_desc, F(reserved, reserved), F(n_slots, count), F(block_size, count), F(stride_block, number),
       F(stride_head, number), F(tile_tokens, count), F(stride_tile_tokens, count), F(stride_token, count),
       F(tile_elements, count), F(stride_tile_elements, count), F(stride_element, count))
STRUCT(halyard_kv_desc, F(no_rotation, choice, 0, 1), F(from_groups, link_option, of<halyard_groups_desc>()),
       F(norm, link_option, of<halyard_norm_desc>()), F(position_scales, choice, 0, 1), F(hadamard, count),
       F(scale, link_option, of<halyard_scale_desc>()), F(groups, link_option, of<halyard_groups_desc>()),
       F(out_dtype, choice, 0, HALYARD_UINT8), F(reserved, reserved), F(cache, link_option, of<halyard_cache_desc>()))
STRUCT(halyard_tensor_desc, F(dtype, choice, 0, HALYARD_UINT8), F(pairing, choice, 0, 2), F(out_pairing, choice, 0, 2),
       F(head_dim, count), F(rotary_offset, count, HALYARD_ERROR_WINDOW), F(kv, link_option, of<halyard_kv_desc>()))
STRUCT(halyard_plan_desc, F(direction, choice, 0, 1), F(rotary_dim, count, HALYARD_ERROR_ROTARY_DIM),
       F(frequencies, option), F(n_tensors, count), F(rerotates, choice, 0, 1),
       F(tensors, links, of<halyard_tensor_desc>()), F(target, option), F(max_target, option))

// ---- Runs ----------------------------------------------------------------------------------------------------------

STRUCT(halyard_linear_angles, F(type, choice, 2, 3), F(n_axes, count), F(reserved, reserved), F(positions, data),
       F(stride_axis, stride), F(stride_batch, stride), F(stride_token, stride), F(matrix, data),
       F(attention_factor, real, HALYARD_ERROR_FREQUENCY))
STRUCT(halyard_rows_args, F(bad_position, choice, 0, 2), F(angles, object),
       F(positions, link_option, of<halyard_positions>()), F(n_batch, count), F(n_tokens, count), F(rows, data, 4),
       F(n_floats, count), F(linear, link_option, of<halyard_linear_angles>()))
STRUCT(halyard_tensor, F(dtype, choice, 1, HALYARD_UINT8), F(device, choice, 0, 1), F(reserved, reserved),
       F(data, data), F(shape, shape), F(strides, stride))
STRUCT(halyard_executor, F(n_threads, count, HALYARD_ERROR_THREADS), F(context, option), F(parallel_for, object))
STRUCT(halyard_slots, F(type, choice, 0, 1), F(policy, choice, 0, 1), F(consecutive, choice, 0, 1), F(data, data),
       F(shape, shape), F(strides, stride), F(scratch, data), F(scratch_bytes, count))
STRUCT(halyard_stages, F(reserved, reserved), F(from_group_scales, data), F(weight, data), F(bias, data),
       F(n_weights, count), F(position_scales, data), F(stride_position_scales, stride), F(scales, data, 4),
       F(n_scales, count), F(scales_out, data, 4), F(stride_scales, stride), F(group_scales, data), F(cache, data))
STRUCT(halyard_kv_args, F(reserved, reserved), F(stages, links, of<halyard_stages>()),
       F(slots, link, of<halyard_slots>()), F(from_positions, link, of<halyard_positions>()), F(from_angles, option))
STRUCT(halyard_run_args, F(bad_position, choice, 0, 2), F(angles, object),
       F(positions, link_option, of<halyard_positions>()), F(x, links, of<halyard_tensor>()),
       F(y, links, of<halyard_tensor>()), F(n_tensors, count), F(reserved, reserved),
       F(executor, link_option, of<halyard_executor>()), F(part, count), F(n_parts, count),
       F(kv, link, of<halyard_kv_args>()))
STRUCT(halyard_bound_run_args, F(part, count), F(n_parts, count), F(n_tensors, count), F(angles, option),
       F(positions, data), F(x, object), F(y, object), F(kv, link, of<halyard_kv_args>()))

std::vector<const Struct *> all() {
    return {&of<halyard_angle_source_desc>(), &of<halyard_plan_desc>(), &of<halyard_rows_args>(),
            &of<halyard_run_args>(), &of<halyard_bound_run_args>()};
}

std::vector<Place> places(const Struct &type, const void *address, std::int32_t n_tensors, const std::string &path) {
    std::vector<Place> found;
    for (const Field &field : type.fields) {
        char *const first = static_cast<char *>(const_cast<void *>(address)) + field.offset;
        const std::string name = (path.empty() ? "" : path + ".") + field.name;
        for (std::size_t i = 0; i < field.n_elements; i++) {
            found.push_back({path, name + (field.n_elements > 1 ? "[" + std::to_string(i) + "]" : ""), &field, &type,
                             first + i * field.bytes});
        }
        char *const to = field.to != nullptr ? found.back().pointer() : nullptr;
        for (std::int32_t i = 0; to != nullptr && i < (field.kind == links ? n_tensors : 1); i++) {
            char *const element = to + static_cast<std::size_t>(i) * field.to->size;
            std::uint32_t size = 0;
            std::memcpy(&size, element, sizeof(size));
            if (size != 0) {
                const auto more = places(*field.to, element, n_tensors,
                                         name + (field.kind == links ? "[" + std::to_string(i) + "]" : ""));
                found.insert(found.end(), more.begin(), more.end());
            }
        }
    }
    return found;
}

std::string text(const std::vector<Place> &places) {
    std::ostringstream out;
    for (const Place &place : places) {
        if (place.field->kind != size && !place.field->is_pointer() && place.number() != 0) {
            out << "; " << place.path << ' ';
            place.field->is_real ? out << place.read<double>() : out << place.number();
        }
    }
    return out.str();
}

}  // namespace fields
