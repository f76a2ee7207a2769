// Computes the graphs of one CPU backend, with calls of Halyard in place of some nodes.
#pragma once

#include "angles.h"
#include "replacements.h"

#include <ggml-backend-impl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace halyard_ggml {

class GraphComputer {
public:
    /// original: the backend's functions before the plug-in replaced them; they compute the edited graphs.
    explicit GraphComputer(ggml_backend_i original) : original_(original) {}

    const ggml_backend_i &original() const { return original_; }

    /// In a reference backend, with which test-backend-ops compares others, no nodes are replaced.
    void set_reference(bool is_reference) { is_reference_ = is_reference; }

    /// Computes a graph, which is as before when the call returns. ggml never calls it twice at once for one backend.
    ggml_status compute(ggml_backend_t backend, ggml_cgraph *graph);

    /// Writes to ggml's log how many nodes were replaced, and how many were left to ggml for which reason.
    void log_counts();

private:
    Replacements &replacements_for(ggml_cgraph *graph);

    ggml_backend_i original_;
    bool is_reference_ = false;
    Angles angles_;
    std::vector<std::unique_ptr<Replacements>> known_;  // for the latest graphs, the newest last
    Counts counts_;                                     // of graphs that are no longer in known_
};

/// Compares the loaded ggml with the one that this library was compiled for: names, structs, and the results of a small
/// graph with and without Halyard. Returns what differs, or an empty string. Throws std::bad_alloc.
std::string find_incompatibility(ggml_backend_dev_t device);

/// Writes a line to ggml's log.
void log_line(ggml_log_level level, const std::string &text);

}  // namespace halyard_ggml
