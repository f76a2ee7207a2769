// Golden data: inputs and independently computed results. tests/data/golden has a folder for each section.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace golden {

template <typename T>
struct Array {
    std::vector<T> values;  // C order
    std::vector<std::int64_t> shape;
};

/// The bytes of a file. Throws std::runtime_error if it cannot be read.
std::string read_file(const std::string &path);

/// The data that tests/data/golden/<name>/manifest.json describes. Everything throws std::runtime_error if the data
/// does not match the request.
class Section {
public:
    explicit Section(const std::string &name);

    const nlohmann::json &cases() const { return manifest_.at("cases"); }
    /// The first case of this name in the section's manifest.
    const nlohmann::json &find_case(const std::string &name) const;
    bool has_array(const std::string &name) const { return manifest_.at("arrays").contains(name); }

    /// T is float, double, std::int32_t or std::int64_t, or std::uint16_t for the bits of float16 and bfloat16.
    template <typename T>
    Array<T> array(const std::string &name) const;

private:
    std::string name_;
    nlohmann::json manifest_;
    std::string bytes_;
};

}  // namespace golden
