// One work laid out in the memory that all rivals work on: its positions, rows of cos and sin, tensors, and the exact
// answer.
#pragma once

#include "measure/work.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace halyard::bench {

/// Zeroed memory of a file without a name, mapped and resident, that the process of the peers maps too.
class Arena {
public:
    explicit Arena(std::size_t n_bytes);
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena();

    char *data() const { return data_; }
    std::size_t n_bytes() const { return n_bytes_; }
    /// The file, which child processes inherit.
    int file() const { return file_; }

private:
    int file_;
    char *data_;
    std::size_t n_bytes_;
};

/// Positions are below this: the table of a model with a context of 32k.
inline constexpr std::int32_t n_positions = 32768;
inline constexpr double rope_base = 10000.0;

/// Those of a decoding step, of a batch of requests at unlike places (64), or of a prompt.
std::vector<std::int64_t> usual_positions(std::int64_t n_tokens);

class Cell {
public:
    /// x and y of slot i; the same in place. One slot is hot; a cold work has as many as exceed the caches by far.
    struct Slot {
        std::size_t x, y;  // offsets into the arena
    };

    /// The bytes of an arena that can hold a work.
    static std::size_t bytes_needed(const Work &work);

    /// Fills all x with numbers of either sign and absolute values from 0.5 to 2.
    Cell(const Work &work, const Arena &arena, std::vector<std::int64_t> positions);
    Cell(const Work &work, const Arena &arena) : Cell(work, arena, usual_positions(work.n_tokens)) {}

    const Work &work() const { return work_; }
    std::size_t arena_bytes() const { return arena_.n_bytes(); }
    const std::vector<Slot> &slots() const { return slots_; }
    /// The slot that a call is to use. Rivals go on where the one before stopped, so that none finds another's in
    /// cache.
    std::size_t next_slot() {
        const std::size_t slot = next_;
        next_ = slot + 1 == slots_.size() ? 0 : slot + 1;
        return slot;
    }
    char *at(std::size_t offset) const { return arena_.data() + offset; }
    char *x(std::size_t slot) const { return at(slots_[slot].x); }
    char *y(std::size_t slot) const { return at(slots_[slot].y); }

    const std::vector<std::int64_t> &positions() const { return positions_; }
    /// The last one that tables have to hold.
    std::int32_t last_position() const;
    std::size_t positions_offset() const { return 0; }
    const float *cos_rows() const { return reinterpret_cast<const float *>(at(cos_)); }
    const float *sin_rows() const { return reinterpret_cast<const float *>(at(sin_)); }

    /// Reads all of y.
    void read_output(std::size_t slot) const;

    /// Writes x of slot 0 anew, which a rival in place has overwritten, and poisons y.
    void reset() const;

    /// How far y, rotated from a fresh x of slot 0, is from the exact result: the largest distance as a part of its
    /// pair's length, over at most 64 of the tokens. Infinite where it is no number.
    double max_error(const void *y) const;
    /// What Halyard promises of it.
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
