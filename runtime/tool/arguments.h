// Options of one value each, for a sub-command: read strictly, and described in one way.
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace halyard::tool {

/// Numbers are read here, not by CLI11, whose idea of one changes from release to release.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
    Number number{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return number;
}

/// Adds an option for a whole number in least … greatest.
template <typename Value>
CLI::Option *add_integer(CLI::App &app, const std::string &name, Value &value, const std::string &help,
                         std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         std::int64_t greatest = std::numeric_limits<std::int64_t>::max()) {
    const auto read = [&value, name, least, greatest](const std::string &text) {
        const auto parsed = parse_number<std::int64_t>(text);
        if (!parsed) {
            throw CLI::ValidationError(name, "'" + text + "' is not a whole number of 64 bits");
        }
        const std::int64_t number = *parsed;
        if (number < least || number > greatest) {
            throw CLI::ValidationError(name, text + " is not in " + std::to_string(least) + " ... " +
                                                 std::to_string(greatest));
        }
        value = number;
    };
    return app.add_option_function<std::string>(name, read, help)->type_name("N");
}

CLI::Option *add_real(CLI::App &app, const std::string &name, std::optional<double> &value, const std::string &help);

/// Adds an option for one of `words`.
CLI::Option *add_word(CLI::App &app, const std::string &name, std::string &value, const std::string &help,
                      const std::vector<std::string> &words);

/// Adds an option for a name or a path. An empty one, as an unset shell variable makes it, is not "not given".
CLI::Option *add_text(CLI::App &app, const std::string &name, std::string &value, const std::string &help,
                      const std::string &type);

CLI::Option *add_file(CLI::App &app, const std::string &name, std::string &value, const std::string &help);

}  // namespace halyard::tool
