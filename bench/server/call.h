// Halyard on a placed work: one run, by itself or bound.
#pragma once

#include "server/placed.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace halyard {
struct Kernel;
struct RowKernels;
}  // namespace halyard

namespace halyard::bench {

/// What is done to the parts that ask for it.
struct Stages {
    bool norm = true, rotation = true, store = true;
};
inline constexpr Stages no_stages = {false, false, false};

class Call {
public:
    struct How {
        std::string target;  // empty: the best one
        const halyard_executor *executor = nullptr;
        std::int32_t angles = HALYARD_ANGLES_TABLE;
        Stages stages = {}, done = no_stages;  // by this call, and by others before it
    };
    /// The placed work's memory and the executor must outlive this.
    Call(const Placed &placed, const How &how);
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    void run(std::size_t copy) const;
    void run_bound(std::size_t copy) const;
    /// Nothing but the calls of kernels that a bound run of one token makes, with its row ready. Needs
    /// makes_single_calls().
    void run_kernels(std::size_t copy) const;
    /// Whether a bound run is one call of a kernel for each tensor.
    bool makes_single_calls() const;
    /// From now on run() calls this kernel wherever the plan chose one that serves the same. The kernel must outlive
    /// this. Returns whether the plan chose one anywhere.
    bool use(const Kernel &kernel);
    /// From now on makes rows with those of the kernels that are not NULL. Returns whether one of them makes this
    /// work's angles.
    bool use(const RowKernels &kernels);

    const char *target() const { return plan_.target(); }

private:
    static constexpr int most_tensors = 3;
    /// A run's tensors in one copy.
    struct Views {
        halyard_positions positions;
        halyard_tensor x[most_tensors], y[most_tensors];
        void *caches[most_tensors];
    };
    /// What the plan's descriptions point to until it is made.
    struct Descs {
        std::vector<halyard_tensor_desc> tensors;
        halyard_norm_desc norms[most_tensors];
        halyard_cache_desc caches[most_tensors];
        halyard_scale_desc scale = describe_static_scales();
        halyard_groups_desc groups = describe_groups(HALYARD_GROUPS_GGML_Q8_0);
    };

    void add(const Placed &placed, const How &how, std::size_t p, Descs &descs);
    Views view(const Placed &placed, const How &how, std::size_t copy) const;
    void bind(const Placed &placed);

    std::shared_ptr<const angle_source> angles_;
    const halyard_executor *executor_;
    plan plan_;
    bool brings_stages_;
    std::vector<std::size_t> parts_;  // those of the work that are this run's tensors
    bool rotates_ = false, stores_ = false;
    std::vector<std::int32_t> position_data_;
    std::int64_t from_, to_ = 0;  // of a shift
    halyard_positions from_positions_;
    halyard_slots slots_;
    std::vector<halyard_stages> stages_;
    std::vector<const void *> weights_;
    std::vector<const float *> scales_;
    std::vector<Views> views_;
    bound_run bound_;
    const float *cos_rows_, *sin_rows_;  // made ready, a row for each token
};

}  // namespace halyard::bench
