// Finds the nodes to replace, edits the graph, and restores it.
#include "replacements.h"

#include "nodes.h"

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace halyard_ggml {

namespace {

void run_call(ggml_tensor * /*node*/, int ith, int nth, void *userdata) { (*static_cast<Call *>(userdata))(ith, nth); }

bool is_rope(const ggml_tensor &node) {
    return (node.op == GGML_OP_ROPE || node.op == GGML_OP_ROPE_BACK) && (node.flags & GGML_TENSOR_FLAG_COMPUTE) != 0 &&
           !ggml_is_empty(&node);
}

}  // namespace

Replacements::Replacements(Angles &angles, ggml_cgraph *graph) : uid_(graph->uid) {
    PathFinder finder(graph);
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor &node = *graph->nodes[i];
        if (is_rope(node) || (hadamard_size(node) != 0 && !is_edited(&node))) {
            add(angles, finder, i);
        }
    }
    count_left(graph);
}

/// Binds the longest KV path through node i that Halyard can run. Returns an empty string, or why there is none.
std::string Replacements::bind_longest_path(Angles &angles, PathFinder &finder, int i, KvPath *path, Call *call) {
    std::string why;
    for (const Neighbours wanted : {Neighbours{true, true, true},
                                    {false, true, true},
                                    {true, true, false},
                                    {false, true, false},
                                    {true, false, false},
                                    {false, false, false}}) {
        if (const char *reason = finder.find(i, wanted, path)) {
            return why.empty() ? reason : why;
        }
        const bool is_less = (wanted.norm && path->norm_node == nullptr) ||
                             (wanted.hadamard && path->hadamard_node == nullptr) ||
                             (wanted.cache && path->set_rows_node == nullptr);
        if (is_less && !why.empty()) {
            continue;  // Halyard has already refused the same path
        }
        why = try_bind(angles, *path, call);
        if (why.empty()) {
            break;
        }
    }
    return why;
}

void Replacements::add(Angles &angles, PathFinder &finder, int i) {
    if (add_shift(angles, finder, i)) {
        return;
    }
    KvPath path = {};
    Call call;
    const std::string why = bind_longest_path(angles, finder, i, &path, &call);
    if (!why.empty()) {
        if (is_rope(*finder.graph()->nodes[i])) {
            ++counts_.left[why];
        }
        return;
    }
    std::string what;
    const auto name = [&](const ggml_tensor *node, const char *stage) {
        what += node == nullptr ? "" : (what.empty() ? "" : ", ") + std::string(stage);
    };
    name(path.norm_node, path.norm_is_of_rows ? "norm of rows" : "norm");
    name(path.rope_node, "rope");
    name(path.hadamard_node, "hadamard");
    name(path.set_rows_node, "cache");
    if (path.rope_node != nullptr) {
        use(path.rope, call);
    }
    replace(std::move(call), what,
            {path.norm_node, path.mul_node, path.cont_node, path.rope_node, path.hadamard_node, path.set_rows_node},
            path.call_node);
}

/// If node i is the ROPE of a shift that Halyard can run, replaces the shift and returns true.
bool Replacements::add_shift(Angles &angles, PathFinder &finder, int i) {
    Shift shift;
    Call call;
    if (!find_shift(finder.graph(), i, &shift) ||
        (shift.rope.factors != nullptr && !finder.is_ready(shift.rope.factors))) {
        return false;
    }
    const std::string why = try_bind(angles, shift, &call);
    if (!why.empty()) {
        ++counts_.left["shift: " + why];
        return false;
    }
    use(shift.rope, call);
    replace(std::move(call), "shift", shift.nodes, shift.nodes.back());
    return true;
}

/// Remembers the angles of a call, for refresh().
void Replacements::use(const Rope &rope, const Call &call) {
    const auto same = [&](const UsedAngles &used) { return used.maker == call.maker && used.rows == call.rows; };
    if (std::none_of(used_.begin(), used_.end(), same)) {
        used_.push_back({rope, call.maker, call.rows});
    }
}

/// Records the edits of a sequence: call_node makes the call, the others do nothing. `what` names the call in the log.
void Replacements::replace(Call call, const std::string &what, const std::vector<ggml_tensor *> &nodes,
                           ggml_tensor *call_node) {
    for (ggml_tensor *node : nodes) {
        if (node != nullptr) {
            const auto call_of_node = node == call_node ? static_cast<std::ptrdiff_t>(calls_.size()) : -1;
            Edit &edit = edits_.emplace_back(Edit{node, node->op, {}, call_of_node});
            std::memcpy(edit.parameters, node->op_params, sizeof(edit.parameters));
        }
    }
    call.error = &error_;
    calls_.push_back(std::move(call));
    ++counts_.replaced[what];
}

bool Replacements::is_edited(const ggml_tensor *node) const {
    return std::any_of(edits_.begin(), edits_.end(), [&](const Edit &edit) { return edit.node == node; });
}

/// Counts the Hadamard transforms and stores into quantised caches that are left to ggml.
void Replacements::count_left(const ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor *node = graph->nodes[i];
        const bool is_hadamard = hadamard_size(*node) != 0;
        const bool is_store = node->op == GGML_OP_SET_ROWS && ggml_is_quantized(node->type);
        if ((is_hadamard || is_store) && is_computed(*node) && !is_edited(node)) {
            ++counts_.left[is_hadamard ? "Hadamard transforms" : "stores into quantised caches"];
        }
    }
}

bool Replacements::refresh(Angles &angles) {
    for (const UsedAngles &used : used_) {
        if (used.rows == nullptr ? !used.maker->serves(used.rope) : !angles.make(used.rope, used.rows.get())) {
            return false;
        }
    }
    ++n_uses_;
    return true;
}

void Replacements::add_counts(Counts *sums) const {
    for (const auto &[from, to] :
         {std::pair(&counts_.replaced, &sums->replaced), std::pair(&counts_.left, &sums->left)}) {
        for (const auto &[what, n] : *from) {
            (*to)[what] += n * n_uses_;
        }
    }
}

void Replacements::edit_graph() {
    error_.code = HALYARD_OK;
    for (const Edit &edit : edits_) {
        if (edit.call < 0) {
            edit.node->op = GGML_OP_NONE;
            continue;
        }
        const ggml_custom_op_params parameters = {run_call, GGML_N_TASKS_MAX,
                                                  &calls_[static_cast<std::size_t>(edit.call)]};
        edit.node->op = GGML_OP_CUSTOM;
        std::memcpy(edit.node->op_params, &parameters, sizeof(parameters));
    }
}

void Replacements::restore_graph() {
    for (const Edit &edit : edits_) {
        edit.node->op = edit.op;
        std::memcpy(edit.node->op_params, edit.parameters, sizeof(edit.parameters));
    }
}

}  // namespace halyard_ggml
