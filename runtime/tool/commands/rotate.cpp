// halyard rotate: X.npy → Y.npy.
#include "tool/commands/commands.h"
#if HALYARD_TOOL_HAS_GPU
#include "tool/device.h"
#endif
#include "tool/files/input_file.h"
#include "tool/files/npy.h"
#include "tool/inputs.h"
#include "tool/refusal.h"
#include "tool/road_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

namespace halyard::tool {
namespace {

/// X's type; --dtype (may be empty) must agree.
dtype check_type(const NpyArray &x, const std::string &stated) {
    const std::string held = x.descr == "<f4"                     ? "f32"
                             : x.descr == "<f2"                   ? "f16"
                             : x.descr == "<u2"                   ? "bf16"
                             : x.descr == "|i1"                   ? "int8"
                             : stated.empty() || stated[0] != 'e' ? "e4m3 or e5m2"
                                                                  : stated;
    if (stated.empty() && held == "bf16") {
        throw Refusal(x.name + " holds <u2; if those are the bits of bfloat16, say --dtype bf16");
    }
    if (stated.empty() && x.descr == "|u1") {
        throw Refusal(x.name + " holds |u1; say --dtype e4m3 or e5m2, whose bits those are");
    }
    if (!stated.empty() && stated != held) {
        throw Refusal(x.name + " holds " + x.descr + " (" + held + "), but --dtype says " + stated);
    }
    return parse_dtype(held);
}

/// [batch, tokens, heads, head_dim] and its strides, wherever the file has them.
struct Layout {
    std::array<std::int64_t, 4> shape;
    std::array<std::int64_t, 4> strides;
};

Layout lay_out(const NpyArray &x, const std::string &layout) {
    const auto &shape = x.shape;
    if (shape.size() != 3 && shape.size() != 4) {
        throw Refusal(x.name + " has shape " + format_shape(shape) +
                      ", but [tokens, heads, head_dim] or four dimensions are needed");
    }
    const bool has_batch = shape.size() == 4;
    if (!has_batch && layout == "bhsd") {
        throw Refusal(x.name + " has shape " + format_shape(shape) + ", but --layout bhsd needs four dimensions");
    }
    const auto first = has_batch ? shape[0] : 1;
    const auto second = shape[shape.size() - 3];
    const auto third = shape[shape.size() - 2];
    const auto head_dim = shape.back();
    if (x.n_elements == 0) {
        // Nothing will be addressed, and the other sizes may be anything.
        return {layout == "bhsd" ? std::array{first, third, second, head_dim}
                                 : std::array{first, second, third, head_dim},
                {}};
    }
    if (layout == "bhsd") {
        return {{first, third, second, head_dim}, {second * third * head_dim, head_dim, third * head_dim, 1}};
    }
    return {{first, second, third, head_dim}, {second * third * head_dim, third * head_dim, head_dim, 1}};
}

/// Rows of cos and sin from a file, one for each token; `file` must outlive the source.
angle_source read_given(const NpyArray &file, std::int64_t n_tokens, std::optional<std::int64_t> rotary_dim) {
    const auto &shape = file.shape;
    if (shape.size() != 3 || shape[1] != 2) {
        throw Refusal(file.name + " has shape " + format_shape(shape) + ", but [tokens, 2, pairs] is needed");
    }
    if (shape[0] != n_tokens) {
        throw Refusal(file.name + " has rows for " + std::to_string(shape[0]) + " tokens, but X has " +
                      std::to_string(n_tokens));
    }
    if (rotary_dim && (*rotary_dim % 2 != 0 || *rotary_dim / 2 != shape[2])) {
        throw Refusal(file.name + " has rows of " + std::to_string(shape[2]) + " pairs, but --rotary-dim is " +
                      std::to_string(*rotary_dim));
    }
    if (shape[2] == 0) {
        throw Refusal(file.name + " has rows of no pairs");
    }
    if (file.n_elements == 0) {
        return angle_source();
    }
    const auto rows = file.elements<float>();
    return angle_source::given(rows.data(), rows.data() + shape[2], n_tokens, 2 * shape[2], 2 * shape[2]);
}

std::string name_of(const PositionOptions &options, const std::string &option) {
    return options.is_range ? option + " " + std::to_string(options.start) + ":" + std::to_string(options.stop)
                            : name_input(options.path);
}

/// Checks the positions' shape against X's [batch, tokens], the first dimension being axes where there are several.
void check_count(const TokenPositions &positions, const PositionOptions &options, const char *option,
                 const std::array<std::int64_t, 4> &x, std::int32_t n_axes) {
    const auto &shape = positions.shape();
    const std::size_t axes_dims = n_axes > 1 ? 1 : 0;
    if (axes_dims == 1 && (shape.size() < 2 || shape[0] != n_axes)) {
        throw Refusal(name_of(options, option) + " has shape " + format_shape(shape) + ", but " +
                      std::to_string(n_axes) + " axes need positions [axes, tokens] or [axes, batch, tokens]");
    }
    if (shape.size() > 2 + axes_dims) {
        throw Refusal(name_of(options, option) + " has shape " + format_shape(shape) +
                      ", but without an axis map positions are [tokens] or [batch, tokens]");
    }
    if (positions.n_tokens() != x[1]) {
        throw Refusal(name_of(options, option) + " has positions for " + std::to_string(positions.n_tokens()) +
                      " tokens, but X has " + std::to_string(x[1]));
    }
    if (shape.size() == 2 + axes_dims && shape[axes_dims] != x[0]) {
        throw Refusal(name_of(options, option) + " has positions for a batch of " + std::to_string(shape[axes_dims]) +
                      ", but X has a batch of " + std::to_string(x[0]));
    }
}

/// The axis map that is asked for; else the model's, where the positions have a dimension for its axes. (Text has one
/// position on all axes, and then the map changes nothing.)
AxisMapOption find_axis_map(const std::string &text, const halyard_frequencies_info &model,
                            const TokenPositions &positions, bool has_batch) {
    if (!text.empty()) {
        return parse_axis_map(text);
    }
    AxisMapOption map;
    const auto &shape = positions.shape();
    const bool has_axes = shape.size() == 3 || (shape.size() == 2 && !has_batch && shape[0] != 1);
    if (model.axis_map != HALYARD_AXIS_MAP_NONE && has_axes) {
        map.kind = model.axis_map;
        map.n_axes = model.n_axes;
        std::copy_n(model.axis_counts, map.counts.size(), map.counts.begin());
    }
    return map;
}

}  // namespace

void rotate(const RotateOptions &options) {
    std::int32_t device = HALYARD_CPU;
#if HALYARD_TOOL_HAS_GPU
    device = device_of(options.rotation.target);
#endif
    if (device != HALYARD_CPU && options.n_threads > 1) {
        throw Refusal("--threads is for the CPU, but --target is " + options.rotation.target);
    }
    if (const auto given = options.road.find_given(); device != HALYARD_CPU && !given.empty()) {
        throw Refusal(given + " is for the CPU, but --target is " + options.rotation.target + ", which only rotates");
    }
    const bool moves = options.road.moves;
    const auto x = moves ? read_npy(options.input, {"<f4", "<f2", "<u2", "|u1", "|i1"})
                         : read_npy(options.input, {"<f4", "<f2", "<u2"});
    const auto type = check_type(x, options.type);
    std::optional<Layout> view_of_x;  // none: X is a cache
    if (!moves || options.road.slots.empty()) {
        view_of_x = lay_out(x, options.layout);
    }
    RoadFiles road(options.road, x, type, view_of_x ? std::optional(view_of_x->shape) : std::nullopt);
    const Layout layout = view_of_x.value_or(Layout{road.shape(), {}});
    const auto n_tokens = layout.shape[1];
    const auto head_dim = layout.shape[3];
    if (options.rotation.in_place && road.out_type() != type) {
        throw Refusal("--in-place keeps X's type, but --out-dtype is " + options.road.out_type);
    }

    // Cos and sin: the caller's, or of just the positions that occur.
    NpyArray given;
    frequencies made;
    auto positions = TokenPositions::count(n_tokens);
    std::optional<TokenPositions> from;
    std::int64_t rotary_dim = 0;
    AxisMapOption axes;
    angle_source angles;
    if (options.road.no_rotation) {
        // There is no angle.
    } else if (!options.cos_sin.empty()) {
        given = read_npy(options.cos_sin, {"<f4"});
        angles = read_given(given, n_tokens, options.frequencies.rotary_dim);
        rotary_dim = 2 * given.shape[2];
    } else {
        made = make_frequencies(options.frequencies, head_dim);
        rotary_dim = made.info().rotary_dim;
        const bool has_positions = options.positions.is_range || !options.positions.path.empty();
        if (has_positions) {
            positions = TokenPositions::read(options.positions);
        }
        axes = find_axis_map(options.axis_map, made.info(), positions, road.has_batch());
        if (has_positions) {
            check_count(positions, options.positions, "--positions", layout.shape, axes.n_axes);
        }
        if (moves) {
            from = TokenPositions::read(options.from_positions);
            check_count(*from, options.from_positions, "--from-positions", layout.shape, axes.n_axes);
        }
    }
    const auto model = made ? made.info() : halyard_frequencies_info{};
    auto desc = options.road.no_rotation
                    ? options.rotation.describe_unrotated(type, head_dim)
                    : options.rotation.describe(type, head_dim, rotary_dim, made ? &model : nullptr);
    road.describe(desc.tensors.front());
    desc.rerotates = moves;
    if (moves && desc.tensors.front().out_pairing != 0) {
        desc.tensors.front().pairing = desc.tensors.front().out_pairing;  // keys are what such a rotation wrote
    }
    if (device != HALYARD_CPU) {
        desc.target = "reference";  // checks the description; the device decides on its kernels
    }
    const plan plan(desc);

    if (x.n_elements != 0) {
        run_options how;
        const std::int32_t first_row = 0;  // all batch rows read the caller's cos and sin from there on
        auto view = consecutive_positions(&first_row, 1);
        how.positions = options.road.no_rotation ? nullptr : &view;
        if (made) {
            positions.materialize();
            // Without a file, tokens are counted alike on all axes, which is what no positions mean.
            const bool is_counted = axes.n_axes > 1 && positions.shape().size() == 1;
            view = is_counted ? halyard_positions{} : positions.view(axes.n_axes);
            how.positions = is_counted ? nullptr : &view;
            how.policy = parse_bad_position(options.bad_position);
            if (how.policy == bad_position::error) {
                positions.require_valid(axes.n_axes, options.max_position, moves ? "" : " (see --bad-position)");
            }
        }
        auto from_view = halyard_positions{};
        if (moves) {
            from->materialize();
            from->require_valid(axes.n_axes, std::nullopt, "");
            from_view = from->view(axes.n_axes);
            how.moved_from(from_view);
        }
        road.bring_to(how);
        const auto input = input_tensor(view_of_x ? x.data.get() : nullptr, type, layout.shape, layout.strides);
        const auto output = tensor(road.output(), road.out_type(), layout.shape, layout.strides);
        if (device == HALYARD_CPU) {
            if (made) {
                const auto first = options.max_position ? 0 : std::numeric_limits<std::int32_t>::min();
                const auto last = options.max_position ? static_cast<std::int32_t>(*options.max_position - 1)
                                                       : std::numeric_limits<std::int32_t>::max();
                // Keys move by no table, and so need none.
                angles = make_source(made, moves ? "phase" : options.angles, options.frequencies.reference, axes, first,
                                     last, &positions);
            }
            pool threads;
            if (options.n_threads > 1) {
                threads = pool(static_cast<std::int32_t>(options.n_threads));
                how.executor = threads.executor();
            }
            if (options.rotation.in_place && view_of_x) {
                std::memcpy(output.data, x.data.get(), x.n_bytes);
                run(plan, angles, output, output, how);
            } else {
                run(plan, angles, input, output, how);
            }
        }
#if HALYARD_TOOL_HAS_GPU
        if (device != HALYARD_CPU) {
            desc.target = nullptr;
            if (made) {
                angles = make_device_source(made, options.angles, options.frequencies.reference, axes,
                                            options.max_position, positions);
            }
            rotate_on_device({device, desc, made ? &angles : nullptr, made ? nullptr : &given, how.positions,
                              how.policy, options.rotation.in_place, input, output, x.n_bytes});
        }
#endif
    }
    road.write(options.output);
}

}  // namespace halyard::tool
