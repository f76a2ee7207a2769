#include "tool/arguments.h"

#include <algorithm>
#include <cmath>

namespace halyard::tool {

CLI::Option *add_real(CLI::App &app, const std::string &name, std::optional<double> &value, const std::string &help) {
    const auto read = [&value, name](const std::string &text) {
        const auto number = parse_number<double>(text);
        if (!number || !std::isfinite(*number)) {
            throw CLI::ValidationError(name, "'" + text + "' is not a finite number that a double holds");
        }
        value = number;
    };
    return app.add_option_function<std::string>(name, read, help)->type_name("X");
}

CLI::Option *add_word(CLI::App &app, const std::string &name, std::string &value, const std::string &help,
                      const std::vector<std::string> &words) {
    const auto read = [&value, name, words](const std::string &text) {
        if (std::find(words.begin(), words.end(), text) == words.end()) {
            std::string known;
            for (const auto &word : words) {
                known += known.empty() ? word : &word == &words.back() ? " or " + word : ", " + word;
            }
            throw CLI::ValidationError(name, "'" + text + "' is not one of " + known);
        }
        value = text;
    };
    std::string type;
    for (const auto &word : words) {
        type += (type.empty() ? "" : "|") + word;
    }
    return app.add_option_function<std::string>(name, read, help)->type_name(type);
}

CLI::Option *add_text(CLI::App &app, const std::string &name, std::string &value, const std::string &help,
                      const std::string &type) {
    const auto read = [&value, name](const std::string &text) {
        if (text.empty()) {
            throw CLI::ValidationError(name, "it is empty");
        }
        value = text;
    };
    return app.add_option_function<std::string>(name, read, help)->type_name(type);
}

CLI::Option *add_file(CLI::App &app, const std::string &name, std::string &value, const std::string &help) {
    return add_text(app, name, value, help, "FILE");
}

}  // namespace halyard::tool
