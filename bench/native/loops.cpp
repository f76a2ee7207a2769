// The C loops and ceilings of ../rivals on a work.
#include "native/work.h"
#include "rivals/loops.h"

#include <algorithm>

namespace bench {

namespace {

/// Calls part(first, last) for shares of n things, on all threads of an executor; with none on this thread.
template <typename Part>
void share(const halyard_executor *executor, std::int64_t n, const Part &part) {
    if (executor == nullptr) {
        return part(0, n);
    }
    struct Shared {
        std::int64_t n, n_tasks;
        const Part &part;
    } shared = {n, executor->n_threads, part};
    executor->parallel_for(
        executor->context, shared.n_tasks,
        [](void *data, std::int64_t i) {
            const auto &all = *static_cast<const Shared *>(data);
            all.part(all.n * i / all.n_tasks, all.n * (i + 1) / all.n_tasks);
        },
        &shared);
}

/// On all that lies in x and y, or in place on the rotary columns of each head.
std::unique_ptr<bench_subject> make_ceiling(bench_work &work, halyard_ceiling_loop *run, const halyard_executor *executor) {
    const auto head = static_cast<std::size_t>(work.desc.parts[0].head_dim * bytes_of(work.desc.dtype));
    const auto columns = static_cast<std::size_t>(work.desc.rotary_dim * bytes_of(work.desc.dtype));
    const bool dense = !work.desc.in_place || columns == head;
    return make_subject(work, [&work, executor, run, n_bytes = work.tensor_bytes(), dense, columns,
                               step = dense ? 64 : head,
                               stride = static_cast<std::int64_t>(head)](std::size_t copy) {
        share(executor, static_cast<std::int64_t>((n_bytes + step - 1) / step), [&](std::int64_t first, std::int64_t last) {
            const std::size_t from = static_cast<std::size_t>(first) * step;
            const std::size_t n = std::min(n_bytes, static_cast<std::size_t>(last) * step) - from;
            const auto n_rows = static_cast<std::int64_t>(dense ? 1 : n / step);
            const auto row_bytes = static_cast<std::int64_t>(dense ? n : columns);
            run(work.x(copy) + from, work.y(copy) + from, n_rows, row_bytes, dense ? row_bytes : stride);
        });
    });
}

std::unique_ptr<bench_subject> make_rotation(bench_work &work, const halyard_loops &loops,
                                             const halyard_executor *executor) {
    const bench_desc &desc = work.desc;
    const int out = work.is_half_out() ? 0 : 1;
    const int which = desc.in_place ? 4 + out : desc.pairing == desc.out_pairing ? out : 3 - out;
    halyard_loop *const rotate = loops.rotate[desc.dtype - HALYARD_F32][which];
    const std::int64_t n = desc.tokens, head_dim = desc.parts[0].head_dim;
    const halyard_executor *const used = executor != nullptr && n >= executor->n_threads ? executor : nullptr;
    return make_subject(work, [&work, rotate, used, n, head_dim,
                               n_heads = desc.row_elements / head_dim](std::size_t copy) {
        share(used, n, [&](std::int64_t first, std::int64_t last) {
            const std::int64_t at = first * work.desc.row_elements * bytes_of(work.desc.dtype);
            const float *const cos = work.at<float>(work.layout.cos) + first * work.desc.rotary_dim / 2;
            const float *const sin = work.at<float>(work.layout.sin) + first * work.desc.rotary_dim / 2;
            rotate(work.x(copy) + at, work.y(copy) + at, cos, sin, last - first, n_heads, head_dim,
                   work.desc.rotary_dim);
        });
    });
}

int storage_of(const bench_work &work, std::int64_t p) {
    const std::int64_t dtype = work.stored_type(p);
    return work.is_by_column(p)       ? HALYARD_LOOP_BF16_BY_COLUMN
           : is_records(dtype)        ? (work.desc.hadamard ? HALYARD_LOOP_Q8_0_HADAMARD : HALYARD_LOOP_Q8_0)
           : dtype == HALYARD_E4M3 ? HALYARD_LOOP_E4M3
                                      : HALYARD_LOOP_BF16;
}

/// Of the KV path or a shift.
std::unique_ptr<bench_subject> make_kv(bench_work &work, const halyard_loops &loops) {
    const bench_desc &desc = work.desc;
    struct Call {
        halyard_kv_loop *loop;
        halyard_kv_part part;
        char *y;
    };
    std::vector<Call> calls;
    for (std::int64_t p = 0; p < desc.n_parts; p++) {
        const bench_part &part = desc.parts[p];
        halyard_kv_part call = {};
        call.x = work.at<std::uint16_t>(work.layout.x[p].at);
        call.stride_token = desc.row_elements;
        call.stride_head = part.stride_head;
        call.heads = part.heads;
        call.head_dim = part.head_dim;
        call.rotary_dim = part.rotates ? desc.rotary_dim : 0;
        call.rotary_offset = part.rotary_offset;
        call.norm_size = part.norm_size;
        call.weight = work.at<std::uint16_t>(work.layout.weight[p]);
        call.weight_offset = desc.unit_offset ? 1.0f : 0.0f;
        call.slots = part.is_cached ? work.at<std::int64_t>(work.layout.slots) : nullptr;
        call.r = 1.0f / scale;
        call.tokens = desc.tokens;
        call.cos = work.at<float>(work.layout.cos);
        call.sin = work.at<float>(work.layout.sin);
        call.eps = eps;
        call.page_size = page_size;
        const int way = work.is_shift() ? HALYARD_LOOP_SHIFT : work.is_half() ? HALYARD_LOOP_HALF : HALYARD_LOOP_INTERLEAVED;
        calls.push_back({loops.kv[storage_of(work, p)][way], call, work.at<char>(work.layout.y[p].at)});
    }
    return make_subject(work, [calls, step = work.layout.step,
                               n = static_cast<std::size_t>(desc.layers)](std::size_t) mutable {
        for (std::size_t layer = 0; layer < n; layer++) {
            for (Call &call : calls) {
                call.part.y = call.y + layer * step;
                call.loop(&call.part);
            }
        }
    });
}

}  // namespace

const std::vector<std::pair<std::string, const halyard_loops *>> &all_loops() {
    static const std::vector<std::pair<std::string, const halyard_loops *>> all = {
#ifdef HALYARD_LOOPS_GCC
        {"gcc", &halyard_loops_gcc},
#endif
#ifdef HALYARD_LOOPS_CLANG
        {"clang", &halyard_loops_clang},
#endif
    };
    return all;
}

std::unique_ptr<bench_subject> make_loop(bench_work &work, const std::string &way, const halyard_executor *executor) {
    const bench_desc &desc = work.desc;
    for (const auto &[compiler, loops] : all_loops()) {
        if (way == compiler) {
            return desc.n_slots > 0 ? make_kv(work, *loops) : make_rotation(work, *loops, executor);
        }
    }
    // Of ceilings one compiler's: their vectors are written out.
    const auto n_ceilings = all_loops().empty() ? 0 : HALYARD_CEILINGS;
    for (int i = 0; i < n_ceilings; i++) {
        const halyard_ceiling &each = all_loops().front().second->ceilings[i];
        if (each.loop != nullptr && way == each.name && (each.dtype == 0 || each.dtype == desc.dtype) &&
            (desc.in_place ? each.in_place : each.out_of_place)) {
            return make_ceiling(work, each.loop, executor);
        }
    }
    return nullptr;
}

}  // namespace bench
