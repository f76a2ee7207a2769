// Which columns of a head turn, in which direction, and by which kernels: what rotate and explain share.
#pragma once

#include "tool/files/refusal.h"
#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

#include <cstdint>
#include <string>

namespace halyard::tool {

struct RotationOptions {
    std::int32_t pairing = 0;      // HALYARD_PAIRING_…; 0: the model's, else half
    std::int32_t out_pairing = 0;  // 0: as pairing; where that isn't given either, the model's
    std::int64_t rotary_offset = 0;
    bool inverse = false;
    bool in_place = false;
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
        app.add_flag("--in-place", in_place, "read and write the same memory");
        add_text(app, "--target", target, "run exactly this target of 'halyard list' [the best]", "NAME");
    }

    /// Where a config may decide about the pairing, the rest is for describe().
    void check(bool has_config = false) const {
        const auto from = pairing != 0 || has_config ? pairing : HALYARD_PAIRING_HALF;
        if (in_place && out_pairing != 0 && from != 0 && out_pairing != from) {
            const std::string to = out_pairing == HALYARD_PAIRING_HALF ? "half" : "interleaved";
            throw CLI::ValidationError("--in-place", "--out-pairing " + to + " contradicts it");
        }
    }

    /// The plan of one tensor that is rotated. `model` is what its frequencies tell, if there are any.
    plan_desc describe(halyard_tensor_desc tensor, std::int64_t rotary_dim,
                       const halyard_frequencies_info *model = nullptr) const {
        if (rotary_offset < 0 || rotary_dim > tensor.head_dim - rotary_offset) {
            throw Refusal("a rotary_dim of " + std::to_string(rotary_dim) + " and --rotary-offset " +
                          std::to_string(rotary_offset) + " don't fit a head of " + std::to_string(tensor.head_dim) +
                          " columns");
        }
        tensor.rotary_offset = rotary_offset;
        tensor.pairing = pairing != 0 ? pairing : HALYARD_PAIRING_HALF;
        if (pairing == 0 && model != nullptr && model->pairing != 0) {
            tensor.pairing = model->pairing;
            tensor.out_pairing = model->out_pairing;
        }
        tensor.out_pairing = out_pairing != 0 ? out_pairing : tensor.out_pairing;
        if (in_place && tensor.out_pairing != 0 && tensor.pairing != tensor.out_pairing) {
            throw Refusal("--in-place keeps the pairing, but the config's model writes another one: see --out-pairing");
        }
        plan_desc desc(rotary_dim, {tensor}, inverse ? direction::inverse : direction::forward);
        desc.target = target.empty() ? nullptr : target.c_str();
        return desc;
    }
};

}  // namespace halyard::tool
