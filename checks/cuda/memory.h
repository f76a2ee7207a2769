// A device's memory, and most of what compute-sanitizer would know of it: which accesses are outside of it or
// misaligned, and which threads touched the same place without a barrier in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

namespace emulated_cuda {

using Address = std::uint64_t;

/// What a program does wrong, in words. The machine adds where.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Who accesses memory, and when: threads of a block are ordered by its barriers, and blocks by launches alone.
struct Access {
    std::uint32_t launch = 0;  // counted from 1
    std::uint32_t block = 0;
    std::uint16_t thread = 0, epoch = 0;  // the epoch counts a block's barriers
    bool is_nc = false;                   // ld.global.nc, of what nobody may write during the launch
};

/// A stretch of memory. Programs know it by an address that no pointer of the host has.
class Region {
public:
    Region(Address begin, std::size_t n_bytes) : begin_(begin), bytes_(n_bytes, 0xa5), last_(n_bytes) {}

    std::size_t size() const { return bytes_.size(); }
    bool holds(Address at, std::size_t n) const {
        return at >= begin_ && at - begin_ <= size() && n <= size() - (at - begin_);
    }

    /// Reads or writes n bytes that holds() has been asked for. Both throw Fault.
    void load(Address at, unsigned n, const Access &by, std::uint8_t *to);
    void store(Address at, unsigned n, const Access &by, const std::uint8_t *from);

    /// For the host, between launches.
    std::uint8_t *bytes(Address at) { return bytes_.data() + (at - begin_); }

private:
    /// Who accessed a byte last.
    struct Accesses {
        Access write, read;
    };
    Address begin_;
    std::vector<std::uint8_t> bytes_;
    std::vector<Accesses> last_;
};

/// All allocations of a device. They lie 256 GiB apart, so that a sum of 32 bits does not lead from one to another, at
/// addresses that no pointer of a CPU can have.
class Memory {
public:
    /// Throws std::bad_alloc.
    Address allocate(std::size_t n_bytes);
    /// Returns whether the address was one that allocate() has returned.
    bool release(Address begin) { return regions_.erase(begin) != 0; }
    /// The memory that holds n bytes from an address, or NULL.
    Region *find(Address at, std::size_t n);

private:
    std::map<Address, Region> regions_;
    std::uint64_t n_allocated_ = 0;
};

}  // namespace emulated_cuda
