// Something that is timed: calls of it in this process, as many as are asked for.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace halyard::bench {

/// Seconds of a clock that never goes back.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Subject {
    std::string name, kind;
    std::function<double(long n_calls)> seconds_for;
    double max_error = 0.0;
    bool wrong = false;
    int n_threads = 1;
};

/// The loop is made for the call, so that a call of some nanoseconds is not timed with one by a pointer.
template <typename Call>
Subject make_subject(std::string name, std::string kind, Call call) {
    return {std::move(name), std::move(kind), [call = std::move(call)](long n_calls) mutable {
                const double start = now();
                for (long i = 0; i < n_calls; i++) {
                    call();
                }
                return now() - start;
            }};
}

}  // namespace halyard::bench
