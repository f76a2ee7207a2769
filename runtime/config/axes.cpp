#include "config/rope.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <optional>
#include <vector>

namespace halyard {
namespace {

/// Refuses an order of axes that the config states but the model's code does not have. Two keys may state it;
/// Qwen3-Omni's configs have both.
void check_order(const Model &model, const JsonObject &scaling, std::int32_t axis_map) {
    for (const char *key : {"mrope_interleaved", "interleaved"}) {
        const auto stated = scaling.flag(key);
        if (stated && *stated && axis_map == HALYARD_AXIS_MAP_NONE && !scaling.has("mrope_section")) {
            refuse_missing(scaling.name_of("mrope_section") + ", which " + key + " needs,");
        }
        if (stated && axis_map != HALYARD_AXIS_MAP_NONE && *stated != (axis_map == HALYARD_AXIS_MAP_INTERLEAVED)) {
            refuse_contradiction(scaling.name_of(key), *stated ? "true" : "false", "model_type", quote(model.type));
        }
    }
}

/// The numbers of pairs of each axis that the model's code has, for configs that do not state them. If axes are
/// interleaved, all except the first are limited to the pairs that exist for them, and the first has all others.
std::vector<std::int64_t> find_usual_counts(const ModelType &known, std::int64_t n_pairs) {
    if (known.n_equal_axes != 0) {
        return std::vector<std::int64_t>(static_cast<std::size_t>(known.n_equal_axes), n_pairs / known.n_equal_axes);
    }
    std::vector<std::int64_t> counts(std::begin(known.axis_counts), std::end(known.axis_counts));
    if (known.axis_map == HALYARD_AXIS_MAP_INTERLEAVED) {
        const auto n_axes = std::ssize(counts);
        counts[0] = n_pairs;
        for (std::int64_t axis = 1; axis < n_axes; ++axis) {
            auto &count = counts[static_cast<std::size_t>(axis)];
            count = std::min(count, (n_pairs - axis + n_axes - 1) / n_axes);
            counts[0] -= count;
        }
    }
    return counts;
}

}  // namespace

void read_axes(const Model &model, const Layer &layer, std::int64_t rotary_dim, bool says_mrope,
               halyard_frequencies_info *about) {
    about->axis_map = model.known->axis_map;
    check_order(model, layer.scaling, about->axis_map);
    auto counts = layer.scaling.counts("mrope_section");
    const auto name = layer.scaling.name_of("mrope_section");
    if (counts && model.known->splits_pairs) {
        refuse_unsupported(name + " gives the two elements of a pair different axes in models of model_type " +
                           quote(model.type) + ", which is not supported");
    }
    if (!counts) {
        if (about->axis_map == HALYARD_AXIS_MAP_NONE) {
            if (says_mrope) {
                refuse_missing(name);
            }
            return;
        }
        counts = find_usual_counts(*model.known, rotary_dim / 2);
    }
    const std::int64_t n_pairs = rotary_dim / 2;
    const auto n_axes = static_cast<std::int64_t>(counts->size());
    if (n_axes < 2 || n_axes > 4) {
        refuse(name + " has " + std::to_string(n_axes) + " numbers, but there must be 2 to 4");
    }
    const auto sum = std::accumulate(counts->begin(), counts->end(), std::int64_t{0});
    if (sum != n_pairs) {
        refuse(name + " sums to " + std::to_string(sum) + ", but a rotary_dim of " + std::to_string(rotary_dim) +
               " has " + std::to_string(n_pairs) + " pairs");
    }
    if (about->axis_map == HALYARD_AXIS_MAP_NONE) {
        refuse_unsupported(name + " is there, but in which order axes take their pairs in models of model_type " +
                           quote(model.type) + " is not known here");
    }
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
