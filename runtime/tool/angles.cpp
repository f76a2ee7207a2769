// halyard angles: rows of cos and sin for a list of positions.
#include "tool/commands.h"
#include "tool/files/file.h"
#include "tool/files/npy.h"
#include "tool/options/angle_options.h"
#include "tool/options/arguments.h"
#include "tool/options/frequency_options.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {
namespace {

struct Angles {
    std::string output;
    FrequencyOptions frequencies;
    TokenPositions positions;

    void run() {
        frequencies.require_rotary_dim();
        const auto made = frequencies.make();
        const auto rotary_dim = made.info().rotary_dim;
        positions.read(0);
        if (positions.shape().size() != 1) {
            throw Refusal(positions.name() + " has shape " + format_shape(positions.shape()) +
                          ", but 'angles' needs positions [tokens]");
        }
        const auto n_tokens = positions.shape()[0];
        std::vector<float> rows(static_cast<std::size_t>(n_tokens) * static_cast<std::size_t>(rotary_dim));
        if (n_tokens != 0) {
            auto view = positions.view(1);
            positions.require_valid(1, std::nullopt, "");
            AngleOptions angles;
            const auto source = angles.make(made, frequencies.reference, positions, view);
            const plan maker(plan_desc(made, {describe_tensor(dtype::f32, rotary_dim, pairing::half)}));
            make_rows(maker, source, &view, {1, n_tokens}, rows.data(), static_cast<std::int64_t>(rows.size()));
        }
        const std::int64_t shape[] = {n_tokens, 2, rotary_dim / 2};
        write_npy(output, "<f4", shape, rows.data(), rows.size() * sizeof(float));
    }
};

}  // namespace

void add_angles(CLI::App &app) {
    auto *command = app.add_subcommand("angles", "Write cos and sin, float32 [tokens, 2, pairs], attention_factor "
                                                 "applied");
    const auto given = std::make_shared<Angles>();
    given->positions.add(*command, "<i4 or <i8, [tokens]; or START ... STOP - 1")->required();
    add_file(*command, "-o,--output", given->output, "the cos row and the sin row of each token")->required();
    given->frequencies.add_without_tensor(*command);
    command->callback([given] { given->run(); });
}

}  // namespace halyard::tool
