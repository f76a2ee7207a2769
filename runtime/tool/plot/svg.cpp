#include "tool/plot/svg.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace halyard::tool {
namespace {

void append_escaped(std::string &to, std::string_view text) {
    for (const char c : text) {
        switch (c) {
        case '&': to += "&amp;"; break;
        case '<': to += "&lt;"; break;
        case '>': to += "&gt;"; break;
        case '"': to += "&quot;"; break;
        default: to += c;
        }
    }
}

}  // namespace

std::string format_fixed(double value, int digits) {
    char text[400];  // the greatest double has 309 digits
    const auto end = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::fixed, digits).ptr;
    std::string result(text, end);
    if (result.find('.') != result.npos) {
        result.erase(result.find_last_not_of('0') + 1);
        if (result.back() == '.') {
            result.pop_back();
        }
    }
    return result == "-0" ? "0" : result;
}

std::string format_reading(double value) {
    if (value != std::floor(value) || std::fabs(value) >= 1e15) {
        char text[64];
        const auto end = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::general, 6).ptr;
        return {text, end};
    }
    auto digits = format_fixed(value, 0);
    const std::size_t least = value < 0 ? 1 : 0;
    for (auto place = digits.size(); place > least + 3;) {
        place -= 3;
        digits.insert(place, 1, ',');
    }
    return digits;
}

double estimate_width(std::string_view text, double size) {
    const auto n_letters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
    return 0.56 * size * static_cast<double>(n_letters);
}

void Svg::begin(std::string_view tag, Attributes attributes) {
    text_.append(2 * open_.size(), ' ').append("<").append(tag);
    for (const auto &attribute : attributes) {
        text_.append(" ").append(attribute.name).append("=\"");
        append_escaped(text_, attribute.value);
        text_ += '"';
    }
}

void Svg::open(std::string_view tag, Attributes attributes) {
    begin(tag, attributes);
    text_ += ">\n";
    open_.emplace_back(tag);
}

void Svg::close() {
    const auto tag = open_.back();
    open_.pop_back();
    text_.append(2 * open_.size(), ' ').append("</").append(tag).append(">\n");
}

void Svg::add(std::string_view tag, Attributes attributes) {
    begin(tag, attributes);
    text_ += "/>\n";
}

void Svg::add(std::string_view tag, Attributes attributes, std::string_view text) {
    begin(tag, attributes);
    text_ += '>';
    append_escaped(text_, text);
    text_.append("</").append(tag).append(">\n");
}

void Svg::line(double x0, double y0, double x1, double y1, const char *style) {
    add("line", {{"x1", x0}, {"y1", y0}, {"x2", x1}, {"y2", y1}, {"class", style}});
}

void Svg::text(double x, double y, std::string_view words, const char *style) {
    add("text", {{"x", x}, {"y", y}, {"class", style}}, words);
}

}  // namespace halyard::tool
