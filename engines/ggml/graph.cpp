// Keeps what it has found in graphs, because a program computes the same one for each token.
#include "graph.h"

#include <ggml-impl.h>
#include <ggml.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace halyard_ggml {

namespace {

/// As many graphs as a program goes to and fro between: a prompt's and a token's, of a few splits each.
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

/// Graphs with the same uid, unless it is 0, are the same: so ggml promises its backends.
Replacements &Computer::replacements_for(ggml_cgraph *graph) {
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

ggml_status Computer::compute(ggml_backend_t backend, ggml_cgraph *graph) {
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
    replacements->put_in();
    auto status = original_.graph_compute(backend, graph);
    replacements->take_out();
    if (const char *why = replacements->error()) {
        log_line(GGML_LOG_LEVEL_ERROR, why);
        status = status == GGML_STATUS_SUCCESS ? GGML_STATUS_FAILED : status;
    }
    return status;
}

void Computer::log_counts() {
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
