// Golden cases through the command-line tool. What the library is tested for is only compared with the library.
#include "checks/make_sources.h"
#include "data/golden.h"
#include "tool/arrays.h"

#include <algorithm>
#include <cmath>

namespace {

using nlohmann::json;

/// Writes positions, or inverse frequencies, and returns the option that names them.
template <typename Element>
std::string option(const ToolFolder &dir, const std::string &name, const golden::Array<Element> &array) {
    return " --" + name + " " + write(dir, name + ".npy", array.shape, array.values);
}

std::string option(const ToolFolder &dir, const std::vector<double> &inv_freq) {
    return option(dir, "inv-freq", golden::Array<double>{inv_freq, {std::ssize(inv_freq)}});
}

/// The largest error of whole heads, in units of what is promised.
double worst_error(const std::vector<float> &x, const std::vector<float> &y, const std::vector<float> &exact,
                   std::size_t head_dim) {
    REQUIRE(y.size() == x.size());
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); i++) {
        const std::size_t other = i % head_dim < head_dim / 2 ? i + head_dim / 2 : i - head_dim / 2;
        const double length = std::hypot(double{x[i]}, double{x[other]});
        worst = std::max(worst, std::fabs(double{y[i]} - double{exact[i]}) / (0x1p-22 * length + 0x1p-149));
    }
    return worst;
}

}  // namespace

TEST_CASE("tool: golden positions with several axes, from every source of angles", "[tool][golden]") {
    const golden::Section section("mrope");
    const ToolFolder dir;
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const auto x = section.array<float>(test.at("x")), exact = section.array<float>(test.at("y_exact"));
        std::string listed = test.at("kind") == "interleaved_axes" ? " --axis-map interleaved" : " --axis-map sections";
        char separator = ':';
        for (const auto &count : test.at("section")) {
            listed += separator + count.dump();
            separator = ',';
        }
        std::vector<double> inv_freq;
        const double base = test.at("base"), freq_dim = test.at("freq_dim");
        for (const double index : test.at("inv_freq_index")) {
            inv_freq.push_back(std::pow(base, -2.0 * index / freq_dim));
        }
        listed += option(dir, inv_freq);
        write(dir, "x.npy", x.shape, x.values);
        const auto rotate =
            "rotate x.npy -o y.npy" + option(dir, "positions", section.array<std::int64_t>(test.at("positions")));
        const auto error_of = [&](const std::string &options) {
            dir.succeed(rotate + options);
            return worst_error(x.values, floats_of(dir / "y.npy"), exact.values,
                               static_cast<std::size_t>(x.shape.at(2)));
        };
        for (const std::string angles : {"auto", "table", "phase"}) {
            CAPTURE(angles);
            CHECK(error_of(listed + " --angles " + angles) <= 1.0);
        }
        for (const char *form : {"config_old", "config_new"}) {
            if (test.at(form).is_string()) {  // the config brings the axis map too
                std::filesystem::copy(places::golden() + "/mrope/" + test.at(form).get<std::string>(),
                                      dir / "config.json", std::filesystem::copy_options::overwrite_existing);
                CHECK(error_of(" --config config.json") <= 1.0);
            }
        }
    }
}

TEST_CASE("tool: a reference's angles are the library's, and it rotates by them", "[tool]") {
    const ToolFolder dir;
    const std::vector<std::int32_t> positions = {0, 1, 7, 65, 4095, 131071};
    write(dir, "p.npy", {6}, positions);
    write<float>(dir, "f.npy", {4}, {1.0f, 0.3f, 1e-3f, 0.25f});
    std::vector<float> x;  // (1, 0) in each pair shows cos and sin
    for (int i = 0; i < 6 * 8; ++i) {
        x.push_back(i % 8 < 4 ? 1.0f : 0.0f);
    }
    write(dir, "x.npy", {6, 1, 8}, x);
    const auto rows =
        table_rows_at(make_frequencies({1.0f, 0.3f, 1e-3f, 0.25f}, 1.25), positions, HALYARD_REFERENCE_HF_F32);
    const std::string options = " --positions p.npy --reference hf_f32 --inv-freq f.npy --attention-factor 1.25";
    dir.succeed("angles -o cs.npy" + options);
    CHECK(floats_of(dir / "cs.npy") == rows);
    dir.succeed("rotate x.npy -o y.npy" + options);
    CHECK(floats_of(dir / "y.npy") == rows);
}
