// Which nodes of a graph are replaced by calls of Halyard, and how the graph is edited so that ggml runs these calls.
#pragma once

#include "angles.h"
#include "kv_path.h"
#include "runs.h"

#include <ggml-impl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace halyard_ggml {

/// The numbers of calls, by the stages that they join, and of nodes left to ggml, by the reason.
struct Counts {
    std::map<std::string, long long> replaced, left;
};

/// One node of each replaced sequence becomes a GGML_OP_CUSTOM that makes the call, so ggml's threads share it. The
/// sequence's other nodes become GGML_OP_NONE, which ggml skips.
class Replacements {
public:
    /// Finds the nodes to replace, and computes the rows of cos and sin. Does not edit the graph. May throw bad_alloc.
    Replacements(Angles &angles, ggml_cgraph *graph);
    Replacements(const Replacements &) = delete;
    Replacements &operator=(const Replacements &) = delete;

    std::uint64_t uid() const { return uid_; }

    /// Call it before the graph is computed again: it computes the rows anew, because the positions have changed.
    /// Returns false if the frequency factors have changed too; then the replacements must be found anew.
    bool refresh(Angles &angles);

    void edit_graph();
    void restore_graph();

    /// Adds to *sums this graph's counts, each times how often the graph was computed.
    void add_counts(Counts *sums) const;

    /// The error message of a call that failed in the latest computation, or NULL.
    const char *error() const { return error_.code == HALYARD_OK ? nullptr : error_.message; }

private:
    struct Edit {
        ggml_tensor *node;
        ggml_op op;
        std::int32_t parameters[sizeof(ggml_custom_op_params) / sizeof(std::int32_t)];
        std::ptrdiff_t call;  // index in calls_; -1: the node becomes GGML_OP_NONE
    };
    struct UsedAngles {
        Rope rope;
        std::shared_ptr<AngleMaker> maker;
        std::shared_ptr<TokenRows> rows;  // NULL: a shift, which needs none
    };

    void add(Angles &angles, PathFinder &finder, int i);
    bool add_shift(Angles &angles, PathFinder &finder, int i);
    std::string bind_longest_path(Angles &angles, PathFinder &finder, int i, KvPath *path, Call *call);
    void use(const Rope &rope, const Call &call);
    void replace(Call call, const std::string &what, const std::vector<ggml_tensor *> &nodes, ggml_tensor *call_node);
    bool is_edited(const ggml_tensor *node) const;
    void count_left(const ggml_cgraph *graph);

    std::uint64_t uid_;
    std::vector<Call> calls_;
    std::vector<Edit> edits_;
    std::vector<UsedAngles> used_;
    Counts counts_;
    long long n_uses_ = 1;  // computations of the graph
    halyard_error error_ = halyard::make_struct<halyard_error>();
};

}  // namespace halyard_ggml
