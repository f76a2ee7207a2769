// JSON objects for the config reader: every access checks the value's type, and every error message names the field.
#pragma once

#include "halyard/halyard.h"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halyard {

/// Throws Failure.
[[noreturn]] void refuse(const std::string &message, halyard_status status = HALYARD_ERROR_CONFIG);

[[noreturn]] void refuse_unsupported(const std::string &message);
[[noreturn]] void refuse_missing(const std::string &names);
[[noreturn]] void refuse_contradiction(const std::string &name, const std::string &value, const std::string &other_name,
                                       const std::string &other_value);

/// A string of a config for messages: in quotes, shortened, and of printable ASCII only.
std::string quote(std::string_view text);

/// A number for messages.
std::string format_number(double value);

/// A JSON value. Unlike nlohmann::json's, its destructor allocates nothing, so it cannot fail when memory runs out.
struct Json {
    enum class Kind { null, boolean, number, string, array, object };
    struct Field;

    Kind kind = Kind::null;
    bool flag = false;
    double number = 0.0;
    std::string text;
    std::vector<Json> elements;  // of an array
    std::vector<Field> fields;   // of an object, in the order of their keys

    bool is_array() const { return kind == Kind::array; }
    bool is_object() const { return kind == Kind::object; }
    /// The value of a field; NULL if there is none.
    const Json *find(std::string_view key) const;
    bool operator==(const Json &other) const;
};

struct Json::Field {
    std::string key;
    Json value;

    bool operator==(const Field &other) const;
};

/// Parses JSON text. Throws Failure, naming line and column, if it is not JSON, is nested too deeply, or has an object
/// with the same key twice.
Json parse_json(std::string_view text);

/// A JSON object and its path in the document. A null field counts as absent. The document must outlive this.
class JsonObject {
public:
    JsonObject(const Json &value, std::string path);
    /// An empty object, for a config that lacks the object at this path.
    static JsonObject empty(std::string path);

    const Json &value() const { return *value_; }
    /// A field's name for messages: "text_config.rope_theta".
    std::string name_of(const char *key) const { return path_ + key; }
    bool has(const char *key) const { return find(key) != nullptr; }
    bool is_list(const char *key) const { return has(key) && find(key)->is_array(); }

    std::optional<double> number(const char *key) const;
    /// A whole number, at least 1 and at most 2^53.
    std::optional<std::int64_t> count(const char *key) const;
    /// The first of several fields that is present. All that are present must be whole numbers.
    std::optional<std::int64_t> first_count(std::initializer_list<const char *> keys) const;
    /// The whole number that several fields agree on. Throws Failure if they contradict each other.
    std::optional<std::int64_t> common_count(std::initializer_list<const char *> keys) const;
    std::optional<bool> flag(const char *key) const;
    std::optional<std::string> word(const char *key) const;
    std::optional<JsonObject> object(const char *key) const;
    std::optional<std::vector<double>> numbers(const char *key) const;
    std::optional<std::vector<std::int64_t>> counts(const char *key) const;
    std::optional<std::vector<std::string>> words(const char *key) const;

private:
    const Json *find(const char *key) const;

    const Json *value_;
    std::string path_;  // "" or ends in a dot
};

/// A number and the field that states it.
struct StatedNumber {
    std::string name;
    double value;
};

/// Collects a number that several fields may state. Throws Failure if they contradict each other.
class Agreement {
public:
    void add(const JsonObject &object, const char *key, double times = 1.0);
    const std::optional<StatedNumber> &stated() const { return stated_; }

private:
    std::optional<StatedNumber> stated_;
};

}  // namespace halyard
