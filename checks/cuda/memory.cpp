#include "checks/cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace emulated_cuda {

namespace {

constexpr std::uint32_t many_blocks = UINT32_MAX;
constexpr std::uint16_t many_threads = UINT16_MAX;

/// Zeros, which take no memory before they are written.
void *map_zeros(std::size_t n_bytes) {
    void *const memory = mmap(nullptr, std::max<std::size_t>(n_bytes, 1), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw std::bad_alloc();
    }
    return memory;
}

constexpr std::size_t page = 4096;
std::size_t pages(std::size_t n_bytes) { return (std::max<std::size_t>(n_bytes, 1) + page - 1) / page * page; }

std::string other_thread(std::uint16_t thread) {
    return thread == many_threads ? "other threads" : "thread number " + std::to_string(thread);
}

void note_read(Cell &cell, const Access &by) {
    if (cell.write_launch == by.launch) {
        if (by.is_nc) {
            throw Fault("reads by ld.global.nc what this launch writes");
        }
        if (cell.write_block != by.block) {
            throw Fault("reads what block number " + std::to_string(cell.write_block) + " of this launch writes");
        }
        if (cell.write_thread != by.thread && cell.write_epoch == by.epoch) {
            throw Fault("reads what " + other_thread(cell.write_thread) + " writes, with no barrier in between");
        }
    }
    const bool is_first = cell.read_launch != by.launch;
    const bool is_own_block = cell.read_block == by.block;
    const bool is_same_epoch = !is_first && is_own_block && cell.read_epoch == by.epoch;
    cell.was_read_by_nc = by.is_nc || (!is_first && cell.was_read_by_nc);
    cell.read_block = is_first || is_own_block ? by.block : many_blocks;
    cell.read_thread = is_same_epoch && cell.read_thread != by.thread ? many_threads : by.thread;
    cell.read_epoch = by.epoch;
    cell.read_launch = by.launch;
}

/// Two threads may write the same value, as all that find a bad position do.
void note_write(Cell &cell, const Access &by, bool changes) {
    if (cell.read_launch == by.launch) {
        if (cell.was_read_by_nc) {
            throw Fault("writes what this launch reads by ld.global.nc");
        }
        if (cell.read_block != by.block) {
            throw Fault("writes what another block of this launch reads");
        }
        if (cell.read_thread != by.thread && cell.read_epoch == by.epoch) {
            throw Fault("writes what " + other_thread(cell.read_thread) + " read, with no barrier in between");
        }
    }
    if (cell.write_launch == by.launch && changes) {
        if (cell.write_block != by.block && !allows_torn_writes) {
            throw Fault("writes another value where block number " + std::to_string(cell.write_block) + " wrote");
        }
        if (cell.write_block == by.block && cell.write_thread != by.thread && cell.write_epoch == by.epoch &&
            !allows_torn_writes) {
            throw Fault("writes another value where " + other_thread(cell.write_thread) +
                        " wrote, with no barrier in between");
        }
    }
    cell.write_launch = by.launch;
    cell.write_block = by.block;
    cell.write_thread = by.thread;
    cell.write_epoch = by.epoch;
}

}  // namespace

Region::Region(Address begin, std::size_t n_bytes)
    : begin_(begin), n_bytes_(n_bytes), bytes_(static_cast<std::uint8_t *>(map_zeros(n_bytes))),
      cells_(static_cast<Cell *>(map_zeros(n_bytes * sizeof(Cell)))) {}

Region::~Region() {
    munmap(bytes_, std::max<std::size_t>(n_bytes_, 1));
    munmap(cells_, std::max<std::size_t>(n_bytes_ * sizeof(Cell), 1));
}

void Region::load(Address at, unsigned n, const Access &by, std::uint8_t *to) {
    const std::size_t from = at - begin_;
    for (unsigned i = 0; i < n; i++) {
        note_read(cells_[from + i], by);
    }
    std::memcpy(to, bytes_ + from, n);
}

void Region::store(Address at, unsigned n, const Access &by, const std::uint8_t *from) {
    const std::size_t to = at - begin_;
    for (unsigned i = 0; i < n; i++) {
        note_write(cells_[to + i], by, bytes_[to + i] != from[i]);
    }
    std::memcpy(bytes_ + to, from, n);
}

Memory::~Memory() {
    while (!regions_.empty()) {
        release(regions_.back()->begin());
    }
}

Address Memory::allocate(std::size_t n_bytes) {
    // Sanitizers have ranges of addresses for themselves, so several places are tried.
    for (int tries = 0; tries < 100; tries++) {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        const Address begin = (random_ % (std::uint64_t{100} << 40) + (std::uint64_t{1} << 40)) / page * page;
        void *const hint = reinterpret_cast<void *>(begin);
        void *const reserved = mmap(hint, pages(n_bytes), PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (reserved == MAP_FAILED) {
            continue;
        }
        if (reserved != hint) {  // an old kernel takes it for a wish
            munmap(reserved, pages(n_bytes));
            continue;
        }
        try {
            auto region = std::make_unique<Region>(begin, n_bytes);
            std::memset(region->bytes(begin), 0xa5,
                        std::min<std::size_t>(n_bytes, 1 << 20));  // so that nobody counts on zeros
            const auto behind = std::ranges::upper_bound(regions_, begin, {}, [](const auto &r) { return r->begin(); });
            regions_.insert(behind, std::move(region));
            return begin;
        } catch (const std::bad_alloc &) {
            munmap(reserved, pages(n_bytes));
            return 0;
        }
    }
    return 0;
}

bool Memory::release(Address begin) {
    const auto found = std::ranges::find(regions_, begin, [](const auto &region) { return region->begin(); });
    if (found == regions_.end()) {
        return false;
    }
    munmap(reinterpret_cast<void *>(begin), pages((*found)->size()));
    regions_.erase(found);
    return true;
}

Region *Memory::find(Address at) const {
    auto behind = std::ranges::upper_bound(regions_, at, {}, [](const auto &region) { return region->begin(); });
    return behind != regions_.begin() && (*--behind)->holds(at, 1) ? behind->get() : nullptr;
}

}  // namespace emulated_cuda
