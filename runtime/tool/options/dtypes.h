// The types of elements: to the library, as words, and in .npy files.
#pragma once

#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

#include <cstddef>
#include <cstdint>

namespace halyard::tool {

struct Dtype {
    dtype value;
    const char *word;
    const char *descr;
    std::int64_t n_bytes;
};

/// In the order of their values. NumPy has no bf16 and no floats of 8 bits: files hold their bits.
inline constexpr Dtype dtypes[] = {{dtype::f32, "f32", "<f4", 4},      {dtype::f16, "f16", "<f2", 2},
                                   {dtype::bf16, "bf16", "<u2", 2},    {dtype::e4m3, "e4m3", "|u1", 1},
                                   {dtype::e5m2, "e5m2", "|u1", 1},    {dtype::int8, "int8", "|i1", 1},
                                   {dtype::uint8, "records", "|u1", 1}};

/// Those of them that an option can name, which are the first.
inline constexpr std::size_t n_named_dtypes = 6;

inline const Dtype &find_dtype(dtype value) { return dtypes[static_cast<std::size_t>(value) - 1]; }

/// All of them, or those that kernels read.
template <typename Value>
Words<Value> words_of_dtypes(std::size_t n = n_named_dtypes) {
    Words<Value> words;
    for (std::size_t i = 0; i < n; ++i) {
        words.emplace_back(dtypes[i].word, dtypes[i].value);
    }
    return words;
}

}  // namespace halyard::tool
