// Bad descriptions of groups: plans that have them, runs that bring what does not fit, and halyard_resolve_groups. Each
// has its status, and a sentence that names the argument and its value; nothing is written.
#include "valid_run.h"

#include <limits>

namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();

/// Three tensors with heads of 32: q becomes records in a view, k records in a cache with scales apart, and v, which
/// comes as records, floats.
struct GroupsRun : ValidRun {
    static constexpr std::int64_t head_dim = 32, q_bytes = 48, k_bytes = 48, v_bytes = 34;

    halyard_groups_desc q_groups = describe_range_groups(), k_groups = sized<halyard_groups_desc>();
    halyard_groups_desc v_groups = halyard::describe_groups(HALYARD_GROUPS_GGML_Q8_0);
    halyard_cache_desc cache = halyard::describe_nhd_cache(n_slots / bs, bs, H, k_bytes);

    GroupsRun() : ValidRun(3) {
        // A group of 16 bytes, then 16 bf16; a byte of scale apart.
        k_groups.element = HALYARD_ELEMENT_E4M3;
        k_groups.rule = HALYARD_RULE_LARGEST;
        k_groups.scale_dtype = HALYARD_GROUP_SCALE_E8M0_UP;
        k_groups.raw_dtype = HALYARD_BF16;
        k_groups.n_grouped = k_groups.raw_offset = 16;
        k_groups.scale_stride = k_groups.scales_apart = 1;
        for (int i = 0; i < 3; i++) {
            tensors[i].head_dim = head_dim;
            x[i] = halyard::tensor(at(400 * i), halyard::dtype::f32, {n_batch, n_tokens, H, head_dim});
        }
        tensors[0].groups = &q_groups;
        y[0] = halyard::tensor(at(1200), halyard::dtype::uint8, {n_batch, n_tokens, H, q_bytes});  // 144 floats
        tensors[1].groups = &k_groups;
        tensors[1].cache = &cache;
        stages[1] = halyard::stages_into(at(1400));  // 192 floats
        stages[1].group_scales = at(1600);           // 4 floats
        tensors[2].dtype = HALYARD_UINT8;
        tensors[2].out_dtype = HALYARD_F32;
        tensors[2].from_groups = &v_groups;
        tensors[2].no_rotation = 1;
        x[2] = halyard::tensor(at(800), halyard::dtype::uint8, {n_batch, n_tokens, H, v_bytes});
        y[2] = halyard::tensor(at(2200), halyard::dtype::f32, {n_batch, n_tokens, H, head_dim});
    }
};

}  // namespace

TEST_CASE("errors: groups, values that are none", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &groups = s.q_groups;
    const std::string name = "tensors[0].groups->";
    plans.accept({});
    plans.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_groups_desc>(),
                      {{"tensors[0].groups.size", groups.size}});
    plans.refuse_each(HALYARD_ERROR_STRUCT_SIZE, {0, 148, 160}, {{"tensors[2].from_groups.size", s.v_groups.size}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 13, INT32_MAX, INT32_MIN}, {{name + "preset", groups.preset}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 0, 7, INT32_MAX}, {{name + "element", groups.element}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 4, INT32_MIN},
                      {{name + "rule", groups.rule}, {name + "packing", groups.packing}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {0}, {{name + "rule", groups.rule}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 3, INT32_MAX}, {{name + "reciprocal", groups.reciprocal}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 2, INT32_MAX},
                      {{name + "rounding", groups.rounding}, {name + "scales_apart", groups.scales_apart}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {0, -1, 6, INT32_MAX}, {{name + "scale_dtype", groups.scale_dtype}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, HALYARD_E4M3, HALYARD_INT8, HALYARD_UINT8},
                      {{name + "raw_dtype", groups.raw_dtype}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {1, -1, INT32_MAX}, {{name + "reserved", groups.reserved}});
    for (const float floor : {-1e-6f, nan_value, infinite, -infinite}) {
        plans.refuse(HALYARD_ERROR_SCALE, {name + "floor is "}, {{groups.floor, floor}});
    }
    for (const std::int32_t dtype : {HALYARD_GROUP_SCALE_F32, HALYARD_GROUP_SCALE_F16, HALYARD_GROUP_SCALE_BF16}) {
        plans.accept({{groups.scale_dtype, dtype}});
    }
}

TEST_CASE("errors: groups, fields that contradict each other", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &q = s.q_groups, &k = s.k_groups;
    const std::string of_q = "tensors[0].groups->", of_k = "tensors[1].groups->";
    plans.refuse({
        {HALYARD_ERROR_MISMATCH, {of_q + "rule is 1", "element is 2"}, {{q.rule, HALYARD_RULE_LARGEST}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "rule is 2", "element is 2"}, {{q.rule, HALYARD_RULE_SIGNED}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "rule is 3", "element is 1"}, {{q.element, HALYARD_ELEMENT_INT8}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "rule is 3", "element is 5"}, {{q.element, HALYARD_ELEMENT_E4M3}}},
        {HALYARD_ERROR_MISMATCH, {of_k + "rule is 1", "element is 2"}, {{k.element, HALYARD_ELEMENT_UINT8}}},
        {HALYARD_ERROR_MISMATCH,
         {of_k + "rule is 2", "element is 3"},
         {{k.element, HALYARD_ELEMENT_INT4}, {k.rule, HALYARD_RULE_SIGNED}, {k.packing, HALYARD_PACKING_HALVES}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "packing is 1", "8 bits"}, {{q.packing, HALYARD_PACKING_LOW_FIRST}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "packing is 0", "4 bits"}, {{q.element, HALYARD_ELEMENT_UINT4}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "reciprocal is ", "2"}, {{q.reciprocal, HALYARD_RECIPROCAL_OF_LARGEST}}},
        {HALYARD_ERROR_MISMATCH,
         {of_k + "reciprocal is ", "2"},
         {{k.reciprocal, HALYARD_RECIPROCAL_OF_LARGEST},
          {k.scale_dtype, HALYARD_GROUP_SCALE_F32},
          {k.scale_stride, 4},
          {k.floor, 1e-4f}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "rounding is ", "1"}, {{q.rounding, HALYARD_ROUNDING_AWAY}}},
        {HALYARD_ERROR_MISMATCH, {of_k + "rounding is ", "1"}, {{k.rounding, HALYARD_ROUNDING_AWAY}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "scale_dtype is 4"}, {{q.scale_dtype, HALYARD_GROUP_SCALE_E8M0_UP}}},
        {HALYARD_ERROR_MISMATCH, {of_k + "scale_dtype is 4"}, {{k.reciprocal, HALYARD_RECIPROCAL_OF_SCALE}}},
        {HALYARD_ERROR_MISMATCH,
         {of_k + "scale_dtype is ", "5"},
         {{k.element, HALYARD_ELEMENT_INT8}, {k.scale_dtype, HALYARD_GROUP_SCALE_E8M0_OCP}}},
        {HALYARD_ERROR_MISMATCH,
         {of_k + "floor is "},
         {{k.scale_dtype, HALYARD_GROUP_SCALE_E8M0_OCP}, {k.floor, 1e-4f}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "floor is 0"}, {{q.floor, 0.0f}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "scales_apart is 1", "zero points"}, {{q.scales_apart, 1}}},
        {HALYARD_ERROR_MISMATCH,
         {of_q + "reciprocal is ", "2"},
         {{q.element, HALYARD_ELEMENT_UINT4},
          {q.packing, HALYARD_PACKING_HALVES},
          {q.rule, HALYARD_RULE_SIGNED},
          {q.floor, 0.0f},
          {q.zero_offset, 0},
          {q.zero_stride, 0},
          {q.reciprocal, HALYARD_RECIPROCAL_OF_LARGEST}}},
    });
    for (std::int64_t *const stride : {&q.scales_stride_block, &q.scales_stride_token, &q.scales_stride_head}) {
        plans.refuse(HALYARD_ERROR_MISMATCH, {of_q + "scales_stride_", "scales_apart is 0"}, {{*stride, 4}});
    }
    plans.accept({{k.scale_dtype, HALYARD_GROUP_SCALE_E8M0_OCP}});
    plans.accept({{k.floor, 1e-4f}});
    plans.accept({{q.element, HALYARD_ELEMENT_UINT4}, {q.packing, HALYARD_PACKING_HALVES}});
}

TEST_CASE("errors: groups, fields beside a preset", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &v = s.v_groups;
    const std::string of_v = "tensors[2].from_groups->";
    plans.refuse_each(HALYARD_ERROR_MISMATCH, {3},
                      {{of_v + "element", v.element},
                       {of_v + "packing", v.packing},
                       {of_v + "rule", v.rule},
                       {of_v + "scale_dtype", v.scale_dtype},
                       {of_v + "raw_dtype", v.raw_dtype},
                       {of_v + "group", v.group},
                       {of_v + "data_offset", v.data_offset},
                       {of_v + "data_stride", v.data_stride},
                       {of_v + "scale_offset", v.scale_offset},
                       {of_v + "scale_stride", v.scale_stride},
                       {of_v + "zero_offset", v.zero_offset},
                       {of_v + "zero_stride", v.zero_stride},
                       {of_v + "raw_offset", v.raw_offset}},
                      {"preset"});
    plans.refuse_each(
        HALYARD_ERROR_MISMATCH, {1},
        {{of_v + "reciprocal", v.reciprocal}, {of_v + "rounding", v.rounding}, {of_v + "scales_apart", v.scales_apart}},
        {"preset"});
    plans.refuse(HALYARD_ERROR_MISMATCH, {of_v + "floor is 1", "preset"}, {{v.floor, 1.0f}});
    // The first of two contradictions is told.
    plans.refuse(HALYARD_ERROR_MISMATCH, {of_v + "element is 3"}, {{v.element, 3}, {v.group, 3}});
    const auto resolve = [](std::int32_t preset, std::int64_t head_dim) {
        return [=](halyard_error *error) {
            const auto groups = halyard::describe_groups(preset);
            auto out = sized<halyard_groups_desc>();
            return halyard_resolve_groups(&groups, head_dim, &out, error);
        };
    };
    check_refused(HALYARD_ERROR_SHAPE, {"groups->preset is 10, whose records have 576 bytes", "480 elements take 512"},
                  resolve(HALYARD_GROUPS_MLA_V4, 480));
    CHECK(resolve(HALYARD_GROUPS_MLA_V4, 512)(nullptr) == HALYARD_OK);
    plans.accept({{v.element, HALYARD_ELEMENT_INT8}, {v.group, 32}, {v.data_stride, 34}, {v.n_grouped, 32}});
}

TEST_CASE("errors: groups, sizes and places", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &q = s.q_groups, &k = s.k_groups;
    const std::string of_q = "tensors[0].groups->", of_k = "tensors[1].groups->";
    plans.refuse_each(HALYARD_ERROR_SHAPE, {-1, 33, INT64_MAX, INT64_MIN}, {{of_q + "n_grouped", q.n_grouped}});
    plans.refuse_each(HALYARD_ERROR_SHAPE, {-16, 1, 8, 24, 256, INT64_MAX}, {{of_q + "group", q.group}},
                      {"16, 32, 64, 128"});
    plans.refuse_each(HALYARD_ERROR_SHAPE, {64, 128}, {{of_q + "group", q.group}}, {"32"});
    plans.refuse({
        {HALYARD_ERROR_SHAPE, {of_q + "n_grouped is 16", "raw_dtype is 0"}, {{q.n_grouped, 16}}},
        {HALYARD_ERROR_SHAPE, {of_k + "n_grouped is 32", "raw_dtype"}, {{k.n_grouped, 32}}},
        {HALYARD_ERROR_SHAPE,
         {of_k + "group is 31", "two elements share a byte"},
         {{k.n_grouped, 31}, {k.element, HALYARD_ELEMENT_INT4}, {k.packing, HALYARD_PACKING_LOW_FIRST}}},
        {HALYARD_ERROR_SHAPE, {of_q + "record_bytes is 47", "48"}, {{q.record_bytes, 47}}},
        {HALYARD_ERROR_SHAPE, {of_q + "record_bytes is -1"}, {{q.record_bytes, -1}}},
        {HALYARD_ERROR_STRIDE, {of_q + "zero_offset", "shares byte 0"}, {{q.zero_offset, 0}}},
        {HALYARD_ERROR_STRIDE, {of_q, "shares byte "}, {{q.data_offset, 15}}},
        {HALYARD_ERROR_STRIDE, {of_q, "shares byte 31"}, {{q.data_stride, 15}}},
        {HALYARD_ERROR_STRIDE, {of_q, "shares byte 16"}, {{q.data_stride, 0}}},
        {HALYARD_ERROR_STRIDE, {of_q, "shares byte "}, {{q.scale_stride, 0}}},
        {HALYARD_ERROR_STRIDE, {of_q, "shares byte "}, {{q.scale_offset, 16}}},
        {HALYARD_ERROR_STRIDE, {of_k, "shares byte 15"}, {{k.raw_offset, 15}}},
        {HALYARD_ERROR_STRIDE,
         {of_k + "scale_stride is 0"},
         {{s.tensors[1].head_dim, 48},
          {s.k_groups.n_grouped, 32},
          {k.group, 16},
          {k.data_stride, 16},
          {k.raw_offset, 32},
          {k.scale_stride, 0}}},
        {HALYARD_ERROR_MISMATCH, {of_k + "zero_offset is 64", "zero points"}, {{k.zero_offset, 64}}},
        {HALYARD_ERROR_MISMATCH, {of_k, "zero_stride 8", "zero points"}, {{k.zero_stride, 8}}},
        {HALYARD_ERROR_MISMATCH, {of_q + "raw_offset is 48", "raw_dtype is 0"}, {{q.raw_offset, 48}}},
    });
    plans.refuse_each(HALYARD_ERROR_SHAPE, {-1, INT64_MIN, (1 << 30) + 1, INT64_MAX},
                      {{of_q + "data_offset", q.data_offset},
                       {of_q + "scale_offset", q.scale_offset},
                       {of_q + "zero_offset", q.zero_offset},
                       {of_k + "raw_offset", k.raw_offset}});
    for (std::int64_t *const stride : {&q.data_stride, &q.scale_stride, &q.zero_stride}) {
        for (const std::int64_t value : {std::int64_t{-1}, INT64_MAX}) {
            plans.refuse(HALYARD_ERROR_SHAPE, {of_q, "stride " + text(value)}, {{*stride, value}});
        }
    }
    plans.accept({{q.n_grouped, 32}, {q.record_bytes, 48}});
    plans.accept({{k.scale_stride, 0}});  // of one group
    plans.accept({{q.record_bytes, 64}});
    plans.accept({{q.group, 0}, {q.scale_stride, 0}, {q.zero_stride, 0}});
    plans.refuse(HALYARD_ERROR_UNSUPPORTED, {"tensors[0].head_dim is 2050", "2048"}, {{s.tensors[0].head_dim, 2050}});
}

TEST_CASE("errors: groups, beside a tensor's other fields", "[errors][groups]") {
    GroupsRun s;
    const Table &plans = s.plans;
    auto &q = s.tensors[0], &k = s.tensors[1], &v = s.tensors[2];
    auto fixed = halyard::describe_static_scales();
    plans.refuse({
        {HALYARD_ERROR_MISMATCH, {"tensors[0].scale is set", "groups"}, {{q.scale, &fixed}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[2].scale is set", "groups"}, {{v.scale, &fixed}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[0].out_dtype is f32", "groups is set"}, {{q.out_dtype, HALYARD_F32}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[1].out_dtype is int8", "groups is set"}, {{k.out_dtype, HALYARD_INT8}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[2].dtype is f32", "from_groups is set"}, {{v.dtype, HALYARD_F32}}},
        {HALYARD_ERROR_UNSUPPORTED, {"tensors[0].dtype is uint8"}, {{q.dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH, {"tensors[2].out_dtype is ", "groups is NULL"}, {{v.out_dtype, HALYARD_UINT8}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[0].out_dtype is ", "groups is NULL"},
         {{q.out_dtype, HALYARD_UINT8}, {q.groups, nullptr}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[0].from_groups is set", "rerotates"},
         {{s.plan.rerotates, 1}, {s.plan.tensors, &v}, {s.plan.n_tensors, 1}, {v.no_rotation, 0}, {v.out_dtype, 0}}},
        {HALYARD_ERROR_STRIDE,
         {"tensors[1].cache", "one after the other"},
         {{s.cache.stride_element, 2},
          {s.cache.stride_head, 96},
          {s.cache.stride_token, 192},
          {s.cache.stride_block, 768}}},
        {HALYARD_ERROR_STRIDE,
         {"tensors[1].cache", "one after the other"},
         {{s.cache.tile_elements, 16},
          {s.cache.stride_tile_elements, 64},
          {s.cache.stride_head, 192},
          {s.cache.stride_token, 384},
          {s.cache.stride_block, 1536}}},
        {HALYARD_ERROR_SHAPE, {"tensors[0].hadamard is 48", "32"}, {{q.hadamard, 48}}},
        {HALYARD_ERROR_SHAPE,
         {"tensors[0].hadamard is 24", "power of two"},
         {{q.groups, nullptr}, {q.head_dim, 48}, {q.hadamard, 24}}},
        {HALYARD_ERROR_UNSUPPORTED, {"tensors[2].head_dim is 2050", "2048"}, {{v.head_dim, 2050}}},
        {HALYARD_ERROR_MISMATCH,
         {"tensors[2].norm->rounding is 1", "records"},
         {{v.norm, &s.norm}, {s.norm.rounding, HALYARD_NORM_ROUND_BEFORE_WEIGHT}}},
    });
    plans.accept({{q.dtype, HALYARD_BF16}, {q.out_dtype, HALYARD_UINT8}, {q.hadamard, 32}});
    // Tiles whose elements follow each other all the same, whatever is said of strides that nothing goes by.
    plans.accept({{s.cache.tile_elements, 16}, {s.cache.stride_tile_elements, 16}});
    plans.accept({{s.cache.tile_elements, 1}, {s.cache.stride_tile_elements, 1}, {s.cache.stride_element, 7}});
    // A record of one byte lies nowhere apart.
    plans.accept({{k.no_rotation, 1},
                  {k.head_dim, 2},
                  {s.k_groups.element, HALYARD_ELEMENT_INT4},
                  {s.k_groups.packing, HALYARD_PACKING_LOW_FIRST},
                  {s.k_groups.raw_dtype, 0},
                  {s.k_groups.raw_offset, 0},
                  {s.k_groups.n_grouped, 0},
                  {s.k_groups.group, 0},
                  {s.cache.stride_element, 5}});
}

TEST_CASE("errors: groups, what a run brings", "[errors][groups]") {
    GroupsRun s;
    const Table &runs = s.runs;
    auto &y = s.y[0], &x = s.x[2];
    auto &stages = s.stages;
    runs.accept({});
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {32, 47, 49}, {{"y[0].shape[3]", y.shape[3]}}, {"record", "48"});
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {32, 33, 36}, {{"x[2].shape[3]", x.shape[3]}}, {"record", "34"});
    runs.refuse({
        {HALYARD_ERROR_MISMATCH, {"y[0].dtype"}, {{y.dtype, HALYARD_F32}}},
        {HALYARD_ERROR_MISMATCH, {"x[2].dtype"}, {{x.dtype, HALYARD_E4M3}}},
        {HALYARD_ERROR_STRIDE,
         {"y[0].strides[3] is 2", "one after the other"},
         {{y.strides[3], 2}, {y.strides[2], 96}, {y.strides[1], 192}, {y.strides[0], 576}}},
        {HALYARD_ERROR_STRIDE, {"x[2].strides[3] is 0", "one after the other"}, {{x.strides[3], 0}}},
        {HALYARD_ERROR_STRIDE, {"y[0]", "could meet"}, {{y.strides[2], 47}}},
        {HALYARD_ERROR_STRIDE, {"tensors[1].cache", "could meet"}, {{s.cache.stride_head, 47}}},
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
          {s.k_groups.scales_stride_token, 1},
          {s.k_groups.scales_stride_block, 8}}},
        {HALYARD_ERROR_OVERFLOW,
         {"group_scales", "address space"},
         {{s.k_groups.scales_stride_head, 1}, {s.k_groups.scales_stride_token, INT64_MAX / 2}}},
        {HALYARD_ERROR_OVERFLOW,
         {"group_scales"},
         {{s.k_groups.scales_stride_head, 1},
          {s.k_groups.scales_stride_token, 2},
          {s.k_groups.scales_stride_block, INT64_MIN}}},
    });
    runs.accept({{s.k_groups.scales_stride_head, 8},
                 {s.k_groups.scales_stride_token, 1},
                 {s.k_groups.scales_stride_block, 16}});
}

TEST_CASE("errors: groups, bound runs", "[errors][groups]") {
    GroupsRun s;
    BoundRun bound(s);
    auto &scales = bound.group_scales;
    CHECK(bound() == HALYARD_OK);
    bound.calls.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"group_scales"}, {{bound.args.group_scales, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.group_scales[1]"}, {{scales[1], nullptr}}},
        {HALYARD_ERROR_MISMATCH, {"args.group_scales[0]"}, {{scales[0], s.at(1700)}}},
        {HALYARD_ERROR_MISMATCH, {"from_group_scales"}, {{bound.args.from_group_scales, bound.args.group_scales}}},
        {HALYARD_ERROR_OVERLAP, {"args.group_scales[1]"}, {{scales[1], s.at(1500)}}},
    });
    s.k_groups.scale_offset = 1;
    auto *const last = before_the_end_of_memory(0);
    s.runs.refuse(HALYARD_ERROR_OVERFLOW, {"stages[1].group_scales leaves the address space"},
                  {{s.stages[1].group_scales, last}});
    BoundRun behind(s);
    behind.calls.refuse(HALYARD_ERROR_OVERFLOW, {"args.group_scales[1]", "address space"},
                        {{behind.group_scales[1], last}});
}

TEST_CASE("errors: groups, a bound run of halyard.hpp takes what a good run does", "[groups]") {
    GroupsRun s;
    const auto before = s.arena;
    const halyard::plan plan(s.plan);
    const auto how = halyard::run_options().into(s.slots, s.stages);
    halyard::run(plan, s.angles, s.x, s.y, how);
    const auto after = s.arena;
    CHECK(after != before);
    s.arena = before;
    const halyard::bound_run bound(plan, s.angles, s.x, s.y, how);
    void *const caches[] = {nullptr, s.stages[1].cache, nullptr}, *const scales[] = {nullptr, s.at(1600), nullptr};
    halyard::bound_stages stages;
    stages.slots = s.slots.data;
    stages.slots_scratch = s.slots.scratch;
    stages.caches = caches;
    stages.group_scales = scales;
    bound({s.x[0].data, s.x[1].data, s.x[2].data}, {s.y[0].data, nullptr, s.y[2].data}, nullptr, stages);
    CHECK(std::memcmp(s.arena.data(), after.data(), after.size() * sizeof(float)) == 0);
}

TEST_CASE("errors: groups, resolved", "[errors][groups]") {
    auto groups = halyard::describe_groups(HALYARD_GROUPS_GGML_Q8_0);
    auto out = sized<halyard_groups_desc>();
    std::int64_t head_dim = 128;
    const halyard_groups_desc *given = &groups;
    halyard_groups_desc *to = &out;
    const auto resolve = [&](halyard_error *e) { return halyard_resolve_groups(given, head_dim, to, e); };
    const Table table([&](halyard_status status, const Words &words) {
        const auto before = out;
        check_refused(status, words, resolve);
        CHECK(std::memcmp(&before, &out, sizeof(out)) == 0);
    });
    table.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"groups is NULL"}, {{given, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"out is NULL"}, {{to, nullptr}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"groups.size is 8"}, {{groups.size, 8}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"out.size is 0"}, {{out.size, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"groups->preset is 13"}, {{groups.preset, 13}}},
        {HALYARD_ERROR_SHAPE, {"groups->group is 32"}, {{head_dim, 80}}},
    });
    table.refuse_each(HALYARD_ERROR_SHAPE, {0, -1, INT64_MIN}, {{"head_dim", head_dim}});
    table.refuse_each(HALYARD_ERROR_UNSUPPORTED, {2049, INT64_MAX}, {{"head_dim", head_dim}});
    REQUIRE(resolve(nullptr) == HALYARD_OK);
    CHECK(out.record_bytes == 136);
    CHECK(out.element == HALYARD_ELEMENT_INT8);
    CHECK(out.n_grouped == 128);
    CHECK(out.size == sizeof(out));
    // What it says it takes again.
    groups = out;
    REQUIRE(resolve(nullptr) == HALYARD_OK);
    CHECK(std::memcmp(&groups, &out, sizeof(out)) == 0);
    // Each preset has records of these bytes, of which the head's length can be told.
    const std::int64_t dims[] = {128, 128, 128, 128, 128, 128, 128, 128, 576, 512, 512, 128};
    const std::int64_t bytes[] = {136, 136, 136, 72, 128, 128, 136, 72, 656, 576, 512, 132};
    for (std::int32_t preset = 1; preset <= 12; preset++) {
        CAPTURE(preset);
        const auto described = halyard::describe_groups(preset);
        CHECK(halyard::resolve_groups(described, dims[preset - 1]).record_bytes == bytes[preset - 1]);
        CHECK(halyard::find_head_dim(described, bytes[preset - 1]) == dims[preset - 1]);
        CHECK(halyard::find_head_dim(described, 1) == (bytes[preset - 1] == 128 ? 1 : 0));
    }
    // Of records with room behind their places, it cannot.
    groups = halyard::describe_groups(HALYARD_GROUPS_GGML_Q8_0);
    groups.record_bytes = 144;
    CHECK(halyard::find_head_dim(groups, 144) == 0);
    groups.n_grouped = 128;
    CHECK(halyard::find_head_dim(groups, 144) == 128);
}
