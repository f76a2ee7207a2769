#include "checks/scene/scene.h"

#include "cuda/cuda_kernels.h"

namespace scenes {

namespace {

constexpr std::int64_t elements_of_block = 8192;  // norms go over longer rows piece by piece

std::int32_t number_of(halyard::Dtype dtype) { return static_cast<std::int32_t>(dtype); }

}  // namespace

Scene::Scene(Draw &draw, const Choice &choice) : draw_(draw), choice_(choice) {
    draw_plan();
    draw_run();
    if (const std::string refused = create_angles(); !refused.empty()) {
        throw std::runtime_error("there is no angle source: " + refused + text());
    }
}

std::string Scene::create_angles() {
    const std::string refused = angles.create(call.plan.rerotates != 0);
    call.args.angles = angles.get();
    call.brought.from_angles = call.plan.rerotates != 0 ? angles.get_from() : nullptr;
    return refused;
}

/// Of the first tensor, or of another one, whose levels no test fixes. What there need not be is there half the times.
int Scene::level(Factor factor, bool is_first) {
    const int fixed = choice_.level[factor];
    const bool is_optional = all_factors[factor].is_optional;
    if (fixed >= 0 && (is_first || (is_optional && fixed == 0))) {
        return fixed;
    }
    return is_optional && draw_.one_in(2) ? 0 : static_cast<int>(draw_.in(0, choice_.levels()[factor] - 1));
}

// ---- The plan ------------------------------------------------------------------------------------------------------

void Scene::draw_plan() {
    static constexpr std::int64_t shapes[][2] = {{1, 1}, {3, 1}, {1, 3}, {2, 5}, {1, 19}, {2, 19}, {1, 37}, {1, 70}};
    static constexpr std::int64_t head_dims[] = {64, 80, 96, 128, 192, 256, 512, 16, 32, 576, 640};
    static_assert(of_roads[of_shape] == std::size(shapes) + 1 && of_roads[of_head_dim] == std::size(head_dims) + 1);
    const auto shape = static_cast<std::size_t>(level(of_shape));
    const bool is_any = shape == std::size(shapes);
    n_batch_ = choice_.shape[0] != 0 ? choice_.shape[0] : is_any ? draw_.in(0, 3) : shapes[shape][0];
    n_tokens_ = choice_.shape[1] != 0 ? choice_.shape[1] : is_any ? draw_.in(0, 16) : shapes[shape][1];
    n_slots_ = choice_.on_device ? 24 : draw_.is_fuzzed() ? 80 : 128;
    const auto width = static_cast<std::size_t>(choice_.head_dim == 0 ? level(of_head_dim) : 0);
    halyard_tensor_desc &head = call.tensors[0];
    call.plan.rotary_dim = choice_.rotary_dim;
    if (choice_.kernel != nullptr) {
        head.head_dim = choice_.kernel->head_dim;
        head.rotary_offset = choice_.kernel->rotary_offset;
        call.plan.rotary_dim = choice_.kernel->rotary_dim;
    } else if (choice_.head_dim != 0) {
        head.head_dim = choice_.head_dim;
        head.rotary_offset = choice_.rotary_offset;
    } else if (width == std::size(head_dims)) {
        call.plan.rotary_dim = 2 * draw_.in(1, 40);
        head.rotary_offset = draw_.one_in(2) ? 0 : draw_.in(0, 9);
        head.head_dim = call.plan.rotary_dim + head.rotary_offset + (draw_.one_in(2) ? 0 : draw_.in(0, 20));
    } else {
        const bool is_whole = level(of_window) == 0;
        head.head_dim = head_dims[width];
        call.plan.rotary_dim = is_whole ? head.head_dim : head.head_dim / 2;
        head.rotary_offset = is_whole ? 0 : draw_.in(0, head.head_dim - call.plan.rotary_dim);
    }
    call.plan.n_tensors = static_cast<std::int32_t>(choice_.n_tensors != 0 ? choice_.n_tensors
                                                    : draw_.one_in(2)      ? 2
                                                                           : draw_.in(1, HALYARD_MAX_TENSORS));
    call.plan.direction = level(of_direction);
    call.plan.rerotates = choice_.moves ? 1 : 0;
    for (int i = 0; i < call.n(); i++) {
        draw_tensor(i);
    }
}

void Scene::draw_tensor(int i) {
    halyard_tensor_desc &tensor = call.tensors[i];
    halyard_kv_desc &kv = call.kv[i];
    const bool is_first = i == 0;
    if (!is_first) {
        const halyard_tensor_desc &first = call.tensors[0];
        const bool is_alike = choice_.on_device || draw_.one_in(2);
        tensor.head_dim = is_alike ? first.head_dim : call.plan.rotary_dim + draw_.in(0, 20);
        tensor.rotary_offset = choice_.kernel != nullptr ? first.rotary_offset
                                                         : draw_.in(0, tensor.head_dim - call.plan.rotary_dim);
    }
    tensor.dtype = choice_.on_device && !is_first ? call.tensors[0].dtype : level(of_dtype, is_first) + HALYARD_F32;
    kv.out_dtype = level(of_out_dtype, is_first);
    if (const auto *const kernel = choice_.kernel) {
        tensor.dtype = number_of(kernel->dtype);
        kv.out_dtype = kernel->out_dtype == kernel->dtype ? 0 : number_of(kernel->out_dtype);
        draw_turn(i, draw_.one_in(is_first ? 6 : 3) ? 4 : kernel->pairing == halyard::Pairing::half ? 0 : 1);
    } else {
        draw_turn(i, level(of_turn, is_first));
    }
    const int heads = level(of_heads, is_first);
    static constexpr std::int64_t head_counts[] = {1, 3, 8};
    n_heads_[i] = is_first && choice_.shape[2] != 0 ? choice_.shape[2]
                  : heads < 3                       ? head_counts[heads]
                  : choice_.on_device               ? draw_.in(1, draw_.one_in(3) ? 17 : 4)
                                                    : draw_.in(0, 4);
    draw_records(i);
    draw_scale(i);
    draw_norm(i);
    position_scales_[i] = level(of_position_scales, is_first);
    kv.position_scales = position_scales_[i] != 0 ? 1 : 0;
    if (level(of_hadamard, is_first) != 0) {
        draw_hadamard(i);
    }
    if (const int layout = level(of_layout, is_first); layout != no_cache) {
        draw_cache(i, layout);
    }
    draw_group_scales(i, true);
    draw_group_scales(i, false);
}

void Scene::draw_turn(int i, int turn) {
    halyard_tensor_desc &tensor = call.tensors[i];
    const bool crosses = turn == 2 || turn == 3;
    call.kv[i].no_rotation = turn == 4 ? 1 : 0;
    tensor.pairing = turn == 1 || turn == 3 ? HALYARD_PAIRING_INTERLEAVED : HALYARD_PAIRING_HALF;
    tensor.out_pairing = crosses ? HALYARD_PAIRING_HALF + HALYARD_PAIRING_INTERLEAVED - tensor.pairing
                                 : draw_.one_of({0, tensor.pairing});
}

void Scene::draw_norm(int i) {
    const auto *const kernel = choice_.kernel;
    const int kind = kernel == nullptr ? level(of_norm, i == 0) : draw_.one_in(3) ? 0 : draw_.one_of({1, 1, 3, 5});
    if (kind == 0) {
        return;
    }
    halyard_norm_desc &norm = call.norms[i];
    const halyard_tensor_desc &tensor = call.tensors[i];
    call.kv[i].norm = &norm;
    const bool is_row = kind == 6 || kind == 9, is_layer = kind >= 7 && kind <= 9, is_of_window = kind == 4;
    norm.kind = is_layer || (kind == 10 && draw_.one_in(2)) ? HALYARD_NORM_LAYER : HALYARD_NORM_RMS;
    norm.width = is_row ? HALYARD_NORM_ROW : HALYARD_NORM_HEAD;
    norm.order = level(of_order, i == 0);
    const bool has_weight = kind != 3 && (kind != 7 || draw_.one_in(2));
    norm.rounding = level(of_rounding, i == 0) & (has_weight ? 3 : HALYARD_NORM_ROUND_BEFORE_WEIGHT);
    norm.rounding = call.kv[i].from_groups == nullptr && kernel == nullptr ? norm.rounding : 0;  // to a dtype
    norm.weight_dtype = !has_weight         ? 0
                        : kernel != nullptr ? number_of(kernel->weight)
                                            : static_cast<std::int32_t>(draw_.in(HALYARD_F32, HALYARD_BF16));
    norm.unit_offset = kernel != nullptr ? has_weight && kernel->unit_offset
                                         : kind == 2 || (kind == 8 && draw_.one_in(4));
    norm.has_bias = kind == 8 || (norm.kind == HALYARD_NORM_LAYER && kind > 8 && draw_.one_in(2)) ? 1 : 0;
    norm.weight_per_head = kind == 10 ? 1 : 0;
    norm.eps = kind == 5 ? 0.25 : 0;
    norm.no_eps = norm.eps == 0 && draw_.one_in(4) ? 1 : 0;
    if (is_of_window || (kind > 6 && !is_row && draw_.one_in(4))) {
        norm.window_offset = draw_.one_in(3) ? 0 : draw_.in(0, tensor.head_dim - 1);
        norm.window_size = draw_.one_in(3) ? 0 : draw_.in(1, tensor.head_dim - norm.window_offset);
    }
    if (is_row && choice_.shape[2] == 0 && n_batch_ * n_tokens_ <= 6 && draw_.one_in(4)) {
        n_heads_[i] = elements_of_block / (is_layer ? 2 : 1) / tensor.head_dim + draw_.in(0, 3);
    }
}

/// Of a power of two that divides the head, if there is one: mostly the largest.
void Scene::draw_hadamard(int i) {
    std::int64_t n = call.tensors[i].head_dim & -call.tensors[i].head_dim;
    while (n > 2 && draw_.one_in(3)) {
        n /= 2;
    }
    call.kv[i].hadamard = n < 2 ? 0 : static_cast<std::int32_t>(n);
}

void Scene::draw_scale(int i) {
    const auto *const kernel = choice_.kernel;
    const int kind = kernel == nullptr ? level(of_scale, i == 0)
                     : kernel->out_dtype == halyard::Dtype::e4m3 && !draw_.one_in(4) ? 1
                                                                                     : 0;
    halyard_kv_desc &kv = call.kv[i];
    if (kind == 0 || kv.groups != nullptr || kv.from_groups != nullptr ||
        (kind == 3 && choice_.moves && call.tensors[i].dtype < HALYARD_E4M3)) {
        return;  // dynamic scales are for 8 bits
    }
    kv.scale = &call.scales[i];
    call.scales[i].kind = kind == 3 ? HALYARD_SCALE_DYNAMIC : HALYARD_SCALE_STATIC;
    call.scales[i].per = kind == 3 ? 0 : kind - 1;
    if (kind == 3 && call.out_dtype(i) < HALYARD_E4M3) {
        kv.out_dtype = call.out_dtype(i) + 3;
    }
}

void Scene::draw_cache(int i, int layout) {
    halyard_kv_desc &kv = call.kv[i];
    halyard_cache_desc &cache = call.caches[i];
    kv.cache = &cache;
    const std::int64_t bs = choice_.on_device ? (layout == hnd ? 4 : 8) : draw_.is_fuzzed() ? 16 : 32;
    const std::int64_t width = call.width_of(i, false);
    const bool fits = kv.groups != nullptr ? layout == packed_v : width % 16 == 0;  // records lie in one piece
    const bool is_row_major = layout <= hnd;
    const std::int64_t unit = choice_.on_device ? choice_.step / bytes_of(call.out_dtype(i)) : 1;
    const std::int64_t gap = is_row_major && draw_.one_in(2) ? draw_.in(1, 2) * unit : 0;
    describe_layout(is_row_major || fits ? layout : hnd, n_slots_ / bs, bs, std::max<std::int64_t>(n_heads_[i], 1),
                    (width + unit - 1) / unit * unit + gap, cache);
    if (choice_.on_device && cache.block_size == 0) {
        cache.stride_block = 0;  // a device wants it to be aligned, too
    }
    if (is_row_major && cache.block_size != 0 && draw_.one_in(3)) {  // with those of another cache in between
        cache.stride_block = 2 * cache.stride_block + unit;
    }
    if (!choice_.on_device && draw_.one_in(6)) {  // backwards
        cache.stride_block *= -1;
        cache.stride_head *= -1;
    }
}

}  // namespace scenes
