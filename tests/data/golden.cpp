#include "data/golden.h"

#include "data/paths.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <type_traits>

namespace golden {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian and read as they are");

template <typename T>
bool matches(const std::string &dtype) {
    if constexpr (std::is_same_v<T, float>) {
        return dtype == "float32";
    } else if constexpr (std::is_same_v<T, double>) {
        return dtype == "float64";
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
        return dtype == "int32";
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
        return dtype == "int64";
    } else {
        return dtype == "float16_bits" || dtype == "bfloat16_bits";
    }
}

}  // namespace

std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Section::Section(const std::string &name)
    : name_(name), manifest_(nlohmann::json::parse(read_file(places::golden() + "/" + name + "/manifest.json"))),
      bytes_(read_file(places::golden() + "/" + name + "/" + name + ".bin")) {}

const nlohmann::json &Section::find_case(const std::string &name) const {
    for (const nlohmann::json &entry : cases()) {
        if (entry.at("name") == name) {
            return entry;
        }
    }
    throw std::runtime_error("golden section " + name_ + ": no case " + name);
}

template <typename T>
Array<T> Section::array(const std::string &name) const {
    const auto refuse = [&](const std::string &why) {
        throw std::runtime_error("golden section " + name_ + ", array " + name + ": " + why);
    };
    if (!has_array(name)) {
        refuse("not there");
    }
    const nlohmann::json &entry = manifest_.at("arrays").at(name);
    const auto dtype = entry.at("dtype").get<std::string>();
    if (!matches<T>(dtype)) {
        refuse("is of dtype " + dtype);
    }
    if (entry.at("file").get<std::string>() != name_ + ".bin") {
        refuse("lies in another file");
    }
    Array<T> result;
    result.shape = entry.at("shape").get<std::vector<std::int64_t>>();
    std::size_t count = 1;
    for (const std::int64_t size : result.shape) {
        count *= static_cast<std::size_t>(size);
    }
    const auto offset = entry.at("offset").get<std::size_t>();
    if (entry.at("nbytes").get<std::size_t>() != count * sizeof(T) || offset > bytes_.size() ||
        count * sizeof(T) > bytes_.size() - offset) {
        refuse("does not have the bytes that its shape needs");
    }
    result.values.resize(count);
    if (count != 0) {
        std::memcpy(result.values.data(), bytes_.data() + offset, count * sizeof(T));
    }
    return result;
}

template Array<float> Section::array(const std::string &) const;
template Array<double> Section::array(const std::string &) const;
template Array<std::int32_t> Section::array(const std::string &) const;
template Array<std::int64_t> Section::array(const std::string &) const;
template Array<std::uint16_t> Section::array(const std::string &) const;

}  // namespace golden
