#include "server/ceilings.h"

#include "rivals/ceiling.h"
#include "server/loops.h"

namespace halyard::bench {

namespace {

/// Runs a loop on x and y of a copy: on all that lies there, or in place on the rotary columns of each head.
void run(const CeilingLoop &loop, const Placed &placed, const halyard_executor *executor, std::size_t copy) {
    const Work &work = placed.work();
    const auto head = static_cast<std::size_t>(work.parts[0].head_dim * bytes_of(work.type));
    const auto columns = static_cast<std::size_t>(work.rotary_dim * bytes_of(work.type));
    const std::size_t n_bytes = work.tensor_bytes();
    const bool dense = !work.in_place || columns == head;
    const std::size_t step = dense ? 64 : head;
    share(executor, static_cast<std::int64_t>((n_bytes + step - 1) / step), [&](std::int64_t first, std::int64_t last) {
        const std::size_t from = static_cast<std::size_t>(first) * step;
        const std::size_t n = std::min(n_bytes, static_cast<std::size_t>(last) * step) - from;
        loop.run({placed.x(copy) + from, placed.y(copy) + from, dense ? 1 : n / step, dense ? n : columns, step});
    });
}

bool sets_ceiling_of(const CeilingLoop &loop, const Work &work) {
    using Of = CeilingLoop::Of;
    const bool is_its_conversion =
        (loop.of == Of::f16 && work.type == dtype::f16) || (loop.of == Of::bf16 && work.type == dtype::bf16);
    return (work.in_place ? loop.in_place : loop.out_of_place) && (loop.of == Of::memory || is_its_conversion);
}

}  // namespace

void add_ceilings(std::vector<Subject> &subjects, Placed &placed, const halyard_executor *executor) {
    for (const CeilingLoop &loop : ceiling_loops()) {
        if (sets_ceiling_of(loop, placed.work())) {
            subjects.push_back(
                make_subject(loop.name, loop.of == CeilingLoop::Of::memory ? "memory" : "conversion",
                             [&loop, &placed, executor] { run(loop, placed, executor, placed.next_copy()); }));
            subjects.back().n_threads = executor == nullptr ? 1 : executor->n_threads;
        }
    }
}

}  // namespace halyard::bench
