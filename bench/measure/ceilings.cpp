#include "measure/ceilings.h"

#include "measure/share.h"
#include "rivals/ceiling.h"

namespace halyard::bench {

namespace {

/// Runs a loop on x and y of a slot: on all that lies there, or in place on the rotary columns of each head.
void run(const CeilingLoop &loop, const PlacedWork &placed, const halyard_executor *executor, std::size_t slot) {
    const Work &work = placed.work();
    const auto head = static_cast<std::size_t>(work.head_dim * work.element_bytes());
    const auto columns = static_cast<std::size_t>(work.rotary_dim * work.element_bytes());
    const std::size_t n_bytes = work.tensor_bytes();
    const bool dense = !work.in_place || columns == head;
    const std::size_t step = dense ? 64 : head;
    share(executor, static_cast<std::int64_t>((n_bytes + step - 1) / step), [&](std::int64_t first, std::int64_t last) {
        const std::size_t from = static_cast<std::size_t>(first) * step;
        const std::size_t n = std::min(n_bytes, static_cast<std::size_t>(last) * step) - from;
        loop.run({placed.x(slot) + from, placed.y(slot) + from, dense ? 1 : n / step, dense ? n : columns, step});
    });
}

bool sets_ceiling_of(const CeilingLoop &loop, const Work &work) {
    using Of = CeilingLoop::Of;
    const bool is_its_conversion =
        (loop.of == Of::f16 && work.type == dtype::f16) || (loop.of == Of::bf16 && work.type == dtype::bf16);
    return (work.in_place ? loop.in_place : loop.out_of_place) && (loop.of == Of::memory || is_its_conversion);
}

}  // namespace

void add_ceilings(std::vector<Subject> &subjects, PlacedWork &placed, const halyard_executor *executor) {
    for (const CeilingLoop &loop : ceiling_loops()) {
        if (sets_ceiling_of(loop, placed.work())) {
            subjects.push_back(
                make_subject(loop.name, loop.of == CeilingLoop::Of::memory ? "memory" : "conversion",
                             [&loop, &placed, executor] { run(loop, placed, executor, placed.next_slot()); }));
            subjects.back().n_threads = executor == nullptr ? 1 : executor->n_threads;
        }
    }
}

}  // namespace halyard::bench
