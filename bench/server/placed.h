// A work laid out in memory that all rivals share: its positions, rows of cos and sin, slots and tensors; and the check
// of what a rival leaves there.
#pragma once

#include "checks/road_oracle.h"
#include "server/work.h"

#include <cstddef>
#include <cstdint>
#include <string>
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
/// A cold table's, together 64 MiB with a rotary_dim of 128.
inline constexpr std::int32_t n_cold_positions = 131072;
inline constexpr double rope_base = 10000.0;
inline constexpr std::int64_t page_size = 16;  // tokens in a page of a cache
inline constexpr float road_scale = 0.015625f, road_eps = 1e-6f;

class Placed {
public:
    /// How many bytes of an arena a work needs.
    static std::size_t bytes_needed(const Work &work) { return lay_out(work).n_bytes; }

    /// Fills all x.
    Placed(const Work &work, const Arena &arena);

    struct View {
        std::size_t at;  // offset into the arena
        std::int64_t stride_token, stride_head, stride_element;
    };
    /// Where things lie in the arena. positions, slots, and rows of cos and sin are dense.
    struct Layout {
        std::size_t positions = 0, slots = 0, cos = 0, sin = 0, scale = 0, scratch = 0;
        std::size_t rows = 0;  // x of the first token, all parts
        std::vector<View> x,
            y;  // of each part; a cached part's y is its cache, [slots, heads, head_dim]; not by column
        std::vector<View> between;  // what stages of a road leave of its cached parts for each other, in bf16
        std::vector<std::size_t> weight;
        /// A hot work has one copy of its tensors, a cold one as many as exceed the caches by far, a shift one for each
        /// layer. With a cold table all copies are one in memory, and each has positions of its own.
        std::size_t n_copies = 1, step = 0;
        std::size_t n_bytes = 0;
    };
    const Layout &layout() const { return layout_; }
    const Work &work() const { return work_; }
    dtype stored_type(std::size_t p) const { return work_.parts[p].is_cached ? work_.cache : work_.type; }
    /// Of k, the cached part that rotates.
    bool is_by_column(std::size_t p) const {
        return work_.by_column && work_.parts[p].is_cached && work_.parts[p].rotates;
    }
    template <typename T>
    T *at(std::size_t offset) const {
        return reinterpret_cast<T *>(arena_.data() + offset);
    }
    char *x(std::size_t copy) const { return at<char>(layout_.rows + copy * layout_.step); }
    char *y(std::size_t copy) const { return at<char>(layout_.y[0].at + copy * layout_.step); }
    /// The copy that a call is to use. A rival goes on where the one before stopped, so that none finds in a cache what
    /// another has left there.
    std::size_t next_copy() {
        const std::size_t copy = next_;
        next_ = copy + 1 == layout_.n_copies ? 0 : copy + 1;
        return copy;
    }

    /// [tokens], of every copy; with a cold table [copies, tokens].
    const std::vector<std::int64_t> &positions() const { return positions_; }
    /// The last position that tables have to hold.
    std::int32_t last_position() const;

    /// Reads all of y, as a model's next step would.
    void read_output(std::size_t copy) const;

    /// Writes x anew where a call may have overwritten it, and poisons all outputs.
    void reset() const;

    /// What the outputs of the first copy, or the last layer, are against the formula in long double, over at most 64
    /// tokens.
    struct Found {
        long n_wrong = 0;        // elements beyond the bound
        double max_error = 0.0;  // in lengths of a pair; of a road without the rounding to what is stored
    };
    /// The bound is halyard.h's, and a part of the pair's length for what rounds otherwise.
    Found check(double slack, bool with_norm = true);

private:
    /// What an element should be, in the unit that is stored.
    struct Element {
        double value, bound, rounding, length;
    };
    struct Expected {
        std::size_t part;
        std::int64_t token;
        std::vector<Element> elements;  // [heads, head_dim]
    };

    static Layout lay_out(const Work &work);
    void place_positions();
    void place_weights();
    void place_x(std::size_t copy) const;
    std::vector<Expected> expect(bool with_norm) const;
    oracle::Road describe(std::size_t p, bool with_norm) const;
    std::vector<float> read_x(std::size_t p, std::int64_t token) const;
    std::vector<Element> to_stored(std::size_t p, const oracle::Road &road, const oracle::RoadValues &values) const;
    double read_y(const Expected &expected, std::int64_t j) const;

    Work work_;
    const Arena &arena_;
    Layout layout_;
    std::vector<std::int64_t> positions_, slots_;
    std::size_t next_ = 0;
    std::vector<Expected> expected_[2];  // without norms, with them; empty: not yet asked for
};

}  // namespace halyard::bench
