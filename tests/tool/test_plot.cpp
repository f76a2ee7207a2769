// The picture of `halyard plot`: well-formed, needs no other file, and its curves and cells are the right numbers, read
// back from where they are drawn.
#include "data/golden.h"
#include "tool/arrays.h"
#include "tool/plot/svg.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

struct Element {
    std::string tag;
    std::map<std::string, std::string> attributes;
    std::string text;  // of its own
    std::vector<Element> children;

    const std::string &at(const std::string &name) const { return attributes.at(name); }
    bool is(const std::string &name, const std::string &value) const {
        const auto found = attributes.find(name);
        return found != attributes.end() && found->second == value;
    }

    template <typename Visit>
    void walk(const Visit &visit) const {
        visit(*this);
        for (const auto &child : children) {
            child.walk(visit);
        }
    }

    std::vector<const Element *> find(const std::string &wanted_tag) const {
        std::vector<const Element *> found;
        walk([&](const Element &each) {
            if (each.tag == wanted_tag) {
                found.push_back(&each);
            }
        });
        return found;
    }

    const Element &with_id(const std::string &id) const {
        const Element *found = nullptr;
        walk([&](const Element &each) { found = each.is("id", id) ? &each : found; });
        if (found == nullptr) {
            throw std::runtime_error("no element has the id " + id);
        }
        return *found;
    }
};

/// A strict reader of the XML that such a file needs: elements, attributes in double quotes, the five entities. Throws
/// std::runtime_error for all else.
class XmlReader {
public:
    explicit XmlReader(std::string_view text) : rest_(text) {}

    Element read() {
        auto root = element();
        skip_space();
        require(rest_.empty(), "something after the root");
        return root;
    }

private:
    static void require(bool good, const std::string &what) {
        if (!good) {
            throw std::runtime_error("not well-formed: " + what);
        }
    }
    void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
    bool take(std::string_view word) {
        const bool is_there = rest_.starts_with(word);
        rest_.remove_prefix(is_there ? word.size() : 0);
        return is_there;
    }
    std::string name() {
        const auto length = rest_.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
        require(length != rest_.npos && length > 0, "a name is missing");
        const std::string result(rest_.substr(0, length));
        rest_.remove_prefix(length);
        return result;
    }
    std::string characters(char end) {
        std::string result;
        while (!rest_.empty() && rest_[0] != end) {
            require(rest_[0] != '<', "< in an attribute");
            require(static_cast<unsigned char>(rest_[0]) >= ' ' || rest_[0] == '\n', "a control character");
            if (rest_[0] != '&') {
                result += rest_[0];
                rest_.remove_prefix(1);
                continue;
            }
            result += take("&amp;")    ? '&'
                      : take("&lt;")   ? '<'
                      : take("&gt;")   ? '>'
                      : take("&quot;") ? '"'
                      : take("&apos;") ? '\''
                                       : '\0';
            require(result.back() != '\0', "an unknown entity");
        }
        return result;
    }
    Element element() {
        require(take("<"), "an element is missing");
        Element result;
        result.tag = name();
        for (;;) {
            skip_space();
            if (take("/>")) {
                return result;
            }
            if (take(">")) {
                break;
            }
            const auto key = name();
            require(take("=\""), "an attribute without a value");
            require(result.attributes.emplace(key, characters('"')).second, "an attribute twice");
            require(take("\""), "a value without an end");
        }
        for (;;) {
            result.text += characters('<');
            if (take("</")) {
                require(name() == result.tag && take(">"), result.tag + " is closed by another");
                return result;
            }
            result.children.push_back(element());
        }
    }

    std::string_view rest_;
};

std::vector<double> read_numbers(std::string text) {
    std::replace(text.begin(), text.end(), ',', ' ');
    std::istringstream stream(text);
    std::vector<double> numbers;
    for (double number; stream >> number;) {
        numbers.push_back(number);
    }
    return numbers;
}

/// From pixels back to the quantity.
class Axis {
public:
    explicit Axis(const std::string &text) {
        std::string kind;
        std::istringstream(text) >> first_ >> last_ >> begin_ >> end_ >> kind;
        is_log_ = kind == "log";
        REQUIRE((is_log_ || kind == "linear"));
    }
    double value_at(double pixel) const {
        const double part = (pixel - begin_) / (end_ - begin_);
        return is_log_ ? first_ * std::pow(last_ / first_, part) : first_ + part * (last_ - first_);
    }
    double last() const { return last_; }

private:
    double first_ = 0.0, last_ = 0.0, begin_ = 0.0, end_ = 0.0;
    bool is_log_ = false;
};

struct Picture {
    std::string bytes;
    Element root;
};

Picture plot(const Arguments &options) {
    const ScratchDir dir;
    CHECK(succeed(Arguments{"plot", "-o", dir / "out.svg"} + options) == "");
    Picture picture{dir.read("out.svg"), {}};
    picture.root = XmlReader(picture.bytes).read();
    return picture;
}

using Point = std::pair<double, double>;

/// The points of all lines of a panel that belong to a series, as quantities.
std::vector<Point> read_curve(const Element &panel, const std::string &series, const char *shape = "polyline") {
    const Axis x(panel.at("data-x")), y(panel.at("data-y"));
    std::vector<Point> points;
    for (const auto *line : panel.find(shape)) {
        if (line->is("data-series", series)) {
            const auto numbers = read_numbers(line->at("points"));
            for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
                points.emplace_back(x.value_at(numbers[i]), y.value_at(numbers[i + 1]));
            }
        }
    }
    return points;
}

/// Of a curve, "data-first" or "data-last": the distances that its points are made of.
std::vector<double> read_ends(const Element &decay, const std::string &series, const char *which) {
    for (const auto *line : decay.find("polyline")) {
        if (line->is("data-series", series)) {
            return read_numbers(line->at(which));
        }
    }
    return {};
}

/// The words above and below a line end beside it and not in each other, as far as a font's width can be guessed.
void check_no_overlap(const Element &root) {
    struct Box {
        double left, right, bottom, size;
        std::string text;
    };
    std::vector<Box> boxes;
    root.walk([&](const Element &each) {
        if (each.tag != "text" || each.attributes.contains("transform")) {
            return;
        }
        const auto style = each.attributes.contains("class") ? each.at("class") : "";
        const auto has = [&](const char *word) { return style.find(word) != style.npos; };
        const double size = has("title") ? 19.0 : has("name") ? 14.0 : 11.5;
        const double length = halyard::tool::estimate_width(each.text, size);
        const double x = std::stod(each.at("x"));
        const double left = has("end") ? x - length : has("middle") ? x - length / 2.0 : x;
        boxes.push_back({left, left + length, std::stod(each.at("y")), size, each.text});
    });
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            const auto &a = boxes[i], &b = boxes[j];
            INFO(a.text << " | " << b.text);
            const bool meets = a.left < b.right && b.left < a.right && std::fabs(a.bottom - b.bottom) < 11.0;
            CHECK(!meets);
        }
    }
}

double inv_freq_of(double base, std::size_t k, std::size_t n_pairs) {
    return std::pow(base, -static_cast<double>(k) / static_cast<double>(n_pairs));
}

std::string config(const std::string &name) { return "--config " HALYARD_CONFIG_DIR "/" + name + ".json"; }

std::string all_text(const Element &root) {
    std::string text;
    root.walk([&](const Element &each) { text += each.text + "\n"; });
    return text;
}

constexpr double pixel = 0.006;  // coordinates have two decimals

}  // namespace

TEST_CASE("plot: a picture that needs nothing else", "[tool][plot]") {
    const Arguments options = split(GENERATE(
        as<std::string>(), "--rotary-dim 128", "--rotary-dim 2", "--rotary-dim 512", "--rotary-dim 6 --base 0.5",
        "--rotary-dim 2048 --base 1e300", config("llama-3.1-8b"), config("qwen2.5-7b-yarn"), config("phi-3.5-mini"),
        config("phi-3.5-mini") + " --seq-len 9007199254740992", config("internlm2.5-7b") + " --seq-len 1",
        config("gemma-4") + " --layer-type full_attention", config("qwen2-vl-7b") + " --layer-type vision"));
    INFO(join(options));
    const auto [bytes, root] = plot(options);
    CHECK(bytes.size() < 400000);
    check_no_overlap(root);
    CHECK(root.tag == "svg");
    CHECK(root.is("xmlns", "http://www.w3.org/2000/svg"));
    CHECK(root.is("role", "img"));
    REQUIRE(root.children.size() > 2);
    CHECK(root.children[0].tag == "title");
    CHECK(root.children[1].tag == "desc");
    CHECK(root.with_id("title").text.starts_with("RoPE "));
    CHECK(!root.with_id("desc").text.empty());
    CHECK(root.find("style").at(0)->text.find("prefers-color-scheme: dark") != std::string::npos);
    for (const char *id : {"decay", "wavelength", "angles"}) {
        CHECK(!root.with_id(id).children.empty());
    }
    for (const char *outside : {"script", "image", "use", "foreignObject"}) {
        CHECK(root.find(outside).empty());
    }
    for (const char *word : {"href", "url(", "@import", "@font-face", "nan", "inf,", ",inf"}) {
        CHECK(bytes.find(word) == std::string::npos);
    }
    // Nothing is drawn beyond the page; marks of colour in their own group have their own unit.
    root.walk([](const Element &each) {
        for (const char *name : {"x", "x1", "x2", "cx"}) {
            if (each.attributes.contains(name)) {
                const double x = std::stod(each.at(name));
                CHECK((x >= 0.0 && x <= 960.0));
            }
        }
        for (const char *name : {"y", "y1", "y2", "cy"}) {
            if (each.attributes.contains(name)) {
                const double y = std::stod(each.at(name));
                CHECK((y >= 0.0 && y <= 790.0));
            }
        }
    });
}

TEST_CASE("plot: the decay is the golden one", "[tool][plot][golden]") {
    const golden::Section section("decay");
    const auto entry = section.cases().at(0);
    const auto want = section.array<double>(entry.at("dot_f64").get<std::string>());
    const auto picture = plot({"--rotary-dim", std::to_string(entry.at("d").get<int>()), "--base",
                               std::to_string(entry.at("base").get<int>())});
    const auto &panel = picture.root.with_id("decay");
    const auto firsts = read_ends(panel, "used", "data-first");
    const auto lasts = read_ends(panel, "used", "data-last");
    const auto line = read_curve(panel, "used");
    const auto band = read_curve(panel, "used", "polygon");
    REQUIRE(line.size() == firsts.size());
    REQUIRE(line.size() == lasts.size());
    REQUIRE(band.size() == 2 * line.size());
    const double tolerance = 2.0 * pixel / 224.0;
    const double ratio = 1.0 / inv_freq_of(entry.at("base").get<double>(), 1, entry.at("d").get<std::size_t>() / 2);
    std::size_t n_compared = 0;
    for (std::size_t i = 0; i < firsts.size() && lasts[i] < static_cast<double>(want.values.size()); ++i) {
        std::vector<double> scores;
        for (double distance = firsts[i]; distance <= lasts[i]; ++distance) {
            scores.push_back(want.values[static_cast<std::size_t>(distance)] / want.values[0]);
        }
        INFO("distances " << firsts[i] << " to " << lasts[i]);
        REQUIRE(!scores.empty());
        std::sort(scores.begin(), scores.end());
        const auto n_left_out = scores.size() / 20;
        const double n = static_cast<double>(scores.size());
        CHECK(std::fabs(line[i].second - std::accumulate(scores.begin(), scores.end(), 0.0) / n) <= tolerance);
        CHECK(std::fabs(band[i].second - scores[scores.size() - 1 - n_left_out]) <= tolerance);
        CHECK(std::fabs(band[band.size() - 1 - i].second - scores[n_left_out]) <= tolerance);
        // Around the point, from one wave to the next.
        CHECK(firsts[i] >= line[i].first / std::sqrt(ratio) * 0.999);
        CHECK(lasts[i] <= line[i].first * std::sqrt(ratio) * 1.001);
        CHECK(lasts[i] - firsts[i] + 2.0 > line[i].first * (std::sqrt(ratio) - 1.0 / std::sqrt(ratio)) * 0.999);
        ++n_compared;
    }
    CHECK(n_compared > 60);
    CHECK(firsts[5] == 6.0);  // near ones are not lumped together
    CHECK(lasts[5] == 6.0);
    // No sawtooth: the mean goes down from one point to the next, but for two pixels.
    for (std::size_t i = 10; i + 1 < line.size(); ++i) {
        CHECK(line[i + 1].second <= line[i].second + 2.0 / 224.0);
    }
    CHECK(Axis(panel.at("data-x")).last() == 4096.0);
    CHECK(all_text(picture.root).find("context 4,096 (assumed)") != std::string::npos);
}

TEST_CASE("plot: wavelengths before and after scaling", "[tool][plot]") {
    const auto picture = plot(split(config("llama-3.1-8b")));
    const auto &panel = picture.root.with_id("wavelength");
    const auto used = read_curve(panel, "used");
    const auto unscaled = read_curve(panel, "unscaled");
    REQUIRE(used.size() == 64);
    REQUIRE(unscaled.size() == 64);
    for (std::size_t k = 0; k < 64; ++k) {
        // Eight decades in 258 pixels.
        const double before = 2.0 * std::numbers::pi / inv_freq_of(500000.0, k, 64);
        const double ratio = 8192.0 / before;
        const double part = std::clamp((ratio - 1.0) / 3.0, 0.0, 1.0);
        const double after = before / ((1.0 - part) / 8.0 + part);
        CHECK(std::fabs(unscaled[k].first - static_cast<double>(k)) < 0.01);
        CHECK(std::fabs(unscaled[k].second / before - 1.0) < 1e-3);
        CHECK(std::fabs(used[k].second / after - 1.0) < 1e-3);
    }
    CHECK(!read_curve(picture.root.with_id("decay"), "unscaled").empty());
    const auto text = all_text(picture.root);
    for (const char *words : {"RoPE llama3, base 500,000, rotary_dim 128, attention_factor 1\n", "trained on 8,192",
                              "context 131,072", "unscaled, same base", "less than one turn in 8,192 tokens"}) {
        CHECK(text.find(words) != std::string::npos);
    }

    // Without scaling there is nothing to compare with.
    const auto plain = plot(split(config("llama-2-7b")));
    CHECK(read_curve(plain.root.with_id("wavelength"), "used").size() == 64);
    CHECK(read_curve(plain.root.with_id("wavelength"), "unscaled").empty());
    CHECK(all_text(plain.root).find("unscaled,") == std::string::npos);
    CHECK(all_text(plain.root).find("context 4,096\n") != std::string::npos);
}

TEST_CASE("plot: what a context length is", "[tool][plot]") {
    const auto [line, words] = GENERATE(table<std::string, const char *>({
        // max_position_embeddings states what it was trained with; YaRN's factor stretches it.
        {config("qwen2.5-7b-yarn"), "meant for 131,072."},
        {config("phi-3.5-mini"), "for sequences up to 4,096;"},
        {config("phi-3.5-mini") + " --seq-len 5000", "for a sequence of 5,000."},
        {config("internlm2.5-7b") + " --seq-len 50000", "drawn up to 50,000."},
        {config("llama-2-7b") + " --seq-len 10000", "10,000 tokens, as given."},
        {config("gemma-4") + " --layer-type full_attention", "192 of 256 pairs do not turn."},
    }));
    INFO(line);
    CHECK(all_text(plot(split(line)).root).find(words) != std::string::npos);
}

TEST_CASE("plot: every cell has the colour of its angle", "[tool][plot]") {
    const auto picture = plot({"--rotary-dim", "64", "--base", "10000"});
    const Element *cells = nullptr;
    picture.root.with_id("angles").walk(
        [&](const Element &each) { cells = each.attributes.contains("data-columns") ? &each : cells; });
    REQUIRE(cells != nullptr);
    const auto n_columns = std::stoul(cells->at("data-columns"));
    REQUIRE(cells->at("data-rows") == "32");
    constexpr int uncovered = -2, fast = -1;
    std::vector<int> levels(32 * n_columns, uncovered);
    for (const auto &path : cells->children) {
        const int level = path.is("data-level", "fast") ? fast : std::stoi(path.at("data-level"));
        auto runs = path.at("d");
        for (char &c : runs) {
            c = c == '-' || (c >= '0' && c <= '9') ? c : ' ';
        }
        const auto numbers = read_numbers(runs);  // column, row, length, 1, -length
        for (std::size_t i = 0; i + 4 < numbers.size(); i += 5) {
            REQUIRE(numbers[i + 2] == -numbers[i + 4]);
            for (double column = numbers[i]; column < numbers[i] + numbers[i + 2]; ++column) {
                auto &cell =
                    levels.at(static_cast<std::size_t>(numbers[i + 1]) * n_columns + static_cast<std::size_t>(column));
                CHECK(cell == uncovered);
                cell = level;
            }
        }
    }
    CHECK(std::count(levels.begin(), levels.end(), uncovered) == 0);
    int n_colours = 0;
    for (std::size_t row = 0; row < 32; ++row) {
        for (std::size_t column = 0; column < n_columns; ++column) {
            const int level = levels[row * n_columns + column];
            const auto at = [&](double cell) { return std::pow(4096.0, cell / static_cast<double>(n_columns)); };
            const auto cell = static_cast<double>(column);
            const double turns = at(cell + 0.5) * inv_freq_of(10000.0, row, 32) / (2.0 * std::numbers::pi);
            const double turns_of_cell =
                (at(cell + 1.0) - at(cell)) * inv_freq_of(10000.0, row, 32) / (2.0 * std::numbers::pi);
            INFO("pair " << row << ", column " << column);
            if (level == fast) {
                CHECK(turns_of_cell > 0.333);
                continue;
            }
            CHECK(turns_of_cell < 0.334);
            const double difference = turns - (level + 0.5) / 32.0;
            CHECK(std::fabs(difference - std::round(difference)) <= 0.5 / 32.0 + 1e-9);
            ++n_colours;
        }
    }
    CHECK(n_colours > 1000);
}

TEST_CASE("plot: a list, with pairs that stand still or turn back", "[tool][plot]") {
    const ScratchDir dir;
    const std::vector<double> inv_freq = {1.0, 0.0, -0.5, 5e-324, 1e-3, 0.0};
    write(dir, "f.npy", {6}, inv_freq);
    const auto picture = plot({"--inv-freq", dir / "f.npy", "--attention-factor", "1.5"});
    const auto &wavelengths = picture.root.with_id("wavelength");
    const auto points = read_curve(wavelengths, "used");
    REQUIRE(points.size() == 3);
    CHECK(std::fabs(points[1].first - 2.0) < 0.01);
    CHECK(std::fabs(points[1].second / (4.0 * std::numbers::pi) - 1.0) < 1e-3);
    CHECK(picture.root.with_id("title").text == "RoPE from a list, rotary_dim 12, attention_factor 1.5");

    write(dir, "f.npy", {4}, std::vector<double>(4));
    const auto still = plot({"--inv-freq", dir / "f.npy"});
    CHECK(read_curve(still.root.with_id("wavelength"), "used").empty());
    for (const auto &point : read_curve(still.root.with_id("decay"), "used")) {
        CHECK(point.second == 1.0);
    }
    CHECK(all_text(still.root.with_id("wavelength")).find("No pair turns") != std::string::npos);
    CHECK(all_text(picture.root).find("No pair turns") == std::string::npos);
}

TEST_CASE("plot: each context length has its own words beside its line", "[tool][plot]") {
    for (const char *name : {"llama-3.1-8b", "qwen2.5-7b-yarn", "phi-3.5-mini"}) {
        INFO(name);
        const auto picture = plot(split(config(name)));
        check_no_overlap(picture.root);
        for (const char *id : {"decay", "angles"}) {
            int n_words = 0;
            std::vector<double> lines;
            const auto &panel = picture.root.with_id(id);
            for (const auto *line : panel.find("line")) {
                if (line->at("class").starts_with("mark")) {
                    lines.push_back(std::stod(line->at("x1")));
                }
            }
            CHECK(lines.size() == 2);
            for (const auto *text : panel.find("text")) {
                if (text->text.starts_with("context ") || text->text.starts_with("trained on ")) {
                    const double end = std::stod(text->at("x"));
                    CHECK(std::any_of(lines.begin(), lines.end(),
                                      [end](double x) { return x - end > 0.0 && x - end < 6.0; }));
                    ++n_words;
                }
            }
            CHECK(n_words == 2);
        }
    }
}

TEST_CASE("plot: Hugging Face's float32 angles", "[tool][plot]") {
    const auto far = split(config("llama-3.1-8b") + " --seq-len 2000000000");
    const Arguments hf = {"--reference", "hf_f32"};
    const auto exact = plot(far), rounded = plot(far + hf);
    CHECK(plot(far + Arguments{"--reference", "exact"}).bytes == exact.bytes);
    CHECK(read_curve(exact.root.with_id("decay"), "used") != read_curve(rounded.root.with_id("decay"), "used"));
    CHECK(rounded.root.with_id("title").text.ends_with(", hf_f32"));
    check_no_overlap(rounded.root);

    // One pair, whose angle at the last position of 4096 is worked out here.
    const ScratchDir dir;
    const auto f = write<double>(dir, "f.npy", {1}, {0.3});
    const auto one = plot(Arguments{"--inv-freq", f} + hf);
    const float angle = 4095.0f * 0.3f;
    std::ostringstream words;
    words.precision(2);
    words << "up to " << std::fabs(angle - 4095.0 * 0.3) << " rad from exact ones at position 4,095.";
    INFO(all_text(one.root));
    CHECK(all_text(one.root).find(words.str()) != std::string::npos);
}

TEST_CASE("plot: what can't be drawn is refused", "[tool][plot]") {
    const ScratchDir dir;
    const auto out = " -o " + (dir / "out.svg");
    for (const auto &[status, options] :
         std::vector<std::pair<int, std::string>>{{2, out},
                                                  {2, "--rotary-dim 8"},
                                                  {2, "--rotary-dim 8 -o ''"},
                                                  {2, "--rotary-dim 8 -o " + (dir / "out.png")},
                                                  {2, "--rotary-dim 8 -o " + (dir / "out.svg.PDF")},
                                                  {2, "--rotary-dim 8 --seq-len 9" + out},
                                                  {1, "--rotary-dim 7" + out},
                                                  {1, "--rotary-dim 8 --base -1" + out},
                                                  {1, "--config " + (dir / "missing.json") + out},
                                                  {1, config("gemma-4") + out},
                                                  {1, "--rotary-dim 8 -o " + (dir / "missing/out.svg")},
                                                  {1, "--rotary-dim 8 -o /dev/full"}}) {
        check_fails(status, Arguments{"plot"} + split(options), dir);
    }
    dir.write("out.svg", "precious");
    check_fails(1, {"plot", "--rotary-dim", "7", "-o", dir / "out.svg"}, dir);
    CHECK(dir.read("out.svg") == "precious");
    succeed({"plot", "--rotary-dim", "8", "-o", dir / "out.svg"});
    CHECK(dir.read("out.svg").starts_with("<svg "));
    CHECK(dir.count_entries() == 1);
    // Names that promise nothing else are nobody's business.
    for (const char *name : {"out", "out.2026", "OUT.SVG", "a.png.svg"}) {
        succeed({"plot", "--rotary-dim", "8", "-o", dir / name});
        CHECK(dir.read(name) == dir.read("out.svg"));
    }
    CHECK(succeed({"plot", "--rotary-dim", "8", "-o", "-"}) == dir.read("out.svg"));
}
