// A work laid out in memory that all rivals share: its positions, rows of cos and sin, and tensors; and the exact
// answer.
#pragma once

#include "measure/work.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace halyard::bench {

/// Zeroed, resident memory of a file without a name, so that the peers' process can map it too.
class Arena {
public:
    explicit Arena(std::size_t n_bytes);
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena();

    char *data() const { return data_; }
    std::size_t n_bytes() const { return n_bytes_; }
    /// The file, for those who map it too.
    int file() const { return file_; }

private:
    int file_;
    char *data_;
    std::size_t n_bytes_;
};

/// Positions are below this, as in the table of a model with a context of 32k.
inline constexpr std::int32_t n_positions = 32768;
inline constexpr double rope_base = 10000.0;

/// Those that are described, or else the positions of a decoding step (1 token), of a batch of requests at different
/// places (64), or of a prompt; for a cold table those of one call after the other, together all that it has, 64 MiB
/// with a rotary_dim of 128.
std::vector<std::int64_t> positions_of(const Work &work);
inline constexpr std::int32_t n_cold_positions = 131072;

class PlacedWork {
public:
    /// Where x and y lie, which are the same in place. A hot work has one slot, a cold one as many as exceed the caches
    /// by far. With a cold table all slots are one in memory, and each has positions of its own.
    struct Slot {
        std::size_t x, y;  // offsets into the arena
    };

    /// How many bytes of an arena a work needs.
    static std::size_t bytes_needed(const Work &work);

    /// Fills all x with numbers of either sign and absolute values from 0.5 to 2.
    PlacedWork(const Work &work, const Arena &arena);

    const Work &work() const { return work_; }
    std::size_t arena_bytes() const { return arena_.n_bytes(); }
    const std::vector<Slot> &slots() const { return slots_; }
    /// The slot that a call is to use. A rival goes on where the one before stopped, so that none finds in a cache what
    /// another has left there.
    std::size_t next_slot() {
        const std::size_t slot = next_;
        next_ = slot + 1 == slots_.size() ? 0 : slot + 1;
        return slot;
    }
    char *at(std::size_t offset) const { return arena_.data() + offset; }
    char *x(std::size_t slot) const { return at(slots_[slot].x); }
    char *y(std::size_t slot) const { return at(slots_[slot].y); }

    /// [tokens], of every slot; with a cold table [slots, tokens].
    const std::vector<std::int64_t> &positions() const { return positions_; }
    /// The last position that tables have to hold.
    std::int32_t last_position() const;
    std::size_t positions_offset() const { return 0; }
    const float *cos_rows() const { return reinterpret_cast<const float *>(at(cos_)); }
    const float *sin_rows() const { return reinterpret_cast<const float *>(at(sin_)); }

    /// Reads all of y, as a model's next step would.
    void read_output(std::size_t slot) const;

    /// Writes x of slot 0 anew, since a rival in place has overwritten it, and poisons y.
    void reset() const;

    /// How far y, rotated from a fresh x of slot 0, is from the exact result: the largest distance as a part of its
    /// pair's length, over at most 64 of the tokens. Infinite where y holds a NaN.
    double max_error(const void *y) const;
    /// What Halyard promises max_error() to be at most.
    double promised_error() const;

private:
    void fill(std::size_t slot) const;

    Work work_;
    const Arena &arena_;
    std::vector<std::int64_t> positions_;
    std::vector<Slot> slots_;
    std::size_t next_ = 0, cos_, sin_;
    std::shared_ptr<const std::vector<double>> exact_;  // [tokens, rotary_dim / 2, 2]: cos and sin
};

}  // namespace halyard::bench
