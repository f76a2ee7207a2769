// What Halyard does of a graph, and how it is put into it.
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

/// How many nodes, by what replaced them and by why they were left.
struct Counts {
    std::map<std::string, long long> replaced, left;
};

/// A call takes the place of its KV path's last node as a custom operator of ggml, so it runs on ggml's threads. The
/// nodes before it become empty ones, which ggml skips.
class Replacements {
public:
    /// Finds them, and makes the rows of their angles. Throws std::bad_alloc.
    Replacements(Angles &angles, ggml_cgraph *graph);
    Replacements(const Replacements &) = delete;
    Replacements &operator=(const Replacements &) = delete;

    std::uint64_t uid() const { return uid_; }

    /// Makes the rows again, of the positions as they are now. False where other factors than then ask for other ones.
    bool refresh(Angles &angles);

    void put_in();
    void take_out();

    /// Adds what was replaced and left, as often as the graph was computed.
    void add_counts(Counts *sums) const;

    /// Why the last call that failed did so, or NULL.
    const char *error() const { return error_.code == HALYARD_OK ? nullptr : error_.message; }

private:
    struct Edit {
        ggml_tensor *node;
        ggml_op op;
        std::int32_t parameters[sizeof(ggml_custom_op_params) / sizeof(std::int32_t)];
        std::ptrdiff_t call;  // of calls_, or -1: the node becomes empty
    };
    struct Used {
        Rope rope;
        std::shared_ptr<AngleMaker> maker;
        std::shared_ptr<TokenRows> rows;  // NULL: a shift, which needs none
    };

    void add(Angles &angles, PathFinder &finder, int i);
    bool add_move(Angles &angles, PathFinder &finder, int i);
    std::string take_path(Angles &angles, PathFinder &finder, int i, KvPath *path, Call *call);
    void use(const Rope &rope, const Call &call);
    void put(Call call, const std::string &what, const std::vector<ggml_tensor *> &nodes, ggml_tensor *call_node);
    bool is_edited(const ggml_tensor *node) const;
    void count_left(const ggml_cgraph *graph);

    std::uint64_t uid_;
    std::vector<Call> calls_;
    std::vector<Edit> edits_;
    std::vector<Used> used_;
    Counts counts_;
    long long n_uses_ = 1;
    halyard_error error_ = halyard::make_struct<halyard_error>();
};

}  // namespace halyard_ggml
