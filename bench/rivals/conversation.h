// Talks with another program, which answers each line with a line.
#pragma once

#include <sys/types.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace halyard::bench {

class Conversation {
public:
    /// The program can't be talked to any more.
    struct Lost : std::runtime_error {
        using std::runtime_error::runtime_error;
    };

    /// Starts the program, which is searched for on the PATH. It gets a process group of its own, so that whatever it
    /// starts ends with it. Throws std::runtime_error where it can't be started.
    explicit Conversation(std::vector<std::string> command);
    Conversation(const Conversation &) = delete;
    Conversation &operator=(const Conversation &) = delete;
    ~Conversation();

    /// Sends a line and returns the answer. Throws Lost where none comes in time.
    std::string ask(const std::string &line, double seconds_limit);

    /// The last line that the program wrote to its standard error.
    std::string last_words() const;

private:
    pid_t child_ = -1;
    int to_ = -1, from_ = -1, log_ = -1;
    std::string unread_;

    void stop();
};

}  // namespace halyard::bench
