// What each token is multiplied by, from its option and file to what the library reads.
#pragma once

#include "tool/files/input_file.h"
#include "tool/files/refusal.h"
#include "tool/options/arguments.h"
#include "tool/options/call.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace halyard::tool {

class PositionScales {
public:
    void add(CLI::App &command) {
        add_file(command, "--position-scales", path_,
                 "multiply each token by a number, after the rotation and any norm: <f4, [tokens], [tokens, heads] or, "
                 "of a 4-D X, [tokens], [batch, tokens], [batch, tokens, heads]")
            ->group("Scale, type and cache");
    }

    bool is_given() const { return !path_.empty(); }
    const std::string &path() const { return path_; }

    /// Brings the numbers to the call, if there are any. Throws Refusal.
    void read(Call &call) {
        if (!is_given()) {
            return;
        }
        file_ = read_npy(path_, {"<f4"});
        const auto [batch, tokens, heads, head_dim] = call.shape;
        const auto of_tokens = call.has_batch ? std::vector{batch, tokens} : std::vector{tokens};
        auto of_heads = of_tokens;
        of_heads.push_back(heads);
        const bool is_shared = call.has_batch && file_.shape == std::vector{tokens};
        if (!is_shared && file_.shape != of_tokens && file_.shape != of_heads) {
            refuse_shape(file_, std::string("X has scales by position ") +
                                    (call.has_batch ? "[tokens], [batch, tokens] or [batch, tokens, heads], "
                                                    : "[tokens] or [tokens, heads], ") +
                                    format_shape(of_heads));
        }
        const auto values = file_.elements<float>();
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (!std::isfinite(values[i])) {
                throw Refusal("number " + std::to_string(i) + " of " + file_.name + " is " + std::to_string(values[i]) +
                              ", but what tokens are multiplied by must be finite");
            }
        }
        call.tensor.position_scales = 1;
        call.stages.position_scales = values.data();
        const std::int64_t stride_token = file_.shape == of_heads ? heads : 1;
        call.stages.stride_position_scales[0] = is_shared ? 0 : tokens * stride_token;
        call.stages.stride_position_scales[1] = stride_token;
        call.stages.stride_position_scales[2] = file_.shape == of_heads ? 1 : 0;
    }

private:
    std::string path_;
    NpyArray file_;
};

}  // namespace halyard::tool
