#include "tool/print.h"

#include "tool/refusal.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace halyard::tool {

void print(const std::string &text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw Refusal(std::string("can't write to the standard output: ") + std::strerror(errno));
    }
}

}  // namespace halyard::tool
