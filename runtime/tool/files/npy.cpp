#include "tool/files/npy.h"

#include "tool/files/file.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

namespace halyard::tool {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are read and written as they lie in memory");

constexpr std::string_view magic = "\x93NUMPY";

/// Parses the header's dictionary, a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
public:
    HeaderParser(std::string_view text, const std::string &path) : rest_(text), path_(path) { take(); }

    void parse() {
        expect("{");
        parse_list("}", [&] {
            const auto key = take_string();
            expect(":");
            if (key == "descr" && !descr) {
                if (token_ == "[") {
                    refuse_input(path_, "it is a structured array, not an array of numbers");
                }
                descr = take_string();
            } else if (key == "fortran_order" && !fortran_order) {
                fortran_order = token_ == "True";
                expect(*fortran_order ? "True" : "False");
            } else if (key == "shape" && !shape) {
                shape.emplace();
                expect("(");
                // (3) is a number in Python, not a tuple.
                require(parse_list(")", [&] { shape->push_back(take_size()); }) || shape->size() != 1);
            } else {
                require(false);
            }
        });
        require(token_.empty() && rest_.empty() && descr && fortran_order && shape);
    }

    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;

private:
    void require(bool is_well_formed) const {
        if (!is_well_formed) {
            refuse_input(path_, "its .npy header is malformed");
        }
    }

    /// Reads the next token into token_: a punctuation mark, a word or number, or a string; empty at the end.
    std::string_view take() {
        const std::string_view taken = token_;
        rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n\r\f"), rest_.size()));
        const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0; };
        const bool is_string = rest_.starts_with('\'') || rest_.starts_with('"');
        const auto end =
            is_string ? rest_.find(rest_[0], 1)
                      : std::string_view(rest_.begin(), std::find_if_not(rest_.begin(), rest_.end(), is_word)).size();
        require(end != rest_.npos);
        token_ = rest_.substr(0, end == 0 ? 1 : end);
        rest_.remove_prefix(std::min(token_.size() + (is_string ? 1 : 0), rest_.size()));
        return taken;
    }

    void expect(std::string_view wanted) { require(take() == wanted); }

    /// Parses items between commas, up to the mark `end`. Returns whether a comma precedes `end`.
    template <typename Item>
    bool parse_list(std::string_view end, const Item &item) {
        bool has_comma = true;
        while (token_ != end) {
            require(has_comma);
            item();
            has_comma = token_ == ",";
            if (has_comma) {
                take();
            }
        }
        take();
        return has_comma;
    }

    std::string take_string() {
        const auto token = take();
        // NumPy writes names without escapes and control characters.
        const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '\\'; };
        require((token.starts_with('\'') || token.starts_with('"')) && std::all_of(token.begin(), token.end(), is_plain));
        return std::string(token.substr(1));
    }

    std::int64_t take_size() {
        const auto token = take();
        std::int64_t size = 0;
        const auto [end, code] = std::from_chars(token.data(), token.data() + token.size(), size);
        if (code == std::errc::result_out_of_range) {
            refuse_input(path_, "its shape has a size beyond 64 bits");
        }
        require(code == std::errc() && end == token.data() + token.size());
        return size;
    }

    std::string_view rest_, token_;  // the text after the current token, and that token
    const std::string &path_;
};

/// The header's text. The data follow it.
std::string_view find_header(std::string_view file, const std::string &path) {
    if (!file.starts_with(magic)) {
        refuse_input(path, "it is not a .npy file");
    }
    if (file.size() < 12) {
        refuse_input(path, "it is truncated within its .npy header");
    }
    const auto byte = [&](std::size_t i) -> std::size_t { return static_cast<unsigned char>(file[i]); };
    if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
        refuse_input(path, "it has .npy version " + std::to_string(byte(6)) + "." + std::to_string(byte(7)) +
                               "; 1.0, 2.0 and 3.0 are known");
    }
    const bool is_short = byte(6) == 1;
    const std::size_t begin = is_short ? 10 : 12;
    const std::size_t n = byte(8) | byte(9) << 8 | (is_short ? 0 : byte(10) << 16 | byte(11) << 24);
    if (file.size() < begin + n) {
        refuse_input(path, "it is truncated within its .npy header");
    }
    return file.substr(begin, n);
}

/// The number of elements, saturated at the largest int64.
std::int64_t count_elements(std::span<const std::int64_t> shape) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
        return 0;
    }
    constexpr auto greatest = std::numeric_limits<std::int64_t>::max();
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                           [](auto n, auto size) { return size > greatest / n ? greatest : n * size; });
}

}  // namespace

std::string format_shape(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + "]";
}

void refuse_shape(const NpyArray &array, const std::string &needed) {
    throw Refusal(array.name + " has shape " + format_shape(array.shape) + ", but " + needed);
}

NpyArray read_npy(const std::string &path, std::initializer_list<std::string_view> accepted) {
    const std::string file = read_file(path);
    const auto text = find_header(file, path);
    HeaderParser header(text, path);
    header.parse();

    NpyArray array;
    array.name = "'" + path + "'";
    array.descr = *header.descr;
    array.shape = std::move(*header.shape);
    if (std::find(accepted.begin(), accepted.end(), array.descr) == accepted.end()) {
        const bool big_endian = array.descr.starts_with('>');
        const bool bf16 = array.descr.ends_with("V2") && std::ranges::count(accepted, std::string_view("<u2")) != 0;
        refuse_input(path, "its type is '" + array.descr.substr(0, 40) + "'" + (big_endian ? " (big-endian)" : "") +
                               ", but " + join(accepted) + " is needed" +
                               (bf16 ? "; for bfloat16 save its bits, x.view('<u2'), and say --dtype bf16" : ""));
    }
    if (*header.fortran_order) {
        refuse_input(path, "it is in Fortran order; numpy.ascontiguousarray makes it C order");
    }

    const auto element_size = static_cast<std::uint64_t>(array.descr.back() - '0');
    array.n_elements = count_elements(array.shape);
    const auto data = std::string_view(text.data() + text.size(), file.data() + file.size());
    if (static_cast<std::uint64_t>(array.n_elements) > data.size() / element_size) {
        refuse_input(path, "it is truncated: shape " + format_shape(array.shape) + " of " + array.descr +
                               " needs more than its " + std::to_string(data.size()) + " bytes of data");
    }
    array.n_bytes = static_cast<std::size_t>(array.n_elements) * element_size;
    if (data.size() > array.n_bytes) {
        refuse_input(path, "it has more bytes than the " + std::to_string(array.n_bytes) + " of the array");
    }
    array.data = std::make_unique_for_overwrite<std::byte[]>(array.n_bytes);
    std::memcpy(array.data.get(), data.data(), array.n_bytes);
    return array;
}

namespace {

/// The header of a version 1.0 file.
std::string make_header(std::string_view descr, std::span<const std::int64_t> shape) {
    std::string tuple;
    for (const auto size : shape) {
        tuple += (tuple.empty() ? "" : ", ") + std::to_string(size);
    }
    tuple += shape.size() == 1 ? "," : "";
    std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (" + tuple + "), }";
    // Data start at a multiple of 64 bytes, as in files that NumPy writes.
    const std::size_t n_before = magic.size() + 4;
    header.append(63 - (n_before + header.size()) % 64, ' ');
    header += '\n';

    std::string start(magic);
    start += {'\x01', '\x00', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
    return start + header;
}

}  // namespace

void write_npy(const std::string &path, std::string_view descr, std::span<const std::int64_t> shape, const void *data,
               std::size_t n_bytes) {
    write_file(path, {make_header(descr, shape), {static_cast<const char *>(data), n_bytes}});
}

}  // namespace halyard::tool
