// Times several things on a noisy machine: they take turns in every round, in an order that changes, and medians over
// the rounds are compared.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace halyard::bench {

/// Something to time.
struct Subject {
    std::string name;
    std::function<double(long n_calls)> seconds_for;  // negative when it can't be called any more
    std::vector<double> seconds = {};  // for one call, a value for each round; empty when it could not be called
};

/// A subject that is a call in this process.
template <typename Call>
Subject make_subject(std::string name, Call call);

/// Median, half the range between the quartiles, and the fastest round, in seconds.
struct Timing {
    double median = 0.0;
    double spread = 0.0;
    double fastest = 0.0;

    double relative_spread() const { return median > 0.0 ? spread / median : 0.0; }
};

Timing summarise(std::vector<double> seconds);

struct Effort {
    int n_rounds;
    double seconds_each;  // the least that one subject is given in one round
};
inline constexpr Effort quick = {9, 1e-3};
inline constexpr Effort thorough = {11, 4e-3};

/// Times every subject in each round, after one that is not counted. A subject whose single call takes more than
/// twenty times its share sits out all rounds but three.
void measure(std::vector<Subject> &subjects, const Effort &effort);

/// Keeps this thread, and the processes that it starts, on the last CPU that it may use, so that rivals in two
/// processes share one core's caches; or lets it use all CPUs again that it could use at the start. Returns whether
/// this changed anything.
bool pin_to_one_cpu(bool pinned);

double now();  // seconds of a clock that never goes back

template <typename Call>
Subject make_subject(std::string name, Call call) {
    return {std::move(name), [call = std::move(call)](long n_calls) mutable {
                const double start = now();
                for (long i = 0; i < n_calls; i++) {
                    call();
                }
                return now() - start;
            }};
}

}  // namespace halyard::bench
