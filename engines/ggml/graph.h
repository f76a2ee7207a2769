// Computes graphs of one CPU backend with Halyard's calls in the place of some nodes.
#pragma once

#include "angles.h"
#include "replacements.h"

#include <ggml-backend-impl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace halyard_ggml {

class Computer {
public:
    /// original: what the backend computes graphs with.
    explicit Computer(ggml_backend_i original) : original_(original) {}

    const ggml_backend_i &original() const { return original_; }

    /// The backend is the reference that others are compared with, so nothing is replaced.
    void be_reference(bool is_reference) { is_reference_ = is_reference; }

    /// One call at a time, as ggml's backends want it. The graph is as before when it returns.
    ggml_status compute(ggml_backend_t backend, ggml_cgraph *graph);

    /// Says in ggml's log how many nodes were replaced, and how many left and why.
    void log_counts();

private:
    Replacements &replacements_for(ggml_cgraph *graph);

    ggml_backend_i original_;
    bool is_reference_ = false;
    Angles angles_;
    std::vector<std::unique_ptr<Replacements>> known_;  // the latest last
    Counts counts_;                                     // of those that are not known any more
};

/// In what the ggml that is loaded differs from the one that this was compiled for, or nothing: names, structs, and
/// what a small graph computes with and without Halyard. Throws std::bad_alloc.
std::string find_difference(ggml_backend_dev_t device);

/// Writes a line to ggml's log.
void log_line(ggml_log_level level, const std::string &text);

}  // namespace halyard_ggml
