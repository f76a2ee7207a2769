// Loads and stores: elements of any dtype become floats of a block, and these become elements again.
#pragma once

#include "kv/cache.h"
#include "kv/stage_kernels.h"

namespace halyard {

struct Block;
struct KvCall;

/// Makes floats of elements that are neighbours.
void widen(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const char> &x,
           const Elements<float> &to) noexcept;

/// y = x times r, rounded to a dtype. Elements of x and y are neighbours. Strides of r may be 0.
void narrow(const StageKernels &kernels, Dtype dtype, const Extents &extents, const Elements<const float> &x,
            const Elements<const float> &r, const Elements<char> &y) noexcept;

/// The same of n numbers that lie one after the other.
void widen(const StageKernels &kernels, Dtype dtype, std::int64_t n, const char *from, float *to) noexcept;
void narrow(const StageKernels &kernels, Dtype dtype, std::int64_t n, const float *from, char *to) noexcept;

/// How the elements of a block's output lie.
Scatter scatter_of_output(const KvCall &call, const Block &block) noexcept;

// Steps.
void load(const KvCall &call, Block &block) noexcept;
void load_scattered(const KvCall &call, Block &block) noexcept;
/// Loads keys from a cache. Tokens that have no slot get zeros.
void load_from_cache(const KvCall &call, Block &block) noexcept;
void store(const KvCall &call, Block &block) noexcept;
void store_in_cache(const KvCall &call, Block &block) noexcept;
/// Narrows to dense words and copies these, because kernels that would write few elements each would be called too
/// often.
void store_scattered(const KvCall &call, Block &block) noexcept;
/// Copies dense words that were made in the workspace.
void store_words(const KvCall &call, Block &block) noexcept;

}  // namespace halyard
