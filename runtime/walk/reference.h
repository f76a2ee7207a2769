// The portable reference: what kernels compute, in plain C++ with std::fma. It gives the same bits as every target.
#pragma once

#include "walk/piece.h"

#include <cstdint>

namespace halyard {

/// Calls function(storage) with what converts elements of a dtype, F32{} and so on. Records are no numbers.
template <typename Function>
void with_storage(Dtype dtype, const Function &function) {
    switch (dtype) {
    case Dtype::f32: function(F32{}); break;
    case Dtype::f16: function(F16{}); break;
    case Dtype::bf16: function(BF16{}); break;
    case Dtype::e4m3: function(E4M3{}); break;
    case Dtype::e5m2: function(E5M2{}); break;
    case Dtype::int8: function(Int8{}); break;
    case Dtype::uint8: break;
    }
}

/// Rotates in the canonical form of generators/arithmetic/rotation.h. Serves any strides, and is the oracle of the
/// tests.
void rotate_reference(const Piece &piece) noexcept;

/// Frequencies and attention_factor as a source of phases has them.
struct Phases {
    const std::uint32_t *turns_high, *turns_low;
    float scale_high, scale_low;
};

/// The arithmetic of generators/rows_generator.cpp, for one row.
void phase_row_reference(std::int32_t position, const Phases &phases, std::int64_t n_pairs, float *cos_row,
                         float *sin_row) noexcept;

}  // namespace halyard
