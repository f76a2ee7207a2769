// The types of elements: to the library, as words, and in .npy files.
#pragma once

#include "tool/options/arguments.h"

#include "halyard/halyard.hpp"

namespace halyard::tool {

struct Dtype {
    dtype value;
    const char *word;
    const char *descr;
};

/// In the order of their values. NumPy has no bf16: files hold its bits.
inline constexpr Dtype dtypes[] = {
    {dtype::f32, "f32", "<f4"}, {dtype::f16, "f16", "<f2"}, {dtype::bf16, "bf16", "<u2"}};

inline const Dtype &find_dtype(dtype value) { return dtypes[static_cast<std::size_t>(value) - 1]; }

template <typename Value>
Words<Value> words_of_dtypes() {
    Words<Value> words;
    for (const auto &each : dtypes) {
        words.emplace_back(each.word, each.value);
    }
    return words;
}

}  // namespace halyard::tool
