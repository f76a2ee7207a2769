// A library of Halyard that was opened by its name: the functions of halyard.h by pointers.
#pragma once

#include "native/native.h"

#include <halyard/halyard_kv.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#define BENCH_FUNCTIONS(X)                                                                                             \
    X(version)                                                                                                         \
    X(create_frequencies_from_base)                                                                                    \
    X(destroy_frequencies) X(create_angle_source) X(destroy_angle_source) X(create_plan) X(get_plan_target)            \
        X(destroy_plan) X(run) X(bind_run) X(run_bound) X(destroy_bound_run) X(get_target_count) X(get_target_info)

namespace bench {

/// Why something can't be done, in a sentence.
struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <typename Struct>
Struct make_struct() {
    Struct made = {};
    made.size = sizeof(Struct);
    return made;
}

using Angles = std::shared_ptr<const halyard_angle_source>;

}  // namespace bench

struct bench_library {
    explicit bench_library(const std::string &path);
    bench_library(const bench_library &) = delete;
    bench_library &operator=(const bench_library &) = delete;
    ~bench_library();

    /// Throws bench::Failed where a call failed.
    void need(halyard_status status, const halyard_error &error) const;
    /// Calls a function that makes something, and has what it made destroyed in time.
    template <typename Made, typename Create, typename... Arguments>
    std::shared_ptr<Made> make(void (*destroy)(Made *), Create create, const Arguments &...arguments) const {
        Made *made = nullptr;
        auto error = bench::make_struct<halyard_error>();
        need(create(arguments..., &made, &error), error);
        return {made, destroy};
    }
    /// Those of the base 10000. The last of each kind is kept, as a model's layers would share it.
    bench::Angles angles(std::int32_t kind, std::int64_t rotary_dim, std::int32_t first, std::int32_t last);

    std::string path, targets;
#define X(name) decltype(&halyard_##name) name;
    BENCH_FUNCTIONS(X)
#undef X

private:
    using Range = std::tuple<std::int64_t, std::int32_t, std::int32_t>;
    void *object_;
    std::map<std::int32_t, std::pair<Range, bench::Angles>> angles_;
};
