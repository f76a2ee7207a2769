// Halyard on a cell: a plan, its angles and views of every slot.
#pragma once

#include "measure/cell.h"

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
    /// target may be NULL: the best one. Keeps the cell's work and memory, and the executor (NULL: one thread).
    Rotation(const Cell &cell, const char *target, const halyard_executor *executor);

    void run(std::size_t slot) const;
    /// From now on calls this kernel, which must outlive it, wherever the plan chose one that serves the same. Returns
    /// whether it did.
    bool use(const Kernel &kernel);
    /// From now on makes rows with those of them that are not NULL. Whether the cell's angles are made by one of them.
    bool use(const RowKernels &kernels);

    const char *target() const { return plan_.target(); }
    std::size_t plan_bytes() const;
    std::uint64_t angle_bytes() const { return angles_->info().bytes; }

private:
    std::shared_ptr<const angle_source> angles_;
    plan plan_;
    const halyard_executor *executor_;
    std::vector<std::int32_t> position_data_;
    halyard_positions positions_;
    struct Views {
        halyard_tensor x, y;
    };
    std::vector<Views> views_;
};

}  // namespace halyard::bench
