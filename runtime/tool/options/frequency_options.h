// Options that choose what frequencies are made from.
#pragma once

#include "tool/files/file.h"
#include "tool/files/npy.h"
#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {

struct FrequencyOptions {
    std::optional<double> base;
    std::string inv_freq;  // a file's name, as config is; "" if not given
    std::optional<double> attention_factor;
    std::string config;
    std::optional<std::int64_t> seq_len;
    std::string layer_type;
    std::optional<std::int64_t> layer;
    std::optional<std::int64_t> rotary_dim;
    std::int32_t reference = HALYARD_REFERENCE_EXACT;

    /// Adds the options. Returns those that cannot be combined with a file of cos and sin.
    std::vector<CLI::Option *> add(CLI::App &app, const std::string &rotary_dim_help) {
        auto *from_base = add_real(app, "--base", base, "inv_freq[k] = BASE^(-2k / rotary_dim) [10000]");
        auto *from_file = add_file(app, "--inv-freq", inv_freq,
                                   "or: inverse frequencies, radians per position; .npy, <f8 or <f4, [rotary_dim / 2]");
        auto *factor = add_real(app, "--attention-factor", attention_factor,
                                "what cos and sin are multiplied by, with --inv-freq [1]");
        auto *from_model =
            add_file(app, "--config", config, "or: a model's Hugging Face config.json; - is the standard input");
        auto *length = add_integer(app, "--seq-len", seq_len,
                                   "context length in tokens, for the methods that depend on it, with --config", 1);
        auto *type = add_text(app, "--layer-type", layer_type,
                              "whose frequencies, with --config: one of its layer types, or vision", "NAME");
        auto *number = add_integer(app, "--layer", layer, "likewise: the number of a layer, counted from 0", 0);
        auto *width = add_integer(app, "--rotary-dim", rotary_dim, rotary_dim_help);
        auto *rounding = add_word(app, "--reference", reference,
                                  "whose rounding: exact, or hf_f32 as Hugging Face's float32, by tables only [exact]",
                                  {{"exact", HALYARD_REFERENCE_EXACT}, {"hf_f32", HALYARD_REFERENCE_HF_F32}});
        from_base->excludes(from_file)->excludes(from_model);
        from_file->excludes(from_model);
        factor->needs(from_file);
        length->needs(from_model);
        type->needs(from_model);
        number->needs(from_model);
        const std::vector<CLI::Option *> sources = {from_base, from_file, factor, from_model,
                                                    length,    type,      number, rounding};
        for (auto *option : sources) {
            option->group("Frequencies");
        }
        width->group("Frequencies");
        return sources;
    }

    /// Adds the options of a command that has no tensor: the options alone must give the number of frequencies.
    void add_without_tensor(CLI::App &app) {
        add(app, "twice the number of pairs [the config's, or 2 * the length of --inv-freq]");
    }

    void require_rotary_dim() const {
        if (!rotary_dim && inv_freq.empty() && config.empty()) {
            throw CLI::RequiredError("--rotary-dim, --inv-freq or --config");
        }
    }

    /// Makes the frequencies. Without --config and --rotary-dim, rotary_dim is `default_rotary_dim`. If that is none,
    /// it is twice the number of elements of --inv-freq.
    frequencies make(std::optional<std::int64_t> default_rotary_dim = std::nullopt) const {
        if (!config.empty()) {
            return from_config();
        }
        if (!inv_freq.empty()) {
            return from_list(rotary_dim ? rotary_dim : default_rotary_dim);
        }
        return frequencies::from_base(base.value_or(10000.0), rotary_dim ? *rotary_dim : default_rotary_dim.value());
    }

private:
    frequencies from_config() const {
        // Published configs have a few kilobytes; the largest, with labels of many classes, about a megabyte.
        constexpr std::size_t most_bytes = std::size_t{1} << 26;
        const bool is_piped = config == "-";
        const auto text = is_piped ? read_standard_input(most_bytes) : read_file(config);
        const std::string name = is_piped ? "the standard input" : "'" + config + "'";
        frequencies made;
        try {
            made =
                frequencies::from_config(text.data(), static_cast<std::int64_t>(text.size()), seq_len.value_or(0),
                                         layer_type.empty() ? nullptr : layer_type.c_str(), layer ? &*layer : nullptr);
        } catch (const error &refused) {
            const bool is_layer = refused.status() == HALYARD_ERROR_MISMATCH;
            throw Refusal(name + ": " + refused.what() + (is_layer ? " (see --layer-type and --layer)" : ""));
        }
        const auto of_model = made.info().rotary_dim;
        if (rotary_dim && *rotary_dim != of_model) {
            throw Refusal(name + " makes a rotary_dim of " + std::to_string(of_model) + ", but --rotary-dim is " +
                          std::to_string(*rotary_dim));
        }
        return made;
    }

    frequencies from_list(std::optional<std::int64_t> wanted) const {
        const auto file = read_npy(inv_freq, {"<f8", "<f4"});
        if (file.shape.size() != 1) {
            throw Refusal(file.name + " has shape " + format_shape(file.shape) + ", but [rotary_dim / 2] is needed");
        }
        if (file.n_elements == 0) {
            throw Refusal(file.name + " holds no inverse frequency");
        }
        if (wanted && *wanted != 2 * file.n_elements) {
            throw Refusal(file.name + " holds " + std::to_string(file.n_elements) +
                          " inverse frequencies, for a rotary_dim of " + std::to_string(2 * file.n_elements) +
                          ", not " + std::to_string(*wanted) + (rotary_dim ? "" : ", X's head_dim; see --rotary-dim"));
        }
        const auto values = file.widened<double, float>();
        return frequencies::from_list(values.data(), file.n_elements, attention_factor.value_or(1.0));
    }
};

}  // namespace halyard::tool
