// Angles that are linear in positions which need not be integers: --axis-matrix, with --positions.
#pragma once

#include "tool/files/input_file.h"
#include "tool/files/npy.h"
#include "tool/files/refusal.h"
#include "tool/options/arguments.h"
#include "tool/options/token_positions.h"

#include "halyard/halyard.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {

class LinearOptions {
public:
    CLI::Option *add(CLI::App &command) {
        return add_file(command, "--axis-matrix", path_,
                        "instead of frequencies: W.npy, <f8, [axes, pairs] or [heads, axes, pairs]; pair k turns by "
                        "the sum over axes a of position[a] * W[a, k]. --positions may then be <f4 or <f8, "
                        "[axes, tokens]");
    }

    bool is_given() const { return !path_.empty(); }
    const std::string &path() const { return path_; }
    const std::string &name() const { return matrix_.name; }  // after read

    /// Reads positions and the matrix. Throws Refusal.
    void read(const TokenPositions &positions, std::optional<std::int64_t> wanted_rotary_dim) {
        if (positions.path().empty()) {
            throw Refusal("--axis-matrix needs the positions of a file, [axes, tokens], by --positions");
        }
        matrix_ = read_npy(path_, {"<f8"});
        const auto &shape = matrix_.shape;
        if ((shape.size() != 2 && shape.size() != 3) || matrix_.n_elements == 0) {
            refuse_shape(matrix_, "[axes, pairs] or [heads, axes, pairs] is needed");
        }
        if (wanted_rotary_dim && (*wanted_rotary_dim % 2 != 0 || *wanted_rotary_dim / 2 != shape.back())) {
            throw Refusal(matrix_.name + " has rows of " + std::to_string(shape.back()) +
                          " pairs, but --rotary-dim is " + std::to_string(*wanted_rotary_dim));
        }
        const auto file = read_npy(positions.path(), {"<f4", "<f8", "<i4", "<i8"});
        if (file.shape.size() != 2 || file.shape[0] != n_axes()) {
            refuse_shape(file, "[axes, tokens] with the " + std::to_string(n_axes()) + " axes of " + matrix_.name +
                                   " is needed");
        }
        n_tokens_ = file.shape[1];
        if (file.descr[1] == 'f') {
            positions_ = file.widened<double, float>();
            return;
        }
        constexpr std::int64_t most = std::int64_t{1} << 53;  // beyond, a double may be another number
        for (const auto position : file.widened<std::int64_t, std::int32_t>()) {
            if (position < -most || position > most) {
                throw Refusal(file.name + " holds " + std::to_string(position) + ", beyond 2^53");
            }
            positions_.push_back(static_cast<double>(position));
        }
    }

    std::int64_t rotary_dim() const { return 2 * matrix_.shape.back(); }
    std::int64_t n_heads() const { return matrix_.shape.size() == 3 ? matrix_.shape[0] : 0; }
    std::int64_t n_tokens() const { return n_tokens_; }

    /// The rows of all tokens, [tokens, 2, pairs] or [tokens, heads, 2, pairs].
    std::vector<float> make_rows() const {
        std::vector<float> rows(static_cast<std::size_t>(n_tokens_ * std::max<std::int64_t>(n_heads(), 1)) *
                                static_cast<std::size_t>(rotary_dim()));
        const plan maker(plan_desc(rotary_dim(), {describe_tensor(dtype::f32, rotary_dim(), pairing::half)}));
        halyard::make_rows(maker,
                           linear_angles(positions_.data(), 1, n_tokens_, matrix_.elements<double>().data(),
                                         static_cast<std::int32_t>(std::min<std::int64_t>(n_axes(), INT32_MAX)),
                                         n_heads()),
                           1, n_tokens_, rows.data(), static_cast<std::int64_t>(rows.size()));
        return rows;
    }

private:
    std::int64_t n_axes() const { return matrix_.shape[matrix_.shape.size() - 2]; }

    std::string path_;
    NpyArray matrix_;
    std::vector<double> positions_;
    std::int64_t n_tokens_ = 0;
};

}  // namespace halyard::tool
