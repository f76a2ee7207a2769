// What the kernels of the road have in common: their inputs, and where heads lie.
#pragma once

#include "gpu/device_angles.h"
#include "gpu/lowered.h"
#include "gpu/ptx.h"

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace halyard {

/// Sets that a buffer is FlatMemory, whose quads have so many elements.
template <typename AnyBuffer>
void constrain_flat(AnyBuffer &buffer, int in_quad, bool as_lines = false) {
    const auto dimensions = FlatMemory::dimensions(in_quad, as_lines);
    for (int i = 0; i < 3; i++) {
        buffer.dim(i).set_bounds(0, dimensions[i].extent);
        buffer.dim(i).set_stride(dimensions[i].stride);
    }
}

/// The number of a quad or an element within its row, and that of the row.
inline std::array<Expr, 2> in_rows(const Expr &number, int in_row) {
    const Expr low = cast<int32_t>(number & (in_row - 1)), high = cast<int32_t>(number / in_row);
    return {unsafe_promise_clamped(low, 0, in_row - 1), unsafe_promise_clamped(high, 0, FlatMemory::most - 1)};
}

/// The place of a word in FlatMemory, in the quad that comes so many after another.
inline std::vector<Expr> flat_at(const Expr &quad, const Expr &after, const Expr &word) {
    const auto [low, row] = in_rows(quad, FlatMemory::quads_in_row);
    return {word, unsafe_promise_clamped(low + after, 0, FlatMemory::most - 1), row};
}

/// The place in lines of the element that comes so many after another. `after` should be a constant: it is then no
/// addition at run time.
inline std::vector<Expr> line_at(const Expr &element, const Expr &after, int in_quad) {
    const auto [low, row] = in_rows(element, FlatMemory::quads_in_row * in_quad);
    return {after, low, row};
}

/// A generator of one of the road's kernels.
template <typename T>
class RoadGenerator : public Halide::Generator<T> {
protected:
    std::unique_ptr<Fields::Road> in;
    std::optional<DeviceAngles> device_angles;

    Halide::Var h{"h"}, t{"t"}, k{"k"};
    Expr token = t;  // one that there is

    void add_fields() {
        in.reset(new Fields::Road{*this});
        device_angles.emplace(in->angles);
    }

    void constrain_inputs() {
        device_angles->constrain();
        begin_at_zero(*in->slots);
    }

    /// A scalar of the tensor that a head belongs to.
    static_assert(HALYARD_MAX_TENSORS == 4);
    template <typename Scalar>
    Expr of(const InputSide::OfTensors<Scalar> &each, const Expr &head) const {
        return select(head < in->end[0], each[0], head < in->end[1], each[1], head < in->end[2], each[2], each[3]);
    }
    template <typename Scalar>
    Expr of_head(const InputSide::OfTensors<Scalar> &each) const {
        return of(each, h);
    }

    /// The number of a head within its tensor.
    Expr place_of(const Expr &head) const {
        return head -
               select(head < in->end[0], 0, head < in->end[1], in->end[0], head < in->end[2], in->end[1], in->end[2]);
    }

    Expr slot() const {
        return number_at(*in->slots_offset, *in->n_slot_words, [&](const Expr &at) { return (*in->slots)(at, token); });
    }

    /// Where a head of a token lies, by strides: in a view, and in a cache if it has a slot.
    struct Lies {
        Expr in_view, in_cache;
    };
    template <typename Scalar>
    Lies lies(const InputSide::OfTensors<int64_t> &first, const InputSide::OfTensors<Scalar> &head,
              const InputSide::OfTensors<Scalar> &of_token, const InputSide::OfTensors<Scalar> &of_block) const {
        const Expr near = cast<int32_t>(clamp(slot(), 0, cast<int64_t>(*in->n_slots) - 1));
        const Expr size = of_head(in->block_size), block = near / Halide::max(size, 1);
        const Expr in_block = near - block * size;
        const Expr head_at = of_head(first) + cast<int64_t>(place_of(h)) * of_head(head);
        return {head_at + cast<int64_t>(token) * of_head(of_token),
                head_at + cast<int64_t>(block) * of_head(of_block) + cast<int64_t>(in_block) * of_head(of_token)};
    }

    /// The quad that a head of a token begins with in y; -1: it is not stored.
    Expr stored_at() {
        const Expr is_slot = slot() >= 0 && slot() < cast<int64_t>(*in->n_slots) &&
                             (*in->stores_bad != 0 || device_angles->cover(token));
        const Lies at = lies(in->y_at, in->y_head, in->y_token, in->y_block);
        return select(of_head(in->block_size) == 0, at.in_view, is_slot, at.in_cache, cast<int64_t>(-1));
    }
};

}  // namespace halyard
