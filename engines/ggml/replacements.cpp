// Finds what can be replaced, puts it in, and takes it out again.
#include "replacements.h"

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

Replacements::Replacements(Angles &angles, Joins joins, ggml_cgraph *graph) : uid_(graph->uid) {
    RoadFinder finder(graph, joins);
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (is_rope(*graph->nodes[i])) {
            add(angles, finder, i);
        }
    }
    report(counts_);
}

/// Finds the longest road through a node that Halyard takes. Returns why there is none.
std::string Replacements::take_road(Angles &angles, RoadFinder &finder, int i, Road *road, Call *call) {
    std::string why;
    for (const Neighbours wanted : {Neighbours{true, true}, {false, true}, {true, false}, {false, false}}) {
        if (const char *reason = finder.find(i, wanted, road)) {
            return reason;
        }
        const bool is_less =
            (wanted.norm && road->norm_node == nullptr) || (wanted.cache && road->set_rows_node == nullptr);
        if (is_less && !why.empty()) {
            continue;  // it has been tried
        }
        why = bind(angles, *road, call);
        if (why.empty()) {
            const auto same = [&](const Used &used) { return used.rows == call->rows; };
            if (std::none_of(used_.begin(), used_.end(), same)) {
                used_.push_back({road->rope, call->rows});
            }
            break;
        }
    }
    return why;
}

void Replacements::add(Angles &angles, RoadFinder &finder, int i) {
    Road road = {};
    Call call;
    const std::string why = take_road(angles, finder, i, &road, &call);
    if (!why.empty()) {
        if (is_reporting()) {
            ++counts_.left[why];
        }
        return;
    }
    for (ggml_tensor *passed_on : {road.norm_node, road.mul_node, road.rope_node}) {
        if (passed_on != nullptr && passed_on != road.last()) {
            edit(passed_on, -1);
        }
    }
    edit(road.last(), static_cast<std::ptrdiff_t>(calls_.size()));
    call.error = &error_;
    calls_.push_back(std::move(call));
    if (is_reporting()) {
        const std::string norm = road.norm_node == nullptr ? "" : "norm, ";
        ++counts_.replaced[norm + (road.set_rows_node == nullptr ? "rope" : "rope, cache")];
    }
}

void Replacements::edit(ggml_tensor *node, std::ptrdiff_t call) {
    Edit edit = {node, node->op, {}, call};
    std::memcpy(edit.parameters, node->op_params, sizeof(edit.parameters));
    edits_.push_back(edit);
}

bool Replacements::refresh(Angles &angles) {
    for (const Used &used : used_) {
        if (!angles.make_again(used.rope, used.rows.get())) {
            return false;
        }
    }
    report(counts_);
    return true;
}

void Replacements::put_in() {
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

void Replacements::take_out() {
    for (const Edit &edit : edits_) {
        edit.node->op = edit.op;
        std::memcpy(edit.node->op_params, edit.parameters, sizeof(edit.parameters));
    }
}

}  // namespace halyard_ggml
