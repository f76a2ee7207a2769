// Golden cases through the command-line tool. What the library is tested for is only compared with the library.
#include "checks/make_sources.h"
#include "data/golden_elements.h"
#include "tool/arrays.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace {

using halyard::tool::read_npy;
using nlohmann::json;

/// The CPU's targets that this machine can run, or its devices.
std::vector<std::string> supported_targets(bool devices) {
    std::vector<std::string> names;
    for (const auto &target : json::parse(ToolFolder().succeed("list --json"))) {
        const std::string name = target.at("name");
        const bool is_device = name == "cuda_sm80" || name == "opencl";
        if (is_device == devices && target.at("built").get<bool>() && target.at("supported").get<bool>()) {
            names.push_back(name);
        }
    }
    return names;
}

/// Writes elements [tokens, heads, head_dim] to a file, and returns its name.
std::string write(const ToolFolder &dir, const std::string &name, const golden::Storage &storage,
                  const Elements &elements) {
    return write(dir, name, {elements.shape[1], elements.shape[2], elements.shape[3]}, elements.bytes, storage.descr);
}

Elements load(const std::string &path, const golden::Storage &storage) {
    const auto array = read_npy(path, {storage.descr});
    REQUIRE(array.shape.size() == 3);
    Elements elements(storage.dtype, {1, array.shape[0], array.shape[1], array.shape[2]});
    REQUIRE(array.n_bytes == elements.bytes.size());
    std::memcpy(elements.bytes.data(), array.data.get(), array.n_bytes);
    return elements;
}

/// Writes positions, or inverse frequencies, and returns the option that names them.
template <typename Element>
std::string option(const ToolFolder &dir, const std::string &name, const golden::Array<Element> &array) {
    return " --" + name + " " + write(dir, name + ".npy", array.shape, array.values);
}

std::string option(const ToolFolder &dir, const std::vector<double> &inv_freq) {
    return option(dir, "inv-freq", golden::Array<double>{inv_freq, {std::ssize(inv_freq)}});
}

std::string options_of(const Rotation &rotation, const json &test) {
    return " --rotary-dim " + std::to_string(rotation.rotary_dim) + " --rotary-offset " +
           std::to_string(rotation.offset) + " --pairing " + test.at("pairing").get<std::string>() +
           (rotation.inverse ? " --inverse" : "");
}

/// The largest error of y, in units of what is promised of it. Both y and the exact answer are rounded to the dtype,
/// which may part them by half a spacing each. Columns outside the window must be those of x.
double worst_error(const Rotation &rotation, const Elements &x, const Elements &y, const Elements &exact,
                   double attention_factor) {
    REQUIRE(y.shape == x.shape);
    double worst = 0;
    for (std::int64_t head = 0; head < x.count(); head += x.shape[3]) {
        for (std::int64_t i = 0; i < x.shape[3]; i++) {
            if (i < rotation.offset || i >= rotation.offset + rotation.rotary_dim) {
                REQUIRE(y.word(head + i) == x.word(head + i));
            }
        }
        for (std::int64_t k = 0; k < rotation.rotary_dim / 2; k++) {
            const double length = std::hypot(static_cast<double>(x[head + rotation.index(rotation.pairing, k, 0)]),
                                             static_cast<double>(x[head + rotation.index(rotation.pairing, k, 1)]));
            for (const int member : {0, 1}) {
                const std::int64_t at = head + rotation.index(rotation.pairing_of_output(), k, member);
                const double want = exact[at];
                const double spacing =
                    x.dtype == HALYARD_F32 ? 0 : static_cast<double>(2 * oracle::half_ulp(x.dtype, want));
                const double bound = 0x1p-22 * length * attention_factor + 0x1p-149 + spacing;
                worst = std::max(worst, std::fabs(y[at] - want) / bound);
            }
        }
    }
    return worst;
}

/// Every golden case of every dtype, in place and out of place.
void check_golden_cases(const std::vector<std::string> &targets) {
    const golden::Section section("apply");
    const ToolFolder dir;
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const Rotation rotation = golden::rotation_of(test);
        const double base = test.at("base"), factor = test.at("attention_factor");
        auto options =
            options_of(rotation, test) + option(dir, "positions", section.array<std::int64_t>(test.at("positions")));
        if (factor == 1.0) {
            options += " --base " + json(base).dump();
        } else {
            std::vector<double> inv_freq;
            for (std::int64_t k = 0; k < rotation.rotary_dim / 2; ++k) {
                inv_freq.push_back(
                    std::pow(base, -2.0 * static_cast<double>(k) / static_cast<double>(rotation.rotary_dim)));
            }
            options += option(dir, inv_freq) + " --attention-factor " + json(factor).dump();
        }
        for (const auto &storage : golden::storages) {
            const std::string dtype = storage.name;
            const Elements x = golden::read_elements(section, test.at("x_" + dtype), storage.dtype);
            const Elements exact = golden::read_elements(section, test.at("y_" + dtype), storage.dtype);
            write(dir, "x.npy", storage, x);
            for (const auto &target : targets) {
                CAPTURE(dtype, target);
                const auto rotate = "rotate x.npy --dtype " + dtype + " --target " + target + options;
                CHECK(dir.succeed(rotate + " -o y.npy") == "");
                dir.succeed(rotate + " -o in_place.npy --in-place");
                const Elements y = load(dir / "y.npy", storage);
                CHECK(y == load(dir / "in_place.npy", storage));
                CHECK(worst_error(rotation, x, y, exact, factor) <= 1.0);
            }
        }
    }
}

}  // namespace

TEST_CASE("tool: golden cases on every target, in place and out of place", "[tool]") {
    auto targets = supported_targets(false);
    if (!std::string(HALYARD_TOOL_LAUNCHER).empty()) {
        std::erase(targets, "reference");  // an emulated process takes a hundred times as long to start
    }
    REQUIRE(!targets.empty());
    check_golden_cases(targets);
}

TEST_CASE("tool: golden cases on devices, in place and out of place", "[tool][gpu]") {
    const auto targets = supported_targets(true);
    if (targets.empty()) {
        SKIP("no CUDA or OpenCL device is to be had");
    }
    check_golden_cases(targets);
}

TEST_CASE("tool: golden positions with several axes, from every source of angles", "[tool][golden]") {
    const golden::Section section("mrope");
    const ToolFolder dir;
    const auto &f32 = golden::storages[0];
    const auto devices = supported_targets(true);
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const Elements x = golden::read_elements(section, test.at("x")),
                       exact = golden::read_elements(section, test.at("y_exact"));
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
        write(dir, "x.npy", f32, x);
        const auto rotate =
            "rotate x.npy -o y.npy" + option(dir, "positions", section.array<std::int64_t>(test.at("positions")));
        Rotation whole_heads;
        whole_heads.rotary_dim = x.shape[3];
        const auto error_of = [&](const std::string &options) {
            dir.succeed(rotate + options);
            return worst_error(whole_heads, x, load(dir / "y.npy", f32), exact, 1.0);
        };
        for (const auto &target : devices) {
            for (const char *angles : {"table", "phase"}) {
                CAPTURE(target, angles);
                CHECK(error_of(listed + " --angles " + angles + " --target " + target) <= 1.0);
            }
        }
        for (const std::string angles : {"auto", "table", "phase", "factored"}) {
            CAPTURE(angles);
            CHECK(error_of(listed + " --angles " + angles) <= (angles == "factored" ? 2.0 : 1.0));
        }
        for (const char *form : {"config_old", "config_new"}) {
            if (test.at(form).is_string()) {  // the config brings the axis map too
                std::filesystem::copy(HALYARD_GOLDEN_DIR "/mrope/" + test.at(form).get<std::string>(),
                                      dir / "config.json", std::filesystem::copy_options::overwrite_existing);
                CHECK(error_of(" --config config.json") <= 1.0);
            }
        }
    }
}

TEST_CASE("tool: golden hf_apply on the best target and on devices", "[tool][golden]") {
    const golden::Section section("hf_apply"), frequencies("frequencies");
    const ToolFolder dir;
    const auto &f32 = golden::storages[0];
    auto targets = supported_targets(true);
    targets.push_back(supported_targets(false).front());
    for (const auto &test : section.cases()) {
        CAPTURE(test.at("name").get<std::string>());
        const auto &evaluation = frequencies.find_case(test.at("frequencies_case")).at("evaluations").at(0);
        const auto inv_freq = frequencies.array<double>(evaluation.at("inv_freq_exact_f64"));
        const double factor = evaluation.at("attention_factor_exact_f64");
        const Rotation rotation = golden::rotation_of(test);
        const auto options = options_of(rotation, test) + option(dir, "inv-freq", inv_freq) +
                             option(dir, "positions", section.array<std::int64_t>(test.at("positions"))) +
                             " --attention-factor " + json(factor).dump() + " --out-pairing " +
                             test.at("out_layout").get<std::string>();
        for (const std::string name : {"q", "k"}) {
            const Elements x = golden::read_elements(section, test.at(name)),
                           exact = golden::read_elements(section, test.at(name + "_exact"));
            for (const auto &target : targets) {
                CAPTURE(name, target);
                write(dir, "x.npy", f32, x);
                dir.succeed("rotate x.npy -o y.npy --target " + target + options);
                CHECK(worst_error(rotation, x, load(dir / "y.npy", f32), exact, factor) <= 1.0);
            }
        }
    }
}

TEST_CASE("tool: a reference's angles are the library's, and it rotates by them", "[tool]") {
    const ToolFolder dir;
    const std::vector<std::int32_t> positions = {0, 1, 7, 65, 4095, 131071};
    const auto at = positions_of(positions);
    write(dir, "p.npy", {6}, positions);
    write<float>(dir, "f.npy", {4}, {1.0f, 0.3f, 1e-3f, 0.25f});
    const auto of_base = halyard::frequencies::from_base(500000, 8);
    const auto of_list = make_frequencies({1.0f, 0.3f, 1e-3f, 0.25f}, 1.25);
    std::vector<float> x;  // (1, 0) in each pair shows cos and sin
    for (int i = 0; i < 6 * 8; ++i) {
        x.push_back(i % 8 < 4 ? 1.0f : 0.0f);
    }
    write(dir, "x.npy", {6, 1, 8}, x);
    for (const auto &[name, reference] : {std::pair("hf_f32", HALYARD_REFERENCE_HF_F32),
                                          {"vllm_f16", HALYARD_REFERENCE_VLLM_F16},
                                          {"vllm_bf16", HALYARD_REFERENCE_VLLM_BF16},
                                          {"ggml", HALYARD_REFERENCE_GGML}}) {
        CAPTURE(name);
        const bool is_listed = reference == HALYARD_REFERENCE_HF_F32;  // the others need a base
        auto desc = describe_source(HALYARD_ANGLES_TABLE, least_position, greatest_position);
        desc.listed = &at;
        desc.reference = reference;
        const auto rows = rows_of(halyard::angle_source(is_listed ? of_list : of_base, desc), &at, 1, 6);
        const auto options =
            std::string(" --positions p.npy --reference ") + name +
            (is_listed ? " --inv-freq f.npy --attention-factor 1.25" : " --base 500000 --rotary-dim 8");
        dir.succeed("angles -o cs.npy" + options);
        CHECK(floats_of(dir / "cs.npy") == rows);
        dir.succeed("rotate x.npy -o y.npy" + options);
        CHECK(floats_of(dir / "y.npy") == rows);
    }
}
