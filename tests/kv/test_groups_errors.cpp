// Bad quantisation groups: in plans, in the arguments of runs, and in halyard_get_groups_info. Each must give its
// status and an error message that names the argument and its value, and nothing may be written.
#include "valid_run.h"

namespace {

/// Three tensors with head_dim 32. q is quantised into records in a tensor. k is quantised into records in a cache, and
/// its scales go to another array. v consists of records that are dequantised to floats.
struct GroupsRun : ValidRun {
    static constexpr std::int64_t head_dim = 32, q_bytes = 40, k_bytes = 32, v_bytes = 34;

    halyard_groups_desc q_groups = halyard::describe_groups(HALYARD_GROUPS_OPENVINO_U8);
    halyard_groups_desc k_groups = halyard::describe_groups(HALYARD_GROUPS_VLLM_INT8);
    halyard_groups_desc v_groups = halyard::describe_groups(HALYARD_GROUPS_GGML_Q8_0);
    halyard_cache_desc cache = halyard::describe_nhd_cache(n_slots / bs, bs, H, k_bytes);

    GroupsRun() : ValidRun(3) {
        for (int i = 0; i < 3; i++) {
            tensors[i].head_dim = head_dim;
            x[i] = halyard::tensor(at(400 * i), halyard::dtype::f32, {n_batch, n_tokens, H, head_dim});
        }
        kv[0].groups = &q_groups;
        y[0] = halyard::tensor(at(1200), halyard::dtype::uint8, {n_batch, n_tokens, H, q_bytes});  // spans 120 floats
        kv[1].groups = &k_groups;
        kv[1].cache = &cache;
        stages[1] = halyard::stages_into(at(1400));  // a cache that spans 128 floats of the arena
        stages[1].group_scales = at(1600);           // spans 16 floats
        tensors[2].dtype = HALYARD_UINT8;
        kv[2].out_dtype = HALYARD_F32;
        kv[2].from_groups = &v_groups;
        kv[2].no_rotation = 1;
        x[2] = halyard::tensor(at(800), halyard::dtype::uint8, {n_batch, n_tokens, H, v_bytes});
        y[2] = halyard::tensor(at(2200), halyard::dtype::f32, {n_batch, n_tokens, H, head_dim});
    }
};

}  // namespace

TEST_CASE("errors: groups, plans", "[errors][groups]") {
    GroupsRun s;
    const CallChecker &plans = s.plans;
    auto &q = s.tensors[0], &k = s.tensors[1], &v = s.tensors[2];
    auto &q_kv = s.kv[0], &k_kv = s.kv[1], &v_kv = s.kv[2];
    auto &preset = s.q_groups.preset;
    auto &cache = s.cache;
    auto fixed = halyard::describe_static_scales();
    s.refuse_fields();
    plans.refuse({
        {HALYARD_ERROR_SHAPE, {"preset is 10", "512", "head_dim is 32"}, {{preset, HALYARD_GROUPS_MLA_V4}}},
        {HALYARD_ERROR_SHAPE, {"from_groups.preset is 1,", "of 32", "head_dim is 33"}, {{v.head_dim, 33}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{q.head_dim, 2050}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{v.head_dim, 2050}}},
        {HALYARD_ERROR_MISMATCH, {}, {{q_kv.scale, &fixed}}},
        {HALYARD_ERROR_MISMATCH, {}, {{v_kv.scale, &fixed}}},
        {HALYARD_ERROR_MISMATCH, {"out_dtype is f32", "groups is set"}, {{q_kv.out_dtype, HALYARD_F32}}},
        {HALYARD_ERROR_MISMATCH, {"out_dtype is int8", "groups is set"}, {{k_kv.out_dtype, HALYARD_INT8}}},
        {HALYARD_ERROR_MISMATCH, {"dtype is f32", "from_groups is set"}, {{v.dtype, HALYARD_F32}}},
        {HALYARD_ERROR_UNSUPPORTED, {}, {{q.dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH, {}, {{v_kv.out_dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH, {}, {{q_kv.groups, nullptr}, {q_kv.out_dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[0].kv.from_groups is set", "rerotates"},
         {{s.plan.rerotates, 1},
          {s.plan.tensors, &v},
          {s.plan.n_tensors, 1},
          {v_kv.no_rotation, 0},
          {v_kv.out_dtype, 0}}},
        {HALYARD_ERROR_STRIDE,
         {"tensors[1].kv.cache", "one after the other"},
         {{cache.stride_element, 2}, {cache.stride_head, 64}, {cache.stride_token, 128}, {cache.stride_block, 512}}},
        {HALYARD_ERROR_STRIDE,
         {"tensors[1].kv.cache", "one after the other"},
         {{cache.tile_elements, 16},
          {cache.stride_tile_elements, 64},
          {cache.stride_head, 128},
          {cache.stride_token, 256},
          {cache.stride_block, 1024}}},
        {HALYARD_ERROR_SHAPE, {}, {{q_kv.hadamard, 48}}},
        {HALYARD_ERROR_SHAPE, {}, {{q_kv.groups, nullptr}, {q.head_dim, 48}, {q_kv.hadamard, 24}}},
        {HALYARD_ERROR_MISMATCH, {"norm.rounding is 1", "records"}, {{v_kv.norm, &s.norm}, {s.norm.rounding, 1}}},
    });
    for (const int i : {0, 1, 2}) {
        plans.refuse(HALYARD_ERROR_MISMATCH, {"tensors[0].kv.groups.scales_stride_", "preset is 7"},
                     {{(&s.q_groups.scales_stride_block)[i], 4}});
    }
    plans.accept_each({// Tiles whose elements are contiguous, with any values of strides that are not used.
                       {{cache.tile_elements, 16}, {cache.stride_tile_elements, 16}},
                       {{cache.tile_elements, 1}, {cache.stride_tile_elements, 1}, {cache.stride_element, 7}},
                       // A record of one byte has no neighbouring elements: its stride_element may be anything.
                       {{k_kv.no_rotation, 1}, {k.head_dim, 1}, {cache.stride_element, 5}}});
}

TEST_CASE("errors: groups, what a run brings", "[errors][groups]") {
    GroupsRun s;
    const CallChecker &runs = s.runs;
    auto &y = s.y[0], &x = s.x[2];
    auto &scales = s.stages[1].group_scales;
    auto &[size, preset, block, token, head] = s.k_groups;
    runs.accept_each({{}, {{head, 16}, {token, 4}, {block, 32}}});
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {32, 39, 41}, {y.shape[3]});
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {32, 33, 36}, {x.shape[3]});
    runs.refuse({
        {HALYARD_ERROR_MISMATCH, {}, {{y.dtype, HALYARD_F32}}},
        {HALYARD_ERROR_MISMATCH, {}, {{x.dtype, HALYARD_E4M3}}},
        {HALYARD_ERROR_STRIDE,
         {"y[0].strides[3] is 2", "one after the other"},
         {{y.strides[3], 2}, {y.strides[2], 80}, {y.strides[1], 160}, {y.strides[0], 480}}},
        {HALYARD_ERROR_STRIDE, {"x[2].strides[3] is 0", "one after the other"}, {{x.strides[3], 0}}},
        {HALYARD_ERROR_STRIDE, {"y[0]", "could meet"}, {{y.strides[2], 39}}},
        {HALYARD_ERROR_STRIDE, {"tensors[1].kv.cache", "could meet"}, {{s.cache.stride_head, 31}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].group_scales"}, {{scales, s.at(1500)}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].group_scales"}, {{scales, s.at(10)}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].group_scales"}, {{scales, s.at(2000)}}},
        {HALYARD_ERROR_OVERLAP, {"x[2]"}, {{x.data, s.at(1300)}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]"}, {{y.data, s.at(10)}}},
        {HALYARD_ERROR_STRIDE, {"scales_stride", "could meet"}, {{head, 1}}},
        {HALYARD_ERROR_STRIDE, {"scales_stride", "could meet"}, {{head, 1}, {token, 4}, {block, 16}}},
        {HALYARD_ERROR_OVERFLOW, {"group_scales", "address space"}, {{head, 4}, {token, INT64_MAX / 2}}},
        {HALYARD_ERROR_OVERFLOW, {"group_scales"}, {{head, 4}, {token, 8}, {block, INT64_MIN}}},
    });
}

TEST_CASE("errors: groups, what is told of a preset", "[errors][groups]") {
    auto out = sized<halyard_groups_info>();
    std::int32_t preset = HALYARD_GROUPS_GGML_Q8_0;
    std::int64_t head_dim = 128;
    const auto tell = [&](halyard_error *e) { return halyard_get_groups_info(preset, head_dim, &out, e); };
    const CallChecker table([&](halyard_status status, const Words &words) {
        const auto before = out;
        check_refused(status, words, tell);
        CHECK(std::memcmp(&before, &out, sizeof(out)) == 0);
    });
    table.refuse({
        {HALYARD_ERROR_SHAPE, {"preset is 4", "a multiple of 32", "head_dim is 80"}, {{preset, 4}, {head_dim, 80}}},
        {HALYARD_ERROR_SHAPE, {"preset is 8", "a multiple of 2", "head_dim is 65"}, {{preset, 8}, {head_dim, 65}}},
        {HALYARD_ERROR_SHAPE, {"preset is 9", "576", "head_dim is 512"}, {{preset, 9}, {head_dim, 512}}},
        {HALYARD_ERROR_SHAPE, {"preset is 11", "512", "head_dim is 576"}, {{preset, 11}, {head_dim, 576}}},
    });
    table.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 0, 13, INT32_MIN}, {{"preset", preset}}, {"1 to 12"});
    table.refuse_each(HALYARD_ERROR_SHAPE, {0, -1, INT64_MIN}, {{"head_dim", head_dim}});
    table.refuse_each(HALYARD_ERROR_UNSUPPORTED, {2049, INT64_MAX}, {{"head_dim", head_dim}});
    // {scales apart, bytes, groups, group size, data offset, data stride, scale offset, scale stride, offset of zero
    // point, offset of raw elements}
    const std::int64_t dims[] = {128, 128, 128, 128, 128, 128, 128, 128, 576, 512, 512, 128};
    const std::vector<std::int64_t> told[] = {
        {0, 136, 4, 32, 2, 34, 0, 34, 0, 0},      {0, 136, 4, 32, 2, 34, 0, 34, 0, 0},
        {0, 136, 4, 32, 2, 34, 0, 34, 0, 0},      {0, 72, 4, 32, 2, 18, 0, 18, 0, 0},
        {1, 128, 1, 128, 0, 0, 0, 4, 0, 0},       {1, 128, 1, 128, 0, 0, 0, 4, 0, 0},
        {0, 136, 1, 128, 8, 0, 0, 0, 4, 0},       {0, 72, 1, 128, 8, 0, 0, 0, 4, 0},
        {0, 656, 4, 128, 0, 128, 512, 4, 0, 528}, {1, 576, 7, 64, 0, 64, 0, 1, 0, 448},
        {1, 512, 16, 32, 0, 32, 0, 1, 0, 0},      {0, 132, 4, 32, 1, 33, 0, 33, 0, 0}};
    for (preset = 1; preset <= 12; preset++) {
        CAPTURE(preset);
        head_dim = dims[preset - 1];
        const auto info = halyard::get_groups_info(preset, head_dim);
        CHECK(info.size == sizeof(info));
        CHECK(std::vector<std::int64_t>{info.scales_apart, info.record_bytes, info.n_groups, info.group,
                                        info.data_offset, info.data_stride, info.scale_offset, info.scale_stride,
                                        info.zero_offset, info.raw_offset} == told[preset - 1]);
    }
}
