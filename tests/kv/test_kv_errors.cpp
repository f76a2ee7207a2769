// Bad arguments of the KV path: impossible stages in plans, and arguments of runs that do not match the plan. Each must
// give its status and an error message that names the argument and its value, and nothing may be written. Beside each
// bad value a good one is accepted.
#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "valid_run.h"

#include <catch2/catch_get_random_seed.hpp>

#include <limits>

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN(),
                 infinite = std::numeric_limits<double>::infinity();

/// q is rotated in place; k has a norm, static scales and a cache; v has dynamic scales and another cache.
struct KvRun : ValidRun {
    halyard_scale_desc fixed = halyard::describe_static_scales(HALYARD_SCALE_PER_HEAD);
    halyard_cache_desc k_cache = halyard::describe_hnd_cache(n_slots / bs, bs, H, D);
    halyard_cache_desc v_cache = halyard::describe_nhd_cache(n_slots / bs, bs, H, D);

    KvRun() : ValidRun(3) {
        kv[1].norm = &norm;
        kv[1].scale = &fixed;
        kv[1].cache = &k_cache;
        stages[1] = halyard::stages(at(900), D, at(1000));  // k's cache has 128 elements
        stages[1].scales = at(950);
        stages[1].n_scales = H;
        kv[2].no_rotation = 1;
        kv[2].out_dtype = HALYARD_E4M3;
        store_with_dynamic_scales(2, v_cache);
    }
};

}  // namespace

TEST_CASE("errors: kv path, norms of a plan", "[errors][kv]") {
    KvRun s;
    const CallChecker &plans = s.plans;
    auto &norm = s.norm;
    s.refuse_fields({"tensors[1].kv.norm.window_size"});  // named together with window_offset, below
    plans.accept({{norm.eps, 1e38}});
    const std::int64_t D = KvRun::D, most = INT64_MAX;
    for (const auto &[offset, size] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {-1, 4}, {D, 0}, {D, 1}, {0, D + 1}, {4, 5}, {0, -1}, {1, most}, {INT64_MIN, 0}, {most, most}}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"window_offset is " + text(offset), "window_size " + text(size)},
                     {{norm.window_offset, offset}, {norm.window_size, size}});
    }
    plans.refuse({
        {HALYARD_ERROR_SCALE, {}, {{norm.eps, 1e39}}},
        {HALYARD_ERROR_MISMATCH, {"eps is 1e-06", "no_eps is 1"}, {{norm.no_eps, 1}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.weight_dtype, 0}, {norm.unit_offset, 1}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.weight_dtype, 0}, {norm.rounding, 2}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.weight_dtype, 0}, {norm.rounding, 3}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.width, 1}, {norm.window_size, 4}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.width, 1}, {norm.window_offset, 2}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.width, 1}, {norm.weight_per_head, 1}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.weight_dtype, 0}, {norm.weight_per_head, 1}}},
        {HALYARD_ERROR_MISMATCH, {}, {{norm.weight_dtype, 0}, {norm.kind, 1}, {norm.has_bias, 1}}},
        {HALYARD_ERROR_MISMATCH, {"has_bias is 1", "kind is HALYARD_NORM_RMS (0)"}, {{norm.has_bias, 1}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"tensors[1].head_dim is 2050", "2048"},
         {{s.tensors[1].head_dim, 2050}, {s.k_cache, halyard::describe_hnd_cache(2, 4, KvRun::H, 2050)}}},
    });
}

TEST_CASE("errors: kv path, dtypes, scales and caches of a plan", "[errors][kv]") {
    KvRun s;
    const CallChecker &plans = s.plans;
    auto &cache = s.k_cache;
    plans.accept({});
    for (const std::int32_t dtype : {HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8}) {
        plans.refuse(HALYARD_ERROR_UNSUPPORTED, {}, {{s.tensors[0].dtype, dtype}});
    }
    plans.refuse_each(HALYARD_ERROR_SHAPE, {1, 3, 6, 2 * KvRun::D, 1 << 30, INT32_MAX}, {s.kv[1].hadamard});
    const std::string of_k = "tensors[1].kv.cache";
    plans.refuse({
        {HALYARD_ERROR_MISMATCH, {}, {{s.dynamic.per, 1}}},
        {HALYARD_ERROR_MISMATCH, {}, {{s.kv[2].out_dtype, HALYARD_BF16}}},
        {HALYARD_ERROR_ROTARY_DIM, {}, {{s.plan.rotary_dim, 0}}},
        {HALYARD_ERROR_SHAPE, {}, {{cache.n_slots, 0}}},
        {HALYARD_ERROR_SHAPE, {"n_slots is 9", "multiple of block_size, 4"}, {{cache.n_slots, 9}}},
        {HALYARD_ERROR_STRIDE, {of_k, "could meet"}, {{cache.stride_token, 7}}},
        {HALYARD_ERROR_STRIDE, {of_k, "could meet"}, {{cache.stride_block, 31}}},
        {HALYARD_ERROR_STRIDE, {of_k, "could meet"}, {{cache.stride_block, -31}}},
        {HALYARD_ERROR_OVERFLOW, {of_k, "address space"}, {{cache.stride_token, INT64_MAX / 2}}},
        {HALYARD_ERROR_OVERFLOW, {of_k, "address space"}, {{cache.stride_block, INT64_MIN}}},
        {HALYARD_ERROR_OVERFLOW, {of_k}, {{cache.n_slots, INT64_MAX / 4 * 4}, {cache.stride_block, 1 << 20}}},
    });
    plans.accept_each({{{s.plan.rotary_dim, 0}, {s.kv[0].no_rotation, 1}, {s.kv[1].no_rotation, 1}},
                       {{s.tensors[2].pairing, 99}}});  // not read, since v is not rotated
    s.plan.target = "reference";
    check_refused(HALYARD_ERROR_TARGET_UNSUPPORTED, {"tensors[1] has more stages"}, [&](auto *error) {
        halyard_plan *plan = nullptr;
        return halyard_create_plan(&s.plan, &plan, error);
    });
}

TEST_CASE("errors: kv path, slots of a run", "[errors][kv]") {
    KvRun s;
    const CallChecker &runs = s.runs;
    auto &slots = s.slots;
    auto *const values = s.numbers(2000);
    for (const int i : {0, 1}) {
        for (const std::int64_t n : Numbers{1, 0, INT64_MAX}) {
            runs.refuse(HALYARD_ERROR_SHAPE, {"slots.shape", text(n), "{2, 3}"}, {{slots.shape[i], n}});
        }
    }
    for (const std::int32_t policy : {HALYARD_SLOTS_CHECK, HALYARD_SLOTS_RANGE_ONLY}) {
        for (const std::int64_t slot : Numbers{-2, 8, INT64_MAX, INT64_MIN}) {
            runs.refuse(HALYARD_ERROR_SLOT, {"slots[batch 1, token 1] is " + text(slot), "-1 to 7"},
                        {{values[4], slot}, {slots.policy, policy}});
        }
    }
    const auto smaller = halyard::describe_nhd_cache(1, 4, KvRun::H, KvRun::D);  // the smaller of two caches counts
    runs.refuse({
        {HALYARD_ERROR_SHAPE, {}, {{slots.scratch_bytes, 0}}},
        {HALYARD_ERROR_NULL_POINTER, {"slots.scratch is NULL", "needs 1 bytes"}, {{slots.scratch, nullptr}}},
        {HALYARD_ERROR_SLOT, {"slots[batch 0, token 0] is 5", "-1 to 3"}, {{s.v_cache, smaller}}},
        {HALYARD_ERROR_SLOT, {"slots[batch 1, token 2] is 0, as is slots[batch 0, token 1]"}, {{values[5], 0}}},
        {HALYARD_ERROR_MISMATCH, {"args.kv.slots is set"}, {{s.plan.n_tensors, 1}, {s.kv_args.stages, nullptr}}},
        // Scratch and slots must not share memory with anything that is read or written.
        {HALYARD_ERROR_OVERLAP, {"slots.scratch", "slots.data"}, {{slots.scratch, s.at(2000)}}},
        {HALYARD_ERROR_OVERLAP, {"slots.scratch", "y[0]"}, {{slots.scratch, s.at(7)}}},
        {HALYARD_ERROR_OVERLAP, {"slots.scratch", "stages[1].cache"}, {{slots.scratch, s.at(1127)}}},
    });
    runs.accept_each({{{s.plan.n_tensors, 1}, {s.kv_args.stages, nullptr}, {s.kv_args.slots, nullptr}},
                      {{slots.scratch, s.at(1128)}},
                      {{slots.policy, HALYARD_SLOTS_RANGE_ONLY}, {slots.scratch, nullptr}, {slots.scratch_bytes, -1}}});
}

TEST_CASE("errors: kv path, stages that a run lacks or has too many of", "[errors][kv]") {
    KvRun s;
    const CallChecker &runs = s.runs;
    auto &stages = s.stages;
    auto &norm = s.norm;
    runs.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"args.kv is NULL", "tensors[1] has a cache"}, {{s.args.kv, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"stages is NULL", "tensors[1] has a cache"}, {{s.kv_args.stages, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER,
         {"args.kv.stages and args.kv.slots are NULL, but tensors[1] has a cache"},
         {{s.kv_args.stages, nullptr}, {s.kv_args.slots, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"stages[1].bias is NULL"}, {{norm.kind, 1}, {norm.has_bias, 1}}},
    });
    runs.accept_each({
        {{s.x[1].shape[2], 0}, {stages[1], halyard::stages()}},  // a tensor without heads needs no stages
        {{s.y[1].size, 0}},                                      // y is not read if there is a cache
        // No tensor is rotated, so no angles are needed.
        {{s.kv[0].no_rotation, 1}, {s.kv[1].no_rotation, 1}, {s.args.angles, nullptr}},
    });

    s.kv[1].norm = nullptr;
    s.kv[1].scale = nullptr;
    s.kv[1].cache = nullptr;
    s.plan.n_tensors = 2;
    s.args.kv = nullptr;
    runs.accept({{s.kv[1].norm, &norm}, {norm.weight_dtype, 0}});
    runs.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"kv is NULL", "tensors[1] has a norm"}, {{s.kv[1].norm, &norm}}},
        {HALYARD_ERROR_NULL_POINTER, {"kv is NULL", "tensors[1] has "}, {{s.kv[1].scale, &s.fixed}}},
    });
}

TEST_CASE("errors: kv path, stages that do not fit their run", "[errors][kv]") {
    KvRun s;
    const CallChecker &runs = s.runs;
    auto &norm = s.norm;
    auto &k = s.stages[1];
    constexpr std::int64_t all = KvRun::H * KvRun::D;
    runs.refuse_each(HALYARD_ERROR_SHAPE, {7, 9, 0, INT64_MAX}, {k.n_weights, k.n_scales});
    for (const double scale : {0.0, -0.0, -1.0, nan_value, infinite, 0x1p-140}) {
        runs.refuse(HALYARD_ERROR_SCALE, {"stages[1].scales[1] is "}, {{*s.at(951), scale}});
    }
    runs.accept_each({{{*s.at(951), 0x1p-126}}, {{*s.at(951), 0x1.fffffep127}}});
    const auto before_end = before_the_end_of_memory<>;
    runs.refuse({
        {HALYARD_ERROR_SHAPE, {"stages[1].n_weights is 8", "16"}, {{norm.weight_per_head, 1}}},
        {HALYARD_ERROR_STRIDE, {"x[1] has 2 heads", "whose stride_head is 31"}, {{s.k_cache.stride_head, 31}}},
        {HALYARD_ERROR_STRIDE, {"stages[2].stride_scales is 0, 1, 1"}, {{s.stages[2].stride_scales[1], 1}}},
        {HALYARD_ERROR_OVERFLOW, {"stages[1].cache"}, {{k.cache, before_end(100)}}},
        {HALYARD_ERROR_OVERFLOW, {"stages[1].cache"}, {{s.k_cache.stride_head, INT64_MAX / 2}}},
        {HALYARD_ERROR_OVERFLOW,
         {"stages[1].cache"},
         {{s.x[1].shape[2], 5}, {s.k_cache.stride_head, INT64_MAX / 2 + 1}}},
        {HALYARD_ERROR_OVERFLOW, {"stages[1].weight"}, {{k.weight, before_end(30)}}},
        {HALYARD_ERROR_OVERFLOW, {"stages[1].bias"}, {{norm.kind, 1}, {norm.has_bias, 1}, {k.bias, before_end(30)}}},
        {HALYARD_ERROR_OVERFLOW,
         {"stages[1].weight"},
         {{norm.weight_per_head, 1}, {k.n_weights, all}, {k.weight, before_end(62)}}},
        {HALYARD_ERROR_OVERFLOW, {"stages[1].scales"}, {{k.scales, before_the_end_of_memory<float *>(6)}}},
        {HALYARD_ERROR_MISMATCH, {"y[0].dtype is f32, but the plan's is bf16"}, {{s.kv[0].out_dtype, HALYARD_BF16}}},
        // In place, the output must have the input's dtype.
        {HALYARD_ERROR_OVERLAP,
         {"y[0].data shares elements with x[0].data", "only an output of its input's dtype"},
         {{s.kv[0].out_dtype, HALYARD_BF16}, {s.y[0].dtype, HALYARD_BF16}}},
    });
}

TEST_CASE("errors: kv path, stages over other arguments", "[errors][kv]") {
    KvRun s;
    auto &stages = s.stages;
    s.norm.kind = HALYARD_NORM_LAYER;
    s.norm.has_bias = 1;
    stages[1].bias = s.at(910);
    struct Overlap {
        Words words;
        Change wrong, right;  // neighbouring values
    };
    for (const Overlap &each : std::initializer_list<Overlap>{
             {{"stages[1].cache", "x[2]"}, {stages[1].cache, s.at(495)}, {stages[1].cache, s.at(496)}},
             {{"y[0]", "stages[1].weight"}, {stages[1].weight, s.at(95)}, {stages[1].weight, s.at(96)}},
             {{"y[0]", "stages[1].bias"}, {stages[1].bias, s.at(95)}, {stages[1].bias, s.at(96)}},
             {{"stages[1].cache", "stages[1].bias"}, {stages[1].bias, s.at(1127)}, {stages[1].bias, s.at(1128)}},
             {{"stages[1].cache", "stages[1].scales"}, {stages[1].cache, s.at(951)}, {stages[1].cache, s.at(952)}},
             {{"stages[2].cache", "stages[1].cache"}, {stages[2].cache, s.at(1127)}, {stages[2].cache, s.at(1128)}},
             {{"stages[2].scales_out", "stages[2].cache"},
              {stages[2].scales_out, s.at(1331)},
              {stages[2].scales_out, s.at(1332)}},
             {{"stages[2].scales_out", "slots.data"},
              {stages[2].scales_out, s.at(2000)},
              {stages[2].scales_out, s.at(2012)}}}) {
        s.runs.refuse(HALYARD_ERROR_OVERLAP, each.words, {each.wrong});
        s.runs.accept({each.right});
    }
}

namespace {

/// The same, with scales by position for q: [2, 3, 2] floats at 3000 of the arena.
struct ScaledRun : KvRun {
    ScaledRun() {
        kv[0].position_scales = 1;
        stages[0].position_scales = at(3000);
        stages[0].stride_position_scales[0] = 6;
        stages[0].stride_position_scales[1] = 2;
        stages[0].stride_position_scales[2] = 1;
    }
};

}  // namespace

TEST_CASE("errors: kv path, scales by position", "[errors][kv]") {
    ScaledRun s;
    auto &q = s.stages[0];
    s.refuse_fields({"tensors*", "x*", "y*", "kv.stages[1]*", "kv.stages[2]*"});
    s.plans.refuse(HALYARD_ERROR_UNSUPPORTED, {}, {{s.tensors[0].head_dim, 2050}});

    const CallChecker &runs = s.runs;
    for (const double scale : {nan_value, infinite, -infinite}) {
        runs.refuse(HALYARD_ERROR_SCALE, {"stages[0].position_scales[batch 1, token 2, head 0] is ", "must be finite"},
                    {{*s.at(3010), scale}});
    }
    runs.accept_each({{{*s.at(3010), 0x1p-140}}, {{*s.at(3010), 0x1.fffffep127}}});
    // Only scales that the strides lead to are read, so others may be NaN.
    std::int64_t(&strides)[3] = q.stride_position_scales;
    runs.accept_each({{{*s.at(3010), nan_value}, {strides[0], 0}},
                      {{*s.at(3010), nan_value}, {strides[1], 0}},
                      {{*s.at(3001), nan_value}, {strides[2], 0}}});
    runs.refuse(HALYARD_ERROR_SCALE, {"position_scales[batch 0, token 0, head 0] is nan"},
                {{*s.at(3010), nan_value},
                 {q.position_scales, s.at(3010)},
                 {strides[0], -3},
                 {strides[1], -2},
                 {strides[2], 0}});
    runs.refuse({
        {HALYARD_ERROR_NULL_POINTER,
         {},
         {{s.plan.n_tensors, 1}, {s.kv_args.slots, nullptr}, {s.kv_args.stages, nullptr}}},
        {HALYARD_ERROR_OVERFLOW,
         {"stages[0].position_scales", "address space"},
         {{q.position_scales, before_the_end_of_memory<float *>(47)}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]", "stages[0].position_scales"}, {{q.position_scales, s.at(95)}}},
        {HALYARD_ERROR_OVERLAP, {"stages[2].cache", "stages[0].position_scales"}, {{q.position_scales, s.at(1289)}}},
    });
    runs.accept({{q.position_scales, s.at(96)}});
    // A tensor without heads needs no scales.
    runs.accept({{s.x[0].shape[2], 0}, {s.y[0].shape[2], 0}, {q.position_scales, nullptr}});
    // If the plan has no scales by position, their strides must be 0.
    runs.refuse(HALYARD_ERROR_MISMATCH, {},
                {{s.kv[0].position_scales, 0}, {q.position_scales, nullptr}, {strides[0], INT64_MAX}});
}

TEST_CASE("errors: kv path, counts and strides that nothing bounds", "[errors][kv]") {
    KvRun s;
    const CallChecker &runs = s.runs;
    // n_scales scales are checked, even if there are fewer heads.
    const GuardedMemory memory(1);
    auto *const last_two = reinterpret_cast<float *>(memory.end()) - 2;
    std::fill_n(last_two, 2, 1.0f);
    runs.refuse(HALYARD_ERROR_SHAPE, {"stages[1].n_scales is 2", "3"},
                {{s.x[1].shape[2], 3}, {s.k_cache.stride_block, 96}, {s.stages[1].scales, last_two}});
    // A huge number of heads, in a cache whose head stride is 0.
    runs.refuse(HALYARD_ERROR_STRIDE, {"x[1] has " + text(INT64_MAX / 2) + " heads", "tensors[1].kv.cache"},
                {{s.x[1].shape[2], INT64_MAX / 2}, {s.x[1].strides[2], 0}, {s.k_cache.stride_head, 0}});
    // The stride of a dimension of size 1 may be anything.
    for (const std::int64_t stride : Numbers{INT64_MIN, INT64_MAX}) {
        runs.accept({{s.x[1].shape[2], 1}, {s.stages[1].n_scales, 1}, {s.k_cache.stride_head, stride}});
        runs.accept({{s.kv[0].no_rotation, 1},
                     {s.tensors[0].head_dim, 1},
                     {s.x[0].shape[3], 1},
                     {s.y[0].shape[3], 1},
                     {s.x[0].strides[3], stride}});
    }
    // A huge number of tokens, in inputs and slots of stride 0.
    s.plan.n_tensors = 1;
    s.plan.tensors = &s.tensors[2];
    s.args.x = &s.x[2];
    s.kv_args.stages = &s.stages[2];
    std::vector<Change> endless;
    for (int i = 0; i < 2; i++) {
        endless.insert(endless.end(), {{s.x[2].shape[i], std::int64_t{1} << 32},
                                       {s.slots.shape[i], std::int64_t{1} << 32},
                                       {s.x[2].strides[i], 0},
                                       {s.slots.strides[i], 0}});
    }
    runs.refuse(HALYARD_ERROR_OVERFLOW, {"slots.shape", text(std::int64_t{1} << 32)}, endless);
}

// ValidRun::runs makes each bad run as a bound run, too. This test calls bound runs with structs that differ from the
// ones that they were bound with.
TEST_CASE("errors: kv path, calls of bound runs that bring other structs", "[errors][kv][bound]") {
    KvRun s;
    BoundRun b(s);
    b.calls.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"args.kv.slots.data is NULL"}, {{b.kv.slots, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.kv.slots.scratch is NULL"}, {{b.slots.scratch, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.kv.stages[1].weight is NULL"}, {{b.kv.stages, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.kv.stages[1].weight is NULL"}, {{b.args.kv, nullptr}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"args.kv.size is 0"}, {{b.kv.size, 0}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"args.kv.stages[2].size is 8"}, {{b.stages[2].size, 8}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"args.kv.slots.size is 0"}, {{b.slots.size, 0}}},
    });
    CHECK(b() == HALYARD_OK);
}

// Calls the API's fuzzer (tests/fuzz/fuzz_api.cpp) with random bytes. Half of its calls are sensible, the others have
// some nonsensical fields.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

TEST_CASE("errors: kv path, whatever is accepted is what the formula says, and stays in its memory", "[errors][kv]") {
    oracle::Random random(Catch::getSeed());
    std::vector<std::uint8_t> bytes(3000);
    for (int round = 0; round < 4000; round++) {
        CAPTURE(round);
        std::ranges::generate(bytes, [&] { return static_cast<std::uint8_t>(random.bits()); });
        REQUIRE_NOTHROW(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()));
    }
}
