#include "kv/rotation.h"

#include <cstring>

namespace halyard {

void bind_direct(const Program &program, int index, bool to_words, ProgramTensor *out) noexcept {
    const halyard_plan &plan = *program.plan;
    const TensorPlan &desc = plan.tensors[index];
    const std::optional<CacheDesc> &cache = kv_of(plan).tensors[index].cache;
    *out = program.tensors[index];
    std::int64_t steps_of_tokens = out->y.token | out->y.batch;
    if (to_words) {
        out->y = {0, 0, desc.head_dim, 1, 0, 0, desc.rotary_offset * desc.bytes, {0, 0}, {}};
        steps_of_tokens = desc.head_dim;
        out->in_place = false;
    } else if (cache) {
        std::int64_t element = 1;
        cache->is_linear(desc.head_dim, &element);
        out->y = {0,       0, out->n_heads > 1 ? cache->stride_head : 0,        element, 0, 0, desc.rotary_offset * element * desc.bytes,
                  {0, 0}, {}};
        steps_of_tokens = cache->stride_block | cache->stride_tile_tokens | cache->stride_token;  // any sum of these
        out->within_int32 = false;
    }
    const Side &in = out->in();
    const std::int64_t steps = in.batch | in.token | in.head | steps_of_tokens | out->y.head;
    const Layout layout = in.element != 1 || out->y.element != 1 ? Layout::strided
                          : (steps & 1) == 0                     ? Layout::even
                                                                 : Layout::dense;
    out->kernel = &desc.kernel(out->in_place ? Place::in_place : Place::out_of_place, layout);
    const std::int64_t n_pairs = plan.rotary_dim / 2;
    set_view(*out->kernel, desc.out_pairing, n_pairs, out->n_heads, 1, out->y);
    if (!out->in_place) {
        set_view(*out->kernel, desc.pairing, n_pairs, out->n_heads, 1, out->x);
    }
}

void rotate_block(const KvCall &call, Block &block) noexcept {
    const TensorPlan &desc = call.desc(block);
    const std::int64_t rotary_dim = call.plan().rotary_dim;
    const bool converts = desc.pairing != desc.out_pairing;  // then windows are rotated into `spare` and copied back
    const Kernel &kernel = *call.stages(block).in_blocks;
    Side in = {}, out = {};
    in.token = block.strides.token;
    in.head = block.strides.head;
    out.token = converts ? block.n_heads * rotary_dim : in.token;
    out.head = converts ? rotary_dim : in.head;
    in.element = out.element = 1;
    set_view(kernel, desc.pairing, rotary_dim / 2, block.n_heads, block.n_tokens, in);
    set_view(kernel, desc.out_pairing, rotary_dim / 2, block.n_heads, block.n_tokens, out);
    float *const window = block.work->floats + desc.rotary_offset, *const spare = block.work->spare;
    call_kernel(kernel, call.plan().sin_sign, *block.rows, block.row_of_token, block.n_tokens, !converts,
                {window, in.dims}, {converts ? spare : window, out.dims});
    for (std::int64_t t = 0; t < block.n_tokens && converts; t++) {
        for (std::int64_t h = 0; h < block.n_heads; h++) {
            std::memcpy(window + t * in.token + h * in.head, spare + t * out.token + h * out.head,
                        static_cast<std::size_t>(rotary_dim) * sizeof(float));
        }
    }
}

void rotate_to_output(const KvCall &call, Block &block) noexcept {
    for_each_stretch(call, block, [&](const Stretch &stretch) {
        rotate(call.plan(), call.desc(block), call.kv.tensors[block.index].direct, stretch, block.rows, false);
    });
}

void rotate_to_words(const KvCall &call, Block &block) noexcept {
    rotate(call.plan(), call.desc(block), call.kv.tensors[block.index].direct, words_of(call, block), block.rows,
           false);
}

}  // namespace halyard
