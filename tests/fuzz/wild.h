// Turns sensible random cases into nonsense for fuzzers, and decides whether such a case can safely be run.
#pragma once

#include "checks/fields.h"
#include "checks/cases/case.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace cases;

using fields::Kind;
using Places = std::vector<fields::Place>;

inline Places fields_of_plan(const Call &call) {
    Places places = fields::places(fields::of<halyard_plan_desc>(), &call.plan, call.n());
    // The pointer tensors[i].kv is never made wild, because a case's oracle reads it even where a plan would not.
    std::erase_if(places, [](const auto &place) { return place.field->to == &fields::of<halyard_kv_desc>(); });
    return places;
}

/// The fields of an angle source that may become nonsense. Counts are set here, since a huge valid one takes too long.
inline Places fields_of_angles(Draw &draw, halyard_angle_source_desc &desc) {
    Places places = fields::places(fields::of<halyard_angle_source_desc>(), &desc, 0);
    std::erase_if(places, [&](const auto &place) {
        const bool is_large = place.field->name == std::string("kind") && desc.n_positions > 1000;
        const bool is_axes = place.path.find("axes") != std::string::npos || place.field->kind == Kind::shape;
        const bool is_choice = place.field->kind == Kind::size || place.field->kind == Kind::choice;
        return is_large || place.field->name == std::string("rows_dtype") || !(is_choice || is_axes);
    });
    if (draw.wild && draw.one_in(16)) {
        const std::int64_t wrong[] = {0, -1, std::numeric_limits<std::int64_t>::max() / 2};
        const std::int64_t width = desc.rotary_dim;
        desc.n_positions = draw.one_of(wrong);
        desc.rotary_dim |= draw.in(0, 1);
        desc.n_rows = draw.one_in(2) ? draw.one_of(wrong) : desc.n_rows;
        desc.stride_row = draw.one_in(2) || desc.rotary_dim == width ? draw.one_of(wrong) : desc.stride_row;
    }
    return places;
}

inline Places fields_of_run(const Call &call) {
    Places places = fields::places(fields::of<halyard_run_args>(), &call.args, call.n());
    std::erase_if(places, [](const auto &place) { return place.path == "part" || place.path == "n_parts"; });
    return places;
}

/// A nonsensical number in place of a sensible one, often an extreme one.
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

/// Turns up to three fields into nonsense: with more, most calls would be refused before the dangerous field is read.
inline void make_wild(Draw &draw, const Places &places) {
    static constexpr double wild_doubles[] = {-1, -0.0, 1e39, 1e-60, INFINITY, NAN};
    for (std::int64_t n = draw.wild ? draw.in(0, 3) : 0; n > 0; n--) {
        const auto &place = places[static_cast<std::size_t>(draw.in(0, std::ssize(places) - 1))];
        const fields::Field &field = *place.field;
        if (field.kind == Kind::data && !draw.one_in(4)) {
            place.write(place.read<std::uintptr_t>() + static_cast<std::uintptr_t>(field.value * draw.in(-100, 100)));
        } else if (field.is_pointer()) {
            place.write(std::uintptr_t{0});
        } else if (field.is_real) {
            place.write(draw.one_of(wild_doubles));
        } else if (field.bytes == 8) {
            place.write(wild_number(draw, place.number()));
        } else {
            place.write(wild_number(draw, static_cast<std::int32_t>(place.number())));
        }
    }
}

/// Puts bad values in the place of some scales, static or by position. (Cases have bad slots and positions already.)
inline void make_wild_contents(Draw &draw, Case &drawn) {
    static constexpr float wild_scales[] = {0.0f, -1.0f, INFINITY, NAN, 0x1p-140f, 0x1p-126f};
    const Call &call = drawn.call;
    for (int i = 0; draw.wild && draw.one_in(3) && i < call.n(); i++) {
        const halyard_stages &stages = call.stages[i];
        if (stages.n_scales > 0) {
            const_cast<float *>(stages.scales)[draw.in(0, stages.n_scales - 1)] = draw.one_of(wild_scales);
        }
        if (call.kv[i].position_scales == 1 && !call.is_empty(i)) {
            const std::int64_t *const shape = call.x[i].shape;
            const float scale = draw.one_of(wild_scales);
            const Head at = {draw.in(0, shape[0] - 1), draw.in(0, shape[1] - 1), draw.in(0, shape[2] - 1)};
            std::memcpy(place_of_position_scale(call, i, at), &scale, sizeof(scale));
        }
    }
    drawn.before = drawn.memory.image();
}

/// Whether a nonsensical case may be run. The library trusts pointers, so all memory must be the case's.
struct Obstacles {
    bool fits = true;    // shapes are small; each array that a run accesses is in the case's memory, or absurd
    std::string absurd;  // the name of an array that is larger than any memory: the run must be refused; or empty

    explicit Obstacles(const Case &drawn) {
        const Call &call = drawn.call;
        bool rotates = false;
        for (int i = 0; i < call.n(); i++) {
            __int128 n = 1;
            for (const std::int64_t size : call.x[i].shape) {
                n = std::clamp<__int128>(n, -1 << 30, 1 << 30) * size;
            }
            fits = fits && n <= 1 << 20 && n >= -(1 << 20);
            rotates = rotates || (!call.is_empty(i) && call.kv[i].no_rotation == 0);
        }
        const auto look_at = [&](bool is_read, const char *name, const void *first, auto extent_of_it) {
            if (is_read) {
                const Extent extent = extent_of_it();
                absurd = extent.is_absurd() ? name : absurd;
                fits = fits && (first == nullptr || extent.is_absurd() || drawn.memory.holds(first, extent));
            }
        };
        for (int i = 0; i < call.n(); i++) {
            const halyard_stages &stages = call.stages[i];
            const bool has_cache = call.kv[i].cache != nullptr, rerotates = call.plan.rerotates != 0;
            const bool is_there = !call.is_empty(i), has_stages = is_there && call.kv_args.stages != nullptr;
            look_at(is_there && !(has_cache && rerotates), "x", call.x[i].data, [&] { return extent_of(call.x[i]); });
            look_at(is_there && !has_cache, "y", call.y[i].data, [&] { return extent_of(call.y[i]); });
            look_at(has_stages && has_cache, "cache", stages.cache, [&] { return extent_of_cache(call, i); });
            look_at(has_stages && call.is_dynamic(i), "scales_out", stages.scales_out,
                    [&] { return extent_of_scales_out(call, i); });
            for (const void *const weights : {stages.weight, stages.bias}) {
                look_at(has_stages && stages.n_weights != 0, "weight or bias", weights,
                        [&] { return Extent(bytes_of(call.norms[i].weight_dtype), stages.n_weights); });
            }
            look_at(has_stages && stages.n_scales != 0, "scales", stages.scales,
                    [&] { return Extent(4, stages.n_scales); });
            look_at(has_stages && call.kv[i].position_scales == 1, "position_scales", stages.position_scales,
                    [&] { return extent_of_position_scales(call, i); });
            for (const bool is_input : {false, true}) {
                look_at(has_stages && !(is_input && rerotates) && call.groups_of(i, is_input) != nullptr &&
                            call.record_of(i, is_input).scales_apart,
                        "group_scales", is_input ? stages.from_group_scales : stages.group_scales,
                        [&] { return extent_of_group_scales(call, i, is_input); });
            }
        }
        const bool has_slots = call.kv_args.slots != nullptr && call.stores();
        look_at(has_slots, "slots", call.slots.data, [&] { return extent_of(call.slots); });
        look_at(has_slots, "slots.scratch", call.scratch(), [&] { return Extent(1, call.scratch_bytes()); });
        for (const halyard_positions *positions : {call.args.positions, call.kv_args.from_positions}) {
            look_at(positions != nullptr && rotates, "positions", positions != nullptr ? positions->data : nullptr,
                    [&] { return extent_of(*positions); });
        }
    }
};

inline Images without_scratch(const Case &drawn, Images images) {
    const Memory::Found found = drawn.memory.find(drawn.call.scratch());
    if (found.region >= 0) {
        images[static_cast<std::size_t>(found.region)].clear();
    }
    return images;
}
