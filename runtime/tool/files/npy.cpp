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

/// The header's dictionary, a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
public:
    HeaderParser(std::string_view text, const std::string &path) : text_(text), path_(path) {}

    void parse() {
        expect("{");
        while (!accept("}")) {
            const auto key = parse_string();
            expect(":");
            if (key == "descr" && !descr) {
                if (peek() == '[') {
                    refuse_input(path_, "it is a structured array, not an array of numbers");
                }
                descr = parse_string();
            } else if (key == "fortran_order" && !fortran_order) {
                fortran_order = parse_bool();
            } else if (key == "shape" && !shape) {
                shape = parse_shape();
            } else {
                malformed();
            }
            if (!accept(",")) {
                expect("}");
                break;
            }
        }
        peek();
        if (offset_ != text_.size() || !descr || !fortran_order || !shape) {
            malformed();
        }
    }

    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;

private:
    [[noreturn]] void malformed() const { refuse_input(path_, "its .npy header is malformed"); }

    /// The next character that is not white space, up to which it goes; '\0' at the end.
    char peek() {
        while (offset_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[offset_]) != text_.npos) {
            ++offset_;
        }
        return offset_ < text_.size() ? text_[offset_] : '\0';
    }

    bool accept(std::string_view wanted) {
        peek();
        if (!text_.substr(offset_).starts_with(wanted)) {
            return false;
        }
        offset_ += wanted.size();
        return true;
    }

    void expect(std::string_view wanted) {
        if (!accept(wanted)) {
            malformed();
        }
    }

    std::string parse_string() {
        const char quote = peek();
        const auto end = quote == '\'' || quote == '"' ? text_.find(quote, offset_ + 1) : text_.npos;
        if (end == text_.npos) {
            malformed();
        }
        const auto value = text_.substr(offset_ + 1, end - offset_ - 1);
        // Escapes and control characters have no place in the names that NumPy writes.
        if (!std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~' && c != '\\'; })) {
            malformed();
        }
        offset_ = end + 1;
        return std::string(value);
    }

    bool parse_bool() {
        const bool value = accept("True");
        if (!value) {
            expect("False");
        }
        return value;
    }

    std::vector<std::int64_t> parse_shape() {
        std::vector<std::int64_t> sizes;
        expect("(");
        while (!accept(")")) {
            if (std::isdigit(static_cast<unsigned char>(peek())) == 0) {
                malformed();
            }
            std::int64_t size = 0;
            const char *begin = text_.data() + offset_;
            const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), size);
            if (code != std::errc()) {
                refuse_input(path_, "its shape has a size beyond 64 bits");
            }
            offset_ += static_cast<std::size_t>(end - begin);
            sizes.push_back(size);
            if (!accept(",")) {
                expect(")");
                if (sizes.size() == 1) {
                    malformed();  // (3) is a number in Python, not a tuple
                }
                break;
            }
        }
        return sizes;
    }

    std::string_view text_;
    const std::string &path_;
    std::size_t offset_ = 0;
};

/// The header's text, behind which the data lie.
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

/// The number of elements, or the greatest of 64 bits where there are more.
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

/// The beginning of a version 1.0 file.
std::string make_header(std::string_view descr, std::span<const std::int64_t> shape) {
    std::string tuple;
    for (const auto size : shape) {
        tuple += (tuple.empty() ? "" : ", ") + std::to_string(size);
    }
    tuple += shape.size() == 1 ? "," : "";
    std::string header = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (" + tuple + "), }";
    // The data starts at a multiple of 64 bytes, as NumPy has it.
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
