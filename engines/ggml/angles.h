// cos and sin of the tokens of a graph: made once, for all its nodes and layers that turn by the same angles.
#pragma once

#include "rope.h"

#include <halyard/halyard.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace halyard_ggml {

class Runs;

/// Where the angles of one set of parameters come from.
class AngleMaker {
public:
    /// Throws halyard::error where Halyard refuses the frequencies.
    explicit AngleMaker(const Rope &rope);

    bool serves(const Rope &rope) const;
    std::int64_t n_pairs() const { return static_cast<std::int64_t>(pairs_.size()); }

    /// Writes [n_tokens, 2, n_pairs]; positions are [n_axes, n_tokens].
    void make_rows(const std::int32_t *positions, std::int64_t n_tokens, float *rows);

    /// What keys move by, or NULL where that multiplies them by a factor.
    const halyard::angle_source *source_of_moves() const;

    std::shared_ptr<Runs> moves;  // that were bound to this source

private:
    RopeParameters parameters_;
    std::vector<float> factors_;  // [n_pairs], or empty
    std::vector<PairAngle> pairs_;
    std::int64_t n_axes_;
    std::unique_ptr<halyard::angle_source> source_;
    std::unique_ptr<halyard::plan> plan_;
};

/// The rows of a number of tokens, and the runs that were bound to them. They live as long as anyone holds them.
struct TokenRows {
    TokenRows(std::shared_ptr<AngleMaker> maker, std::int64_t n_tokens);

    std::shared_ptr<AngleMaker> maker;
    std::int64_t n_tokens;
    std::vector<float> rows;
    halyard::angle_source source;     // of these rows, which batch rows share
    const void *positions = nullptr;  // that they were made from
    std::uint64_t graph = 0;          // that they were last used in
    std::shared_ptr<Runs> runs;
};

/// Of one backend, which computes one graph at a time.
class Angles {
public:
    Angles();

    /// Forgets rows that have not been used of late, if there are many.
    void begin_graph();

    /// The rows of a node. Throws as AngleMaker.
    std::shared_ptr<TokenRows> rows(const Rope &rope);

    /// What makes them. Throws likewise.
    std::shared_ptr<AngleMaker> maker(const Rope &rope);

    /// Runs that turn nothing.
    Runs &unrotated() { return *unrotated_; }

    /// Makes the rows of a node in this graph. False where they are not of its factors.
    bool make(const Rope &rope, TokenRows *rows);

private:
    std::uint64_t graph_ = 0;
    std::vector<std::shared_ptr<TokenRows>> rows_;
    std::vector<std::shared_ptr<AngleMaker>> makers_;  // the latest last
    std::shared_ptr<Runs> unrotated_;
};

}  // namespace halyard_ggml
