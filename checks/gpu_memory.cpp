#include "checks/gpu_memory.h"

#include "checks/road_oracle.h"

#include <cmath>
#include <cstring>
#include <sstream>

namespace gpu_test {

std::string difference(std::int32_t dtype, const std::vector<char> &expected, const std::vector<char> &result) {
    const auto bytes = static_cast<std::size_t>(oracle::stored_bytes(dtype));
    std::ostringstream text;
    if (expected.size() != result.size()) {
        text << "there are " << result.size() << " bytes, not " << expected.size();
        return text.str();
    }
    for (std::size_t at = 0; at + bytes <= expected.size(); at += bytes) {
        std::uint32_t is = 0, should_be = 0;
        std::memcpy(&is, result.data() + at, bytes);
        std::memcpy(&should_be, expected.data() + at, bytes);
        if (is != should_be &&
            !(std::isnan(oracle::decode(dtype, is)) && std::isnan(oracle::decode(dtype, should_be)))) {
            text << "element " << at / bytes << " is " << std::hex << is << ", not " << should_be;
            return text.str();
        }
    }
    return "";
}

}  // namespace gpu_test
