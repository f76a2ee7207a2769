#include "checks/scene/memory.h"

#include <cstring>

namespace scenes {

namespace {

constexpr std::int64_t most_bytes = 64 << 20;  // of an array

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

void Memory::add_at(void *pointer, std::size_t region, const Extent &extent, std::int64_t step, std::int64_t gap) {
    Region &in = regions_[region];
    const bool fits = extent.high - extent.low <= most_bytes;
    const std::int64_t low = fits ? static_cast<std::int64_t>(extent.low) : 0;
    const std::int64_t high = fits ? static_cast<std::int64_t>(extent.high) : 64;
    const std::int64_t offset = round_up(in.size - low, step);
    pointers_.push_back({pointer, region, offset});
    in.step = std::max(in.step, step);
    in.size = offset + high + gap;
}

void Memory::add_beside_at(void *pointer, const void *other, std::int64_t bytes) {
    for (std::size_t i = 0; i < pointers_.size(); i++) {
        if (pointers_[i].at == other) {
            pointers_.push_back({pointer, pointers_[i].region, pointers_[i].offset + bytes});
            return;
        }
    }
}

void Memory::place(oracle::Random &random) {
    for (Region &region : regions_) {
        region.size = round_up(region.size, region.step);
        region.memory =
            std::make_unique<GuardedMemory>(static_cast<std::size_t>(region.size) / GuardedMemory::page + 1);
        for (char *at = region.begin(); at < region.memory->end(); at += 8) {
            const std::uint64_t noise = random.bits();
            std::memcpy(at, &noise, static_cast<std::size_t>(std::min<std::ptrdiff_t>(8, region.memory->end() - at)));
        }
    }
    for (const Pointer &pointer : pointers_) {
        char *const place = regions_[pointer.region].begin() + pointer.offset;
        std::memcpy(pointer.at, &place, sizeof(place));
    }
}

Memory::Found Memory::find(const void *at) const {
    const char *const byte = static_cast<const char *>(at);
    for (std::size_t n = 0; n < regions_.size(); n++) {
        const std::size_t i = (last_found_ + n) % regions_.size();
        if (byte >= regions_[i].begin() && byte <= regions_[i].memory->end()) {
            last_found_ = i;  // where the next element lies as a rule
            return {static_cast<int>(i), byte - regions_[i].begin()};
        }
    }
    return {-1, 0};
}

bool Memory::holds(const void *first, const Extent &extent) const {
    const auto at = static_cast<__int128>(reinterpret_cast<std::uintptr_t>(first));
    return std::any_of(regions_.begin(), regions_.end(), [&](const Region &region) {
        const auto begin = static_cast<__int128>(reinterpret_cast<std::uintptr_t>(region.begin()));
        return at + extent.low >= begin && at + extent.high <= begin + region.size;
    });
}

Images Memory::image() const {
    Images images;
    for (const Region &region : regions_) {
        images.emplace_back(region.begin(), region.memory->end());
    }
    return images;
}

void Memory::restore(const Images &images) const {
    for (std::size_t i = 0; i < regions_.size(); i++) {
        std::copy(images[i].begin(), images[i].end(), regions_[i].begin());
    }
}

}  // namespace scenes
