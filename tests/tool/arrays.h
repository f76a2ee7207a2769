// The .npy files that tests hand to the tool and read back.
#pragma once

#include "checks/scratch_dir.h"
#include "tool/files/npy.h"
#include "tool/run_tool.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

using Shape = std::vector<std::int64_t>;

template <typename Element>
std::string descr_of() {
    static_assert(std::is_floating_point_v<Element> || std::is_signed_v<Element>);
    return (std::is_floating_point_v<Element> ? "<f" : "<i") + std::to_string(sizeof(Element));
}

/// Returns the name, which is what a command in that folder says.
template <typename Element>
std::string write(const ToolFolder &folder, const std::string &name, const Shape &shape,
                  const std::vector<Element> &values, const std::string &descr = descr_of<Element>()) {
    halyard::tool::write_npy(folder / name, descr, shape, values.data(), values.size() * sizeof(Element));
    return name;
}

/// Numbers without a pattern, the same in every run.
inline std::vector<float> make_values(std::size_t n) {
    std::vector<float> values(n);
    std::uint32_t state = 12345;
    for (auto &value : values) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30f;
    }
    return values;
}

inline std::string bytes_of(const halyard::tool::NpyArray &array) {
    return {reinterpret_cast<const char *>(array.data.get()), array.n_bytes};
}

inline std::string bytes_of(const std::string &path) {
    return bytes_of(halyard::tool::read_npy(path, {"<f4", "<f2", "<u2"}));
}

inline std::vector<float> floats_of(const std::string &path) {
    const auto array = halyard::tool::read_npy(path, {"<f4"});
    const auto elements = array.elements<float>();
    return {elements.begin(), elements.end()};
}

/// The CPU's targets that this machine can run.
inline std::vector<std::string> supported_targets() {
    std::vector<std::string> names;
    for (const auto &target : nlohmann::json::parse(ToolFolder().succeed("list --json"))) {
        const std::string name = target.at("name");
        if (!name.starts_with("cuda_") && target.at("built").get<bool>() && target.at("supported").get<bool>()) {
            names.push_back(name);
        }
    }
    return names;
}
