// The C loops and ceilings of ../rivals on a work.
#include "rivals/loops.h"
#include "native/work.h"

namespace bench {

namespace {

/// On all that lies in x and y, or in place on the rotary columns of each head.
std::unique_ptr<bench_subject> make_ceiling(bench_work &work, halyard_ceiling_loop *run) {
    const std::int64_t head = work.desc.parts[0].head_dim * bytes_of(work.desc.dtype);
    const std::int64_t columns = work.desc.rotary_dim * bytes_of(work.desc.dtype);
    const auto n_bytes = static_cast<std::int64_t>(work.tensor_bytes());
    const bool dense = !work.desc.in_place || columns == head;
    return make_subject(work, [&work, run, n_rows = dense ? 1 : n_bytes / head, row = dense ? n_bytes : columns,
                               stride = dense ? n_bytes : head](std::size_t copy) {
        run(work.x(copy), work.y(copy), n_rows, row, stride);
    });
}

std::unique_ptr<bench_subject> make_rotation(bench_work &work, const halyard_loops &loops) {
    const bench_desc &desc = work.desc;
    const int out = work.is_half_out() ? 0 : 1;
    const int which = desc.in_place ? 4 + out : desc.pairing == desc.out_pairing ? out : 3 - out;
    const std::int64_t head_dim = desc.parts[0].head_dim;
    return make_subject(work, [&work, rotate = loops.rotate[desc.dtype - HALYARD_F32][which], head_dim,
                               n_heads = desc.row_elements / head_dim](std::size_t copy) {
        rotate(work.x(copy), work.y(copy), work.at<float>(work.layout.cos), work.at<float>(work.layout.sin),
               work.desc.tokens, n_heads, head_dim, work.desc.rotary_dim);
    });
}

int storage_of(const bench_work &work, std::int64_t p) {
    const std::int64_t dtype = work.desc.parts[p].is_cached ? work.desc.cache : work.desc.dtype;
    return is_records(dtype)       ? (work.desc.hadamard ? HALYARD_LOOP_Q8_0_HADAMARD : HALYARD_LOOP_Q8_0)
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
        const int way = work.is_shift()  ? HALYARD_LOOP_SHIFT
                        : work.is_half() ? HALYARD_LOOP_HALF
                                         : HALYARD_LOOP_INTERLEAVED;
        calls.push_back({loops.kv[storage_of(work, p)][way], call, work.at<char>(work.layout.y[p].at)});
    }
    return make_subject(work, [calls, step = work.layout.step](std::size_t copy) mutable {
        for (Call &call : calls) {
            call.part.y = call.y + copy * step;
            call.loop(&call.part);
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

std::unique_ptr<bench_subject> make_loop(bench_work &work, const std::string &way) {
    const bench_desc &desc = work.desc;
    for (const auto &[compiler, loops] : all_loops()) {
        if (way == compiler) {
            return desc.n_slots > 0 ? make_kv(work, *loops) : make_rotation(work, *loops);
        }
    }
    // Of ceilings one compiler's: their vectors are written out.
    const auto n_ceilings = all_loops().empty() ? 0 : HALYARD_CEILINGS;
    for (int i = 0; i < n_ceilings; i++) {
        const halyard_ceiling &each = all_loops().front().second->ceilings[i];
        if (each.loop != nullptr && way == each.name && (each.dtype == 0 || each.dtype == desc.dtype) &&
            (desc.in_place ? each.in_place : each.out_of_place)) {
            return make_ceiling(work, each.loop);
        }
    }
    return nullptr;
}

}  // namespace bench
