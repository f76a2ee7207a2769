// halyard plot: one picture of what a rotation turns by. All numbers come from the library's inverse frequencies and
// are worked out in double precision, but for the angles of --reference hf_f32, which are float32.
#include "tool/commands/commands.h"
#include "tool/files/output_file.h"
#include "tool/inputs.h"
#include "tool/plot/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halyard::tool {
namespace {

using std::numbers::pi;

constexpr std::int64_t assumed_context = 4096;
constexpr double width = 960.0;
constexpr double height = 790.0;

// Okabe and Ito's colours, which the colour-blind can tell apart (jfly.uni-koeln.de/color): blue and vermilion, and on
// black their lighter sky blue and orange. Plain rules, for not every viewer knows CSS variables.
constexpr std::string_view style = R"(
text { font-family: system-ui, "Helvetica Neue", Arial, sans-serif; font-size: 12px; fill: #222 }
.page { fill: #fff }
.title { font-size: 19px; font-weight: 600 }
.name { font-size: 14px; font-weight: 600 }
.note { font-size: 11.5px; fill: #555 }
.end { text-anchor: end }
.middle { text-anchor: middle }
.tick { fill: none; stroke: #444; stroke-width: 1 }
.grid { fill: none; stroke: #e4e4e4; stroke-width: 1 }
.mark { fill: none; stroke: #222; stroke-width: 1.2; stroke-dasharray: 2 3 }
.on-colour { stroke: #000; stroke-width: 1.4 }
.halo { stroke: #fff; stroke-width: 3; stroke-opacity: 0.75 }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
.used { stroke: #0072b2 }
.unscaled { stroke: #d55e00; stroke-dasharray: 7 4; stroke-linecap: butt }
.band { stroke: none; fill-opacity: 0.2 }
.fill-used { fill: #0072b2 }
.fill-unscaled { fill: #d55e00 }
.fast { fill: #8e8e8e }
@media (prefers-color-scheme: dark) {
  text { fill: #e8e8e8 }
  .page { fill: #16181b }
  .note { fill: #b0b0b0 }
  .tick { stroke: #b0b0b0 }
  .grid { stroke: #2e3236 }
  .mark { stroke: #e8e8e8 }
  .on-colour { stroke: #000 }
  .used { stroke: #56b4e9 }
  .unscaled { stroke: #e69f00 }
  .fill-used { fill: #56b4e9 }
  .fill-unscaled { fill: #e69f00 }
}
)";

// ---- What is drawn -----------------------------------------------------------------------------------------------

/// A curve's frequencies, and whose rounding turns by them.
struct Series {
    std::string label;
    const char *line_style;
    const char *fill_style;
    const char *name;  // in the picture's data
    std::vector<double> inv_freq;
    bool is_hf_f32;

    /// In radians, as the reference has it.
    double find_angle(std::size_t pair, double position) const {
        return is_hf_f32 ? static_cast<float>(position) * static_cast<float>(inv_freq[pair])
                         : position * inv_freq[pair];
    }
};

struct Subject {
    halyard_frequencies_info info;
    std::vector<Series> series;  // used, and unscaled where there is scaling
    double context = 0.0;        // in tokens
    bool is_context_stated = false;
    double trained = 0.0;  // in tokens; 0 where it is not known, or the context
    std::optional<std::int64_t> seq_len;

    double n_pairs() const { return static_cast<double>(info.rotary_dim) / 2.0; }
    /// Where the axes of distances and positions end. An axis needs some length.
    double reach() const { return std::max(context, 16.0); }
    bool depends_on_seq_len() const {
        return std::string_view(info.method) == "dynamic" || std::string_view(info.method) == "longrope";
    }
};

std::vector<double> copy_inv_freq(const halyard_frequencies_info &info, bool is_hf_f32) {
    std::vector<double> inv_freq(info.inv_freq, info.inv_freq + info.rotary_dim / 2);
    if (is_hf_f32) {
        std::transform(inv_freq.begin(), inv_freq.end(), inv_freq.begin(), round_to_float);
    }
    return inv_freq;
}

Subject describe_subject(const frequencies &made, const FrequencyOptions &options) {
    Subject subject;
    subject.info = made.info();
    const auto &info = subject.info;
    const std::string_view method = info.method;
    const bool is_hf_f32 = options.reference == "hf_f32";
    const bool is_scaled = method != "default" && method != "list";
    subject.series.push_back({is_scaled ? std::string(method) : "inv_freq", "curve used", "fill-used", "used",
                              copy_inv_freq(info, is_hf_f32), is_hf_f32});
    if (is_scaled) {
        const auto unscaled = frequencies::from_base(info.base, info.rotary_dim);
        subject.series.push_back({"unscaled, same base", "curve unscaled", "fill-unscaled", "unscaled",
                                  copy_inv_freq(unscaled.info(), is_hf_f32), is_hf_f32});
    }
    const auto seq_len = options.seq_len.value_or(0);
    const auto stated = std::max({info.max_position, info.original_max_position, seq_len});
    subject.is_context_stated = stated != 0;
    subject.context = static_cast<double>(stated != 0 ? stated : assumed_context);
    subject.trained = info.original_max_position < stated ? static_cast<double>(info.original_max_position) : 0.0;
    subject.seq_len = options.seq_len;
    return subject;
}

// ---- Axes --------------------------------------------------------------------------------------------------------

/// From a quantity to pixels.
struct Axis {
    double first, last;  // the quantity at the ends; both > 0 where is_log
    double begin, end;   // pixels
    bool is_log;

    double at(double value) const {
        const double part =
            is_log ? std::log(value / first) / std::log(last / first) : (value - first) / (last - first);
        return begin + part * (end - begin);
    }
};

struct Tick {
    double value;
    std::string label;  // "" for a short one between others
};

std::string format_power_of_ten(int exponent) {
    static constexpr std::array digits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
    std::string result = exponent < 0 ? "10⁻" : "10";
    for (const char digit : std::to_string(std::abs(exponent))) {
        result += digits[static_cast<std::size_t>(digit - '0')];
    }
    return result;
}

/// Powers of ten, at most `n_most`, with short ticks between where there is space for them.
std::vector<Tick> make_log_ticks(const Axis &axis, int n_most) {
    const int first = static_cast<int>(std::ceil(std::log10(axis.first) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(axis.last) + 1e-9));
    const int step = (last - first) / n_most + 1;
    std::vector<Tick> ticks;
    for (int exponent = first - 1; exponent <= last; ++exponent) {
        if (exponent >= first && (exponent - first) % step == 0) {
            ticks.push_back({std::pow(10.0, exponent), format_power_of_ten(exponent)});
        }
        for (int digit = 2; digit <= 9 && step == 1; ++digit) {
            const double value = digit * std::pow(10.0, exponent);
            if (value > axis.first && value < axis.last) {
                ticks.push_back({value, ""});
            }
        }
    }
    return ticks;
}

/// Multiples of a power of two, as head sizes are.
std::vector<Tick> make_pair_ticks(std::int64_t n_pairs) {
    std::int64_t step = 1;
    while (step * 4 < n_pairs) {
        step *= 2;
    }
    std::vector<Tick> ticks;
    for (std::int64_t pair = 0; pair < n_pairs; pair += step) {
        ticks.push_back({static_cast<double>(pair), format_reading(static_cast<double>(pair))});
    }
    return ticks;
}

/// A frame with two axes. The x axis runs along its bottom, the y axis up its left side.
class Panel {
public:
    Panel(Svg &svg, const Axis &across, const Axis &up) : x(across), y(up), svg_(svg) {}

    void open(const char *id) const {
        const auto describe = [](const Axis &axis) {
            return format_fixed(axis.first, 6) + " " + format_fixed(axis.last, 6) + " " + format_fixed(axis.begin) +
                   " " + format_fixed(axis.end) + (axis.is_log ? " log" : " linear");
        };
        svg_.open("g", {{"id", id}, {"data-x", describe(x)}, {"data-y", describe(y)}});
    }

    void name(const char *letter, std::string_view words) const {
        svg_.text(x.begin - 54.0, y.end - name_height, letter, "name");
        svg_.text(x.begin, y.end - name_height, words, "name");
    }

    void grid(const std::vector<Tick> &x_ticks, const std::vector<Tick> &y_ticks) const {
        for (const auto &tick : x_ticks) {
            if (!tick.label.empty()) {
                svg_.line(x.at(tick.value), y.begin, x.at(tick.value), y.end, "grid");
            }
        }
        for (const auto &tick : y_ticks) {
            if (!tick.label.empty()) {
                svg_.line(x.begin, y.at(tick.value), x.end, y.at(tick.value), "grid");
            }
        }
    }

    void frame(const std::vector<Tick> &x_ticks, std::string_view x_label, const std::vector<Tick> &y_ticks,
               std::string_view y_label, double y_label_distance) const {
        svg_.add(
            "rect",
            {{"x", x.begin}, {"y", y.end}, {"width", x.end - x.begin}, {"height", y.begin - y.end}, {"class", "tick"}});
        for (const auto &tick : x_ticks) {
            const double at = x.at(tick.value);
            svg_.line(at, y.begin, at, y.begin + (tick.label.empty() ? 3.0 : 6.0), "tick");
            if (!tick.label.empty()) {
                svg_.text(at, y.begin + 20.0, tick.label, "middle");
            }
        }
        for (const auto &tick : y_ticks) {
            const double at = y.at(tick.value);
            svg_.line(x.begin, at, x.begin - (tick.label.empty() ? 3.0 : 6.0), at, "tick");
            if (!tick.label.empty()) {
                svg_.text(x.begin - 9.0, at + 4.0, tick.label, "end");
            }
        }
        svg_.text((x.begin + x.end) / 2.0, y.begin + 40.0, x_label, "middle");
        const double left = x.begin - y_label_distance;
        const double middle = (y.begin + y.end) / 2.0;
        svg_.add("text",
                 {{"class", "middle"},
                  {"transform", "translate(" + format_fixed(left) + " " + format_fixed(middle) + ") rotate(-90)"}},
                 y_label);
    }

    /// Vertical lines at the context lengths, their names above the frame, where there are no data: each ends at its
    /// line, in two rows where one has no space for both.
    void mark_contexts(const Subject &subject, bool is_on_colour) const {
        const auto draw = [&](double tokens, const std::string &words, double row) {
            const double at = x.at(tokens);
            if (is_on_colour && tokens < x.last) {
                svg_.line(at, y.begin, at, y.end, "halo");
            }
            svg_.line(at, y.begin, at, y.end, is_on_colour ? "mark on-colour" : "mark");
            svg_.line(at, y.end, at, y.end - row - 9.0, "tick");
            svg_.text(at - 4.0, y.end - row, words, "note end");
        };
        const auto context = name_context(subject);
        const bool has_space = subject.trained == 0.0 ||
                               x.at(subject.context) - x.at(subject.trained) > estimate_width(context, 11.5) + 12.0;
        draw(subject.context, context, has_space ? 7.0 : 20.0);
        if (subject.trained != 0.0) {
            draw(subject.trained, name_trained(subject), 7.0);
        }
    }

    static std::string name_context(const Subject &subject) {
        return "context " + format_reading(subject.context) + (subject.is_context_stated ? "" : " (assumed)");
    }
    static std::string name_trained(const Subject &subject) { return "trained on " + format_reading(subject.trained); }

    Axis x, y;
    static constexpr double name_height = 40.0;  // above the frame

private:
    Svg &svg_;
};

std::string format_point(double x, double y) { return format_fixed(x) + "," + format_fixed(y) + " "; }

/// A line's sample and its name.
void draw_legend_entry(Svg &svg, double x, double y, const Series &series) {
    svg.line(x, y - 4.0, x + 30.0, y - 4.0, series.line_style);
    svg.text(x + 37.0, y, series.label, "note");
}

double legend_entry_width(const Series &series) { return 37.0 + 1.1 * estimate_width(series.label, 11.5) + 18.0; }

// ---- (a) Decay ---------------------------------------------------------------------------------------------------

/// The score at a distance, relative to that at distance 0. A sample stands for all distances to the next one.
struct Sample {
    double distance, score;
};

/// A point of the curve: what the scores at the distances first … last, around it, come to.
struct Window {
    double distance, first, last;
    double mean = 0.0, low = 0.0, high = 0.0;  // nine of ten scores are low … high
};

/// <R_m q, R_n k> of all-ones q and k is f^2 2 sum_k cos(angle of pair k); divided by its value at distance 0, the mean
/// of the cosines.
double find_score(const Series &series, double distance) {
    double sum = 0.0;
    for (std::size_t pair = 0; pair < series.inv_freq.size(); ++pair) {
        sum += std::cos(series.find_angle(pair, distance));
    }
    return sum / static_cast<double>(series.inv_freq.size());
}

/// By how much one pair turns faster than the next, on average. Where neighbours come into step, a turn apart, the
/// score rises: a wave that returns whenever the distance has grown by this factor.
double find_ratio(const Series &series) {
    double least = 0.0, greatest = 0.0;
    double n_turning = 0.0;
    for (const double each : series.inv_freq) {
        const double speed = std::fabs(each);
        if (speed != 0.0) {
            least = n_turning == 0.0 ? speed : std::min(least, speed);
            greatest = std::max(greatest, speed);
            n_turning += 1.0;
        }
    }
    const double ratio = n_turning < 2.0 ? 1.0 : std::pow(greatest / least, 1.0 / (n_turning - 1.0));
    return std::clamp(ratio, 1.1, 1.4);
}

/// Every distance, as long as they are not many in a window; further on some, spread evenly.
std::vector<Sample> sample_scores(const Series &series, double reach, double ratio) {
    // So that a head as wide as the library allows takes seconds, not hours.
    const double n_most = std::max(0x1p26 / static_cast<double>(series.inv_freq.size()), 256.0);
    const double step = std::max(std::pow(ratio, 1.0 / 1024.0), std::pow(reach, 1.0 / n_most));
    std::vector<Sample> samples;
    int i = 0;
    for (double distance = 1.0; distance <= reach;) {
        const double next = std::max(distance + 1.0, std::floor(distance * step));
        // Multiples of the golden ratio are in step with no frequency.
        const double part = std::fmod(++i * std::numbers::phi, 1.0);
        const double at = std::min(distance + std::floor(part * (next - distance)), reach);
        samples.push_back({at, find_score(series, at)});
        distance = next;
    }
    return samples;
}

/// Points a few pixels apart, each of the distances around it, from one wave to the next: a mean over whole waves shows
/// the decay, where one of single distances would show which of them were drawn.
std::vector<Window> find_decay(const Series &series, double reach, double ratio) {
    constexpr double n_points = 300.0;
    const auto samples = sample_scores(series, reach * std::sqrt(ratio), ratio);
    std::vector<Window> windows;
    std::vector<double> scores;
    std::size_t begin = 0;
    for (double distance = 1.0;;) {
        Window window{distance, std::ceil(distance / std::sqrt(ratio)), std::floor(distance * std::sqrt(ratio))};
        while (samples[begin].distance < window.first && begin + 1 < samples.size()) {
            ++begin;
        }
        scores.clear();
        for (std::size_t i = begin; i == begin || (i < samples.size() && samples[i].distance <= window.last); ++i) {
            scores.push_back(samples[i].score);
        }
        std::sort(scores.begin(), scores.end());
        window.mean = std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(scores.size());
        window.low = scores[scores.size() / 20];
        window.high = scores[scores.size() - 1 - scores.size() / 20];
        windows.push_back(window);
        if (distance >= reach) {
            return windows;
        }
        distance = std::min(std::max(distance + 1.0, std::floor(distance * std::pow(reach, 1.0 / n_points))), reach);
    }
}

void draw_decay(Svg &svg, const Subject &subject) {
    std::vector<std::vector<Window>> curves;
    double least = 0.0;
    const double ratio = find_ratio(subject.series[0]);
    for (const auto &series : subject.series) {
        curves.push_back(find_decay(series, subject.reach(), ratio));
        for (const auto &window : curves.back()) {
            least = std::min(least, window.low);
        }
    }
    const Panel panel(svg, {1.0, subject.reach(), 70.0, 936.0, true},
                      {std::max(std::floor(least * 4.0) / 4.0, -1.0), 1.0, 350.0, 126.0, false});
    const auto x_ticks = make_log_ticks(panel.x, 16);
    std::vector<Tick> y_ticks;
    for (int quarter = static_cast<int>(panel.y.first * 4.0); quarter <= 4; ++quarter) {
        const double value = quarter / 4.0;
        y_ticks.push_back({value, (value < 0.0 ? "−" : "") + format_fixed(std::fabs(value))});
    }
    panel.open("decay");
    panel.name("a", "Decay of ⟨Rₘq, Rₙk⟩ with distance, all-ones q and k");
    panel.grid(x_ticks, y_ticks);
    svg.line(panel.x.begin, panel.y.at(0.0), panel.x.end, panel.y.at(0.0), "tick");
    for (std::size_t i = 0; i < curves.size(); ++i) {
        std::string there, back;
        for (const auto &window : curves[i]) {
            const double x = panel.x.at(window.distance);
            there += format_point(x, panel.y.at(window.high));
            back.insert(0, format_point(x, panel.y.at(window.low)));
        }
        svg.add("polygon", {{"class", std::string("band ") + subject.series[i].fill_style},
                            {"data-series", subject.series[i].name},
                            {"points", there + back}});
    }
    panel.mark_contexts(subject, false);
    panel.frame(x_ticks, subject.series[0].is_hf_f32 ? "distance m − n, n = 0 (tokens)" : "distance |m − n| (tokens)",
                y_ticks, "score / score at distance 0", 54.0);
    for (std::size_t i = 0; i < curves.size(); ++i) {
        std::string points, firsts, lasts;
        for (const auto &window : curves[i]) {
            points += format_point(panel.x.at(window.distance), panel.y.at(window.mean));
            firsts += format_fixed(window.first, 0) + " ";
            lasts += format_fixed(window.last, 0) + " ";
        }
        svg.add("polyline", {{"class", subject.series[i].line_style},
                             {"data-series", subject.series[i].name},
                             {"data-first", firsts},
                             {"data-last", lasts},
                             {"points", points}});
    }
    svg.text(panel.x.end, panel.y.begin + 40.0,
             "mean and 90 % band, over distances within ±" + format_fixed(100.0 * (std::sqrt(ratio) - 1.0), 0) + " %",
             "note end");
    if (subject.series.size() > 1) {
        double width_of_legend = -18.0;
        for (const auto &series : subject.series) {
            width_of_legend += legend_entry_width(series);
        }
        double x = panel.x.end - width_of_legend;
        for (const auto &series : subject.series) {
            draw_legend_entry(svg, x, panel.y.end - Panel::name_height, series);
            x += legend_entry_width(series);
        }
    }
    svg.close();
}

// ---- (b) Wavelengths ---------------------------------------------------------------------------------------------

/// In tokens; infinite for a pair that does not turn.
double find_wavelength(double inv_freq) { return 2.0 * pi / std::fabs(inv_freq); }

/// How many of the frequencies that are used make less than one turn.
std::int64_t count_slow(const Subject &subject, double tokens) {
    const auto &inv_freq = subject.series[0].inv_freq;
    return std::count_if(inv_freq.begin(), inv_freq.end(),
                         [tokens](double each) { return find_wavelength(each) > tokens; });
}

/// Lines, broken where a pair does not turn, and dots where they are wanted and have space, or there is no line.
void draw_wavelength_curve(Svg &svg, const Panel &panel, const Series &series, bool has_dots) {
    constexpr std::size_t n_most = 512;
    const std::size_t step = (series.inv_freq.size() - 1) / n_most + 1;
    std::string points;
    const auto finish = [&] {
        if (!points.empty()) {
            svg.add("polyline", {{"class", series.line_style}, {"data-series", series.name}, {"points", points}});
        }
        points.clear();
    };
    for (std::size_t k = 0; k < series.inv_freq.size(); k += step) {
        const double wavelength = find_wavelength(series.inv_freq[k]);
        if (!std::isfinite(wavelength)) {
            finish();
            continue;
        }
        const double x = panel.x.at(static_cast<double>(k));
        const double y = panel.y.at(wavelength);
        points += format_point(x, y);
        if (series.inv_freq.size() == 1 || (series.inv_freq.size() <= 64 && has_dots)) {
            svg.add("circle", {{"cx", x}, {"cy", y}, {"r", 2.0}, {"class", series.fill_style}});
        }
    }
    finish();
}

void draw_wavelengths(Svg &svg, const Subject &subject) {
    double least = subject.context;
    double greatest = 3.0 * subject.context;  // leaves space for the name above its line
    for (const auto &series : subject.series) {
        for (const double each : series.inv_freq) {
            const double wavelength = find_wavelength(each);
            least = std::min(least, wavelength);
            greatest = std::isfinite(wavelength) ? std::max(greatest, wavelength) : greatest;
        }
    }
    const double n = subject.n_pairs();
    const double bottom = std::floor(std::log10(least) - 1e-9);
    const double top = std::min(std::max(std::ceil(std::log10(greatest) + 1e-9), bottom + 1.0), 308.0);
    const Panel panel(svg, {-0.5, n - 0.5, 70.0, 440.0, false},
                      {std::pow(10.0, bottom), std::pow(10.0, top), 725.0, 467.0, true});
    const auto x_ticks = make_pair_ticks(subject.info.rotary_dim / 2);
    const auto y_ticks = make_log_ticks(panel.y, 10);
    panel.open("wavelength");
    panel.name("b", "Wavelength of each pair");
    panel.grid(x_ticks, y_ticks);
    const double context_y = panel.y.at(subject.context);
    svg.line(panel.x.begin, context_y, panel.x.end, context_y, "mark");
    svg.text(panel.x.begin + 6.0, context_y - 4.0, Panel::name_context(subject), "note");
    if (subject.trained != 0.0) {
        const double trained_y = panel.y.at(subject.trained);
        svg.line(panel.x.begin, trained_y, panel.x.end, trained_y, "mark");
        const bool is_close = trained_y - context_y < 16.0;
        svg.text(panel.x.begin + 6.0, trained_y + (is_close ? 12.0 : -4.0), Panel::name_trained(subject), "note");
    }
    for (const auto &series : subject.series) {
        draw_wavelength_curve(svg, panel, series, &series == &subject.series[0]);
    }
    const double tokens = subject.trained != 0.0 ? subject.trained : subject.context;
    svg.text(panel.x.begin, panel.y.end - 7.0,
             "less than one turn in " + format_reading(tokens) +
                 " tokens: " + format_reading(static_cast<double>(count_slow(subject, tokens))) + " of " +
                 format_reading(n) + " pairs",
             "note");
    if (count_slow(subject, std::numeric_limits<double>::max()) == static_cast<std::int64_t>(n)) {
        svg.text((panel.x.begin + panel.x.end) / 2.0, panel.y.end + 80.0, "No pair turns: every inv_freq is 0.",
                 "middle");
    }
    panel.frame(x_ticks, "pair k", y_ticks, "wavelength 2π / inv_freq (tokens)", 54.0);
    if (subject.series.size() > 1) {
        for (std::size_t i = 0; i < 2; ++i) {
            draw_legend_entry(svg, 270.0, panel.y.begin - 30.0 + 18.0 * static_cast<double>(i), subject.series[i]);
        }
    }
    svg.close();
}

// ---- (c) Angles --------------------------------------------------------------------------------------------------

constexpr int n_colours = 32;

/// A colour for a part 0 … 1 of a turn: an ellipse in Oklab (bottosson.github.io/posts/oklab) through light, blue, dark
/// and yellow. Its ends meet, neighbours differ about alike, and blue against yellow is what most colour-blind people
/// see as others do.
std::string find_colour(double turn) {
    const double lightness = 0.60 + 0.32 * std::cos(2.0 * pi * turn);
    const double a = -0.02 * std::sin(2.0 * pi * turn);
    const double b = -0.135 * std::sin(2.0 * pi * turn);
    const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3.0);
    const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3.0);
    const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3.0);
    const double rgb[] = {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
                          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
                          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
    std::string colour = "#";
    for (const double linear : rgb) {
        const double clamped = std::clamp(linear, 0.0, 1.0);
        const double value = clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * std::pow(clamped, 1.0 / 2.4) - 0.055;
        const int byte = static_cast<int>(std::lround(255.0 * value));
        colour += "0123456789abcdef"[byte / 16];
        colour += "0123456789abcdef"[byte % 16];
    }
    return colour;
}

constexpr int too_fast = -1;

/// Which of n_colours the angle of a pair has at a position, or too_fast where it turns by more than a third of a turn
/// within a cell of the picture, whose colour would mean nothing.
int find_level(const Series &series, std::size_t pair, double position, double cell) {
    if (!(std::fabs(series.inv_freq[pair]) * cell <= 2.0 * pi / 3.0)) {
        return too_fast;
    }
    const double turns = series.find_angle(pair, position) / (2.0 * pi);
    const double part = turns - std::floor(turns);
    return std::min(static_cast<int>(part * n_colours), n_colours - 1);
}

void draw_colour_bar(Svg &svg, double x, double top, double bottom) {
    const double step = (bottom - top) / n_colours;
    svg.open("g", {{"shape-rendering", "crispEdges"}});
    for (int level = 0; level < n_colours; ++level) {
        svg.add("rect", {{"x", x},
                         {"y", bottom - step * (level + 1)},
                         {"width", 14.0},
                         {"height", step},
                         {"fill", find_colour((level + 0.5) / n_colours)}});
    }
    svg.close();
    svg.add("rect", {{"x", x}, {"y", top}, {"width", 14.0}, {"height", bottom - top}, {"class", "tick"}});
    constexpr std::array labels = {"0", "π/2", "π", "3π/2", "2π"};
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const double y = bottom - (bottom - top) * static_cast<double>(i) / 4.0;
        svg.line(x + 14.0, y, x + 18.0, y, "tick");
        svg.text(x + 21.0, y + 4.0, labels[i], "start");
    }
}

void draw_angles(Svg &svg, const Subject &subject) {
    constexpr std::size_t n_columns = 144;
    const auto &inv_freq = subject.series[0].inv_freq;
    const std::size_t n_rows = std::min<std::size_t>(inv_freq.size(), 64);
    const Panel panel(svg, {1.0, subject.reach(), 530.0, 862.0, true},
                      {-0.5, subject.n_pairs() - 0.5, 725.0, 467.0, false});
    panel.open("angles");
    panel.name("c", "Angle position × inv_freq, modulo 2π");
    // Cells of one colour are one path, neighbours in a row one rectangle of it; the unit is a cell.
    std::array<std::string, n_colours + 1> paths;
    for (std::size_t row = 0; row < n_rows; ++row) {
        const std::size_t pair = (2 * row + 1) * inv_freq.size() / (2 * n_rows);
        int previous = 0;
        std::size_t begin = 0;
        for (std::size_t column = 0; column <= n_columns; ++column) {
            const auto at = [&](double cell) { return std::pow(subject.reach(), cell / n_columns); };
            const auto cell = static_cast<double>(column);
            const int level = column < n_columns
                                  ? find_level(subject.series[0], pair, at(cell + 0.5), at(cell + 1.0) - at(cell))
                                  : n_colours + 1;
            if (column != 0 && level != previous) {
                const auto length = std::to_string(column - begin);
                auto &path = paths[static_cast<std::size_t>(previous) + 1];
                path.append("M").append(std::to_string(begin)).append(" ").append(std::to_string(row));
                path.append("h").append(length).append("v1h-").append(length).append("z");
                begin = column;
            }
            previous = level;
        }
    }
    const double x_scale = (panel.x.end - panel.x.begin) / n_columns;
    const double y_scale = (panel.y.end - panel.y.begin) / static_cast<double>(n_rows);
    svg.open("g", {{"transform", "translate(" + format_fixed(panel.x.begin) + " " + format_fixed(panel.y.begin) +
                                     ") scale(" + format_fixed(x_scale, 6) + " " + format_fixed(y_scale, 6) + ")"},
                   {"shape-rendering", "crispEdges"},
                   {"data-columns", std::to_string(n_columns)},
                   {"data-rows", std::to_string(n_rows)}});
    for (int level = too_fast; level < n_colours; ++level) {
        const auto &path = paths[static_cast<std::size_t>(level) + 1];
        if (path.empty()) {
            continue;
        }
        if (level == too_fast) {
            svg.add("path", {{"class", "fast"}, {"data-level", "fast"}, {"d", path}});
        } else {
            svg.add(
                "path",
                {{"fill", find_colour((level + 0.5) / n_colours)}, {"data-level", std::to_string(level)}, {"d", path}});
        }
    }
    svg.close();
    panel.mark_contexts(subject, true);
    panel.frame(make_log_ticks(panel.x, 8), "position (tokens)", make_pair_ticks(subject.info.rotary_dim / 2),
                n_rows < inv_freq.size()
                    ? "pair k (" + std::to_string(n_rows) + " of " + format_reading(subject.n_pairs()) + " shown)"
                    : "pair k",
                40.0);
    draw_colour_bar(svg, 876.0, 467.0, 692.0);
    svg.add("rect", {{"x", 876.0}, {"y", 711.0}, {"width", 14.0}, {"height", 14.0}, {"class", "fast"}});
    svg.text(897.0, 722.0, "faster*", "start");
    svg.text(936.0, 781.0, "* grey: more than a third of a turn within one cell of the picture", "note end");
    svg.close();
}

// ---- The whole ---------------------------------------------------------------------------------------------------

std::string make_title(const Subject &subject) {
    const auto &info = subject.info;
    return std::string("RoPE ") + (std::string_view(info.method) == "list" ? "from a list" : info.method) +
           (info.base != 0.0 ? ", base " + format_reading(info.base) : "") + ", rotary_dim " +
           std::to_string(info.rotary_dim) + ", attention_factor " + format_reading(info.attention_factor) +
           (subject.series[0].is_hf_f32 ? ", hf_f32" : "");
}

std::string name_wavelength(double inv_freq) {
    const double wavelength = find_wavelength(inv_freq);
    return std::isfinite(wavelength) ? format_reading(wavelength) + " tokens" : "infinity";
}

std::string format_short(double value) {
    char text[32];
    return {text, std::to_chars(std::begin(text), std::end(text), value, std::chars_format::general, 2).ptr};
}

std::string make_subtitle(const Subject &subject) {
    const bool is_given = subject.seq_len && static_cast<double>(*subject.seq_len) == subject.context;
    std::string text;
    if (subject.trained != 0.0) {
        text += "Trained on " + format_reading(subject.trained) + " tokens, " +
                (is_given ? "drawn up to " : "meant for ") + format_reading(subject.context) + ".";
    } else if (subject.is_context_stated) {
        text +=
            "Context length " + format_reading(subject.context) + " tokens, as " + (is_given ? "given." : "stated.");
    } else {
        text += "No context length is stated; " + format_reading(subject.context) + " tokens are assumed.";
    }
    if (subject.depends_on_seq_len()) {
        text += subject.seq_len
                    ? " Frequencies for a sequence of " + format_reading(static_cast<double>(*subject.seq_len)) + "."
                    : " Frequencies for sequences up to " +
                          format_reading(static_cast<double>(subject.info.original_max_position)) +
                          "; --seq-len shows others.";
    }
    if (subject.series[0].is_hf_f32) {
        const auto &series = subject.series[0];
        double greatest = 0.0;
        for (std::size_t pair = 0; pair < series.inv_freq.size(); ++pair) {
            greatest = std::max(greatest, std::fabs(series.find_angle(pair, subject.context - 1.0) -
                                                    (subject.context - 1.0) * subject.info.inv_freq[pair]));
        }
        text += " Float32 angles, up to " + format_short(greatest) + " rad from exact ones at position " +
                format_reading(subject.context - 1.0) + ".";
    }
    const auto &inv_freq = subject.series[0].inv_freq;
    if (const auto n_still = std::count(inv_freq.begin(), inv_freq.end(), 0.0); n_still != 0) {
        text += " " + format_reading(static_cast<double>(n_still)) + " of " + format_reading(subject.n_pairs()) +
                " pairs do not turn.";
    }
    return text;
}

std::string make_picture(const Subject &subject) {
    const auto title = make_title(subject);
    const auto subtitle = make_subtitle(subject);
    const auto &inv_freq = subject.series[0].inv_freq;
    Svg svg;
    svg.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                     {"width", width},
                     {"height", height},
                     {"viewBox", "0 0 " + format_fixed(width) + " " + format_fixed(height)},
                     {"role", "img"},
                     {"aria-labelledby", "title desc"}});
    svg.add("title", {{"id", "title"}}, title);
    svg.add("desc", {{"id", "desc"}},
            subtitle +
                " Three panels: a, the decay of the score of all-ones q and k with distance; b, the wavelength "
                "of each pair; c, the angle by position and pair. Wavelengths go from " +
                name_wavelength(inv_freq.front()) + " at pair 0 to " + name_wavelength(inv_freq.back()) + " at pair " +
                std::to_string(inv_freq.size() - 1) + "." +
                (subject.series.size() > 1 ? " a and b compare with the unscaled frequencies." : ""));
    svg.add("style", {}, style);
    svg.add("rect", {{"width", width}, {"height", height}, {"class", "page"}});
    svg.text(16.0, 36.0, title, "title");
    svg.text(16.0, 60.0, subtitle, "note");
    draw_decay(svg, subject);
    draw_wavelengths(svg, subject);
    draw_angles(svg, subject);
    svg.close();
    return svg.str();
}

}  // namespace

void plot(const PlotOptions &options) {
    const auto made = make_frequencies(options.frequencies, std::nullopt);
    const auto picture = make_picture(describe_subject(made, options.frequencies));
    OutputFile file(options.output);
    file.write(picture.data(), picture.size());
    file.commit();
}

}  // namespace halyard::tool
