// The command-line tool: a thin client of halyard.hpp. Exit status: 0 done, 1 the request can't be carried out, 2 wrong
// usage.
#include "tool/commands/commands.h"
#include "tool/options.h"
#include "tool/print.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace halyard::tool {

namespace {

constexpr int exit_refused = 1;
constexpr int exit_wrong_usage = 2;

/// One line on the standard error, whatever a file's name holds.
void complain(std::string sentence) {
    for (auto &c : sentence) {
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
            c = '?';
        }
    }
    std::fprintf(stderr, "halyard: %s\n", sentence.c_str());
}

void run_command(const CLI::App &app, const Options &options) {
    const auto command = app.get_subcommands().front()->get_name();
    if (command == "list") {
        list(options.list);
    } else if (command == "explain") {
        explain(options.explain);
    } else if (command == "rotate") {
        rotate(options.rotate);
    } else if (command == "angles") {
        write_angles(options.angles);
    } else if (command == "frequencies") {
        print_frequencies(options.frequencies);
    } else {
        plot(options.plot);
    }
}

int run_tool(int argc, char **argv) {
    Options options;
    CLI::App app("Halyard: rotary position embedding (RoPE) kernels, compiled ahead of time", "halyard");
    add_commands(app, options);
    const auto help_of = [&app] {
        const auto commands = app.get_subcommands();
        return std::string("halyard ") + (commands.empty() ? "" : commands.front()->get_name() + " ") + "--help";
    };
    try {
        app.parse(argc, argv);
        run_command(app, options);
        return 0;
    } catch (const CLI::CallForHelp &) {
        print(app.help());
        return 0;
    } catch (const CLI::CallForVersion &) {
        print(std::string("halyard ") + halyard::version() + "\n");
        return 0;
    } catch (const CLI::ParseError &error) {
        complain(error.what());
        complain("'" + help_of() + "' shows how it is used");
        return exit_wrong_usage;
    }
}

}  // namespace
}  // namespace halyard::tool

int main(int argc, char **argv) {
    using namespace halyard::tool;
#if defined(SIGXFSZ)
    std::signal(SIGXFSZ, SIG_IGN);  // so that a file beyond the limit is an error of write, and gets cleaned up
#endif
    try {
        return run_tool(argc, argv);
    } catch (const std::bad_alloc &) {
        complain("there is not enough memory");
    } catch (const std::length_error &) {
        complain("there is not enough memory");
    } catch (const std::exception &error) {
        complain(error.what());
    }
    return exit_refused;
}
