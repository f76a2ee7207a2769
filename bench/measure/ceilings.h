// The ceilings of a work: what memory allows, and for 16-bit elements what converting them allows.
#pragma once

#include "measure/placed_work.h"
#include "measure/timing.h"

#include <map>
#include <string>
#include <vector>

namespace halyard::bench {

/// The fastest of the loops that set a ceiling.
struct Ceiling {
    std::string name;
    Timing timing;  // all zero where there is none
};

struct Ceilings {
    Ceiling memory, conversion;
    std::map<std::string, double> seconds;  // the median of each loop

    bool is_lower_by_conversion() const { return conversion.timing.median > memory.timing.median; }
    /// The one that takes longer, by which a row is judged.
    const Timing &lower() const { return is_lower_by_conversion() ? conversion.timing : memory.timing; }
};

/// Adds all loops that set a ceiling of a work to what is timed, on all threads of an executor if there is one.
void add_ceilings(std::vector<Subject> &subjects, PlacedWork &placed, const halyard_executor *executor);

/// The best loops among subjects that were timed, for each ceiling. Subjects that are none of the loops don't count.
Ceilings find_ceilings(const std::vector<Subject> &subjects);

}  // namespace halyard::bench
