// The memory of a scene: regions between pages that nothing may touch, which hold arrays one behind the other.
#pragma once

#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "checks/scene/call.h"

#include <memory>
#include <vector>

namespace scenes {

/// Copies of all regions.
using Images = std::vector<std::vector<char>>;

class Memory {
public:
    std::size_t new_region() { return regions_.emplace_back(), regions_.size() - 1; }

    /// Sets aside what an array reaches, behind all others of the region and at a multiple of so many bytes, with a gap
    /// behind it. place() lets the pointer lead to its first element. Of what is too large, there is only a little.
    template <typename T>
    void add(T *&pointer, std::size_t region, const Extent &extent, std::int64_t step, std::int64_t gap = 0) {
        add_at(&pointer, region, extent, step, gap);
    }
    /// A pointer that leads so many bytes behind where another one does.
    template <typename T, typename Other>
    void add_beside(T *&pointer, Other *&other, std::int64_t bytes) {
        add_beside_at(&pointer, &other, bytes);
    }

    /// Makes the regions, filled with noise, and sets the pointers.
    void place(oracle::Random &random);

    /// The region that a place lies in, and where; -1 where in none.
    struct Found {
        int region;
        std::int64_t offset;
    };
    Found find(const void *at) const;
    bool holds(const void *first, const Extent &extent) const;

    Images image() const;
    void restore(const Images &images) const;
    /// The copy of what is at a place.
    char *in(Images &images, const void *at) const {
        const Found found = find(at);
        return images[static_cast<std::size_t>(found.region)].data() + found.offset;
    }
    const char *in(const Images &images, const void *at) const { return in(const_cast<Images &>(images), at); }

private:
    struct Region {
        std::int64_t step = 1, size = 0;
        std::unique_ptr<GuardedMemory> memory;
        char *begin() const { return memory->end() - size; }
    };
    /// A pointer of a scene, and where it is to lead: so many bytes into a region.
    struct Pointer {
        void *at;
        std::size_t region;
        std::int64_t offset;
    };
    std::vector<Region> regions_;
    std::vector<Pointer> pointers_;
    mutable std::size_t last_found_ = 0;

    void add_at(void *pointer, std::size_t region, const Extent &extent, std::int64_t step, std::int64_t gap);
    void add_beside_at(void *pointer, const void *other, std::int64_t bytes);
};

}  // namespace scenes
