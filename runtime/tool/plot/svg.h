// Text of an SVG: elements that close in order, numbers the same in every locale, words escaped.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace halyard::tool {

/// With at most `digits` decimals, and none that say nothing: "12.5".
std::string format_fixed(double value, int digits = 2);

/// For readers: "131,072"; six significant digits where it isn't whole.
std::string format_reading(double value);

/// How wide a text is, roughly: fonts differ. In pixels, as `size` is.
double estimate_width(std::string_view text, double size);

/// An attribute's name and value.
struct Attribute {
    Attribute(std::string_view key, double number) : name(key), value(format_fixed(number)) {}
    Attribute(std::string_view key, std::string words) : name(key), value(std::move(words)) {}
    Attribute(std::string_view key, const char *words) : name(key), value(words) {}

    std::string_view name;
    std::string value;
};

class Svg {
public:
    using Attributes = std::initializer_list<Attribute>;

    void open(std::string_view tag, Attributes attributes);
    void close();
    void add(std::string_view tag, Attributes attributes);
    void add(std::string_view tag, Attributes attributes, std::string_view text);

    void line(double x0, double y0, double x1, double y1, const char *style);
    void text(double x, double y, std::string_view words, const char *style);

    /// The whole, when everything is closed.
    const std::string &str() const { return text_; }

private:
    void begin(std::string_view tag, Attributes attributes);

    std::string text_;
    std::vector<std::string> open_;
};

}  // namespace halyard::tool
