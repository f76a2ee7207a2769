// The memory of a case: regions between inaccessible guard pages. A region holds arrays, one after the other.
#pragma once

#include "checks/cases/call.h"
#include "checks/guarded_memory.h"
#include "checks/oracle.h"

#include <memory>
#include <vector>

namespace cases {

/// Copies of the contents of all regions.
using Images = std::vector<std::vector<char>>;

class Memory {
public:
    std::size_t new_region() { return regions_.emplace_back(), regions_.size() - 1; }

    /// Reserves an array's extent after the other arrays of the region, aligned to `step` bytes and followed by `gap`
    /// bytes. allocate_and_fill() sets the pointer to the array's first element. An array of more than most_bytes
    /// gets only 64 bytes.
    template <typename T>
    void add(T *&pointer, std::size_t region, const Extent &extent, std::int64_t step, std::int64_t gap = 0) {
        constexpr std::int64_t most_bytes = 64 << 20;
        Region &in = regions_[region];
        const bool fits = extent.high - extent.low <= most_bytes;
        const std::int64_t low = fits ? static_cast<std::int64_t>(extent.low) : 0;
        const std::int64_t offset = round_up(in.size - low, step);
        pointers_.push_back({&pointer, region, offset});
        in.step = std::max(in.step, step);
        in.size = offset + (fits ? static_cast<std::int64_t>(extent.high) : 64) + gap;
    }
    /// Makes allocate_and_fill() set `pointer` to the address that lies `bytes` bytes after the one in `other`.
    template <typename T, typename Other>
    void add_beside(T *&pointer, Other *&other, std::int64_t bytes) {
        const auto found =
            std::find_if(pointers_.begin(), pointers_.end(), [&](auto &each) { return each.at == &other; });
        if (found != pointers_.end()) {
            pointers_.push_back({&pointer, found->region, found->offset + bytes});
        }
    }

    /// Allocates the regions, fills them with random bytes, and sets the pointers.
    void allocate_and_fill(oracle::Random &random) {
        for (Region &region : regions_) {
            region.size = round_up(region.size, region.step);
            region.is_low = random.one_in(4);
            region.memory =
                std::make_unique<GuardedMemory>(static_cast<std::size_t>(region.size) / GuardedMemory::page + 1);
            for (char *at = region.begin(); at < region.end(); at += 8) {
                const std::uint64_t noise = random.bits();
                std::memcpy(at, &noise, static_cast<std::size_t>(std::min<std::ptrdiff_t>(8, region.end() - at)));
            }
        }
        for (const Pointer &pointer : pointers_) {
            char *const place = regions_[pointer.region].begin() + pointer.offset;
            std::memcpy(pointer.at, &place, sizeof(place));
        }
    }

    /// The index of the region that holds an address (-1 if none does), and the address's offset in it.
    struct Found {
        int region;
        std::int64_t offset;
    };
    Found find(const void *at) const {
        const char *const byte = static_cast<const char *>(at);
        for (std::size_t n = 0; n < regions_.size(); n++) {
            const std::size_t i = (last_found_ + n) % regions_.size();
            if (byte >= regions_[i].begin() && byte <= regions_[i].end()) {
                last_found_ = i;  // the next element usually lies in the same region
                return {static_cast<int>(i), byte - regions_[i].begin()};
            }
        }
        return {-1, 0};
    }
    bool holds(const void *first, const Extent &extent) const {
        const auto number = [](const void *at) { return static_cast<__int128>(reinterpret_cast<std::uintptr_t>(at)); };
        return std::any_of(regions_.begin(), regions_.end(), [&](const Region &region) {
            return number(first) + extent.low >= number(region.begin()) &&
                   number(first) + extent.high <= number(region.end());
        });
    }

    Images image() const {
        Images images;
        for (const Region &region : regions_) {
            images.emplace_back(region.begin(), region.end());
        }
        return images;
    }
    void restore(const Images &images) const {
        for (std::size_t i = 0; i < regions_.size(); i++) {
            std::copy(images[i].begin(), images[i].end(), regions_[i].begin());
        }
    }
    /// The address in a copy of the regions that corresponds to an address in the regions.
    char *address_in(Images &images, const void *at) const {
        const Found found = find(at);
        return images[static_cast<std::size_t>(found.region)].data() + found.offset;
    }
    const char *address_in(const Images &images, const void *at) const {
        return address_in(const_cast<Images &>(images), at);
    }

private:
    struct Region {
        std::int64_t step = 1, size = 0;
        bool is_low = false;  // at the lower end of its pages, not at the upper end
        std::unique_ptr<GuardedMemory> memory;
        char *begin() const { return is_low ? memory->begin() : memory->end() - size; }
        char *end() const { return begin() + size; }
    };
    /// A pointer of a case that allocate_and_fill() will set to an offset in a region.
    struct Pointer {
        void *at;
        std::size_t region;
        std::int64_t offset;
    };
    std::vector<Region> regions_;
    std::vector<Pointer> pointers_;
    mutable std::size_t last_found_ = 0;

    static std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }
};

}  // namespace cases
