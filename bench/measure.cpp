#include "measure.h"

#include <algorithm>
#include <chrono>

namespace halyard::bench {

namespace {

double seconds_for(const Subject &subject, long n_calls) {
    const auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < n_calls; i++) {
        subject.call();
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Timing summarise(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const auto quantile = [&](double q) {
        return seconds[static_cast<std::size_t>(q * static_cast<double>(seconds.size() - 1) + 0.5)];
    };
    return {quantile(0.5), (quantile(0.75) - quantile(0.25)) / 2.0};
}

void measure(std::vector<Subject *> subjects, int n_rounds, double seconds_each) {
    std::vector<long> n_calls(subjects.size(), 1);
    for (std::size_t i = 0; i < subjects.size(); i++) {
        double seconds = seconds_for(*subjects[i], n_calls[i]);
        while (seconds < seconds_each) {
            n_calls[i] *= 2;
            seconds = seconds_for(*subjects[i], n_calls[i]);
        }
    }
    for (int round = 0; round < n_rounds; round++) {
        for (std::size_t i = 0; i < subjects.size(); i++) {
            // A quarter of the time warms caches and clocks up again after the subject before.
            seconds_for(*subjects[i], n_calls[i] / 4);
            subjects[i]->seconds.push_back(seconds_for(*subjects[i], n_calls[i]) / static_cast<double>(n_calls[i]));
        }
    }
}

}  // namespace halyard::bench
