// Memory between pages that nothing may touch, so that even a read out of bounds crashes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <vector>

class GuardedMemory {
public:
    static constexpr std::size_t page = 4096;

    enum class Pages { all, every_other };  // which pages can be touched: all, or the first, the third, …

    explicit GuardedMemory(std::size_t n_pages, Pages pages = Pages::all) : pages_(pages) {
        n_mapped_ = (n_pages + 2) * page;
        void *mapped = mmap(nullptr, n_mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) {
            throw std::bad_alloc();
        }
        mapped_ = static_cast<char *>(mapped);
        const std::size_t run = pages == Pages::all ? n_pages * page : page;
        const std::size_t step = pages == Pages::all ? n_pages * page : 2 * page;
        for (char *at = begin(); at < end(); at += step) {
            if (mprotect(at, run, PROT_READ | PROT_WRITE) != 0) {
                munmap(mapped_, n_mapped_);
                throw std::bad_alloc();
            }
        }
    }
    GuardedMemory(const GuardedMemory &) = delete;
    GuardedMemory &operator=(const GuardedMemory &) = delete;
    ~GuardedMemory() { munmap(mapped_, n_mapped_); }

    char *begin() const { return mapped_ + page; }
    char *end() const { return mapped_ + n_mapped_ - page; }

    /// Calls function(first, last) for each stretch between first and last that can be touched.
    template <typename Function>
    void for_each_stretch(char *first, char *last, Function function) const {
        if (pages_ == Pages::all) {
            function(first, last);
            return;
        }
        for (char *at = begin(); at < last; at += 2 * page) {
            if (at + page > first) {
                function(at < first ? first : at, at + page < last ? at + page : last);
            }
        }
    }

private:
    Pages pages_;
    char *mapped_;
    std::size_t n_mapped_;
};

/// A copy of a part of guarded memory: what it held, or what it ought to hold.
class Image {
public:
    void take(const GuardedMemory &memory, char *first, char *last) {
        memory_ = &memory;
        first_ = first;
        last_ = last;
        bytes_.resize(static_cast<std::size_t>(last - first));
        memory.for_each_stretch(first, last, [&](char *from, char *to) {
            std::memcpy(at(from), from, static_cast<std::size_t>(to - from));
        });
    }

    /// Where the copy of a byte is.
    char *at(const char *address) { return bytes_.data() + (address - first_); }

    /// The first byte of the memory that differs from its copy; NULL when there is none.
    const char *first_difference() {
        const char *found = nullptr;
        memory_->for_each_stretch(first_, last_, [&](char *from, char *to) {
            if (found != nullptr || std::memcmp(from, at(from), static_cast<std::size_t>(to - from)) == 0) {
                return;
            }
            for (found = from; *found == *at(found);) {
                found++;
            }
        });
        return found;
    }

private:
    const GuardedMemory *memory_ = nullptr;
    char *first_ = nullptr, *last_ = nullptr;
    std::vector<char> bytes_;
};
