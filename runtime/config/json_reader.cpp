#include "config/json_reader.h"

#include "base/error.h"

// In an unnamed namespace, because a program that links libhalyard.a may contain the JSON library, too, in any version
// and compiled with other options, and the linker would merge the two.
#define NLOHMANN_JSON_NAMESPACE_BEGIN                                                                                  \
    namespace {                                                                                                        \
    namespace nlohmann {
#define NLOHMANN_JSON_NAMESPACE_END                                                                                    \
    }                                                                                                                  \
    }
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

namespace halyard {
namespace {

// Configs nest about four deep. More than this is an attack or an accident: recursion over a document that is nested a
// million deep would need a million stack frames.
constexpr std::size_t max_depth = 64;

[[noreturn]] void refuse_at(std::string_view text, std::size_t offset, const char *what) {
    const auto before = text.substr(0, std::min(offset, text.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto last_newline = before.rfind('\n');
    const auto column = before.size() - (last_newline == before.npos ? 0 : last_newline + 1) + 1;
    const auto first = text.find_first_not_of(" \t\r\n");
    const bool is_begun = first == text.npos || std::string_view("{}[]").find(text[first]) != text.npos;
    refuse("the config is not JSON: line " + std::to_string(line) + ", column " + std::to_string(column) +
           (before.size() == text.size() ? ", where it ends too early" : what) +
           (is_begun ? "" : ": it has to be the text of a config.json, {...}, and not its path"));
}

/// Builds the value while the parser reads the text. Throws Failure if the text is wrong.
class Builder : public nlohmann::json_sax<nlohmann::json> {
public:
    Builder(std::string_view text, Json &root) : text_(text), root_(root) {}

    bool null() override {
        add(Json::Kind::null);
        return true;
    }
    bool boolean(bool value) override {
        add(Json::Kind::boolean).flag = value;
        return true;
    }
    bool number_integer(number_integer_t value) override { return add_number(static_cast<double>(value)); }
    bool number_unsigned(number_unsigned_t value) override { return add_number(static_cast<double>(value)); }
    bool number_float(number_float_t value, const string_t &) override { return add_number(value); }
    bool string(string_t &value) override {
        add(Json::Kind::string).text = value;
        return true;
    }
    bool binary(binary_t &) override { return false; }  // JSON text has no binary values

    bool start_object(std::size_t) override { return open(Json::Kind::object); }
    bool key(string_t &name) override {
        open_.back()->fields.emplace_back().key = name;
        return true;
    }
    bool end_object() override {
        auto &fields = open_.back()->fields;
        const auto key_of = [](const Json::Field &field) -> const std::string & { return field.key; };
        std::ranges::sort(fields, {}, key_of);
        if (const auto twice = std::ranges::adjacent_find(fields, {}, key_of); twice != fields.end()) {
            refuse("the config has the field " + quote(twice->key) + " twice in one object");
        }
        open_.pop_back();
        return true;
    }
    bool start_array(std::size_t) override { return open(Json::Kind::array); }
    bool end_array() override {
        open_.pop_back();
        return true;
    }

    bool parse_error(std::size_t position, const std::string &, const nlohmann::json::exception &error) override {
        constexpr int number_overflow = 406;
        refuse_at(text_, position > 0 ? position - 1 : 0,
                  error.id == number_overflow ? " holds a number that no double holds" : "");
    }

private:
    /// Adds the next value to the innermost open array or object, and returns it. (Pointers to open values stay valid,
    /// because a parent gets no other element while a value inside it is open.)
    Json &add(Json::Kind kind) {
        Json *place = &root_;
        if (!open_.empty()) {
            Json &parent = *open_.back();
            place = parent.is_array() ? &parent.elements.emplace_back() : &parent.fields.back().value;
        }
        place->kind = kind;
        return *place;
    }
    bool add_number(double value) {
        add(Json::Kind::number).number = value;
        return true;
    }
    bool open(Json::Kind kind) {
        if (open_.size() == max_depth) {
            refuse("the config is nested more than " + std::to_string(max_depth) + " deep");
        }
        open_.push_back(&add(kind));
        return true;
    }

    std::string_view text_;
    Json &root_;
    std::vector<Json *> open_;
};

[[noreturn]] void refuse_type(const std::string &name, const Json &value, const char *must) {
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    refuse(name + " is of type " + names[static_cast<int>(value.kind)] + ", but it must be " + must);
}

/// The prefix of the strings that quote_non_finite makes. (Where a number is expected, every string is refused. If a
/// config's own string has this prefix, the message calls it infinite or no number.)
constexpr char non_finite = '\x7f';

/// Python writes Infinity, -Infinity and NaN, which are not JSON; some configs have them in fields that do not concern
/// RoPE. Replaces them by strings of the same length, so that lines and columns in messages stay right.
std::string quote_non_finite(std::string_view text) {
    std::string result(text);
    for (std::size_t i = 0, in_string = 0; i < text.size(); ++i) {
        if (in_string != 0 && text[i] == '\\') {
            ++i;
        } else if (text[i] == '"') {
            in_string ^= 1;
        }
        for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
            if (in_string == 0 && i < text.size() && text.substr(i, word.size()) == word) {
                result.replace(i, 2, {'"', non_finite});
                result[i + word.size() - 1] = '"';
                i += word.size() - 1;
                break;
            }
        }
    }
    return result;
}

double read_number(const std::string &name, const Json &value) {
    if (value.text.starts_with(non_finite)) {
        refuse(name + " is infinite or no number, but it must be a finite number", HALYARD_ERROR_FREQUENCY);
    }
    if (value.kind != Json::Kind::number) {
        refuse_type(name, value, "a number");
    }
    return value.number;
}

/// Reads a whole number, which may be written as a real: "max_position_embeddings": 4096.0.
std::int64_t read_count(const std::string &name, const Json &value) {
    const double number = read_number(name, value);
    if (!(number >= 1.0 && number <= 0x1p53) || number != std::floor(number)) {
        refuse(name + " is " + format_number(number) + ", but it must be a whole number in 1 to 2^53",
               HALYARD_ERROR_SHAPE);
    }
    return static_cast<std::int64_t>(number);
}

std::string read_word(const std::string &name, const Json &value) {
    if (value.kind != Json::Kind::string) {
        refuse_type(name, value, "a string");
    }
    return value.text;
}

bool read_flag(const std::string &name, const Json &value) {
    if (value.kind != Json::Kind::boolean) {
        refuse_type(name, value, "true or false");
    }
    return value.flag;
}

JsonObject read_object(const std::string &name, const Json &value) { return {value, name + "."}; }

template <auto read_one>
auto read_all(const std::string &name, const Json &array) {
    if (!array.is_array()) {
        refuse_type(name, array, "an array");
    }
    std::vector<decltype(read_one(name, array))> values;
    values.reserve(array.elements.size());
    for (const Json &element : array.elements) {
        values.push_back(read_one(name + "[" + std::to_string(values.size()) + "]", element));
    }
    return values;
}

/// A field, converted by `read`; none if the object does not have it.
template <typename Value>
std::optional<Value> make(const Json *field, const std::string &name,
                          Value (*read)(const std::string &, const Json &)) {
    return field == nullptr ? std::nullopt : std::optional(read(name, *field));
}

}  // namespace

void refuse(const std::string &message, halyard_status status) { throw Failure(status, message); }

void refuse_unsupported(const std::string &message) { refuse(message, HALYARD_ERROR_UNSUPPORTED); }

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

Json parse_json(std::string_view text) {
    if (const auto zero = text.find('\0'); zero != text.npos) {
        refuse_at(text, zero, " holds a zero byte");  // where the parser would stop
    }
    Json root;
    Builder builder(text, root);
    const auto quoted = quote_non_finite(text);
    nlohmann::json::sax_parse(quoted.begin(), quoted.end(), &builder);
    return root;
}

const Json *Json::find(std::string_view key) const {
    const auto found =
        std::ranges::lower_bound(fields, key, {}, [](const Field &field) { return std::string_view(field.key); });
    return found != fields.end() && found->key == key ? &found->value : nullptr;
}

// Written out, as is Field's, because clang 14 crashes at a defaulted comparison of a type that contains itself.
bool Json::operator==(const Json &other) const {
    const auto all = [](const Json &value) {
        return std::tie(value.kind, value.flag, value.number, value.text, value.elements, value.fields);
    };
    return all(*this) == all(other);
}

bool Json::Field::operator==(const Field &other) const {
    return std::tie(key, value) == std::tie(other.key, other.value);
}

JsonObject::JsonObject(const Json &value, std::string path) : value_(&value), path_(std::move(path)) {
    if (!value.is_object()) {
        const auto name = path_.empty() ? std::string("the config") : path_.substr(0, path_.size() - 1);
        refuse_type(name, value, "an object");
    }
}

JsonObject JsonObject::empty(std::string path) {
    static const Json nothing = parse_json("{}");
    return {nothing, std::move(path)};
}

const Json *JsonObject::find(const char *key) const {
    const Json *const found = value_->find(key);
    return found == nullptr || found->kind == Json::Kind::null ? nullptr : found;
}

std::optional<double> JsonObject::number(const char *key) const { return make(find(key), name_of(key), read_number); }
std::optional<std::int64_t> JsonObject::count(const char *key) const {
    return make(find(key), name_of(key), read_count);
}
std::optional<bool> JsonObject::flag(const char *key) const { return make(find(key), name_of(key), read_flag); }
std::optional<std::string> JsonObject::word(const char *key) const { return make(find(key), name_of(key), read_word); }
std::optional<JsonObject> JsonObject::object(const char *key) const {
    return make(find(key), name_of(key), read_object);
}
std::optional<std::vector<double>> JsonObject::numbers(const char *key) const {
    return make(find(key), name_of(key), read_all<read_number>);
}
std::optional<std::vector<std::int64_t>> JsonObject::counts(const char *key) const {
    return make(find(key), name_of(key), read_all<read_count>);
}
std::optional<std::vector<std::string>> JsonObject::words(const char *key) const {
    return make(find(key), name_of(key), read_all<read_word>);
}

std::optional<std::int64_t> JsonObject::first_count(std::initializer_list<const char *> keys) const {
    std::optional<std::int64_t> first;
    for (const char *key : keys) {
        const auto value = count(key);
        first = first ? first : value;
    }
    return first;
}

std::optional<std::int64_t> JsonObject::common_count(std::initializer_list<const char *> keys) const {
    Agreement agreement;
    for (const char *key : keys) {
        count(key);
        agreement.add(*this, key);
    }
    const auto &stated = agreement.stated();
    return stated ? std::optional(static_cast<std::int64_t>(stated->value)) : std::nullopt;
}

void Agreement::add(const JsonObject &object, const char *key, double times) {
    const auto number = object.number(key);
    if (!number) {
        return;
    }
    const StatedNumber stated = {object.name_of(key), *number * times};
    if (stated_ && stated_->value != stated.value) {
        refuse_contradiction(stated.name, format_number(stated.value), stated_->name, format_number(stated_->value));
    }
    stated_ = stated_ ? stated_ : stated;
}

}  // namespace halyard
