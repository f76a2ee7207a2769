// JSON objects as the config reader sees them: every access checks the type, and every complaint names the field.
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

/// A string out of a config as a message shows it: in quotes, not long, and nothing but printable ASCII.
std::string quote(std::string_view text);

/// A number as a message shows it.
std::string format_number(double value);

/// A JSON value. Unlike nlohmann::json's, its destructor needs no memory, and so cannot fail where memory has run out.
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
    /// NULL where there is no such field.
    const Json *find(std::string_view key) const;
    bool operator==(const Json &other) const;
};

struct Json::Field {
    std::string key;
    Json value;

    bool operator==(const Field &other) const;
};

/// Throws Failure, naming line and column, unless the text is JSON, not nested deeply, without an object that has
/// the same key twice.
Json parse_json(std::string_view text);

/// A JSON object and where it stands. null is the same as not there. The document must outlive it.
class JsonObject {
public:
    JsonObject(const Json &value, std::string path);
    /// An object without fields, for where there is none.
    static JsonObject empty(std::string path);

    const Json &value() const { return *value_; }
    /// The field as messages call it: "text_config.rope_theta".
    std::string name_of(const char *key) const { return path_ + key; }
    bool has(const char *key) const { return find(key) != nullptr; }
    bool is_list(const char *key) const { return has(key) && find(key)->is_array(); }

    std::optional<double> number(const char *key) const;
    /// A whole number, at least 1 and at most 2^53.
    std::optional<std::int64_t> count(const char *key) const;
    /// The first of several that is there; all that are must be whole numbers.
    std::optional<std::int64_t> first_count(std::initializer_list<const char *> keys) const;
    /// The one that several state. Throws Failure where they contradict each other.
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
struct Stated {
    std::string name;
    double value;
};

/// The one number that several fields may state. Throws Failure where they contradict each other.
class Agreement {
public:
    void add(const JsonObject &object, const char *key, double times = 1.0);
    const std::optional<Stated> &stated() const { return stated_; }

private:
    std::optional<Stated> stated_;
};

}  // namespace halyard
