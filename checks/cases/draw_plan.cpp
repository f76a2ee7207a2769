// Draws the plan of a case: its shape, and the stages of each tensor.
#include "checks/cases/case.h"
#include "cuda/cuda_kernels.h"

#include <tuple>

namespace cases {

namespace {

class PlanDrawer {
public:
    explicit PlanDrawer(Case &drawn) : drawn_(drawn), draw_(drawn.draw), choice_(drawn.choice), call_(drawn.call) {}

    void draw() {
        static constexpr std::int64_t shapes[][2] = {{1, 1},  {3, 1},  {1, 3},  {2, 5},
                                                     {1, 19}, {2, 19}, {1, 37}, {1, 70}};
        static_assert(of_kv_path[of_shape] == std::size(shapes) + 1);
        const auto shape = static_cast<std::size_t>(level(of_shape));
        const std::int64_t any[] = {draw_.in(0, 3), draw_.in(0, 16)};
        const std::int64_t *const drawn = shape < std::size(shapes) ? shapes[shape] : any;
        for (halyard_tensor &x : call_.x) {
            x.shape[0] = or_else(choice_.shape[0], drawn[0]);
            x.shape[1] = or_else(choice_.shape[1], drawn[1]);
        }
        drawn_.n_slots = choice_.on_device ? 24 : draw_.is_fuzzed() ? 80 : 128;
        draw_head_and_rotary_dim();
        const std::int64_t n = draw_.one_in(2) ? 2 : draw_.in(1, HALYARD_MAX_TENSORS);
        call_.plan.n_tensors = static_cast<std::int32_t>(or_else(choice_.n_tensors, n));
        call_.plan.direction = level(of_direction);
        call_.plan.rerotates = choice_.rerotates ? 1 : 0;
        for (int i = 0; i < call_.n(); i++) {
            draw_tensor(i);
        }
    }

private:
    Case &drawn_;
    Draw &draw_;
    const Choice &choice_;
    Call &call_;
    bool has_free_half_[HALYARD_MAX_TENSORS] = {};  // the second half of its cache's rows is free for the next tensor

    int level(Factor factor, int tensor = 0) { return drawn_.level(factor, tensor); }
    template <typename T, std::size_t n>
    std::int32_t one_of(const T (&choices)[n]) {
        return static_cast<std::int32_t>(draw_.one_of(choices));
    }

    /// Draws head_dim, rotary_dim and rotary_offset of the first tensor.
    void draw_head_and_rotary_dim() {
        static constexpr std::int64_t head_dims[] = {64, 80, 96, 128, 192, 256, 512, 16, 32, 576, 640};
        static_assert(of_kv_path[of_head_dim] == std::size(head_dims) + 1);
        halyard_tensor_desc &head = call_.tensors[0];
        std::int64_t &rotary_dim = call_.plan.rotary_dim = choice_.rotary_dim;
        const auto width = static_cast<std::size_t>(choice_.head_dim == 0 ? level(of_head_dim) : 0);
        if (choice_.head_dim != 0) {
            head.head_dim = choice_.head_dim;
            head.rotary_offset = choice_.rotary_offset;
        } else if (width == std::size(head_dims)) {
            rotary_dim = 2 * draw_.in(1, 40);
            head.rotary_offset = draw_.one_in(2) ? 0 : draw_.in(0, 9);
            head.head_dim = rotary_dim + head.rotary_offset + (draw_.one_in(2) ? 0 : draw_.in(0, 20));
        } else {
            head.head_dim = head_dims[width];
            rotary_dim = level(of_window) == 0 ? head.head_dim : head.head_dim / 2;
            head.rotary_offset = draw_.in(0, head.head_dim - rotary_dim);
        }
    }

    void draw_tensor(int i) {
        halyard_tensor_desc &tensor = call_.tensors[i];
        halyard_kv_desc &kv = call_.kv[i];
        const auto *const kernel = choice_.kernel;
        tensor.dtype = choice_.on_device && i > 0 ? call_.tensors[0].dtype : level(of_dtype, i) + HALYARD_F32;
        kv.out_dtype = kernel == nullptr                    ? level(of_out_dtype, i)
                       : kernel->out_dtype == kernel->dtype ? 0
                                                            : static_cast<std::int32_t>(kernel->out_dtype);
        const bool is_fixed = kernel != nullptr && !draw_.one_in(i == 0 ? 6 : 3);
        draw_pairing(i, is_fixed ? choice_.level[of_pairing] : kernel != nullptr ? 4 : level(of_pairing, i));
        if (i > 0) {
            const halyard_tensor_desc &first = call_.tensors[0];
            const std::int64_t least = kv.no_rotation != 0 ? 1 : call_.plan.rotary_dim;
            tensor.head_dim = choice_.on_device || draw_.one_in(2) ? first.head_dim : least + draw_.in(0, 20);
            tensor.rotary_offset = kernel != nullptr ? first.rotary_offset : draw_.in(0, tensor.head_dim - least);
        }
        static constexpr std::int64_t head_counts[] = {1, 3, 9};
        const int heads = level(of_heads, i);
        call_.x[i].shape[2] = i == 0 && choice_.shape[2] != 0 ? choice_.shape[2]
                              : heads < 3                     ? head_counts[heads]
                              : choice_.on_device             ? draw_.in(1, draw_.one_in(3) ? 17 : 4)
                                                              : draw_.in(0, 4);
        draw_quantisation_groups(i);
        draw_scale(i);
        draw_norm(i);
        drawn_.position_scales[i] = level(of_position_scales, i);
        kv.position_scales = drawn_.position_scales[i] != 0 ? 1 : 0;
        draw_hadamard(i);
        draw_cache(i);
        draw_group_scales(i, true);
        draw_group_scales(i, false);
    }

    void draw_pairing(int i, int kind) {
        halyard_tensor_desc &tensor = call_.tensors[i];
        const bool crosses = kind == 2 || kind == 3;
        call_.kv[i].no_rotation = kind == 4 ? 1 : 0;
        tensor.pairing = kind == 1 || kind == 3 ? HALYARD_PAIRING_INTERLEAVED : HALYARD_PAIRING_HALF;
        tensor.out_pairing = crosses ? HALYARD_PAIRING_HALF + HALYARD_PAIRING_INTERLEAVED - tensor.pairing
                                     : draw_.one_of({0, tensor.pairing});
    }

    void draw_quantisation_groups(int i) {
        halyard_tensor_desc &tensor = call_.tensors[i];
        halyard_kv_desc &kv = call_.kv[i];
        static constexpr std::int32_t dtypes[] = {0, HALYARD_UINT8};
        if (level(of_groups, i) != 0) {
            call_.groups[i].preset = draw_preset(tensor.head_dim, i == 0 ? choice_.preset : 0);
            kv.groups = &call_.groups[i];
            kv.out_dtype = one_of(dtypes);
            tensor.dtype = call_.plan.rerotates != 0 ? one_of(dtypes) : tensor.dtype;
        }
        if (level(of_from_groups, i) != 0) {
            call_.from_groups[i].preset = draw_preset(tensor.head_dim);
            kv.from_groups = &call_.from_groups[i];
            tensor.dtype = one_of(dtypes);
            if (kv.groups == nullptr && kv.out_dtype == 0) {
                kv.out_dtype = static_cast<std::int32_t>(draw_.in(HALYARD_F32, HALYARD_INT8));
            }
        }
    }

    /// A random preset of quantisation groups that allows this head_dim, or the given preset.
    std::int32_t draw_preset(std::int64_t head_dim, std::int32_t given = 0) {
        std::vector<std::int32_t> fitting;
        for (std::int32_t preset = HALYARD_GROUPS_GGML_Q8_0; preset <= HALYARD_GROUPS_MX; preset++) {
            auto info = sized<halyard_groups_info>();
            if (halyard_get_groups_info(preset, head_dim, &info, nullptr) == HALYARD_OK &&
                (given == 0 || preset == given)) {
                fitting.push_back(preset);
            }
        }
        return fitting[static_cast<std::size_t>(draw_.in(0, std::ssize(fitting) - 1))];
    }

    void draw_scale(int i) {
        halyard_kv_desc &kv = call_.kv[i];
        const auto *const kernel = choice_.kernel;
        const int kind = kernel == nullptr                                               ? level(of_scale, i)
                         : kernel->out_dtype == halyard::Dtype::e4m3 && !draw_.one_in(4) ? 1
                                                                                         : 0;
        const bool is_dynamic = kind == 3;  // only 8-bit outputs have dynamic scales
        if (kind == 0 || kv.groups != nullptr || kv.from_groups != nullptr ||
            (is_dynamic && choice_.rerotates && call_.tensors[i].dtype < HALYARD_E4M3)) {
            return;
        }
        kv.scale = &call_.scales[i];
        call_.scales[i].kind = is_dynamic ? HALYARD_SCALE_DYNAMIC : HALYARD_SCALE_STATIC;
        call_.scales[i].per = is_dynamic ? 0 : kind - 1;
        if (is_dynamic && call_.out_dtype(i) < HALYARD_E4M3) {
            kv.out_dtype = call_.out_dtype(i) + 3;
        }
    }

    void draw_norm(int i) {
        enum { no, yes, maybe };
        struct Form {
            int weight = yes, unit_offset = no, window = no, eps = no, row = no, layer = no, bias = no, per_head = no;
        };
        static constexpr Form forms[] = {{},
                                         {},
                                         {.unit_offset = yes},
                                         {.weight = no},
                                         {.window = yes},
                                         {.eps = yes},
                                         {.row = yes},
                                         {.weight = maybe, .window = maybe, .layer = yes},
                                         {.unit_offset = maybe, .window = maybe, .layer = yes, .bias = yes},
                                         {.row = yes, .layer = yes, .bias = maybe},
                                         {.window = maybe, .layer = maybe, .bias = maybe, .per_head = yes}};
        static_assert(of_kv_path[of_norm] == std::size(forms));  // level 0, no norm, has an unused form
        const auto *const kernel = choice_.kernel;
        const int kind = kernel == nullptr ? level(of_norm, i) : draw_.one_in(3) ? 0 : draw_.one_of({1, 1, 3, 5});
        if (kind == 0) {
            return;
        }
        const Form &form = forms[kind];
        const auto is = [&](int asked) { return asked == yes || (asked == maybe && draw_.one_in(2)) ? 1 : 0; };
        halyard_norm_desc &norm = call_.norms[i];
        const std::int64_t head_dim = call_.tensors[i].head_dim;
        call_.kv[i].norm = &norm;
        norm.kind = is(form.layer) != 0 ? HALYARD_NORM_LAYER : HALYARD_NORM_RMS;
        norm.width = form.row == yes ? HALYARD_NORM_ROW : HALYARD_NORM_HEAD;
        norm.order = level(of_order, i);
        const bool has_weight = is(form.weight) != 0;
        if (call_.kv[i].from_groups == nullptr && kernel == nullptr) {  // a quantised input has no dtype to round to
            norm.rounding = level(of_rounding, i) & (has_weight ? 3 : HALYARD_NORM_ROUND_BEFORE_WEIGHT);
        }
        norm.weight_dtype = !has_weight         ? 0
                            : kernel != nullptr ? static_cast<std::int32_t>(kernel->weight)
                                                : static_cast<std::int32_t>(draw_.in(HALYARD_F32, HALYARD_BF16));
        norm.unit_offset = kernel == nullptr ? is(form.unit_offset) : has_weight && kernel->unit_offset ? 1 : 0;
        norm.has_bias = norm.kind == HALYARD_NORM_LAYER ? is(form.bias) : 0;
        norm.weight_per_head = form.per_head;
        norm.eps = form.eps == yes ? 0.25 : 0;
        norm.no_eps = norm.eps == 0 && draw_.one_in(4) ? 1 : 0;
        if (is(form.window) != 0) {
            norm.window_offset = draw_.one_in(3) ? 0 : draw_.in(0, head_dim - 1);
            norm.window_size = draw_.one_in(3) ? 0 : draw_.in(1, head_dim - norm.window_offset);
        }
        std::int64_t *const shape = call_.x[i].shape;
        if (form.row == yes && choice_.shape[2] == 0 && shape[0] * shape[1] <= 6 && draw_.one_in(4)) {
            const std::int64_t piece = norm.kind == HALYARD_NORM_LAYER ? 4096 : 8192;  // longer rows are split
            shape[2] = piece / head_dim + draw_.in(0, 3);
        }
    }

    /// Draws the transform's size: a power of two that divides head_dim, mostly the largest one.
    void draw_hadamard(int i) {
        const bool is_there = level(of_hadamard, i) != 0;
        std::int64_t n = call_.tensors[i].head_dim & -call_.tensors[i].head_dim;
        while (n > 2 && draw_.one_in(3)) {
            n /= 2;
        }
        call_.kv[i].hadamard = n < 2 || !is_there ? 0 : static_cast<std::int32_t>(n);
    }

    void draw_cache(int i) {
        const int layout = level(of_layout, i);
        if (layout == no_cache && !shares_previous_cache(i)) {
            return;
        }
        halyard_kv_desc &kv = call_.kv[i];
        halyard_cache_desc &cache = call_.caches[i];
        kv.cache = &cache;
        if (shares_previous_cache(i)) {
            cache = call_.caches[i - 1];
            call_.x[i].shape[2] = call_.x[i - 1].shape[2];
            kv.out_dtype = call_.out_dtype(i - 1);
            drawn_.is_packed[i] = true;
            return;
        }
        const std::int64_t bs = choice_.on_device ? (layout == hnd ? 4 : 8) : draw_.is_fuzzed() ? 16 : 32;
        const std::int64_t width = call_.elements_per_head(i, false);
        // A head has room for whole tiles. Its last tile may be shorter.
        const bool is_row_major = layout <= hnd, is_tiled = !is_row_major && layout != packed_v;
        const bool fits = kv.groups == nullptr || layout == packed_v;  // tiles cannot split a record
        has_free_half_[i] = layout == packed_v && fits;
        const std::int64_t unit = choice_.on_device ? choice_.step / bytes_of(call_.out_dtype(i)) : 1;
        const std::int64_t gap = layout == rows && call_.is_dynamic(i) ? 8 - width % 4  // holds the head's scale
                                 : is_row_major && draw_.one_in(2)     ? draw_.in(1, 2) * unit
                                                                       : 0;
        describe_layout(is_row_major || fits ? layout : hnd, drawn_.n_slots / bs, bs,
                        std::max<std::int64_t>(call_.x[i].shape[2], 1),
                        is_tiled && fits ? (width + 15) / 16 * 16 : (width + unit - 1) / unit * unit + gap, cache);
        if (choice_.on_device && cache.block_size == 0) {
            cache.stride_block = 0;  // a device checks the alignment of this stride, even with one block
        }
        if (is_row_major && cache.block_size != 0 && draw_.one_in(3)) {  // another cache's blocks lie in between
            cache.stride_block = 2 * cache.stride_block + unit;
        }
        if (!choice_.on_device && draw_.one_in(6)) {
            cache.stride_block *= -1;
            cache.stride_head *= -1;
        }
    }

    static void describe_layout(int layout, std::int64_t n_pages, std::int64_t bs, std::int64_t H, std::int64_t D,
                                halyard_cache_desc &cache) {
        const std::int64_t x = D % 128 == 0 ? 64 : 8;  // kernels write 64-element tiles in place, but copy tiles of 8
        const std::int64_t xv = 8, width = layout == packed_v ? 2 * D : D;
        cache.n_slots = n_pages * bs;
        cache.block_size = layout == rows ? 0 : bs;
        cache.stride_block = layout == rows ? 12345 : H * bs * width;  // `rows` has one block: this stride is unused
        cache.stride_head = layout <= nhd ? D : bs * width;
        using Six = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
        const Six tiles[] = {{},
                             {0, 0, H * D, 0, 0, 0},
                             {0, 0, H * D, 0, 0, 0},
                             {0, 0, D, 0, 0, 0},
                             {bs, 0, 1, 1, bs, 0},
                             {16, 16 * D, 2, 2, 32, 1},
                             {2, 32, 1, 16, 16 * bs, 2},
                             {0, 0, x, x, bs * x, 0},
                             {xv, D * xv, 1, 0, 0, xv},
                             {0, 0, 2 * D, 0, 0, 0}};
        static_assert(std::size(tiles) == n_layouts_of_caches);
        std::tie(cache.tile_tokens, cache.stride_tile_tokens, cache.stride_token, cache.tile_elements,
                 cache.stride_tile_elements, cache.stride_element) = tiles[layout];
    }

    /// Whether a tensor is stored in the previous tensor's cache, in the free half of each row.
    bool shares_previous_cache(int i) const {
        const auto is_simple = [&](int k) { return call_.kv[k].groups == nullptr && !call_.is_dynamic(k); };
        return i > 0 && has_free_half_[i - 1] && is_simple(i) && is_simple(i - 1) && !choice_.rerotates &&
               call_.tensors[i].head_dim == call_.tensors[i - 1].head_dim;
    }

    /// Draws strides of group scales outside of records: dense, by token, by head, or after each block's records.
    void draw_group_scales(int i, bool is_input) {
        if (call_.groups_of(i, is_input) == nullptr || (is_input && call_.plan.rerotates != 0) || draw_.one_in(3) ||
            !call_.record_of(i, is_input).scales_apart) {
            return;
        }
        halyard_groups_desc &groups = is_input ? call_.from_groups[i] : call_.groups[i];
        const bool is_paged = !is_input && call_.kv[i].cache != nullptr && call_.caches[i].block_size != 0;
        const std::int64_t tokens = std::max<std::int64_t>(GroupScales(call_, i, is_input).dimensions[1].count, 1);
        const std::int64_t heads = std::max<std::int64_t>(call_.x[i].shape[2], 1);
        const std::int64_t head = call_.record_of(i, is_input).dense_scales_bytes() + draw_.in(0, 3);
        const bool by_head = draw_.one_in(2);
        groups.scales_stride_token = by_head ? head : heads * head + draw_.in(0, 3);
        groups.scales_stride_head = by_head ? tokens * head + draw_.in(0, 3) : head;
        const std::int64_t block = by_head ? heads * groups.scales_stride_head : tokens * groups.scales_stride_token;
        groups.scales_stride_block = block + draw_.in(0, 3);
        if (std::int64_t &stride = call_.caches[i].stride_block; is_paged && stride > 0 && draw_.one_in(2)) {
            drawn_.page_scales[i] = stride + draw_.in(0, 3);
            stride = groups.scales_stride_block = drawn_.page_scales[i] + block;
        }
    }
};

}  // namespace

void Case::draw_plan() { PlanDrawer(*this).draw(); }

Case::Case(Draw &from, const Choice &fixed) : Case(from, fixed, InSteps()) {
    draw_plan();
    draw_run();
    if (const std::string refused = create_angles(); !refused.empty()) {
        throw std::runtime_error("there is no angle source: " + refused + text());
    }
}

std::string Case::create_angles() {
    const std::string refused = angles.create_sources(call.plan.rerotates != 0);
    call.args.angles = angles.source().get();
    call.kv_args.from_angles = call.plan.rerotates != 0 ? angles.get_from() : nullptr;
    return refused;
}

}  // namespace cases
