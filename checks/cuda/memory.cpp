#include "checks/cuda/memory.h"

#include <cstring>
#include <iterator>
#include <string>
#include <utility>

namespace emulated_cuda {

namespace {

constexpr std::uint32_t many_blocks = UINT32_MAX;
constexpr std::uint16_t many_threads = UINT16_MAX;

/// Throws unless a barrier or a launch orders two accesses.
void require_order(const Access &earlier, const Access &later, const char *what) {
    if (earlier.launch == later.launch && earlier.block != later.block) {
        throw Fault(std::string(what) + " by another block of this launch");
    }
    if (earlier.launch == later.launch && earlier.epoch == later.epoch && earlier.thread != later.thread) {
        throw Fault(std::string(what) + " by another thread, with no barrier in between");
    }
}

}  // namespace

void Region::load(Address at, unsigned n, const Access &by, std::uint8_t *to) {
    const std::size_t first = at - begin_;
    for (std::size_t i = first; i < first + n; i++) {
        auto &[write, read] = last_[i];
        if (by.is_nc && write.launch == by.launch) {
            throw Fault("reads by ld.global.nc what this launch writes");
        }
        require_order(write, by, "reads what is written");
        const Access before = std::exchange(read, by);
        if (before.launch == by.launch) {
            read.is_nc = before.is_nc || by.is_nc;
            if (before.block != by.block) {
                read.block = many_blocks;
            } else if (before.epoch == by.epoch && before.thread != by.thread) {
                read.thread = many_threads;
            }
        }
    }
    std::memcpy(to, &bytes_[first], n);
}

/// Threads may write the same value to the same byte without a barrier, as those that report bad positions do.
void Region::store(Address at, unsigned n, const Access &by, const std::uint8_t *from) {
    const std::size_t first = at - begin_;
    for (std::size_t i = first; i < first + n; i++) {
        auto &[write, read] = last_[i];
        if (read.is_nc && read.launch == by.launch) {
            throw Fault("writes what this launch reads by ld.global.nc");
        }
        require_order(read, by, "writes what is read");
        if (bytes_[i] != from[i - first]) {
            require_order(write, by, "writes another value than what is written");
        }
        write = by;
    }
    std::memcpy(&bytes_[first], from, n);
}

Address Memory::allocate(std::size_t n_bytes) {
    constexpr Address first = Address{1} << 52, apart = (Address{1} << 38) + 0x9e3779b00;
    const Address begin = first + n_allocated_++ * apart;
    regions_.try_emplace(begin, begin, n_bytes);
    return begin;
}

Region *Memory::find(Address at, std::size_t n) {
    const auto behind = regions_.upper_bound(at);
    return behind != regions_.begin() && std::prev(behind)->second.holds(at, n) ? &std::prev(behind)->second : nullptr;
}

}  // namespace emulated_cuda
