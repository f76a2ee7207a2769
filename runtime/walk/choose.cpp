#include "walk/choose.h"

#include "base/storage.h"

#include <cstdint>

namespace halyard {

namespace {

/// Whether all heads and their halves begin on a cache line: then a kernel stores whole lines.
bool is_on_cache_lines(const TensorDesc &desc, const RunTensor &tensor, std::int64_t rotary_dim) {
    const std::int64_t half = desc.out_pairing == Pairing::half ? rotary_dim / 2 : 0;
    const std::int64_t steps =
        tensor.out.batch | tensor.out.token | tensor.out.head | half | (desc.rotary_offset * tensor.out.element);
    const auto bits = static_cast<std::uintptr_t>(steps * element_bytes(desc.out_dtype));
    return ((reinterpret_cast<std::uintptr_t>(tensor.y) | bits) & 63) == 0;
}

}  // namespace

const Kernel &choose_kernel(const Run &run, int index, const RunTensor &tensor, std::int64_t out_token,
                            Place place) noexcept {
    const RunTensor::Strides &in = tensor.in, &out = tensor.out;
    Layout layout = Layout::strided;
    if (in.element == 1 && out.element == 1) {
        // A kernel may read a word of two elements at any address, so only the strides from head to head must be even.
        const std::int64_t steps = in.batch | in.token | in.head | out.batch | out_token | out.head;
        layout = (steps & 1) == 0 ? Layout::even : Layout::dense;
    }
    return plan_of(run).chosen[index].kernel(place, layout);
}

void choose_kernels(Run &run) noexcept {
    const halyard_plan &plan = plan_of(run);
    for (int i = 0; i < plan.n_tensors; i++) {
        RunTensor &tensor = run.tensors[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        std::int64_t out_token = tensor.out.token;
        if (const auto &cache = plan.tensors[i].cache; !plan.only_rotates && cache) {
            out_token = cache->stride_block | cache->stride_tile_tokens | cache->stride_token;  // any sum of these
        }
        tensor.non_temporal = false;
        tensor.kernel =
            &choose_kernel(run, i, tensor, out_token, tensor.in_place ? Place::in_place : Place::out_of_place);
    }
    if (may_be_non_temporal(run)) {
        choose_non_temporal(run);
    }
}

/// Has outputs stored non-temporally if together they are as large as a kernel says. Such outputs would evict each
/// other from the caches anyway, and a non-temporal store does not read a line before it overwrites it. f32 4096 x 40 x
/// 128 takes .72 of the time. With a reader of the whole output behind it, it takes 1.11 at 8 MiB, .89 at 16, .87 at 32
/// and .76 at 128 (half, AVX2; Zen 4, 32 MiB of third-level cache, 2026-11).
void choose_non_temporal(Run &run) noexcept {
    std::uintptr_t written = 0;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        if (run.tensors[i].n_heads > 0 && !run.tensors[i].in_place) {
            std::uintptr_t n_bytes = static_cast<std::uintptr_t>(element_bytes(desc.out_dtype));
            for (const std::int64_t n : {run.n_batch, run.n_tokens, run.tensors[i].n_heads, desc.head_dim}) {
                n_bytes *= static_cast<std::uintptr_t>(n);
            }
            written += n_bytes;
        }
    }
    const std::uintptr_t n_mib = written >> 20;
    for (int i = 0; i < run.plan->n_tensors; i++) {
        const TensorDesc &desc = run.plan->tensors[i];
        RunTensor &tensor = run.tensors[i];
        if (tensor.n_heads == 0 || tensor.in_place || desc.is_staged || desc.cache) {
            continue;
        }
        const Kernel &kernel = choose_kernel(run, i, tensor, tensor.out.token, Place::non_temporal);
        tensor.non_temporal = n_mib >= static_cast<std::uintptr_t>(kernel.non_temporal_mib) &&
                              is_on_cache_lines(desc, tensor, run.plan->rotary_dim);
        tensor.kernel =
            tensor.non_temporal ? &kernel : &choose_kernel(run, i, tensor, tensor.out.token, Place::out_of_place);
    }
}

}  // namespace halyard
