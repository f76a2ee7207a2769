#include "checks/scene/angles.h"

#include "checks/make_sources.h"

#include <cmath>
#include <cstring>

namespace scenes {

namespace {

constexpr double bases[] = {10000, 500000};

constexpr std::int32_t least = INT32_MIN, greatest = INT32_MAX;

}  // namespace

void Angles::draw(Draw &draw, const Choice &choice, const Call &call, Kind of_kind, int axes) {
    kind = of_kind;
    const std::int64_t widest = std::max<std::int64_t>(4096, choice.rotary_dim);  // a fuzzer may ask for more
    desc.rotary_dim = call.plan.rotary_dim >= 2 && call.plan.rotary_dim <= widest ? call.plan.rotary_dim / 2 * 2 : 2;
    const std::int64_t n_pairs = desc.rotary_dim / 2;
    desc.kind = kind == table ? HALYARD_ANGLES_TABLE : kind == phase ? HALYARD_ANGLES_PHASE : HALYARD_ANGLES_GIVEN;
    draw_range(draw, choice);
    draw_axes(draw, axes, n_pairs);
    if (kind == by_token) {
        desc.rows_dtype = static_cast<std::int32_t>(draw.in(HALYARD_F32, HALYARD_BF16));
        desc.by_token = static_cast<std::int32_t>(draw.in(1, 2));
        desc.n_rows = std::max<std::int64_t>(call.n_tokens() * (desc.by_token == 1 ? call.n_batch() : 1), 1);
    } else if (is_given()) {
        desc.rows_dtype = kind - given_f32 + 1;
        desc.n_rows = desc.n_positions;
    }
    are_from_base_ = draw.one_in(2);
    for (int i = 0; i < 2; i++) {
        for (const long double value : oracle::inv_freq_of(bases[i], desc.rotary_dim)) {
            inv_freq_[i].push_back(are_from_base_ ? value : static_cast<double>(value));
        }
        factors_[i] = are_from_base_ || draw.one_in(2) ? 1 : i == 0 ? 1.2707 : 0.7;
    }
}

/// Positions about 0, or at either end of int32.
void Angles::draw_range(Draw &draw, const Choice &choice) {
    const bool is_wide = desc.rotary_dim > (draw.is_fuzzed() ? 32 : 1024);
    const std::int64_t most = is_wide ? 40 : draw.is_fuzzed() ? 256 : 200;  // tables take time
    const std::int64_t n = choice.any_range ? draw.in(1, draw.is_fuzzed() ? 40 : 301) : most;
    const std::int64_t begin = !draw.one_in(3)  ? draw.in(-100, 100)
                               : draw.one_in(2) ? least + draw.in(0, 9)
                                                : greatest - n + 1 - draw.in(0, draw.one_in(2) ? 0 : 9);
    desc.first = static_cast<std::int32_t>(begin);
    desc.n_positions = n;
    if (is_given()) {
        desc.first = 0;
    } else if (kind == phase && draw.one_in(2)) {
        desc.first = least + static_cast<std::int32_t>(draw.in(0, 9));
        desc.n_positions = greatest - draw.in(0, draw.one_in(2) ? 9 : greatest) - desc.first + 1;
    }
    first = desc.first;
    last = static_cast<std::int32_t>(first + desc.n_positions - 1);
}

void Angles::draw_axes(Draw &draw, int axes, std::int64_t n_pairs) {
    if (axes == 0 || n_pairs < 3) {
        return;
    }
    desc.axis_map = HALYARD_AXIS_MAP_NONE + axes;
    desc.n_axes = 3;
    for (std::int64_t k = 0; k < n_pairs; k++) {
        axis_of_pair_[0].push_back(static_cast<std::int32_t>(draw.is_fuzzed() ? k * k % 3 : draw.in(0, 2)));
        axis_of_pair_[1].push_back(static_cast<std::int32_t>(draw.is_fuzzed() ? (2 * k + 1) % 3 : draw.in(0, 2)));
    }
    desc.axis_of_pair = axis_of_pair_[0].data();
    desc.axis_counts[1] = n_pairs / 3;
    desc.axis_counts[2] = n_pairs / 3 - (n_pairs > 3 ? 1 : 0);
    desc.axis_counts[0] = n_pairs - desc.axis_counts[1] - desc.axis_counts[2];
}

void Angles::add_to(Draw &draw, Memory &memory) {
    if (is_given()) {
        const std::int64_t n_pairs = desc.rotary_dim / 2, bytes = oracle::element_bytes(desc.rows_dtype);
        const bool is_fused = draw.one_in(2);  // cos and sin of a position beside each other
        const std::int64_t width = (is_fused ? desc.rotary_dim : n_pairs) + draw.in(0, 3);
        desc.stride_row = width;
        const std::size_t region = memory.new_region();
        const Extent extent = Extent(bytes, is_fused ? desc.rotary_dim : n_pairs).add(desc.n_rows, desc.stride_row);
        memory.add(desc.cos_rows, region, extent, bytes);
        if (is_fused) {
            memory.add_beside(desc.sin_rows, desc.cos_rows, n_pairs * bytes);
        } else {
            memory.add(desc.sin_rows, region, extent, bytes);
        }
    }
}

void Angles::fill(oracle::Random &random) const {
    const std::int64_t bytes = is_given() ? oracle::element_bytes(desc.rows_dtype) : 0, n_pairs = desc.rotary_dim / 2;
    for (std::int64_t i = 0; is_given() && i < desc.n_rows * n_pairs; i++) {
        const std::int64_t at = (i / n_pairs * desc.stride_row + i % n_pairs) * bytes;
        const double theta = 3 * random.unit();
        const auto write = [&](const void *rows, double value) {
            oracle::write_word(desc.rows_dtype, static_cast<char *>(const_cast<void *>(rows)) + at,
                               oracle::narrow(desc.rows_dtype, static_cast<float>(value)));
        };
        write(desc.cos_rows, std::cos(theta));
        write(desc.sin_rows, std::sin(theta));
    }
}

std::string Angles::create(bool moves) {
    auto error = sized<halyard_error>();
    for (int i = 0; i < (moves ? 2 : 1); i++) {
        const std::vector<double> list(inv_freq_[i].begin(), inv_freq_[i].end());
        const auto n_pairs = static_cast<std::int64_t>(list.size());
        frequencies_[i] = are_from_base_ ? halyard::frequencies::from_base(bases[i], 2 * n_pairs)
                                         : halyard::frequencies::from_list(list.data(), n_pairs, factors_[i]);
        halyard_angle_source *made = nullptr;
        const halyard_angle_source_desc described = describe(static_cast<std::size_t>(i));
        if (halyard_create_angle_source(frequencies_[i].get(), &described, &made, &error) != HALYARD_OK) {
            return error.message;
        }
        sources_[i] = halyard::angle_source(made);
    }
    return "";
}

/// The second source has an axis map of its own.
halyard_angle_source_desc Angles::describe(std::size_t source) const {
    halyard_angle_source_desc described = desc;
    if (source == 1 && desc.axis_map != 0 && !axis_of_pair_[1].empty()) {
        described.axis_map = HALYARD_AXIS_MAP_LIST;
        described.axis_of_pair = axis_of_pair_[1].data();
    }
    return described;
}

std::int64_t Angles::axis_of(std::size_t source, std::int64_t pair) const {
    switch (describe(source).axis_map) {
    case HALYARD_AXIS_MAP_SECTIONS:
    case HALYARD_AXIS_MAP_INTERLEAVED: return axis_of_pair(desc.axis_map, {desc.axis_counts, 3}, pair);
    case HALYARD_AXIS_MAP_LIST: return axis_of_pair_[source][static_cast<std::size_t>(pair)];
    default: return 0;
    }
}

std::int64_t Angles::resolve(const Call &call, std::int64_t position) const {
    if (call.plan.rerotates != 0 || is_covered(position) || call.args.bad_position == HALYARD_BAD_POSITION_ERROR) {
        return position;
    }
    if (call.args.bad_position == HALYARD_BAD_POSITION_IDENTITY) {
        return 0;
    }
    return std::clamp<std::int64_t>(position, first, last);
}

Angles::CosSin Angles::at(const Call &call, std::int64_t batch, std::int64_t token, std::int64_t pair) const {
    const auto k = static_cast<std::size_t>(pair);
    const std::int64_t position = resolve(call, position_of(call.args.positions, axis_of(0, pair), batch, token));
    const long double sign = call.plan.direction == HALYARD_INVERSE ? -1 : 1;
    if (is_given()) {
        const std::int64_t row = desc.by_token == 0   ? position
                                 : desc.by_token == 1 ? batch * call.n_tokens() + token
                                                      : token;
        const auto read = [&](const void *rows) {
            const std::int64_t at = (row * desc.stride_row + pair) * oracle::element_bytes(desc.rows_dtype);
            return oracle::widen(desc.rows_dtype,
                                 oracle::read_word(desc.rows_dtype, static_cast<const char *>(rows) + at));
        };
        return {read(desc.cos_rows), sign * read(desc.sin_rows)};
    }
    long double theta = inv_freq_[0][k] * position, factor = factors_[0];
    if (call.plan.rerotates != 0) {  // exact to 2^-31
        const std::size_t source = call.brought.from_angles == nullptr ? 0 : 1;
        const std::int64_t from_position =
            position_of(call.brought.from_positions, axis_of(source, pair), batch, token);
        theta = source == 0 ? inv_freq_[0][k] * static_cast<long double>(position - from_position)
                            : theta - inv_freq_[1][k] * from_position;
        factor /= factors_[source];
    }
    return {factor * std::cos(theta), sign * factor * std::sin(theta)};
}

}  // namespace scenes
