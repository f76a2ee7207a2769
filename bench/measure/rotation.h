// Halyard on a placed work: a plan, its angles, and views of every slot.
#pragma once

#include "measure/placed_work.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace halyard {
struct Kernel;
struct RowKernels;
}  // namespace halyard

namespace halyard::bench {

class Rotation {
public:
    /// A NULL target means the best one, a NULL executor one thread. The placed work's memory and the executor must
    /// outlive this.
    Rotation(const PlacedWork &placed, const char *target, const halyard_executor *executor)
        : Rotation(placed, target, executor, placed.work().angles) {}
    /// The same with another source of angles.
    Rotation(const PlacedWork &placed, const char *target, const halyard_executor *executor, std::int32_t angles);

    void run(std::size_t slot) const;
    /// The same by a bound run, which is made at the first call.
    void run_bound(std::size_t slot);
    /// Nothing but the calls of kernels that a bound run of one token makes, with its row ready. Needs
    /// makes_single_calls().
    void run_kernels(std::size_t slot) const;
    /// Whether a bound run is one call of a kernel for each tensor. Binds it.
    bool makes_single_calls();
    /// From now on calls this kernel wherever the plan chose one that serves the same. The kernel must outlive this.
    /// Returns whether the plan chose one anywhere.
    bool use(const Kernel &kernel);
    /// From now on makes rows with those of the kernels that are not NULL. Returns whether one of them makes this
    /// work's angles.
    bool use(const RowKernels &kernels);

    const char *target() const { return plan_.target(); }
    std::size_t plan_bytes() const;
    std::uint64_t angle_bytes() const { return angles_->info().bytes; }

private:
    std::shared_ptr<const angle_source> angles_;
    plan plan_;
    void bind();

    const halyard_executor *executor_;
    std::vector<std::int32_t> position_data_;
    struct Views {
        halyard_positions positions;
        halyard_tensor x[2], y[2];
    };
    std::vector<Views> views_;
    std::int32_t n_tensors_;
    bound_run bound_;
    const float *cos_rows_, *sin_rows_;  // made ready, a row for each token
};

}  // namespace halyard::bench
