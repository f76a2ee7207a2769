// Keeps the replacements of the latest graphs, because a program computes the same graph for each token.
#include "graph.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace halyard_ggml {

namespace {

/// A program alternates between few graphs: those of a prompt and of a token, each in a few splits.
constexpr std::size_t max_known = 8;

}  // namespace

void log_line(ggml_log_level level, const std::string &text) {
    ggml_log_callback callback = nullptr;
    void *context = nullptr;
    ggml_log_get(&callback, &context);
    if (callback != nullptr) {
        callback(level, ("halyard: " + text + "\n").c_str(), context);
    }
}

/// ggml promises its backends that graphs with the same uid are the same; uid 0 means unknown.
Replacements &GraphComputer::replacements_for(ggml_cgraph *graph) {
    const auto same = std::find_if(known_.begin(), known_.end(), [&](const auto &known) {
        return graph->uid != 0 && known->uid() == graph->uid && known->refresh(angles_);
    });
    if (same != known_.end()) {
        return **same;
    }
    if (known_.size() == max_known) {
        known_.front()->add_counts(&counts_);
        known_.erase(known_.begin());
    }
    known_.push_back(std::make_unique<Replacements>(angles_, graph));
    return *known_.back();
}

ggml_status GraphComputer::compute(ggml_backend_t backend, ggml_cgraph *graph) {
    if (is_reference_) {
        return original_.graph_compute(backend, graph);
    }
    angles_.begin_graph();
    Replacements *replacements = nullptr;
    try {
        replacements = &replacements_for(graph);
    } catch (const std::exception &error) {
        log_line(GGML_LOG_LEVEL_WARN, error.what());
        return original_.graph_compute(backend, graph);
    }
    replacements->edit_graph();
    auto status = original_.graph_compute(backend, graph);
    replacements->restore_graph();
    if (const char *why = replacements->error()) {
        log_line(GGML_LOG_LEVEL_ERROR, why);
        status = status == GGML_STATUS_SUCCESS ? GGML_STATUS_FAILED : status;
    }
    return status;
}

void GraphComputer::log_counts() {
    for (const auto &known : known_) {
        known->add_counts(&counts_);
    }
    known_.clear();
    for (const auto &[what, counts] :
         {std::pair("replaced: ", &counts_.replaced), std::pair("left to ggml: ", &counts_.left)}) {
        std::string line;
        for (const auto &[kind, n] : *counts) {
            line += (line.empty() ? what : "; ") + std::to_string(n) + ' ' + kind;
        }
        if (!line.empty()) {
            log_line(GGML_LOG_LEVEL_INFO, line);
        }
    }
}

}  // namespace halyard_ggml
