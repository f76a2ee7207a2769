#include "checks/gpu_memory.h"

#include "checks/oracle.h"

#include <sstream>

namespace gpu_test {

std::string difference(std::int32_t dtype, const std::vector<char> &expected, const std::vector<char> &result) {
    const auto bytes = static_cast<std::size_t>(oracle::element_bytes(dtype));
    std::ostringstream text;
    if (expected.size() != result.size()) {
        text << "there are " << result.size() << " bytes, not " << expected.size();
        return text.str();
    }
    for (std::size_t at = 0; at + bytes <= expected.size(); at += bytes) {
        const std::uint32_t is = oracle::read_word(dtype, result.data() + at);
        const std::uint32_t should_be = oracle::read_word(dtype, expected.data() + at);
        if (is != should_be && !(oracle::is_nan(dtype, is) && oracle::is_nan(dtype, should_be))) {
            text << "element " << at / bytes << " is " << std::hex << is << ", not " << should_be;
            return text.str();
        }
    }
    return "";
}

}  // namespace gpu_test
