// halyard angles: rows of cos and sin for a list of positions.
#include "tool/commands/commands.h"
#include "tool/files/input_file.h"
#include "tool/inputs.h"
#include "tool/refusal.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace halyard::tool {

void write_angles(const AnglesOptions &options) {
    const auto frequencies = make_frequencies(options.frequencies, std::nullopt);
    const auto rotary_dim = frequencies.info().rotary_dim;
    auto positions = TokenPositions::read(options.positions);
    if (positions.shape().size() != 1) {
        throw Refusal(name_input(options.positions.path) + " has shape " + format_shape(positions.shape()) +
                      ", but 'angles' needs positions [tokens]");
    }
    const auto n_tokens = positions.n_tokens();
    std::vector<float> rows(static_cast<std::size_t>(n_tokens) * static_cast<std::size_t>(rotary_dim));
    if (n_tokens != 0) {
        positions.materialize();
        positions.require_valid(1, std::nullopt, "");
        const auto view = positions.view(1);
        const auto source =
            make_source(frequencies, options.angles, options.frequencies.reference, AxisMapOption(),
                        std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), &positions);
        const plan maker(plan_desc(frequencies, {describe_tensor(dtype::f32, rotary_dim, pairing::half)}));
        make_rows(maker, source, &view, 1, n_tokens, rows.data(), static_cast<std::int64_t>(rows.size()));
    }
    const std::int64_t shape[] = {n_tokens, 2, rotary_dim / 2};
    write_npy(options.output, "<f4", shape, rows.data(), rows.size() * sizeof(float));
}

}  // namespace halyard::tool
