// The command-line tool: a thin client of halyard.hpp. Exit status: 0 done, 1 the request can't be carried out, 2 wrong
// usage.
#include "tool/commands.h"
#include "tool/files/file.h"

#include "halyard/halyard.hpp"

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

/// Prints a message to the standard error as one line, even if a file's name in it has control characters.
void complain(std::string message) {
    for (auto &c : message) {
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
            c = '?';
        }
    }
    std::fprintf(stderr, "halyard: %s\n", message.c_str());
}

/// The error message for a wrong command line. (CLI11's own does not name a command that it does not know.)
std::string explain_usage(const CLI::App &app, const CLI::ParseError &error, int argc, char **argv) {
    if (!app.get_subcommands().empty()) {
        return error.what();
    }
    return argc < 2 ? "a command is needed" : "'" + std::string(argv[1]) + "' is no command";
}

int run_tool(int argc, char **argv) {
    CLI::App app("Halyard: rotary position embedding (RoPE) kernels, compiled ahead of time", "halyard");
    app.require_subcommand(1);
    app.set_help_flag("-h,--help", "Print this and exit");
    app.set_version_flag("--version", halyard_version(), "Print the version and exit");
    add_list(app);
    add_explain(app);
    add_rotate(app);
    add_angles(app);
    add_frequencies(app);
    try {
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::CallForHelp &) {
        print(app.help());
        return 0;
    } catch (const CLI::CallForVersion &) {
        print(std::string("halyard ") + halyard_version() + "\n");
        return 0;
    } catch (const CLI::ParseError &error) {
        const auto given = app.get_subcommands();
        complain(explain_usage(app, error, argc, argv) + " (see halyard " +
                 (given.empty() ? "" : given.front()->get_name() + " ") + "--help)");
        return exit_wrong_usage;
    }
}

}  // namespace
}  // namespace halyard::tool

int main(int argc, char **argv) {
    using namespace halyard::tool;
#if defined(SIGXFSZ)
    std::signal(SIGXFSZ, SIG_IGN);  // so that fwrite fails at the limit of file sizes, and write_file cleans up
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
