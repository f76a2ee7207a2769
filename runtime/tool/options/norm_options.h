// The norm, from its options and the file of its weights to what the library reads.
#pragma once

#include "tool/options/call.h"
#include "tool/options/dtypes.h"

#include "halyard/halyard.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {

class NormOptions {
public:
    void add(CLI::App &command) {
        auto *norm = add_word(command, "--norm", kind_,
                              "normalise: rms is v / sqrt(mean(v^2) + eps), times a weight; layer takes the mean off "
                              "v first, and adds a bias at the end",
                              {{"rms", HALYARD_NORM_RMS}, {"layer", HALYARD_NORM_LAYER}});
        auto *weight =
            add_file(command, "--norm-weight", path_,
                     "the norm's weights; .npy, <f4, <f2 or <u2 (bf16 bits), [head_dim], [heads, head_dim], or "
                     "[heads * head_dim] with --norm-width row [none]");
        auto *bias = add_file(command, "--norm-bias", bias_path_,
                              "of --norm layer: what is added after the weights, of their type and shape [none]");
        auto *unit_offset = command.add_flag("--norm-unit-offset", unit_offset_, "multiply by 1 + w, not w");
        unit_offset->needs(weight);
        bias->needs(weight);
        for (auto *option :
             {weight, bias, unit_offset,
              add_real(command, "--norm-eps", desc_.eps, "the norm's eps, at least 0 [1e-6]"),
              add_word(command, "--norm-width", desc_.width,
                       "what is normalised: each head, or all heads of a token together [head]",
                       {{"head", HALYARD_NORM_HEAD}, {"row", HALYARD_NORM_ROW}}),
              add_word(command, "--norm-order", desc_.order, "normalise before or after the rotation [before]",
                       {{"before", HALYARD_NORM_BEFORE}, {"after", HALYARD_NORM_AFTER}}),
              command.add_flag("--norm-round", rounds_,
                               "round the normalised value to X's type, before it meets the weight")}) {
            option->needs(norm);
            option->group("Norm");
        }
        norm->group("Norm");
    }

    bool is_given() const { return kind_.has_value(); }
    const std::string &path() const { return path_; }
    const std::string &bias_path() const { return bias_path_; }

    /// Brings the norm to the call, if there is one. Throws Refusal.
    void read(Call &call) {
        if (!kind_) {
            return;
        }
        if (!bias_path_.empty() && *kind_ != HALYARD_NORM_LAYER) {
            throw CLI::ValidationError("--norm-bias", "it is for --norm layer");
        }
        desc_.kind = *kind_;
        desc_.unit_offset = unit_offset_ ? 1 : 0;
        desc_.rounding = rounds_ ? HALYARD_NORM_ROUND_BEFORE_WEIGHT : 0;
        desc_.no_eps = desc_.eps == 0.0 ? 1 : 0;
        call.tensor.norm = &desc_;
        if (path_.empty()) {
            return;
        }
        weight_ = read_npy(path_, {"<f4", "<f2", "<u2"});
        const bool is_row = desc_.width == HALYARD_NORM_ROW;
        const auto heads = call.shape[2], head_dim = call.shape[3];
        const bool is_per_head = !is_row && weight_.shape == std::vector{heads, head_dim};
        if (!is_per_head &&
            (weight_.shape.size() != 1 || !is_product(weight_.shape[0], is_row ? heads : 1, head_dim))) {
            const std::string sizes = std::to_string(heads) + " heads of " + std::to_string(head_dim);
            refuse_shape(weight_, is_row ? "the weights of --norm-width row are [heads * head_dim], for " + sizes
                                         : "the weights are [head_dim] or [heads, head_dim], for " + sizes);
        }
        desc_.weight_per_head = is_per_head ? 1 : 0;
        for (const auto &dtype : dtypes) {
            if (weight_.descr == dtype.descr) {
                desc_.weight_dtype = static_cast<std::int32_t>(dtype.value);
            }
        }
        call.stages.weight = weight_.data.get();
        call.stages.n_weights = weight_.n_elements;
        if (bias_path_.empty()) {
            return;
        }
        bias_ = read_npy(bias_path_, {weight_.descr});
        if (bias_.shape != weight_.shape) {
            refuse_shape(bias_, "the biases have the shape of the weights");
        }
        desc_.has_bias = 1;
        call.stages.bias = bias_.data.get();
    }

private:
    std::optional<std::int32_t> kind_;
    bool unit_offset_ = false, rounds_ = false;
    std::string path_, bias_path_;  // of the weights and biases
    NpyArray weight_, bias_;
    halyard_norm_desc desc_ = describe_norm(dtype{});
};

}  // namespace halyard::tool
