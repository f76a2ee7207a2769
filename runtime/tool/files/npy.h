// NumPy's .npy files: a strict reader and a writer. The format: numpy.lib.format, versions 1.0, 2.0 and 3.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halyard::tool {

/// A dense little-endian array in C order.
struct NpyArray {
    std::string name;                 // for messages: the file's name in quotes
    std::string descr;                // NumPy's name of the element type: "<f4"
    std::vector<std::int64_t> shape;  // every size >= 0; empty for a single number
    std::int64_t n_elements = 0;
    std::size_t n_bytes = 0;
    std::unique_ptr<std::byte[]> data;  // n_bytes, aligned for any number

    template <typename Element>
    std::span<const Element> elements() const {
        return {reinterpret_cast<const Element *>(data.get()), n_bytes / sizeof(Element)};
    }

    /// All elements, as Wide. The array must have elements of type Wide or Narrow.
    template <typename Wide, typename Narrow>
    std::vector<Wide> widened() const {
        const auto copy = [](const auto &numbers) { return std::vector<Wide>(numbers.begin(), numbers.end()); };
        return descr.back() == '0' + sizeof(Wide) ? copy(elements<Wide>()) : copy(elements<Narrow>());
    }
};

/// Reads a file whose element type is one of `accepted` (names such as "<f4"). Throws Refusal, naming the file, unless
/// the file is a whole, well-formed array of such a type in C order, and nothing else. Allocates memory by the file's
/// size, never by what its header claims.
NpyArray read_npy(const std::string &path, std::initializer_list<std::string_view> accepted);

/// A shape for messages: "[2, 3]".
std::string format_shape(std::span<const std::int64_t> shape);

/// Throws Refusal because an array has the wrong shape; `needed` says which is needed.
[[noreturn]] void refuse_shape(const NpyArray &array, const std::string &needed);

/// Writes a version 1.0 file, complete or not at all. Throws Refusal.
void write_npy(const std::string &path, std::string_view descr, std::span<const std::int64_t> shape, const void *data,
               std::size_t n_bytes);

}  // namespace halyard::tool
