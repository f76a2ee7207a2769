// The memory of the emulated device. Like compute-sanitizer it finds accesses that are out of bounds or misaligned, and
// data races: threads that access the same byte without a barrier in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

namespace emulated_cuda {

using Address = std::uint64_t;

/// What a kernel does that a device forbids, such as an access out of bounds. The emulated machine adds to the message
/// which thread did it, at which instruction.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Which thread accesses memory, and when. Barriers order the threads of a block; only launches order blocks.
struct Access {
    std::uint32_t launch = 0;  // counted from 1
    std::uint32_t block = 0;
    std::uint16_t thread = 0, epoch = 0;  // the epoch counts a block's barriers
    bool is_nc = false;                   // ld.global.nc: no thread of the launch may write these bytes
};

/// One allocation of device memory. Its device addresses are no addresses of the host.
class Region {
public:
    Region(Address begin, std::size_t n_bytes) : begin_(begin), bytes_(n_bytes, 0xa5), last_(n_bytes) {}

    std::size_t size() const { return bytes_.size(); }
    bool holds(Address at, std::size_t n) const {
        return at >= begin_ && at - begin_ <= size() && n <= size() - (at - begin_);
    }

    /// Reads or writes n bytes; the caller has checked holds(). Both throw a Fault for a data race.
    void load(Address at, unsigned n, const Access &by, std::uint8_t *to);
    void store(Address at, unsigned n, const Access &by, const std::uint8_t *from);

    /// The host's pointer to a device address, for use between launches.
    std::uint8_t *bytes(Address at) { return bytes_.data() + (at - begin_); }

private:
    /// The last accesses of a byte.
    struct Accesses {
        Access write, read;
    };
    Address begin_;
    std::vector<std::uint8_t> bytes_;
    std::vector<Accesses> last_;
};

/// All allocations of a device. They lie 256 GiB apart, so that no wrong 32-bit offset leads from one into another, and
/// at addresses that no pointer of a CPU can have.
class Memory {
public:
    /// Throws std::bad_alloc.
    Address allocate(std::size_t n_bytes);
    /// Returns whether the address was one that allocate() has returned.
    bool release(Address begin) { return regions_.erase(begin) != 0; }
    /// The allocation that holds n bytes from an address on, or NULL.
    Region *find(Address at, std::size_t n);

private:
    std::map<Address, Region> regions_;
    std::uint64_t n_allocated_ = 0;
};

}  // namespace emulated_cuda
