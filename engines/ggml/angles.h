// cos and sin of the tokens of a graph: computed once for all nodes and layers that rotate by the same angles.
#pragma once

#include "rope.h"

#include <halyard/halyard.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace halyard_ggml {

class Runs;

/// Computes cos and sin for one set of RoPE parameters and frequency factors.
class AngleMaker {
public:
    /// Throws halyard::error if Halyard refuses the frequencies.
    explicit AngleMaker(const Rope &rope);

    /// Whether a node has these parameters and frequency factors.
    bool serves(const Rope &rope) const;
    std::int64_t n_pairs() const { return static_cast<std::int64_t>(pairs_.size()); }

    /// Writes rows [n_tokens, 2, n_pairs]: cos and sin of each token. positions: [n_axes, n_tokens].
    void make_rows(const std::int32_t *positions, std::int64_t n_tokens, float *rows);

    /// The source for shifts of keys; NULL if ggml's shift would multiply the keys by a factor other than 1.
    const halyard::angle_source *source_of_shifts() const;

    std::shared_ptr<Runs> shift_runs;  // the runs bound to source_of_shifts()

private:
    RopeParameters parameters_;
    std::vector<float> factors_;  // [n_pairs], or empty
    std::vector<PairAngle> pairs_;
    std::int64_t n_axes_;
    std::unique_ptr<halyard::angle_source> source_;
    std::unique_ptr<halyard::plan> plan_;
};

/// The rows of cos and sin of a graph's tokens, and the runs bound to them. Graphs with as many tokens share them.
struct TokenRows {
    TokenRows(std::shared_ptr<AngleMaker> maker, std::int64_t n_tokens);

    std::shared_ptr<AngleMaker> maker;
    std::int64_t n_tokens;
    std::vector<float> rows;
    halyard::angle_source source;     // reads `rows` by token, the same for each row of a batch
    const void *positions = nullptr;  // the positions that the rows were made from
    std::uint64_t graph = 0;          // the number of the graph that last used the rows
    std::shared_ptr<Runs> runs;
};

/// The rows and AngleMakers of one backend, which computes one graph at a time.
class Angles {
public:
    Angles();

    /// Call before each graph. If there are many rows or makers, it drops those that were not used lately.
    void begin_graph();

    /// The rows of a node in this graph, computed if no other node has asked for them. Throws as AngleMaker.
    std::shared_ptr<TokenRows> rows(const Rope &rope);

    /// The AngleMaker of a node, a new one if there is none. Throws as AngleMaker.
    std::shared_ptr<AngleMaker> maker(const Rope &rope);

    /// Bound runs without a rotation.
    Runs &unrotated() { return *unrotated_; }

    /// Computes the rows of a node in this graph. Returns false if the rows' maker does not serve the node.
    bool make(const Rope &rope, TokenRows *rows);

private:
    std::uint64_t graph_ = 0;
    std::vector<std::shared_ptr<TokenRows>> rows_;
    std::vector<std::shared_ptr<AngleMaker>> makers_;  // the most recently used last
    std::shared_ptr<Runs> unrotated_;
};

}  // namespace halyard_ggml
