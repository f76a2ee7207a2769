// Replaces nodes for as long as a graph is computed. A call takes the place of its road's last node as a custom operator
// of ggml, so it runs on ggml's threads; the nodes before it become empty ones, which ggml skips.
#include "graph.h"

#include "report.h"
#include "runs.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <vector>

namespace halyard_ggml {

namespace {

void run_call(ggml_tensor * /*node*/, int ith, int nth, void *userdata) { (*static_cast<Call *>(userdata))(ith, nth); }

/// Changes nodes, and makes them what they were when it goes.
class Edits {
public:
    Edits() = default;
    Edits(const Edits &) = delete;
    Edits &operator=(const Edits &) = delete;
    ~Edits() {
        for (const Edit &edit : edits_) {
            edit.node->op = edit.op;
            std::memcpy(edit.node->op_params, edit.parameters, sizeof(edit.parameters));
        }
    }

    void make_empty(ggml_tensor *node) {
        keep(node);
        node->op = GGML_OP_NONE;
    }

    void make_call(ggml_tensor *node, Call *call) {
        keep(node);
        const ggml_custom_op_params parameters = {run_call, GGML_N_TASKS_MAX, call};
        static_assert(sizeof(parameters) <= sizeof(node->op_params));
        node->op = GGML_OP_CUSTOM;
        std::memcpy(node->op_params, &parameters, sizeof(parameters));
    }

private:
    struct Edit {
        ggml_tensor *node;
        ggml_op op;
        std::int32_t parameters[GGML_MAX_OP_PARAMS / sizeof(std::int32_t)];
    };

    void keep(ggml_tensor *node) {
        Edit edit = {node, node->op, {}};
        std::memcpy(edit.parameters, node->op_params, sizeof(edit.parameters));
        edits_.push_back(edit);
    }

    std::vector<Edit> edits_;
};

/// Finds the longest road through a node that Halyard takes. Returns why there is none.
std::string take_road(Angles &angles, const ggml_cgraph *graph, int i, Road *road, Call *call) {
    std::string why;
    for (const Neighbours wanted : {Neighbours{true, true}, {false, true}, {true, false}, {false, false}}) {
        if (const char *reason = find_road(graph, i, wanted, road)) {
            return reason;
        }
        const bool is_less = (wanted.norm && road->norm_node == nullptr) || (wanted.cache && !road->set_rows_node);
        if (is_less && !why.empty()) {
            continue;  // has been tried
        }
        why = bind(angles, *road, call);
        if (why.empty()) {
            return {};
        }
    }
    return why;
}

void report(const Road &road) {
    if (is_reporting()) {
        const std::string norm = road.norm_node == nullptr ? "" : "norm, ";
        const std::string cache = road.set_rows_node == nullptr ? "" : ", cache";
        report_replaced(norm + "rope" + cache, 1);
    }
}

void replace(Angles &angles, ggml_cgraph *graph, Edits *edits, std::deque<Call> *calls) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        ggml_tensor *node = graph->nodes[i];
        if ((node->op != GGML_OP_ROPE && node->op != GGML_OP_ROPE_BACK) ||
            (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || ggml_is_empty(node)) {
            continue;
        }
        Road road = {};
        Call &call = calls->emplace_back();
        const std::string why = take_road(angles, graph, i, &road, &call);
        if (!why.empty()) {
            calls->pop_back();
            if (is_reporting()) {
                report_left(why);
            }
            continue;
        }
        for (ggml_tensor *passed_on : {road.norm_node, road.mul_node, road.rope_node}) {
            if (passed_on != nullptr && passed_on != road.last()) {
                edits->make_empty(passed_on);
            }
        }
        edits->make_call(road.last(), &call);
        report(road);
    }
}

}  // namespace

void log_line(ggml_log_level level, const char *text) {
    ggml_log_callback callback = nullptr;
    void *context = nullptr;
    ggml_log_get(&callback, &context);
    if (callback != nullptr) {
        callback(level, (std::string("halyard: ") + text + "\n").c_str(), context);
    }
}

ggml_status Computer::compute(ggml_backend_t backend, ggml_cgraph *graph) {
    if (is_reference_) {
        return original_.graph_compute(backend, graph);
    }
    Edits edits;
    std::deque<Call> calls;
    angles_.begin_graph();
    try {
        replace(angles_, graph, &edits, &calls);
    } catch (const std::exception &error) {  // what has been replaced by then is whole
        if (is_reporting()) {
            report_left(error.what());
        }
    }
    auto status = original_.graph_compute(backend, graph);
    for (const Call &call : calls) {
        if (call.error.code != HALYARD_OK && status == GGML_STATUS_SUCCESS) {
            log_line(GGML_LOG_LEVEL_ERROR, call.error.message);
            status = GGML_STATUS_FAILED;
        }
    }
    angles_.end_graph();
    return status;
}

}  // namespace halyard_ggml
