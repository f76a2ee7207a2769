#include "report/chart.h"

#include "tool/plot/svg.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace halyard::bench {

namespace {

using nlohmann::json;
using tool::Svg;

constexpr double width = 860, left = 285, right = 40, top = 74, row_height = 21;

// The chart has no background, so these colours must show on white and on black pages. They are Okabe and Ito's blue,
// vermilion and bluish green, which colour-blind people can tell apart.
constexpr const char *style = R"(
text { font: 12px system-ui, "Helvetica Neue", Arial, sans-serif; fill: #78818b }
.title { font-size: 16px; font-weight: 600 }
.note { font-size: 11px }
.group { font-weight: 600 }
.end { text-anchor: end }
.middle { text-anchor: middle }
.grid { stroke: #8a8f96; stroke-opacity: 0.35 }
.ceiling { stroke: #78818b; stroke-dasharray: 3 3 }
.halyard { fill: #1f8fd0 }
.bound { fill: #1f8fd0; fill-opacity: 0.45 }
.gcc { fill: none; stroke: #e07b1a; stroke-width: 2 }
.clang { fill: #e07b1a }
.peer { fill: #1aa37a }
)";

struct Mark {
    const char *style;
    std::string label;
    double ratio;
};

struct Line {
    std::string label;
    double halyard, bound;  // 0: not timed
    std::vector<Mark> marks;
};

/// "64 tokens, bf16, in place"; before it the model, where the chart has several; after it a star, where the ceiling is
/// the conversion's.
std::string describe(const json &row, bool one_model) {
    const std::int64_t tokens = row.at("tokens");
    std::string text = one_model ? "" : row.at("model").get<std::string>() + ", ";
    text += tool::format_reading(static_cast<double>(tokens)) + (tokens == 1 ? " token, " : " tokens, ");
    text += row.at("dtype").get<std::string>() + (row.at("in_place") ? ", in place" : ", out of place");
    text += row.at("cold") ? ", cold" : "";
    const std::string angles = row.at("angles");
    text += angles == "table" ? "" : ", " + angles;
    return text + (row.at("judged_by") == "conversion" ? " *" : "");
}

Line read_line(const json &row, bool one_model) {
    Line line = {describe(row, one_model), row.at("ratio"), 0.0, {}};
    const double ceiling = row.at(row.at("judged_by").get<std::string>()).at("median_seconds");
    const json *best_peer = nullptr;
    for (const json &rival : row.at("rivals")) {
        if (rival.at("wrong")) {
            continue;
        }
        const std::string name = rival.at("name"), kind = rival.at("kind");
        const double seconds = rival.at("median_seconds");
        if (kind == "bound") {
            line.bound = ceiling / seconds;
        } else if (kind == "loop") {
            line.marks.push_back({name.starts_with("gcc") ? "gcc" : "clang", name, ceiling / seconds});
        } else if (kind == "peer" && (best_peer == nullptr || seconds < best_peer->at("median_seconds"))) {
            best_peer = &rival;
        }
    }
    if (best_peer != nullptr) {
        line.marks.push_back({"peer", best_peer->at("name"), ceiling / best_peer->at("median_seconds").get<double>()});
    }
    return line;
}

/// What engines do: the next token of one request or of several, in the storage that models have.
bool is_engines(const json &row) { return row.at("dtype") != "f32" && row.at("tokens") <= 64; }

void draw_mark(Svg &svg, const Mark &mark, double x, double y) {
    if (mark.style == std::string("peer")) {
        const auto at = [](double px, double py) {
            return tool::format_fixed(px) + "," + tool::format_fixed(py) + " ";
        };
        svg.open("polygon",
                 {{"class", mark.style}, {"points", at(x, y - 6) + at(x + 6, y) + at(x, y + 6) + at(x - 6, y)}});
    } else {
        svg.open("circle",
                 {{"class", mark.style}, {"cx", x}, {"cy", y}, {"r", mark.style == std::string("gcc") ? 4.0 : 4.5}});
    }
    svg.add("title", {}, mark.label + ": " + tool::format_fixed(mark.ratio));
    svg.close();
}

/// Draws what the marks mean.
void draw_legend(Svg &svg, const std::vector<Line> &lines) {
    double x = 16;
    const double y = 46;
    const auto draw_bar = [&](const char *style, const std::string &words) {
        svg.add("rect", {{"class", style}, {"x", x}, {"y", y - 5}, {"width", 16.0}, {"height", 10.0}});
        svg.text(x + 22, y + 4, words, "");
        x += 40 + tool::estimate_width(words, 12);
    };
    draw_bar("halyard", "Halyard");
    if (std::any_of(lines.begin(), lines.end(), [](const Line &line) { return line.bound > 0.0; })) {
        draw_bar("bound", "as a bound run");
    }
    for (const char *kind : {"gcc", "clang", "peer"}) {
        for (const Line &line : lines) {
            const auto found = std::find_if(line.marks.begin(), line.marks.end(),
                                            [&](const Mark &mark) { return mark.style == std::string(kind); });
            if (found != line.marks.end()) {
                const std::string words = kind == std::string("peer") ? "best peer" : "C loop, " + found->label;
                draw_mark(svg, *found, x, y);
                svg.text(x + 12, y + 4, words, "");
                x += 30 + tool::estimate_width(words, 12);
                break;
            }
        }
    }
}

/// Says which peers were the best how often: "torch 12 times, ggml 3 times".
std::string count_peers(const std::vector<Line> &lines) {
    std::vector<std::pair<std::string, int>> counts;
    for (const Line &line : lines) {
        for (const Mark &mark : line.marks) {
            if (mark.style == std::string("peer")) {
                const auto found =
                    std::find_if(counts.begin(), counts.end(), [&](auto &one) { return one.first == mark.label; });
                if (found == counts.end()) {
                    counts.push_back({mark.label, 1});
                } else {
                    found->second++;
                }
            }
        }
    }
    std::sort(counts.begin(), counts.end(), [](auto &a, auto &b) { return a.second > b.second; });
    std::string text;
    for (const auto &[name, n] : counts) {
        text += (text.empty() ? "Best peer: " : ", ") + name + " " + std::to_string(n) + (n == 1 ? " time" : " times");
    }
    return text;
}

std::string draw(const json &run, const std::string &filter) {
    std::vector<const json *> rows;
    for (const json &row : run.at("rows")) {
        if (fnmatch(filter.c_str(), row.at("name").get<std::string>().c_str(), 0) == 0) {
            rows.push_back(&row);
        }
    }
    if (rows.empty()) {
        throw std::runtime_error("no row matches \"" + filter + "\"");
    }
    const bool one_model = std::all_of(rows.begin(), rows.end(),
                                       [&](const json *row) { return row->at("model") == rows[0]->at("model"); });
    const auto n_engines = static_cast<std::size_t>(
        std::stable_partition(rows.begin(), rows.end(), [](const json *row) { return is_engines(*row); }) -
        rows.begin());
    // A heading takes the place of a row.
    const bool two_groups = n_engines > 0 && n_engines < rows.size();
    std::vector<Line> lines;
    double most = 1.0;
    for (const json *row : rows) {
        lines.push_back(read_line(*row, one_model));
        most = std::max({most, lines.back().halyard, lines.back().bound});
        for (const Mark &mark : lines.back().marks) {
            most = std::max(most, mark.ratio);
        }
    }
    most = std::ceil(most * 5 - 1e-9) / 5;
    const double bottom = top + row_height * static_cast<double>(lines.size() + (two_groups ? 2 : 0));
    const double height = bottom + 100;
    const auto x_of = [&](double ratio) { return left + (width - left - right) * ratio / most; };

    Svg svg;
    svg.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                     {"viewBox", "0 0 " + tool::format_fixed(width) + " " + tool::format_fixed(height)},
                     {"width", width},
                     {"height", height},
                     {"role", "img"}});
    svg.add("style", {}, style);
    const json &first = *rows[0];
    svg.text(16, 24,
             "Part of the speed that memory and conversion allow" +
                 (one_model ? ": " + first.at("model").get<std::string>() + ", " +
                                  std::to_string(first.at("q_heads").get<int>()) + " + " +
                                  std::to_string(first.at("k_heads").get<int>()) + " heads of " +
                                  std::to_string(first.at("head_dim").get<int>())
                            : std::string()),
             "title");
    draw_legend(svg, lines);
    for (int i = 0; i <= static_cast<int>(std::lround(most * 5)); i++) {
        const double x = x_of(i / 5.0);
        svg.line(x, top - 6, x, bottom + 4, i == 5 ? "ceiling" : "grid");
        svg.text(x, bottom + 20, tool::format_fixed(i / 5.0), "middle");
    }
    for (std::size_t i = 0; i < lines.size(); i++) {
        const std::size_t n_headings = two_groups ? (i < n_engines ? 1 : 2) : 0;
        const double y = top + row_height * (static_cast<double>(i + n_headings) + 0.5);
        if (two_groups && (i == 0 || i == n_engines)) {
            svg.text(16, y + 4 - row_height, i == 0 ? "Decoding, in 16 bits" : "All else", "group");
        }
        svg.text(left - 10, y + 4, lines[i].label, "end");
        const auto draw_bar = [&](const char *style, double from, double to, const std::string &words) {
            svg.open("rect", {{"class", style},
                              {"x", x_of(from)},
                              {"y", y - 6},
                              {"width", x_of(to) - x_of(from)},
                              {"height", 12.0}});
            svg.add("title", {}, words + ": " + tool::format_fixed(to));
            svg.close();
        };
        draw_bar("halyard", 0.0, lines[i].halyard, "Halyard");
        if (lines[i].bound > lines[i].halyard) {
            draw_bar("bound", lines[i].halyard, lines[i].bound, "as a bound run");
        }
        for (const Mark &mark : lines[i].marks) {
            draw_mark(svg, mark, x_of(mark.ratio), y);
        }
    }
    const json &machine = run.at("machine");
    double at = bottom + 28;
    const auto note = [&](const std::string &words) { svg.text(16, at += words.empty() ? 0 : 16, words, "note"); };
    note("1.0: the fastest copy (in place: multiply) of the same bytes; where it is slower (*), the fastest loop that "
         "only converts them to f32 and back");
    note(count_peers(lines));
    note(run.at("command").get<std::string>() + "  (" + first.at("target").get<std::string>() + ", " +
         std::to_string(first.at("threads").get<int>()) + " thread" + (first.at("threads") == 1 ? "" : "s") +
         "; rows " + filter + ")");
    note(machine.at("cpu").get<std::string>() + ", " + machine.at("caches").get<std::string>() + "; Halyard " +
         machine.at("commit").get<std::string>() + ", " + machine.at("date").get<std::string>());
    svg.close();
    return svg.str();
}

}  // namespace

std::string draw_chart(const json &run, const std::string &filter) {
    try {
        return draw(run, filter);
    } catch (const json::exception &error) {
        throw std::runtime_error(std::string("that is not what halyard_bench --json writes: ") + error.what());
    }
}

}  // namespace halyard::bench
