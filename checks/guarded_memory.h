// Memory between inaccessible pages, so that even a read out of bounds crashes.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

class GuardedMemory {
public:
    static constexpr std::size_t page = 4096;

    explicit GuardedMemory(std::size_t n_pages) : n_mapped_((n_pages + 2) * page) {
        void *mapped = mmap(nullptr, n_mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) {
            throw std::bad_alloc();
        }
        mapped_ = static_cast<char *>(mapped);
        if (mprotect(begin(), n_pages * page, PROT_READ | PROT_WRITE) != 0) {
            munmap(mapped_, n_mapped_);
            throw std::bad_alloc();
        }
    }
    GuardedMemory(const GuardedMemory &) = delete;
    GuardedMemory &operator=(const GuardedMemory &) = delete;
    ~GuardedMemory() { munmap(mapped_, n_mapped_); }

    char *begin() const { return mapped_ + page; }
    char *end() const { return mapped_ + n_mapped_ - page; }

private:
    std::size_t n_mapped_;
    char *mapped_ = nullptr;
};
