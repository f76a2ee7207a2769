#include "core/rows.h"

#include "base/error.h"
#include "core/rotate.h"

#include <algorithm>
#include <cstring>

namespace halyard {

halyard_status check_positions(const RowInput &input, const TokenSet *tokens, halyard_error *error) noexcept {
    const halyard_angle_source &angles = *input.angles;
    return input.bad_position != BadPosition::error
               ? HALYARD_OK
               : check_within({angles.first, angles.last, "the angle source covers "}, *input.positions,
                              input.position_data, angles.axes.n_axes, tokens, "positions", error);
}

namespace {

/// A kernel's buffer of up to three dimensions. The stride of dimension 0 is always 1.
struct Buffer {
    halyard_buffer header;
    halyard_dimension dims[3];

    Buffer(const void *data, std::int64_t extent0, std::int64_t extent1 = 1, std::int64_t stride1 = 0,
           std::int64_t extent2 = 1, std::int64_t stride2 = 0) {
        set_buffer(header, data, dims);
        set_dimension(dims[0], extent0, 1);
        set_dimension(dims[1], extent1, stride1);
        set_dimension(dims[2], extent2, stride2);  // NOLINT(*UninitializedObject): see set_buffer
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
};

}  // namespace

void make_phase_rows(const Phases &phases, const RowKernels &kernels, const std::int32_t *positions,
                     std::int64_t n_tokens, std::int64_t n_pairs, const RowOutput &out) noexcept {
    if (kernels.phase == nullptr) {
        for (std::int64_t t = 0; t < n_tokens; t++) {
            float *const row = out.data + t * out.stride_token;
            phase_row_reference(positions[t], phases, n_pairs, row, row + out.stride_sin);
        }
        return;
    }
    Buffer position(positions, n_tokens), high(phases.turns_high, n_pairs), low(phases.turns_low, n_pairs);
    Buffer rows(out.data, n_pairs, 2, out.stride_sin, n_tokens, out.stride_token);
    kernels.phase(&position.header, &high.header, &low.header, phases.scale_high, phases.scale_low, &rows.header);
}

void make_row_of_turns(const std::uint32_t *turns, double attention_factor, const RowKernels &kernels,
                       std::int64_t n_pairs, const RowOutput &out) noexcept {
    const auto high = static_cast<float>(attention_factor);
    const auto low = static_cast<float>(attention_factor - static_cast<double>(high));
    const std::int32_t once = 1;  // at position 1 turns_low has no effect
    make_phase_rows({turns, turns, high, low}, kernels, &once, 1, n_pairs, out);
}

namespace {

/// Copies rows of a source that has them in memory, widened to float. A kernel's call widens consecutive rows together.
void copy_rows(const halyard_angle_source &angles, const RowKernels &kernels, const std::int32_t *row_of_token,
               std::int64_t n_tokens, std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) {
    const Dtype dtype = angles.rows_dtype;
    halyard_widen_kernel *const kernel = dtype == Dtype::f32 ? nullptr : kernels.widen[index_of(dtype)];
    const bool may_join = kernel != nullptr && angles.stride_row <= max_offset / max_block_tokens;
    for (std::int64_t i = 0, n = 1; i < n_tokens; i += n) {
        for (n = 1; may_join && i + n < n_tokens && row_of_token[i + n] == row_of_token[i] + n;) {
            n++;
        }
        const std::int64_t at = (row_of_token[i] * angles.stride_row + first_pair) * element_bytes(dtype);
        for (const bool is_sin : {false, true}) {
            const char *const from = static_cast<const char *>(is_sin ? angles.sin_rows : angles.cos_rows) + at;
            float *const to = out.data + i * out.stride_token + (is_sin ? out.stride_sin : 0);
            if (dtype == Dtype::f32) {
                std::memcpy(to, from, static_cast<std::size_t>(n_pairs) * sizeof(float));
            } else if (kernel == nullptr) {
                with_storage(dtype, [&](auto storage) {
                    for (std::int64_t k = 0; k < n_pairs; k++) {
                        to[k] = storage.widen(read_word<typename decltype(storage)::Word>(from, k));
                    }
                });
            } else {
                Buffer x(from, n_pairs, 1, 0, n, n == 1 ? 0 : angles.stride_row);
                Buffer y(to, n_pairs, 1, 0, n, n == 1 ? 0 : out.stride_token);
                kernel(&x.header, &y.header);
            }
        }
    }
}

/// A range of pairs, and the axis whose positions they read.
struct Band {
    std::int32_t axis;
    std::int64_t first_pair, n_pairs;
};

void make_axis_rows(const RowInput &input, const RowKernels &kernels, const Band &band, std::int64_t first,
                    std::int64_t n, const RowOutput &out) {
    const auto &[axis, first_pair, n_pairs] = band;
    if (n_pairs <= 0) {
        return;
    }
    std::int32_t found[max_block_tokens];
    find_rows(input, axis, first, n, found);  // positions were checked; false only if another thread changes them now
    const halyard_angle_source &angles = *input.angles;
    if (angles.has_rows()) {
        copy_rows(angles, kernels, found, n, first_pair, n_pairs, out);
    } else {
        make_phase_rows({angles.turns_high.get() + first_pair, angles.turns_low.get() + first_pair, angles.scale_high,
                         angles.scale_low},
                        kernels, found, n, n_pairs, out);
    }
}

/// Copies the pairs of one axis, which span.own lists, from rows that were made for all pairs of a range: n_pairs from
/// first_pair on.
void copy_pairs_of_axis(const PairAxes::Span &span, std::int64_t n_tokens, std::int64_t first_pair,
                        std::int64_t n_pairs, const RowOutput &from, const RowOutput &to) {
    const std::int32_t *const begin = std::lower_bound(span.own, span.own + span.n_own, first_pair);
    const std::int32_t *const end = std::lower_bound(begin, span.own + span.n_own, first_pair + n_pairs);
    for (std::int64_t t = 0; t < n_tokens; t++) {
        const float *const its = from.data + t * from.stride_token - first_pair;
        float *const row = to.data + t * to.stride_token - first_pair;
        for (const std::int32_t *pair = begin; pair != end; pair++) {
            row[*pair] = its[*pair];
            row[*pair + to.stride_sin] = its[*pair + from.stride_sin];
        }
    }
}

}  // namespace

RowBlock row_block(std::int64_t rotary_dim) noexcept {
    const std::int64_t n_pairs = std::min(rotary_dim, made_floats) / 2;
    return {std::clamp<std::int64_t>(made_floats / rotary_dim, 1, max_block_tokens), n_pairs};
}

void make_rows(const RowInput &input, const RowKernels &kernels, std::int64_t first, std::int64_t n,
               std::int64_t first_pair, std::int64_t n_pairs, const RowOutput &out) noexcept {
    const PairAxes &axes = input.angles->axes;
    if (axes.n_axes == 1) {
        make_axis_rows(input, kernels, {0, first_pair, n_pairs}, first, n, out);
        return;
    }
    for (std::int32_t axis = 0; axis < axes.n_axes; axis++) {
        const PairAxes::Span &span = axes.spans[axis];
        const std::int64_t begin = std::max(span.first, first_pair);
        const std::int64_t n_here = std::min(span.last, first_pair + n_pairs) - begin;
        const RowOutput its = {out.data + begin - first_pair, out.stride_token, out.stride_sin};
        if (span.comes_first) {  // pairs of other axes within its span are overwritten by those axes
            make_axis_rows(input, kernels, {axis, begin, n_here}, first, n, its);
        } else if (n_here > 0) {
            float made[made_floats];
            const RowOutput whole = {made, 2 * n_here, n_here};
            make_axis_rows(input, kernels, {axis, begin, n_here}, first, n, whole);
            copy_pairs_of_axis(span, n, begin, n_here, whole, its);
        }
    }
}

}  // namespace halyard
