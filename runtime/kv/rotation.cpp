// The rotation as a step: on a block of floats, or without a block from x to y, to a cache or to words.
#include "kv/block.h"

#include <cstring>

namespace halyard {

void bind_direct(const Program &program, int index, bool to_words, KvTensorProgram *of) noexcept {
    const halyard_plan &plan = *program.plan;
    const TensorPlan &tensor_plan = plan.tensors[index];
    const TensorProgram &tensor = program.tensors[index];
    const KvTensorPlan &stages = kv_of(plan).tensors[index];
    const std::optional<CacheDesc> &cache = stages.cache;
    const Reach &in_cache = of->arrays[static_cast<int>(Array::cache)].reach;
    TensorProgram *const out = &of->direct;
    out->n_heads = tensor.n_heads;
    out->in_place = tensor.in_place;  // which is false if to_words
    out->within_int32 =
        tensor.within_int32 && (to_words || !cache || in_cache.n_bytes() <= static_cast<std::uintptr_t>(max_offset));
    // Copies only the strides and the window of x or y, because copying a whole Side would cost a run some nanoseconds;
    // set_kernel_dims below sets the rest.
    const auto copy_side = [](const Side &from, Side &to) {
        to.batch = from.batch;
        to.token = from.token;
        to.head = from.head;
        to.element = from.element;
        to.window = from.window;
    };
    std::int64_t steps_of_tokens = tensor_plan.head_dim, out_token = tensor_plan.head_dim * out->n_heads;
    if (tensor_plan.reads_x) {
        copy_side(tensor.x, out->x);
    }
    if (to_words) {
        out->y.head = tensor_plan.head_dim;
        out->y.element = 1;
    } else if (cache) {
        out->y.element = cache->spacing;
        out->y.head = out->n_heads > 1 ? cache->stride_head : 0;
        steps_of_tokens = cache->stride_block | cache->stride_tile_tokens | cache->stride_token;  // and sums of these
        out_token = cache->stride_token;
    } else {
        copy_side(tensor.y, out->y);
        steps_of_tokens = out->y.token | out->y.batch;
        out_token = out->y.token;
    }
    const Side &in = out->in_place ? out->y : out->x;
    out->kernel = tensor_plan.kernels[0][0];  // norm_rotate and copies use none
    out->halve = 0;
    if (tensor_plan.rotates && !stages.norm) {
        const std::int64_t of_input = out->in_place ? 0 : in.batch | in.token | in.head;
        const Layout layout = choose_layout(in.element, out->y.element, of_input | steps_of_tokens | out->y.head);
        out->kernel = &tensor_plan.kernel(out->in_place ? Place::in_place : Place::out_of_place, layout);
        out->halve = out->kernel->packed ? 1 : 0;
    }
    if (tensor_plan.rotates) {
        const std::int64_t n_pairs = plan.rotary_dim / 2;
        out->y.window = tensor_plan.rotary_offset * out->y.element * tensor_plan.bytes;
        set_kernel_dims(out->halve, tensor_plan.out_pairing, n_pairs, out->n_heads, 1, out->y);
        if (!out->in_place) {
            set_kernel_dims(out->halve, tensor_plan.pairing, n_pairs, out->n_heads, 1, out->x);
        }
    }
    choose_rotation(plan, tensor_plan, in.token, out_token, *out);
}

namespace {

/// Rotates the windows of a block in place; or, if the kernel cannot, into `spare`, and copies them back.
template <bool in_place>
void rotate_windows(const KvCall &call, Block &block) noexcept {
    const TensorPlan &tensor_plan = call.tensor_plan(block);
    const std::int64_t rotary_dim = call.plan().rotary_dim;
    const Kernel &kernel = *call.stages(block).block_rotation;
    Side in, out;  // not initialised as a whole, which would slow down a run of one token
    in.token = block.strides.token;
    in.head = block.strides.head;
    out.token = in_place ? in.token : block.n_heads * rotary_dim;
    out.head = in_place ? in.head : rotary_dim;
    in.element = out.element = 1;
    set_kernel_dims(0, tensor_plan.pairing, rotary_dim / 2, block.n_heads, block.n_tokens, in);
    set_kernel_dims(0, tensor_plan.out_pairing, rotary_dim / 2, block.n_heads, block.n_tokens, out);
    float *const window = block.work->floats + tensor_plan.rotary_offset, *const spare = block.work->spare;
    // A target with kernels for stages has this rotation kernel, too. Rows hold all pairs of a head that is in blocks.
    call_kernel(kernel, call.plan().sin_sign, *block.rows, {0, block.n_tokens, block.row_of_token}, in_place,
                {window, in.dims}, {in_place ? window : spare, out.dims});
    if constexpr (!in_place) {
        block.for_each_head([&](std::int64_t, std::int64_t t, std::int64_t h) {
            std::memcpy(window + t * in.token + h * in.head, spare + t * out.token + h * out.head,
                        static_cast<std::size_t>(rotary_dim) * sizeof(float));
        });
    }
}

template <Where from, Where to>
void rotate_heads(const KvCall &call, Block &block) noexcept {
    const TensorCall heads = call.whole_heads(block);
    for_each_stretch<from, to>(call, block, [&](const Stretch &stretch) { heads.tensor.rotate(heads, stretch); });
}

void rotate_to_words(const KvCall &call, Block &block) noexcept {
    const TensorCall heads = call.whole_heads(block);
    heads.tensor.rotate(heads, stretch_of_words(call, block));
}

}  // namespace

void list_rotation(const Listing &of) noexcept {
    const bool in_place = of.tensor_plan.pairing == of.tensor_plan.out_pairing;
    of.add_if(of.tensor_plan.rotates, "rotate", in_place ? rotate_windows<true> : rotate_windows<false>);
}

void list_rotation_of_heads(const Listing &of) noexcept {
    const bool rotates = of.tensor_plan.rotates;
    if (of.steps.in_blocks()) {
        of.add(rotates ? "rotate" : "copy", rotate_to_words);
        return;
    }
    of.add(rotates ? "rotate to the output" : "copy to the output",
           of.from_cache() ? rotate_heads<Where::cache, Where::cache>
           : of.to_cache() ? rotate_heads<Where::view, Where::cache>
                           : rotate_heads<Where::view, Where::view>);
}

}  // namespace halyard
