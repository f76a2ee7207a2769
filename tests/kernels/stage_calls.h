// The list of stage kernels, and a call of any stage.
#pragma once

#include "walk/dispatch.h"
#include "walk/stages.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

enum class Stage {
    widen,
    norm,
    widen_norm,
    layer_norm,
    norm_rotate,
    narrow,
    quantise,
    store_groups,
    load_groups,
    largest,
    range,
    hadamard,
    butterfly
};

/// A row of kernels.inc for one target. The name is without it.
struct StageRow {
    const char *name;
    Stage stage;
    halyard::Dtype dtype;
    halyard::Target target;
    bool (*is_in)(const halyard::StageKernels &kernels);

    bool is_one_of(std::initializer_list<Stage> stages) const {
        return std::find(stages.begin(), stages.end(), stage) != stages.end();
    }
    bool rotates() const { return stage == Stage::norm_rotate; }
    /// Whether it sums, so that a target without fused multiply-add has other bits.
    bool sums() const { return is_one_of({Stage::norm, Stage::widen_norm, Stage::layer_norm, Stage::norm_rotate}); }
    bool knows_groups() const { return is_one_of({Stage::store_groups, Stage::load_groups}); }
    bool transforms() const { return is_one_of({Stage::hadamard, Stage::butterfly}); }
    /// Other stages read f32, or write it.
    halyard::Dtype dtype_in() const {
        return is_one_of({Stage::widen, Stage::widen_norm, Stage::norm_rotate, Stage::load_groups})
                   ? dtype
                   : halyard::Dtype::f32;
    }
    halyard::Dtype dtype_out() const {
        return is_one_of({Stage::narrow, Stage::quantise, Stage::norm_rotate, Stage::store_groups})
                   ? dtype
                   : halyard::Dtype::f32;
    }
};

inline constexpr StageRow stage_rows[] = {
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target)                                                               \
    {"halyard_" #stage "_" #dtype, Stage::stage, halyard::Dtype::dtype, halyard::Target::target,                       \
     [](const halyard::StageKernels &kernels) {                                                                        \
         return kernels.stage[halyard::index_of(halyard::Dtype::dtype)] != nullptr;                                    \
     }},
#include "built_kernels.inc"
};

/// What stages read and write. Each takes what it needs.
struct StageCall {
    const StageRow &row;
    halyard::Extents extents;
    halyard::Elements<char> x, y;           // the same, for a norm
    halyard::Elements<const float> r = {};  // what narrow and quantise multiply by
    const float *z = nullptr;               // zero points
    float *greatest = nullptr;              // y takes the least
    halyard::Norm norm = {};                // a bias is for layer_norm, a rounding not for norm_rotate
    halyard::Quantisation how = {};
    halyard::Piece rows = {};  // with rows of cos and sin, and nothing else
    std::int64_t n_transformed = 0;
    halyard::Q8 q8 = {};
    halyard::Elements<char> scales = {};  // of q8

    /// False where store_groups says so.
    bool run_by(const halyard::StageKernels &kernels) const {
        if (row.stage == Stage::store_groups) {
            const auto *const heads = reinterpret_cast<const float *>(x.data);
            return store_q8(kernels, q8, extents, heads, y, scales);
        }
        run_others_by(kernels);
        return true;
    }

private:
    void run_others_by(const halyard::StageKernels &kernels) const {
        const auto floats_of = [](const halyard::Elements<char> &bytes) {
            return halyard::Elements<float>{reinterpret_cast<float *>(bytes.data), bytes.strides};
        };
        const halyard::Elements<const char> from = {x.data, x.strides};
        const halyard::Elements<float> floats = floats_of(y);
        const halyard::Elements<const float> block = {floats_of(x).data, x.strides};
        switch (row.stage) {
        case Stage::widen: return widen(kernels, row.dtype, extents, from, floats);
        case Stage::widen_norm: return widen_and_normalise(kernels, row.dtype, norm, extents, from, floats);
        case Stage::norm:
        case Stage::layer_norm:
            return x.data == y.data ? normalise(kernels, norm, extents, floats)
                                    : widen_and_normalise(kernels, halyard::Dtype::f32, norm, extents, from, floats);
        case Stage::norm_rotate: return norm_and_rotate(kernels, norm, piece());
        case Stage::narrow: return narrow(kernels, row.dtype, extents, block, r, y);
        case Stage::quantise:
            return quantise(kernels, how, extents, block, r.data, z, reinterpret_cast<unsigned char *>(y.data));
        case Stage::store_groups: return;
        case Stage::load_groups: return load_q8(kernels, extents, from, {scales.data, scales.strides}, floats.data);
        case Stage::largest: return find_largest(kernels, extents, block, floats.data);
        case Stage::range: return find_range(kernels, extents, block, floats.data, greatest);
        case Stage::hadamard:
        case Stage::butterfly: return transform(kernels, n_transformed, extents.n_elements, floats.data);
        }
    }

    halyard::Piece piece() const {
        halyard::Piece piece = rows;
        piece.dtype = row.dtype;
        piece.x = x.data;
        piece.y = y.data;
        piece.n_pairs = extents.n_elements / 2;
        piece.n_heads = extents.n_heads;
        piece.n_tokens = extents.n_tokens;
        const auto pairs_of = [&](const halyard::ElementStrides &s) {
            return halyard::PairStrides{s.element, piece.n_pairs * s.element, s.head, s.token};
        };
        piece.in = pairs_of(x.strides);
        piece.out = pairs_of(y.strides);
        piece.within_int32 = true;
        return piece;
    }
};
