// Bad descriptions of groups: plans that have them, runs that bring what does not fit, and halyard_get_groups_info.
// Each has its status, and a sentence that names the argument and its value; nothing is written.
#include "valid_run.h"

namespace {

/// Three tensors with heads of 32: q becomes records in a view, k records in a cache with scales apart, and v, which
/// comes as records, floats.
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
        y[0] = halyard::tensor(at(1200), halyard::dtype::uint8, {n_batch, n_tokens, H, q_bytes});  // 120 floats
        kv[1].groups = &k_groups;
        kv[1].cache = &cache;
        stages[1] = halyard::stages_into(at(1400));  // 128 floats
        stages[1].group_scales = at(1600);           // 16 floats
        tensors[2].dtype = HALYARD_UINT8;
        kv[2].out_dtype = HALYARD_F32;
        kv[2].from_groups = &v_groups;
        kv[2].no_rotation = 1;
        x[2] = halyard::tensor(at(800), halyard::dtype::uint8, {n_batch, n_tokens, H, v_bytes});
        y[2] = halyard::tensor(at(2200), halyard::dtype::f32, {n_batch, n_tokens, H, head_dim});
    }
};

}  // namespace

TEST_CASE("errors: groups, what a preset has not", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &q = s.q_groups, &v = s.v_groups;
    const std::string of_q = "tensors[0].kv.groups", of_v = "tensors[2].kv.from_groups";
    plans.accept({});
    plans.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_groups_desc>(), {{of_q + ".size", q.size}});
    plans.refuse_each(HALYARD_ERROR_STRUCT_SIZE, {0, 28, 40}, {{of_v + ".size", v.size}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 0, 13, INT32_MAX, INT32_MIN},
                      {{of_q + ".preset", q.preset}, {of_v + ".preset", v.preset}});
    plans.refuse({
        {HALYARD_ERROR_SHAPE, {of_q + ".preset is 10", "512", "head_dim is 32"}, {{q.preset, HALYARD_GROUPS_MLA_V4}}},
        {HALYARD_ERROR_SHAPE, {of_v + ".preset is 1,", "of 32", "head_dim is 33"}, {{s.tensors[2].head_dim, 33}}},
        {HALYARD_ERROR_UNSUPPORTED, {"tensors[0].head_dim is 2050", "2048"}, {{s.tensors[0].head_dim, 2050}}},
    });
    for (std::int64_t *const stride : {&q.scales_stride_block, &q.scales_stride_token, &q.scales_stride_head}) {
        plans.refuse(HALYARD_ERROR_MISMATCH, {of_q + ".scales_stride_", "preset is 7"}, {{*stride, 4}});
    }
    plans.accept({{q.preset, HALYARD_GROUPS_MX}});
}

TEST_CASE("errors: groups, beside a tensor's other fields", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &q = s.tensors[0], &k = s.tensors[1], &v = s.tensors[2];
    auto &q_kv = s.kv[0], &k_kv = s.kv[1], &v_kv = s.kv[2];
    auto fixed = halyard::describe_static_scales();
    plans.refuse({
        {HALYARD_ERROR_MISMATCH, {"tensors[0].kv.scale is set", "groups"}, {{q_kv.scale, &fixed}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[2].kv.scale is set", "groups"}, {{v_kv.scale, &fixed}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[0].kv.out_dtype is f32", "groups is set"}, {{q_kv.out_dtype, HALYARD_F32}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[1].kv.out_dtype is int8", "groups is set"},
         {{k_kv.out_dtype, HALYARD_INT8}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[2].dtype is f32", "from_groups is set"}, {{v.dtype, HALYARD_F32}}},
        {HALYARD_ERROR_UNSUPPORTED, {"tensors[0].dtype is uint8"}, {{q.dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[2].kv.out_dtype is ", "groups is NULL"}, {{v_kv.out_dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[0].kv.out_dtype is ", "groups is NULL"},
         {{q_kv.out_dtype, HALYARD_UINT8}, {q_kv.groups, nullptr}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[0].kv.from_groups is set", "rerotates"},
         {{s.plan.rerotates, 1},
          {s.plan.tensors, &v},
          {s.plan.n_tensors, 1},
          {v_kv.no_rotation, 0},
          {v_kv.out_dtype, 0}}},
        {HALYARD_ERROR_STRIDE,
         {"tensors[1].kv.cache", "one after the other"},
         {{s.cache.stride_element, 2},
          {s.cache.stride_head, 64},
          {s.cache.stride_token, 128},
          {s.cache.stride_block, 512}}},
        {HALYARD_ERROR_STRIDE,
         {"tensors[1].kv.cache", "one after the other"},
         {{s.cache.tile_elements, 16},
          {s.cache.stride_tile_elements, 64},
          {s.cache.stride_head, 128},
          {s.cache.stride_token, 256},
          {s.cache.stride_block, 1024}}},
        {HALYARD_ERROR_SHAPE, {"tensors[0].kv.hadamard is 48", "32"}, {{q_kv.hadamard, 48}}},
        {HALYARD_ERROR_SHAPE,
         {"tensors[0].kv.hadamard is 24", "power of two"},
         {{q_kv.groups, nullptr}, {q.head_dim, 48}, {q_kv.hadamard, 24}}},
        {HALYARD_ERROR_UNSUPPORTED, {"tensors[2].head_dim is 2050", "2048"}, {{v.head_dim, 2050}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[2].kv.norm.rounding is 1", "records"},
         {{v_kv.norm, &s.norm}, {s.norm.rounding, HALYARD_NORM_ROUND_BEFORE_WEIGHT}}},
    });
    plans.accept({{q.dtype, HALYARD_BF16}, {q_kv.out_dtype, HALYARD_UINT8}, {q_kv.hadamard, 32}});
    // Tiles whose elements follow each other all the same, whatever is said of strides that nothing goes by.
    plans.accept({{s.cache.tile_elements, 16}, {s.cache.stride_tile_elements, 16}});
    plans.accept({{s.cache.tile_elements, 1}, {s.cache.stride_tile_elements, 1}, {s.cache.stride_element, 7}});
    // A record of one byte lies nowhere apart.
    plans.accept({{k_kv.no_rotation, 1}, {k.head_dim, 1}, {s.cache.stride_element, 5}});
}

TEST_CASE("errors: groups, what a run brings", "[errors][groups]") {
    GroupsRun s;
    const Table &runs = s.runs;
    auto &y = s.y[0], &x = s.x[2];
    auto &stages = s.stages;
    runs.accept({});
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {32, 39, 41}, {{"y[0].shape[3]", y.shape[3]}}, {"record", "40"});
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {32, 33, 36}, {{"x[2].shape[3]", x.shape[3]}}, {"record", "34"});
    runs.refuse({
        {HALYARD_ERROR_MISMATCH, {"y[0].dtype"}, {{y.dtype, HALYARD_F32}}},
        {HALYARD_ERROR_MISMATCH, {"x[2].dtype"}, {{x.dtype, HALYARD_E4M3}}},
        {HALYARD_ERROR_STRIDE,
         {"y[0].strides[3] is 2", "one after the other"},
         {{y.strides[3], 2}, {y.strides[2], 80}, {y.strides[1], 160}, {y.strides[0], 480}}},
        {HALYARD_ERROR_STRIDE, {"x[2].strides[3] is 0", "one after the other"}, {{x.strides[3], 0}}},
        {HALYARD_ERROR_STRIDE, {"y[0]", "could meet"}, {{y.strides[2], 39}}},
        {HALYARD_ERROR_STRIDE, {"tensors[1].kv.cache", "could meet"}, {{s.cache.stride_head, 31}}},
        {HALYARD_ERROR_NULL_POINTER, {"stages[1].group_scales is NULL"}, {{stages[1].group_scales, nullptr}}},
        {HALYARD_ERROR_MISMATCH, {"stages[0].group_scales"}, {{stages[0].group_scales, s.at(1600)}}},
        {HALYARD_ERROR_MISMATCH, {"stages[1].from_group_scales"}, {{stages[1].from_group_scales, s.at(1700)}}},
        {HALYARD_ERROR_MISMATCH, {"stages[2].from_group_scales"}, {{stages[2].from_group_scales, s.at(1700)}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].group_scales"}, {{stages[1].group_scales, s.at(1500)}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].group_scales"}, {{stages[1].group_scales, s.at(10)}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].group_scales"}, {{stages[1].group_scales, s.at(2000)}}},
        {HALYARD_ERROR_OVERLAP, {"x[2]"}, {{x.data, s.at(1300)}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]"}, {{y.data, s.at(10)}}},
        {HALYARD_ERROR_STRIDE, {"scales_stride", "could meet"}, {{s.k_groups.scales_stride_head, 1}}},
        {HALYARD_ERROR_STRIDE,
         {"scales_stride", "could meet"},
         {{s.k_groups.scales_stride_head, 1},
          {s.k_groups.scales_stride_token, 4},
          {s.k_groups.scales_stride_block, 16}}},
        {HALYARD_ERROR_OVERFLOW,
         {"stages[1].group_scales leaves the address space"},
         {{stages[1].group_scales, before_the_end_of_memory(0)}}},
        {HALYARD_ERROR_OVERFLOW,
         {"group_scales", "address space"},
         {{s.k_groups.scales_stride_head, 4}, {s.k_groups.scales_stride_token, INT64_MAX / 2}}},
        {HALYARD_ERROR_OVERFLOW,
         {"group_scales"},
         {{s.k_groups.scales_stride_head, 4},
          {s.k_groups.scales_stride_token, 8},
          {s.k_groups.scales_stride_block, INT64_MIN}}},
    });
    runs.accept({{s.k_groups.scales_stride_head, 16},
                 {s.k_groups.scales_stride_token, 4},
                 {s.k_groups.scales_stride_block, 32}});
}

TEST_CASE("errors: groups, a bound run of halyard.hpp takes what a good run does", "[groups]") {
    GroupsRun s;
    const auto before = s.arena;
    const halyard::plan plan(s.plan);
    const auto how = halyard::run_options().with(s.brought);
    halyard::run(plan, s.angles, s.x, s.y, how);
    const auto after = s.arena;
    CHECK(after != before);
    s.arena = before;
    const halyard::bound_run bound(plan, s.angles, s.x, s.y, how);
    bound({s.x[0].data, s.x[1].data, s.x[2].data}, {s.y[0].data, nullptr, s.y[2].data}, nullptr, {}, &s.brought);
    CHECK(std::memcmp(s.arena.data(), after.data(), after.size() * sizeof(float)) == 0);
}

TEST_CASE("errors: groups, what is told of a preset", "[errors][groups]") {
    auto out = sized<halyard_groups_info>();
    std::int32_t preset = HALYARD_GROUPS_GGML_Q8_0;
    std::int64_t head_dim = 128;
    halyard_groups_info *to = &out;
    const auto tell = [&](halyard_error *e) { return halyard_get_groups_info(preset, head_dim, to, e); };
    const Table table([&](halyard_status status, const Words &words) {
        const auto before = out;
        check_refused(status, words, tell);
        CHECK(std::memcmp(&before, &out, sizeof(out)) == 0);
    });
    table.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"info is NULL"}, {{to, nullptr}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"info.size is 0"}, {{out.size, 0}}},
        {HALYARD_ERROR_SHAPE, {"preset is 4", "a multiple of 32", "head_dim is 80"}, {{preset, 4}, {head_dim, 80}}},
        {HALYARD_ERROR_SHAPE, {"preset is 8", "a multiple of 2", "head_dim is 65"}, {{preset, 8}, {head_dim, 65}}},
        {HALYARD_ERROR_SHAPE, {"preset is 9", "576", "head_dim is 512"}, {{preset, 9}, {head_dim, 512}}},
        {HALYARD_ERROR_SHAPE, {"preset is 11", "512", "head_dim is 576"}, {{preset, 11}, {head_dim, 576}}},
    });
    table.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 0, 13, INT32_MIN}, {{"preset", preset}}, {"1 to 12"});
    table.refuse_each(HALYARD_ERROR_SHAPE, {0, -1, INT64_MIN}, {{"head_dim", head_dim}});
    table.refuse_each(HALYARD_ERROR_UNSUPPORTED, {2049, INT64_MAX}, {{"head_dim", head_dim}});
    // {apart, bytes, groups, their elements, data and its stride, scale and its stride, zero point, raw elements}
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
