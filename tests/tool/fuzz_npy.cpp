// Fuzzes the reader of .npy files: any bytes must give an array whose data lie in the file, or be refused.
#include "checks/require.h"
#include "tool/files/file.h"
#include "tool/files/npy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace {

void check_array(const halyard::tool::NpyArray &array, std::size_t size) {
    // If one size is 0, the other sizes may be huge, and their product may overflow.
    std::int64_t n_elements = std::count(array.shape.begin(), array.shape.end(), 0) == 0 ? 1 : 0;
    for (const std::int64_t length : array.shape) {
        require(length >= 0, "no size is negative");
        n_elements *= n_elements == 0 ? 0 : length;
    }
    require(array.n_elements == n_elements, "the elements are those of the shape");
    require(array.n_bytes < size, "the data were in the file");
    unsigned sum = 0;
    for (const auto byte : array.elements<std::byte>()) {
        sum += static_cast<unsigned>(byte);  // AddressSanitizer checks that it can be read
    }
    require(sum <= 255 * array.n_bytes, "bytes add up");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const int file = memfd_create("input.npy", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(file);
    require(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "a file in memory");
    try {
        check_array(halyard::tool::read_npy(path, {"<f4", "<f8", "<f2", "<u2", "<i4", "<i8"}), size);
    } catch (const halyard::tool::Refusal &refusal) {
        require(std::string(refusal.what()).find(path) != std::string::npos, "a refusal names the file");
    }
    return 0;
}
