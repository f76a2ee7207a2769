// Timing that holds on a noisy machine: all rows take turns in every round, and medians over the rounds are compared.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace halyard::bench {

/// Something to time.
struct Subject {
    std::function<void()> call;
    std::vector<double> seconds;  // for one call, one value a round
};

/// Median and half the range between the quartiles, in seconds.
struct Timing {
    double median = 0.0;
    double spread = 0.0;
};

Timing summarise(std::vector<double> seconds);

/// Times every subject for at least seconds_each in each of n_rounds rounds, after one round that is not counted.
void measure(std::vector<Subject *> subjects, int n_rounds, double seconds_each);

}  // namespace halyard::bench
