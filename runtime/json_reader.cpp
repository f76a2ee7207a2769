#include "json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <unordered_set>
#include <utility>

namespace halyard {
namespace {

using nlohmann::json;

// Configs nest four deep or so. More than this is an attack or an accident, and a document that is nested a million
// deep would be a million frames deep for whoever walks it.
constexpr std::size_t max_depth = 64;

[[noreturn]] void refuse_at(std::string_view text, std::size_t offset, const char *what) {
    const auto before = text.substr(0, std::min(offset, text.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto last_newline = before.rfind('\n');
    const auto column = before.size() - (last_newline == before.npos ? 0 : last_newline + 1) + 1;
    refuse("the config is not JSON: line " + std::to_string(line) + ", column " + std::to_string(column) +
           (before.size() == text.size() ? ", where it ends too early" : what));
}

/// Reads the text once without keeping it. Throws for what is wrong with it.
class Checker : public nlohmann::json_sax<json> {
public:
    explicit Checker(std::string_view text) : text_(text) {}

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t &) override { return true; }
    bool string(string_t &) override { return true; }
    bool binary(binary_t &) override { return true; }

    bool start_object(std::size_t) override {
        enter();
        keys_.emplace_back();
        return true;
    }
    bool key(string_t &name) override {
        if (!keys_.back().insert(name).second) {
            refuse("the config has the field " + quote(name) + " twice in one object");
        }
        return true;
    }
    bool end_object() override {
        keys_.pop_back();
        --depth_;
        return true;
    }
    bool start_array(std::size_t) override {
        enter();
        return true;
    }
    bool end_array() override {
        --depth_;
        return true;
    }

    bool parse_error(std::size_t position, const std::string &, const json::exception &error) override {
        constexpr int number_overflow = 406;
        refuse_at(text_, position > 0 ? position - 1 : 0,
                  error.id == number_overflow ? " holds a number that no double holds" : "");
    }

private:
    void enter() {
        if (++depth_ > max_depth) {
            refuse("the config is nested more than " + std::to_string(max_depth) + " deep");
        }
    }

    std::string_view text_;
    std::size_t depth_ = 0;
    std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

[[noreturn]] void refuse_type(const std::string &name, const json &value, const char *must) {
    refuse(name + " is of type " + value.type_name() + ", but it must be " + must);
}

double read_number(const std::string &name, const json &value) {
    if (!value.is_number()) {
        refuse_type(name, value, "a number");
    }
    return value.get<double>();
}

/// "max_position_embeddings": 4096.0 is a whole number too.
std::int64_t read_count(const std::string &name, const json &value) {
    const double number = read_number(name, value);
    if (!(number >= 1.0 && number <= 0x1p53) || number != std::floor(number)) {
        refuse(name + " is " + format_number(number) + ", but it must be a whole number in 1 to 2^53",
               HALYARD_ERROR_SHAPE);
    }
    return static_cast<std::int64_t>(number);
}

std::string read_word(const std::string &name, const json &value) {
    if (!value.is_string()) {
        refuse_type(name, value, "a string");
    }
    return value.get<std::string>();
}

}  // namespace

void refuse(const std::string &message, halyard_status status) { throw ConfigError(status, message); }

void refuse_missing(const std::string &names) { refuse(names + " is missing"); }

void refuse_contradiction(const std::string &name, const std::string &value, const std::string &other_name,
                          const std::string &other_value) {
    refuse(name + " is " + value + ", but " + other_name + " is " + other_value);
}

std::string quote(std::string_view text) {
    constexpr std::size_t longest = 40;
    std::string result = "'";
    for (const char c : text.substr(0, longest)) {
        result += c < ' ' || c > '~' ? '?' : c;
    }
    return result + (text.size() > longest ? "...'" : "'");
}

std::string format_number(double value) {
    char text[32];
    const bool is_short = std::fabs(value) < 1e15 && value == std::floor(value);
    return {text, (is_short ? std::to_chars(text, text + sizeof(text), static_cast<std::int64_t>(value))
                            : std::to_chars(text, text + sizeof(text), value))
                      .ptr};
}

json parse_json(std::string_view text) {
    if (const auto zero = text.find('\0'); zero != text.npos) {
        refuse_at(text, zero, " holds a zero byte");  // which the parser would take for the end
    }
    Checker checker(text);
    json::sax_parse(text.begin(), text.end(), &checker);
    return json::parse(text.begin(), text.end());
}

JsonObject::JsonObject(const json &value, std::string path) : value_(&value), path_(std::move(path)) {
    if (!value.is_object()) {
        const auto name = path_.empty() ? std::string("the config") : path_.substr(0, path_.size() - 1);
        refuse_type(name, value, "an object");
    }
}

const json *JsonObject::find(const char *key) const {
    const auto found = value_->find(key);
    return found == value_->end() || found->is_null() ? nullptr : &*found;
}

const json *JsonObject::find_array(const char *key) const {
    const json *found = find(key);
    if (found != nullptr && !found->is_array()) {
        refuse_type(name_of(key), *found, "an array");
    }
    return found;
}

std::optional<double> JsonObject::number(const char *key) const {
    const json *found = find(key);
    return found == nullptr ? std::nullopt : std::optional(read_number(name_of(key), *found));
}

std::optional<std::int64_t> JsonObject::count(const char *key) const {
    const json *found = find(key);
    return found == nullptr ? std::nullopt : std::optional(read_count(name_of(key), *found));
}

std::optional<bool> JsonObject::flag(const char *key) const {
    const json *found = find(key);
    if (found != nullptr && !found->is_boolean()) {
        refuse_type(name_of(key), *found, "true or false");
    }
    return found == nullptr ? std::nullopt : std::optional(found->get<bool>());
}

std::optional<std::string> JsonObject::word(const char *key) const {
    const json *found = find(key);
    return found == nullptr ? std::nullopt : std::optional(read_word(name_of(key), *found));
}

std::optional<JsonObject> JsonObject::object(const char *key) const {
    const json *found = find(key);
    return found == nullptr ? std::nullopt : std::optional(JsonObject(*found, name_of(key) + "."));
}

namespace {

template <typename Value, typename Read>
std::vector<Value> read_all(const std::string &name, const json &array, Read read) {
    std::vector<Value> values;
    for (const auto &element : array) {
        values.push_back(read(name + "[" + std::to_string(values.size()) + "]", element));
    }
    return values;
}

}  // namespace

std::optional<std::vector<double>> JsonObject::numbers(const char *key) const {
    const json *found = find_array(key);
    return found == nullptr ? std::nullopt : std::optional(read_all<double>(name_of(key), *found, read_number));
}

std::optional<std::vector<std::int64_t>> JsonObject::counts(const char *key) const {
    const json *found = find_array(key);
    return found == nullptr ? std::nullopt : std::optional(read_all<std::int64_t>(name_of(key), *found, read_count));
}

std::optional<std::vector<std::string>> JsonObject::words(const char *key) const {
    const json *found = find_array(key);
    return found == nullptr ? std::nullopt : std::optional(read_all<std::string>(name_of(key), *found, read_word));
}

}  // namespace halyard
