// Options that rotate and explain share: the element type, the rotary window, pairing, direction and target.
#pragma once

#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

#include <cstdint>
#include <string>

namespace halyard::tool {

struct Dtype {
    dtype value;
    const char *word;
    const char *descr;
};

/// In the order of their values. NumPy has no bf16, so files have its bits as uint16.
inline constexpr Dtype dtypes[] = {
    {dtype::f32, "f32", "<f4"}, {dtype::f16, "f16", "<f2"}, {dtype::bf16, "bf16", "<u2"}};

inline const Dtype &find_dtype(dtype value) { return dtypes[static_cast<std::size_t>(value) - 1]; }

template <typename Value>
Words<Value> words_of_dtypes() {
    Words<Value> words;
    for (const auto &each : dtypes) {
        words.emplace_back(each.word, each.value);
    }
    return words;
}

struct RotationOptions {
    std::int32_t pairing = 0;      // HALYARD_PAIRING_…; 0: the model's; without one, half
    std::int32_t out_pairing = 0;  // 0: the same as pairing; if pairing is 0, too, the model's
    std::int64_t rotary_offset = 0;
    bool inverse = false;
    std::string target;  // "": the best

    void add(CLI::App &app) {
        const Words<std::int32_t> pairings = {{"half", HALYARD_PAIRING_HALF},
                                              {"interleaved", HALYARD_PAIRING_INTERLEAVED}};
        add_word(app, "--pairing", pairing,
                 "which columns form a pair: k and k + rotary_dim/2, or 2k and 2k + 1 [the config's, else half]",
                 pairings);
        add_word(app, "--out-pairing", out_pairing,
                 "the pairing that is written [as --pairing; without that, the config's, else half]", pairings);
        add_integer(app, "--rotary-offset", rotary_offset, "the first column that is rotated [0]");
        app.add_flag("--inverse", inverse, "turn back: negate the angles");
        add_text(app, "--target", target, "run exactly this target of 'halyard list' [the best]", "NAME");
    }

    /// The description of a plan for one rotated tensor. `model`: the info of the frequencies; NULL if there are none.
    plan_desc describe(halyard_tensor_desc tensor, std::int64_t rotary_dim,
                       const halyard_frequencies_info *model = nullptr) const {
        tensor.rotary_offset = rotary_offset;
        tensor.pairing = pairing != 0 ? pairing : HALYARD_PAIRING_HALF;
        if (pairing == 0 && model != nullptr && model->pairing != 0) {
            tensor.pairing = model->pairing;
            tensor.out_pairing = model->out_pairing;
        }
        tensor.out_pairing = out_pairing != 0 ? out_pairing : tensor.out_pairing;
        plan_desc desc(rotary_dim, {tensor}, inverse ? direction::inverse : direction::forward);
        desc.target = target.empty() ? nullptr : target.c_str();
        return desc;
    }
};

}  // namespace halyard::tool
