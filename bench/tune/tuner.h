// The search for a better schedule: which variants are tried, how they are compared, and what is kept for a run that
// goes on after an interruption. A Workshop makes the variants and times them.
#pragma once

#include "measure/timing.h"
#include "tune/process.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace halyard::bench {

/// A number of a schedule: see HALYARD_PARAMETER in generators/kernels.inc.
struct Parameter {
    std::string name, loops, limit;
    std::vector<int> values;
};
using Space = std::vector<Parameter>;

/// A variant: the value of each number by its name.
using Parameters = std::map<std::string, int>;

/// "128/16/8".
std::string label(const Parameters &parameters);

/// What differs between two: "elements_per_vector 8, hoist_rows 0".
std::string list_changes(const Parameters &from, const Parameters &to);

/// Every variant that differs from this one in numbers of these loops, the most alike first.
std::vector<Parameters> list_variants(const Space &space, const Parameters &from, const std::string &loops);

/// What one variant costs: for each shape, the seconds of each round.
using Samples = std::vector<std::vector<double>>;

/// Makes, checks and times the variants of one kernel. Throws Interrupted where the user wants to stop.
class Workshop {
public:
    static constexpr const char *not_tried = "not tried";

    virtual ~Workshop() = default;
    virtual std::vector<std::string> shapes() = 0;
    /// Makes variants, and returns for each why it can't be taken: it could not be made, or it computes something
    /// wrong. An empty sentence means that it can. After the time `until` no more are begun.
    virtual std::vector<std::string> make(const std::vector<Parameters> &variants, double until) = 0;
    /// Checks a variant that has been made more thoroughly. Returns what is wrong with it, or nothing.
    virtual std::string prove(const Parameters &variant) = 0;
    /// Times variants that have been made in turns. One may be named twice.
    virtual std::vector<Samples> measure(const std::vector<Parameters> &variants, const Effort &effort) = 0;
    virtual double now() = 0;
};

/// How many times as fast one variant is as another.
struct Comparison {
    double gain = 1.0;           // geometric mean over the shapes of the median over the rounds
    double noise = 0.0;          // what such a mean may be off by
    std::vector<double> shapes;  // gain of each

    /// Better beyond noise, and on no shape more than a little slower.
    bool is_better() const;
};

/// Compares times that were taken in the same rounds. `control` are further times of `base`: what differs there is
/// noise.
Comparison compare_samples(const Samples &base, const Samples &other, const Samples &control);

/// Searches for the best variant of a kernel until that time. It varies the numbers of the space that the kernel has,
/// one group of loops after the other, by successive halving. Returns what a schedule file holds, and `improved`.
/// Throws std::runtime_error where even the default can't be made.
nlohmann::json tune_kernel(Space space, const Parameters &defaults, Workshop &workshop, double until);

/// All kernels of a run, one after the other.
struct TuningRun {
    std::vector<std::pair<std::string, Parameters>> kernels;  // with their defaults
    Space space;
    double seconds;       // for all of them, with those that an interrupted run has finished
    std::string journal;  // the file that says what is finished
    nlohmann::json key;   // what a run that goes on must have in common with the one that was interrupted
    std::function<std::unique_ptr<Workshop>(const std::string &kernel)> open;
    std::function<double()> now;
    /// After each kernel that is finished here.
    std::function<void(const std::string &kernel, const nlohmann::json &result)> finish;
};

/// Returns the results by kernel, with those of kernels that had been finished before. Removes the journal in the end.
nlohmann::json tune_kernels(const TuningRun &run);

/// What was before and what is now, for readers.
std::string format_results(const nlohmann::json &results);

}  // namespace halyard::bench
