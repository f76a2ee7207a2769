// Golden data: independently computed inputs and answers in tests/data/golden, one folder a section.
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

/// What tests/data/golden/<name>/manifest.json describes. Everything throws std::runtime_error where the data is not as
/// asked for.
class Section {
public:
    explicit Section(const std::string &name);

    const nlohmann::json &cases() const { return manifest_.at("cases"); }
    const nlohmann::json &manifest() const { return manifest_; }
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
