// The search for a better schedule: which variants are tried, how they are compared, and what is kept for a run that
// goes on after an interruption. What a variant is made of and how it is timed is a Workshop's.
#pragma once

#include "measure/measure.h"
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

/// What one variant costs: of each shape, a value for each round.
using Samples = std::vector<std::vector<double>>;

/// What makes, checks and times the variants of one kernel. Throws Interrupted where the user wants to stop.
class Workshop {
public:
    static constexpr const char *not_tried = "not tried";

    virtual ~Workshop() = default;
    virtual std::string unit() = 0;
    virtual std::vector<std::string> shapes() = 0;
    /// Why each variant can't be taken: it could not be made, or does not compute what it should. Empty: it can. After
    /// the time `until` no more are begun.
    virtual std::vector<std::string> make(const std::vector<Parameters> &variants, double until) = 0;
    /// A more thorough check of one that has been made.
    virtual std::string prove(const Parameters &variant) = 0;
    /// Times variants that have been made in turns. One may be named twice.
    virtual std::vector<Samples> measure(const std::vector<Parameters> &variants, const Effort &effort) = 0;
    virtual double now() = 0;
};

/// How many times as fast another variant is.
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

/// Searches for the best variant of a kernel until that time, in those numbers of the space that it has, by successive
/// halving over those of one group of loops after the other. Returns what a schedule file says of it, and `improved`.
/// Throws std::runtime_error where even the default can't be made.
nlohmann::json tune_kernel(Space space, const Parameters &defaults, Workshop &workshop, double until);

/// All kernels of a run, one after the other.
struct TuningRun {
    std::vector<std::pair<std::string, Parameters>> kernels;  // with their defaults
    Space space;
    double seconds;       // for all of them; those that are finished count
    std::string journal;  // the file that says what is finished
    nlohmann::json key;   // what a run that goes on must have in common with the one that was interrupted
    std::function<std::unique_ptr<Workshop>(const std::string &kernel)> open;
    std::function<double()> now;
    /// After each kernel that is finished here.
    std::function<void(const std::string &kernel, const nlohmann::json &result)> finish;
};

/// Results by kernel, also of those that had been finished before. The journal is gone in the end.
nlohmann::json tune_kernels(const TuningRun &run);

/// Before and after, for readers.
std::string format_results(const nlohmann::json &results);

}  // namespace halyard::bench
