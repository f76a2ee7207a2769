#include "tool/inputs.h"

#include "tool/files/input_file.h"
#include "tool/refusal.h"
#include "tool/words.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

namespace halyard::tool {

namespace {

// Published ones have a few kilobytes; the largest, with a label for each of many classes, about a megabyte.
constexpr std::size_t max_config_bytes = std::size_t{1} << 26;

frequencies read_config(const FrequencyOptions &options) {
    const auto text = read_text(options.config, max_config_bytes);
    frequencies made;
    try {
        made =
            frequencies::from_config(text.data(), static_cast<std::int64_t>(text.size()), options.seq_len.value_or(0),
                                     options.layer_type.empty() ? nullptr : options.layer_type.c_str());
    } catch (const error &refused) {
        const bool is_layer = refused.status() == HALYARD_ERROR_MISMATCH;
        throw Refusal(name_input(options.config) + ": " + say_options(refused.what()) +
                      (is_layer ? " (see --layer-type)" : ""));
    }
    const auto rotary_dim = made.info().rotary_dim;
    if (options.rotary_dim && *options.rotary_dim != rotary_dim) {
        throw Refusal(name_input(options.config) + " makes a rotary_dim of " + std::to_string(rotary_dim) +
                      ", but --rotary-dim is " + std::to_string(*options.rotary_dim));
    }
    return made;
}

}  // namespace

frequencies make_frequencies(const FrequencyOptions &options, std::optional<std::int64_t> default_rotary_dim) {
    if (!options.config.empty()) {
        return read_config(options);
    }
    const auto rotary_dim = options.rotary_dim ? options.rotary_dim : default_rotary_dim;
    if (options.inv_freq.empty()) {
        return frequencies::from_base(options.base.value_or(10000.0),
                                      options.rotary_dim ? *options.rotary_dim : whole_head(rotary_dim.value()));
    }
    const auto file = read_npy(options.inv_freq, {"<f8", "<f4"});
    if (file.shape.size() != 1) {
        throw Refusal(file.name + " has shape " + format_shape(file.shape) + ", but [rotary_dim / 2] is needed");
    }
    if (file.n_elements == 0) {
        throw Refusal(file.name + " holds no inverse frequency");
    }
    if (rotary_dim && (*rotary_dim % 2 != 0 || *rotary_dim / 2 != file.n_elements)) {
        throw Refusal(file.name + " holds " + std::to_string(file.n_elements) +
                      " inverse frequencies, for a rotary_dim of " + std::to_string(2 * file.n_elements) + ", not " +
                      std::to_string(*rotary_dim) + (options.rotary_dim ? "" : ", X's head_dim; see --rotary-dim"));
    }
    std::vector<double> inv_freq;
    if (file.descr == "<f8") {
        const auto values = file.elements<double>();
        inv_freq.assign(values.begin(), values.end());
    } else {
        const auto values = file.elements<float>();
        inv_freq.assign(values.begin(), values.end());
    }
    return frequencies::from_list(inv_freq.data(), file.n_elements, options.attention_factor.value_or(1.0));
}

std::int64_t whole_head(std::int64_t head_dim) {
    if (head_dim < 2 || head_dim % 2 != 0) {
        throw Refusal("a head has " + std::to_string(head_dim) +
                      " columns, but an even number of them is rotated, at least 2 (see --rotary-dim)");
    }
    return head_dim;
}

TokenPositions TokenPositions::count(std::int64_t n_tokens) {
    TokenPositions positions;
    positions.shape_ = {n_tokens};
    return positions;
}

TokenPositions TokenPositions::read(const PositionOptions &options) {
    TokenPositions positions;
    if (options.is_range) {
        positions.shape_ = {options.stop - options.start};
        positions.start_ = options.start;
        return positions;
    }
    positions.file_ = read_npy(options.path, {"<i4", "<i8"});
    positions.is_file_ = true;
    positions.shape_ = positions.file_.shape;
    if (positions.shape_.empty() || positions.shape_.size() > 3) {
        throw Refusal(positions.file_.name + " has shape " + format_shape(positions.shape_) +
                      ", but positions are [tokens] or [batch, tokens], or such for each axis of an axis map");
    }
    return positions;
}

void TokenPositions::materialize() {
    if (!is_file_) {
        values_.resize(static_cast<std::size_t>(n_tokens()));
        std::iota(values_.begin(), values_.end(), start_);
    }
}

halyard_positions TokenPositions::view_as(std::array<std::int64_t, 2> shape) const {
    if (!is_file_) {
        return positions(values_.data(), shape);
    }
    if (file_.descr == "<i4") {
        return positions(file_.elements<std::int32_t>().data(), shape);
    }
    return positions(file_.elements<std::int64_t>().data(), shape);
}

halyard_positions TokenPositions::view(std::int32_t n_axes) const {
    const std::size_t n_leading = shape_.size() - 1 - (n_axes > 1 ? 1 : 0);
    auto view = view_as({n_leading == 1 ? shape_[shape_.size() - 2] : 1, n_tokens()});
    view.n_axes = n_axes;
    view.stride_axis = view.shape[0] * view.shape[1];
    return view;
}

halyard_positions TokenPositions::list() const {
    std::int64_t n_rows = 1;
    for (std::size_t i = 0; i + 1 < shape_.size(); ++i) {
        n_rows *= shape_[i];
    }
    return view_as({n_rows, n_tokens()});
}

std::pair<std::int64_t, std::int64_t> TokenPositions::range() const {
    const auto all = list();
    const auto n = static_cast<std::size_t>(all.shape[0] * all.shape[1]);
    const auto range_of = [n](const auto *values) -> std::pair<std::int64_t, std::int64_t> {
        const auto [least, greatest] = std::minmax_element(values, values + n);
        return {*least, *greatest};
    };
    return all.type == HALYARD_INT32 ? range_of(static_cast<const std::int32_t *>(all.data))
                                     : range_of(static_cast<const std::int64_t *>(all.data));
}

void TokenPositions::require_valid(std::int32_t n_axes, std::optional<std::int64_t> max_position,
                                   const std::string &hint) const {
    const std::int64_t first = max_position ? 0 : std::numeric_limits<std::int32_t>::min();
    const std::int64_t last = max_position ? *max_position - 1 : std::numeric_limits<std::int32_t>::max();
    const auto refuse = [&](std::int64_t position, std::int64_t index) {
        const auto row = index / n_tokens();
        const auto n_batch = shape_.size() == (n_axes > 1 ? 3 : 2) ? shape_[shape_.size() - 2] : 1;
        throw Refusal("token " + std::to_string(index % n_tokens()) +
                      (n_batch > 1 ? " of batch row " + std::to_string(row % n_batch) : "") + " has position " +
                      std::to_string(position) + (n_axes > 1 ? " on axis " + std::to_string(row / n_batch) : "") +
                      (is_file_ ? " in " + file_.name : "") + ", but " +
                      (max_position ? "--max-position " + std::to_string(*max_position) + " allows "
                                    : "positions of 32 bits are ") +
                      std::to_string(first) + " to " + std::to_string(last) + hint);
    };
    const auto all = list();
    const auto n = all.shape[0] * all.shape[1];
    const auto check = [&](const auto *values) {
        const auto *const bad =
            std::find_if(values, values + n, [&](std::int64_t each) { return each < first || each > last; });
        if (bad != values + n) {
            refuse(*bad, bad - values);
        }
    };
    if (all.type == HALYARD_INT32) {
        check(static_cast<const std::int32_t *>(all.data));
    } else {
        check(static_cast<const std::int64_t *>(all.data));
    }
}

AxisMapOption parse_axis_map(const std::string &text) {
    AxisMapOption map;
    const auto colon = text.find(':');
    map.kind = text.substr(0, colon) == "sections" ? HALYARD_AXIS_MAP_SECTIONS : HALYARD_AXIS_MAP_INTERLEAVED;
    map.n_axes = 0;
    for (auto at = colon; at != std::string::npos; at = text.find(',', at + 1)) {
        if (map.n_axes == HALYARD_MAX_AXES) {
            throw Refusal("--axis-map " + text + " has more than " + std::to_string(HALYARD_MAX_AXES) + " axes");
        }
        map.counts[static_cast<std::size_t>(map.n_axes++)] = std::stoll(text.substr(at + 1));
    }
    return map;
}

angle_source make_source(const frequencies &frequencies, const std::string &angles, const std::string &reference,
                         const AxisMapOption &axes, std::int32_t first, std::int32_t last,
                         const TokenPositions *listed) {
    auto desc = make_struct<halyard_angle_source_desc>();
    desc.kind = angles == "phase"      ? HALYARD_ANGLES_PHASE
                : angles == "factored" ? HALYARD_ANGLES_FACTORED
                                       : HALYARD_ANGLES_TABLE;
    desc.reference = reference == "hf_f32"      ? HALYARD_REFERENCE_HF_F32
                     : reference == "vllm_f16"  ? HALYARD_REFERENCE_VLLM_F16
                     : reference == "vllm_bf16" ? HALYARD_REFERENCE_VLLM_BF16
                     : reference == "ggml"      ? HALYARD_REFERENCE_GGML
                                                : HALYARD_REFERENCE_EXACT;
    desc.first = first;
    desc.last = last;
    const auto list = listed != nullptr ? listed->list() : halyard_positions{};
    desc.listed = desc.kind == HALYARD_ANGLES_TABLE && listed != nullptr ? &list : nullptr;
    desc.axis_map = axes.kind;
    desc.n_axes = axes.n_axes;
    std::copy(axes.counts.begin(), axes.counts.end(), desc.axis_counts);
    return angle_source(frequencies, desc);
}

}  // namespace halyard::tool
