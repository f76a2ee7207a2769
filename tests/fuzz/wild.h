// How fuzzers turn sensible scenes into nonsense, and tell whether that may be run.
#pragma once

#include "checks/scene/scene.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <variant>

using namespace scenes;

/// What may become nonsense: a number, an address of so many bytes' alignment, or a pointer that may be NULL.
struct Address {
    void *at;
    std::int64_t step;
};
struct Link {
    void *at;
};
using Field = std::variant<std::uint32_t *, std::int32_t *, std::int64_t *, double *, Address, Link>;
using Fields = std::vector<Field>;

template <typename... Numbers>
void add(Fields &fields, Numbers &...numbers) {
    (fields.push_back(&numbers), ...);
}
template <typename T>
void add_address(Fields &fields, T *&pointer, std::int64_t step = 1) {
    fields.push_back(Address{&pointer, step});
}
template <typename T>
void add_link(Fields &fields, T *&pointer) {
    fields.push_back(Link{&pointer});
}

inline Fields fields_of_plan(Call &call) {
    Fields fields;
    add(fields, call.plan.size, call.plan.direction, call.plan.rotary_dim, call.plan.n_tensors, call.plan.rerotates);
    add_link(fields, call.plan.tensors);
    for (int i = 0; i < call.n(); i++) {
        auto &[size, dtype, pairing, out_pairing, head_dim, offset, kv] = call.tensors[i];
        add(fields, size, dtype, pairing, out_pairing, head_dim, offset);
        auto &[kv_size, no_rotation, a, b, by_position, hadamard, c, d, out_dtype, reserved_kv, e] = call.kv[i];
        add(fields, kv_size, no_rotation, by_position, hadamard, out_dtype, reserved_kv);
        if (call.kv[i].norm != nullptr) {
            auto &[of, kind, width, order, weight, unit, rounding, no_eps, eps, first, n, bias, per_head] =
                call.norms[i];
            add(fields, of, kind, width, order, weight, unit, rounding, no_eps, eps, first, n, bias, per_head);
        }
        if (call.kv[i].scale != nullptr) {
            auto &[of, kind, per, reserved] = call.scales[i];
            add(fields, of, kind, per, reserved);
        }
        for (halyard_groups_desc *const groups : {&call.groups[i], &call.from_groups[i]}) {
            if (groups == call.kv[i].groups || groups == call.kv[i].from_groups) {
                auto &[of, preset, block, token, head] = *groups;
                add(fields, of, preset, block, token, head);
            }
        }
        add_link(fields, call.kv[i].groups);
        add_link(fields, call.kv[i].from_groups);
        if (call.kv[i].cache != nullptr) {
            auto &[of, reserved, n, bs, block, head, tile_t, s0, s1, tile_d, s2, s3, extent] = call.caches[i];
            add(fields, of, reserved, n, bs, block, head, tile_t, s0, s1, tile_d, s2, s3, extent);
        }
    }
    return fields;
}

/// What would be read or made beyond all measure becomes what must be refused.
inline Fields fields_of_angles(Draw &draw, halyard_angle_source_desc &desc) {
    Fields fields;
    add(fields, desc.size, desc.by_token, desc.reference, desc.axis_map, desc.n_axes);
    add(fields, desc.axis_counts[0], desc.axis_counts[1], desc.axis_counts[2], desc.axis_counts[3]);
    if (desc.n_positions <= 1000) {
        add(fields, desc.kind);
    }
    if (desc.axis_of_pair != nullptr) {
        add(fields, const_cast<std::int32_t &>(desc.axis_of_pair[0]));
    }
    if (draw.wild && draw.one_in(16)) {
        const std::int64_t wrong[] = {0, -1, std::numeric_limits<std::int64_t>::max() / 2};
        const std::int64_t width = desc.rotary_dim;
        desc.n_positions = draw.one_of(wrong);
        desc.rotary_dim |= draw.in(0, 1);
        desc.n_rows = draw.one_in(2) ? draw.one_of(wrong) : desc.n_rows;
        desc.stride_row = draw.one_in(2) || desc.rotary_dim == width ? draw.one_of(wrong) : desc.stride_row;
    }
    return fields;
}

inline Fields fields_of_run(Call &call) {
    Fields fields;
    halyard_run_args &args = call.args;
    add(fields, args.size, args.bad_position, args.n_tensors, args.reserved);
    add_link(fields, args.angles);
    add_link(fields, args.positions);
    add_link(fields, args.x);
    add_link(fields, args.y);
    halyard_kv_args &brought = call.brought;
    add(fields, brought.size, brought.reserved);
    add_link(fields, brought.slots);
    add_link(fields, brought.stages);
    add_link(fields, brought.from_positions);
    add_link(fields, brought.from_angles);
    for (halyard_positions *view : {&call.positions, &call.from_positions}) {
        add(fields, view->size, view->type, view->consecutive, view->shape[0], view->shape[1], view->strides[0],
            view->strides[1], view->n_axes, view->stride_axis);
        add_address(fields, view->data);
    }
    halyard_slots &slots = call.slots;
    add(fields, slots.size, slots.type, slots.policy, slots.consecutive, slots.shape[0], slots.shape[1],
        slots.strides[0], slots.strides[1], slots.scratch_bytes);
    add_address(fields, slots.data);
    add_address(fields, slots.scratch);
    for (int i = 0; i < call.n(); i++) {
        for (halyard_tensor *tensor : {&call.x[i], &call.y[i]}) {
            add(fields, tensor->size, tensor->dtype, tensor->device, tensor->reserved);
            for (int d = 0; d < 4; d++) {
                add(fields, tensor->shape[d], tensor->strides[d]);
            }
            add_address(fields, tensor->data);
        }
        halyard_stages &stages = call.stages[i];
        add(fields, stages.size, stages.reserved, stages.n_weights, stages.n_scales);
        add(fields, stages.stride_scales[0], stages.stride_scales[1], stages.stride_scales[2]);
        add_address(fields, stages.weight);
        add_address(fields, stages.bias);
        add_address(fields, stages.scales, 4);
        add_address(fields, stages.scales_out, 4);
        add_address(fields, stages.cache);
        add(fields, stages.stride_position_scales[0], stages.stride_position_scales[1],
            stages.stride_position_scales[2]);
        add_address(fields, stages.position_scales);
        add_address(fields, stages.group_scales);
        add_address(fields, stages.from_group_scales);
    }
    return fields;
}

/// Another number, often an extreme one.
template <typename T>
T wild_number(Draw &draw, T sensible) {
    switch (draw.in(0, 5)) {
    case 0: return std::numeric_limits<T>::min();
    case 1: return std::numeric_limits<T>::max();
    case 2: return static_cast<T>(-1);
    case 3: return static_cast<T>(static_cast<std::uint64_t>(sensible) + static_cast<std::uint64_t>(draw.in(-9, 9)));
    case 4: return static_cast<T>(std::int64_t{1} << draw.in(0, 62));
    default: return static_cast<T>(draw.bits());
    }
}

/// Makes some fields nonsense, or none. Of few, one that is dangerous is not refused for another.
inline void make_wild(Draw &draw, const Fields &fields) {
    static constexpr double wild_doubles[] = {-1, -0.0, 1e39, 1e-60, INFINITY, NAN};
    for (std::int64_t n = draw.wild ? draw.in(0, 3) : 0; n > 0; n--) {
        const Field &field = fields[static_cast<std::size_t>(draw.in(0, static_cast<std::int64_t>(fields.size()) - 1))];
        if (const auto *const address = std::get_if<Address>(&field)) {
            std::uintptr_t moved = 0;
            std::memcpy(&moved, address->at, sizeof(moved));
            moved += static_cast<std::uintptr_t>(address->step * draw.in(-100, 100));
            moved = draw.one_in(4) ? 0 : moved;
            std::memcpy(address->at, &moved, sizeof(moved));
        } else if (const auto *const link = std::get_if<Link>(&field)) {
            std::memset(link->at, 0, sizeof(void *));
        } else if (double *const *const number = std::get_if<double *>(&field)) {
            **number = draw.one_of(wild_doubles);
        } else {
            std::visit(
                [&](auto at) {
                    if constexpr (std::is_pointer_v<decltype(at)>) {
                        *at = wild_number(draw, *at);
                    }
                },
                field);
        }
    }
}

/// Of slots and scales (by position too).
inline void make_wild_contents(Draw &draw, Scene &scene) {
    static constexpr float wild_scales[] = {0.0f, -1.0f, INFINITY, NAN, 0x1p-140f, 0x1p-126f};
    const Call &call = scene.call;
    if (!draw.wild || !draw.one_in(3)) {
        return;
    }
    if (call.brought.slots != nullptr && call.n_batch() * call.n_tokens() > 0) {
        char *const slot = place_of_number(call.slots, draw.in(0, call.n_batch() - 1), draw.in(0, call.n_tokens() - 1));
        write_number(call.slots.type, slot, wild_number(draw, read_number(call.slots.type, slot)));
    }
    for (int i = 0; i < call.n(); i++) {
        if (call.stages[i].n_scales > 0) {
            const_cast<float *>(call.stages[i].scales)[draw.in(0, call.stages[i].n_scales - 1)] =
                draw.one_of(wild_scales);
        }
        const std::int64_t *const shape = call.x[i].shape;
        if (call.kv[i].position_scales == 1 && shape[0] > 0 && shape[1] > 0 && shape[2] > 0) {
            const float scale = draw.one_of(wild_scales);
            const Head at = {draw.in(0, shape[0] - 1), draw.in(0, shape[1] - 1), draw.in(0, shape[2] - 1)};
            std::memcpy(place_of_position_scale(call, i, at), &scale, sizeof(scale));
        }
    }
    scene.before = scene.memory.image();
}

/// Calls function(name, first, extent) for each array that a call describes and that a run looks at: none of what is
/// empty.
template <typename Function>
void for_each_array(const Call &call, Function function) {
    bool rotates = false;
    for (int i = 0; i < call.n(); i++) {
        const halyard_stages &stages = call.stages[i];
        const bool has_cache = call.kv[i].cache != nullptr;
        if (call.is_empty(i)) {
            continue;
        }
        rotates = rotates || call.kv[i].no_rotation == 0;
        if (!has_cache || call.plan.rerotates == 0) {
            function("x", call.x[i].data, extent_of(call.x[i]));
        }
        if (!has_cache) {
            function("y", call.y[i].data, extent_of(call.y[i]));
        }
        if (call.brought.stages == nullptr) {
            continue;
        }
        if (has_cache) {
            function("cache", stages.cache, extent_of_cache(call, i));
        }
        if (call.is_dynamic(i)) {
            function("scales_out", stages.scales_out, extent_of_scales_out(call, i));
        }
        if (stages.n_weights != 0) {
            const Extent weights(bytes_of(call.norms[i].weight_dtype), stages.n_weights);
            function("weight", stages.weight, weights);
            function("bias", stages.bias, weights);
        }
        if (stages.n_scales != 0) {
            function("scales", stages.scales, Extent(4, stages.n_scales));
        }
        if (call.kv[i].position_scales == 1) {
            function("position_scales", stages.position_scales, extent_of_position_scales(call, i));
        }
        for (const bool is_input : {false, true}) {
            const bool is_other = !is_input || call.plan.rerotates == 0;
            if (is_other && call.groups_of(i, is_input) != nullptr && call.record_of(i, is_input).scales_apart) {
                function("group_scales", is_input ? stages.from_group_scales : stages.group_scales,
                         extent_of_group_scales(call, i, is_input));
            }
        }
    }
    if (call.brought.slots != nullptr && call.stores()) {
        function("slots", call.slots.data, extent_of(call.slots));
        function("slots.scratch", call.scratch(), Extent(1, call.scratch_bytes()));
    }
    for (const halyard_positions *positions : {call.args.positions, call.brought.from_positions}) {
        if (positions != nullptr && rotates) {
            function("positions", positions->data, extent_of(*positions));
        }
    }
}

/// An array that no memory can hold, or nothing.
inline std::string find_absurd(const Call &call) {
    std::string found;
    for_each_array(
        call, [&](const char *name, const void *, const Extent &extent) { found = extent.is_absurd() ? name : found; });
    return found;
}

/// Whether all that a scene describes lies in its memory, or is absurd. The library cannot know that other memory is
/// not the caller's. And whether the shapes that it takes to walk through it are small.
inline bool fits(const Scene &scene) {
    bool fits = true;
    for_each_array(scene.call, [&](const char *, const void *first, const Extent &extent) {
        fits = fits && (first == nullptr || extent.is_absurd() || scene.memory.holds(first, extent));
    });
    for (int i = 0; i < scene.call.n(); i++) {
        __int128 n = 1;
        for (const std::int64_t extent : scene.call.x[i].shape) {
            n = std::clamp<__int128>(n, -1 << 30, 1 << 30) * extent;
        }
        fits = fits && n <= 1 << 20 && n >= -(1 << 20);
    }
    return fits;
}

inline Images without_scratch(const Scene &scene, Images images) {
    const Memory::Found found = scene.memory.find(scene.call.scratch());
    if (found.region >= 0) {
        images[static_cast<std::size_t>(found.region)].clear();
    }
    return images;
}
