// Options of a sub-command that have one value each: strictly parsed, and all described in the same way.
#pragma once

#include "tool/files/file.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace halyard::tool {

/// Parses a number; none if the text is not one. (CLI11's own parsing changes from release to release.)
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
    Number number{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return number;
}

/// Adds an option whose value is passed to `read`, which returns an error message, or "". (With a CLI::Validator
/// messages would not have the short name, -o.)
template <typename Read>
CLI::Option *add_value(CLI::App &app, const std::string &name, const std::string &type, const std::string &help,
                       const Read &read) {
    const auto take = [name, read](const std::string &text) {
        if (const std::string wrong = read(text); !wrong.empty()) {
            throw CLI::ValidationError(name, wrong);
        }
    };
    return app.add_option_function<std::string>(name, take, help)->type_name(type);
}

/// Adds an option for a whole number in least … greatest.
template <typename Value>
CLI::Option *add_integer(CLI::App &app, const std::string &name, Value &value, const std::string &help,
                         std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         std::int64_t greatest = std::numeric_limits<std::int64_t>::max()) {
    return add_value(app, name, "N", help, [&value, least, greatest](const std::string &text) -> std::string {
        const auto parsed = parse_number<std::int64_t>(text);
        if (!parsed) {
            return "'" + text + "' is not a whole number of 64 bits";
        }
        const std::int64_t number = *parsed;
        value = static_cast<Value>(number);
        const bool fits = number >= least && number <= greatest;
        return fits ? "" : text + " is not in " + std::to_string(least) + " ... " + std::to_string(greatest);
    });
}

template <typename Value>
CLI::Option *add_real(CLI::App &app, const std::string &name, Value &value, const std::string &help) {
    return add_value(app, name, "NUMBER", help, [&value](const std::string &text) {
        const auto number = parse_number<double>(text);
        value = number.value_or(0.0);
        return number && std::isfinite(*number) ? "" : "'" + text + "' is not a finite number that a double holds";
    });
}

/// Words that an option accepts, with their values.
template <typename Value>
using Words = std::vector<std::pair<std::string, Value>>;

/// Adds an option for one of `words`.
template <typename Value>
CLI::Option *add_word(CLI::App &app, const std::string &name, Value &value, const std::string &help,
                      const std::type_identity_t<Words<Value>> &words) {
    std::vector<std::string> known;
    for (const auto &[word, meaning] : words) {
        known.push_back(word);
    }
    return add_value(app, name, join(known, "|", "|"), help, [&value, words, known](const std::string &text) {
        const auto at = static_cast<std::size_t>(std::find(known.begin(), known.end(), text) - known.begin());
        if (at == known.size()) {
            return "'" + text + "' is not one of " + join(known);
        }
        value = words[at].second;
        return std::string();
    });
}

/// Adds an option for a name or a path. An empty one, for example from an unset shell variable, is an error.
inline CLI::Option *add_text(CLI::App &app, const std::string &name, std::string &value, const std::string &help,
                             const std::string &type) {
    return add_value(app, name, type, help, [&value](const std::string &text) {
        value = text;
        return text.empty() ? "it is empty" : "";
    });
}

inline CLI::Option *add_file(CLI::App &app, const std::string &name, std::string &value, const std::string &help) {
    return add_text(app, name, value, help, "FILE");
}

}  // namespace halyard::tool
