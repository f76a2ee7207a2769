#include "measure/timing.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <tuple>
#include <utility>

namespace halyard::bench {

Timing summarise(std::vector<double> seconds) {
    if (seconds.empty()) {
        return {};
    }
    std::sort(seconds.begin(), seconds.end());
    const auto quantile = [&](double q) {
        return seconds[static_cast<std::size_t>(q * static_cast<double>(seconds.size() - 1) + 0.5)];
    };
    return {quantile(0.5), (quantile(0.75) - quantile(0.25)) / 2.0, seconds.front()};
}

namespace {

/// Finds how many calls take at least that long, and how long they take; negative when they can't be made. One
/// interruption must not make too few calls look enough: a single call after another subject's is not a hot one.
std::pair<long, double> find_n_calls(const Subject &subject, double seconds_each) {
    long n_calls = 1;
    for (int n_long_enough = 0;;) {
        const double seconds = subject.seconds_for(n_calls);
        if (seconds < 0.0) {
            return {n_calls, seconds};
        }
        if (seconds < seconds_each) {
            n_calls *= 2;
            n_long_enough = 0;
        } else if (++n_long_enough == 3) {
            return {n_calls, seconds};
        }
    }
}

}  // namespace

void measure(std::vector<Subject> &subjects, const Effort &effort) {
    std::vector<long> n_calls(subjects.size(), 1);
    std::vector<int> n_rounds(subjects.size(), effort.n_rounds);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < subjects.size(); i++) {
        subjects[i].seconds.clear();
        double seconds = 0.0;
        std::tie(n_calls[i], seconds) = find_n_calls(subjects[i], effort.seconds_each);
        if (seconds > 20 * effort.seconds_each) {
            n_rounds[i] = std::min(3, effort.n_rounds);
        }
        if (seconds >= 0.0) {
            order.push_back(i);
        }
    }
    std::minstd_rand random(1);
    for (int round = 0; round < effort.n_rounds; round++) {
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t i : order) {
            Subject &subject = subjects[i];
            if (round >= n_rounds[i]) {
                continue;
            }
            // The subject before has cooled caches and clocks down: a quarter of the time warms them up again.
            const double warm = n_calls[i] < 4 ? 0.0 : subject.seconds_for(n_calls[i] / 4);
            const double seconds = warm < 0.0 ? warm : subject.seconds_for(n_calls[i]);
            if (seconds < 0.0) {
                subject.seconds.clear();
                n_rounds[i] = 0;
                continue;
            }
            subject.seconds.push_back(seconds / static_cast<double>(n_calls[i]));
        }
    }
}

bool pin_to_one_cpu(bool pinned) {
    static bool is_pinned = false;
    static const cpu_set_t all = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof(set), &set);
        return set;
    }();
    if (pinned == is_pinned) {
        return false;
    }
    is_pinned = pinned;
    cpu_set_t set = all;
    if (pinned) {
        int last = 0;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            last = CPU_ISSET(cpu, &all) ? cpu : last;
        }
        CPU_ZERO(&set);
        CPU_SET(last, &set);
    }
    sched_setaffinity(0, sizeof(set),
                      &set);  // where this is not allowed, timings are noisier, and nothing else is wrong
    return true;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace halyard::bench
