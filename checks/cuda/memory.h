// A device's memory, and most of what compute-sanitizer would know of it: which accesses are outside of it or
// misaligned, and which threads touched the same place without a barrier in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace emulated_cuda {

using Address = std::uint64_t;

/// What a program does wrong, in words. The machine adds where.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Whether blocks of one launch may write different values to one place: for tests of what is undefined then.
inline bool allows_torn_writes = false;

/// Who accesses memory, and when: threads of a block are ordered by its barriers, and blocks by launches alone.
struct Access {
    std::uint32_t launch;  // never 0. Shared memory: the block's own number, because each block finds it unset
    std::uint32_t block;
    std::uint16_t thread, epoch;  // the epoch counts a block's barriers
    bool is_nc = false;           // ld.global.nc, of what nobody may write during the launch
};

/// Who has accessed a byte.
struct Cell {
    std::uint32_t write_launch, write_block, read_launch, read_block;
    std::uint16_t write_thread, write_epoch, read_thread, read_epoch;
    bool was_read_by_nc;
};

/// A stretch of memory. Programs know it by an address that no pointer of the host has.
class Region {
public:
    Region(Address begin, std::size_t n_bytes);
    Region(const Region &) = delete;
    Region &operator=(const Region &) = delete;
    ~Region();

    Address begin() const { return begin_; }
    std::size_t size() const { return n_bytes_; }
    bool holds(Address at, std::size_t n) const {
        return at >= begin_ && at - begin_ <= n_bytes_ && n <= n_bytes_ - (at - begin_);
    }

    /// Reads or writes n bytes that holds() has been asked for. Both throw Fault.
    void load(Address at, unsigned n, const Access &by, std::uint8_t *to);
    void store(Address at, unsigned n, const Access &by, const std::uint8_t *from);

    /// For the host, between launches.
    std::uint8_t *bytes(Address at) const { return bytes_ + (at - begin_); }

private:
    Address begin_;
    std::size_t n_bytes_;
    std::uint8_t *bytes_;
    Cell *cells_;
};

/// All allocations of a device. They lie up to 100 TiB apart, so that a sum of 32 bits does not lead from one to
/// another, at addresses that the host cannot read.
class Memory {
public:
    Memory() = default;
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory();

    /// Returns 0 where there is no memory.
    Address allocate(std::size_t n_bytes);
    /// Returns whether the address was one that allocate() has returned.
    bool release(Address begin);
    /// NULL where an address is in no allocation.
    Region *find(Address at) const;
    std::size_t n_regions() const { return regions_.size(); }

private:
    std::vector<std::unique_ptr<Region>> regions_;  // by address
    std::uint64_t random_ = 0x9e3779b97f4a7c15;
};

}  // namespace emulated_cuda
