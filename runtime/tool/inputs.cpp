#include "inputs.h"

#include "refusal.h"

#include <numeric>

namespace halyard::tool {

void refuse_unavailable(const FrequencyOptions &options) {
    const std::string version = halyard::version();
    if (!options.config.empty() || options.seq_len || !options.layer_type.empty()) {
        throw Refusal("--config, --seq-len and --layer-type are not available in version " + version);
    }
    if (options.reference != "exact") {
        throw Refusal("--reference " + options.reference + " is not available in version " + version);
    }
}

void refuse_unavailable_angles(const std::string &angles) {
    if (angles != "auto" && angles != "table") {
        throw Refusal("--angles " + angles + " is not available in version " + halyard::version());
    }
}

frequencies make_frequencies(const FrequencyOptions &options, std::optional<std::int64_t> default_rotary_dim) {
    const auto rotary_dim = options.rotary_dim ? options.rotary_dim : default_rotary_dim;
    if (options.inv_freq.empty()) {
        return frequencies::from_base(options.base.value_or(10000.0), rotary_dim.value());
    }
    const auto file = read_npy(options.inv_freq, {"<f8", "<f4"});
    if (file.shape.size() != 1) {
        throw Refusal("'" + file.path + "' has shape " + format_shape(file.shape) + ", but [rotary_dim / 2] is needed");
    }
    if (rotary_dim && (*rotary_dim % 2 != 0 || *rotary_dim / 2 != file.n_elements)) {
        throw Refusal("'" + file.path + "' holds " + std::to_string(file.n_elements) +
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

Positions Positions::count(std::int64_t n_tokens) {
    Positions positions;
    positions.shape_ = {n_tokens};
    return positions;
}

Positions Positions::read(const PositionOptions &options) {
    Positions positions;
    if (options.is_range) {
        positions.shape_ = {options.stop - options.start};
        positions.start_ = options.start;
        return positions;
    }
    positions.file_ = read_npy(options.path, {"<i4", "<i8"});
    positions.shape_ = positions.file_.shape;
    if (positions.shape_.empty() || positions.shape_.size() > 2) {
        throw Refusal("'" + options.path + "' has shape " + format_shape(positions.shape_) +
                      ", but positions are [tokens] or [batch, tokens]");
    }
    return positions;
}

void Positions::materialize() {
    if (file_.path.empty()) {
        values_.resize(static_cast<std::size_t>(n_tokens()));
        std::iota(values_.begin(), values_.end(), start_);
    }
}

halyard_positions Positions::view() const {
    const std::array<std::int64_t, 2> shape = {shape_.size() == 2 ? shape_[0] : 1, n_tokens()};
    if (file_.path.empty()) {
        return positions(values_.data(), shape);
    }
    if (file_.descr == "<i4") {
        return positions(file_.elements<std::int32_t>().data(), shape);
    }
    return positions(file_.elements<std::int64_t>().data(), shape);
}

}  // namespace halyard::tool
