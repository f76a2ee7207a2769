#include "config/axes.h"

#include "frequencies/frequencies.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

namespace halyard {
namespace {

std::int32_t find_axis_map(const Model &model, const JsonObject &scaling) {
    const auto stated = scaling.flag("mrope_interleaved");
    const auto usual = model.known != nullptr && model.known->axis_map != HALYARD_AXIS_MAP_NONE
                           ? model.known->axis_map
                           : static_cast<std::int32_t>(HALYARD_AXIS_MAP_SECTIONS);
    if (stated && !*stated && usual == HALYARD_AXIS_MAP_INTERLEAVED) {
        refuse_contradiction(scaling.name_of("mrope_interleaved"), "false", "model_type", quote(model.type));
    }
    return stated.value_or(false) ? static_cast<std::int32_t>(HALYARD_AXIS_MAP_INTERLEAVED) : usual;
}

}  // namespace

void read_axes(const Model &model, const Layer &layer, std::int64_t rotary_dim, bool says_mrope,
               halyard_frequencies_info *about) {
    about->axis_map = HALYARD_AXIS_MAP_NONE;
    auto counts = layer.scaling.counts("mrope_section");
    const auto name = layer.scaling.name_of("mrope_section");
    if (!counts) {
        if (model.known == nullptr || model.known->axis_map == HALYARD_AXIS_MAP_NONE) {
            if (says_mrope) {
                refuse_missing(name);
            }
            return;
        }
        counts.emplace(std::begin(model.known->axis_counts), std::end(model.known->axis_counts));
    }
    const std::int64_t n_pairs = rotary_dim / 2;
    const auto n_axes = static_cast<std::int64_t>(counts->size());
    if (n_axes < 2 || n_axes > 4) {
        refuse(name + " has " + std::to_string(n_axes) + " numbers, but there must be 2 to 4");
    }
    std::int64_t sum = 0;
    for (const auto count : *counts) {
        sum += std::min(count, max_rotary_dim);
    }
    if (sum != n_pairs) {
        refuse(name + " sums to " + std::to_string(sum) + ", but a rotary_dim of " + std::to_string(rotary_dim) +
               " has " + std::to_string(n_pairs) + " pairs");
    }
    about->axis_map = find_axis_map(model, layer.scaling);
    for (std::int64_t axis = 1; axis < n_axes && about->axis_map == HALYARD_AXIS_MAP_INTERLEAVED; ++axis) {
        const auto count = (*counts)[static_cast<std::size_t>(axis)];
        if (n_axes * (count - 1) + axis >= n_pairs) {
            refuse(name + "[" + std::to_string(axis) + "] is " + std::to_string(count) +
                   ", too many for interleaved axes");
        }
    }
    about->n_axes = static_cast<std::int32_t>(n_axes);
    std::copy(counts->begin(), counts->end(), about->axis_counts);
}

}  // namespace halyard
