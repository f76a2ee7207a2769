// The KV path on a CUDA device: refused calls, and cases that the random calls of test_cuda_kernels.cpp do not reach.
#include "tests/cuda/working_run.h"

#include <catch2/matchers/catch_matchers_string.hpp>

TEST_CASE("cuda device: what no kernel of a device does is refused by the plan", "[cuda]") {
    const WorkingRun w;
    auto tensor = halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half);
    auto kv = sized<halyard_kv_desc>();
    tensor.kv = &kv;
    auto norm = halyard::describe_norm(halyard::dtype::f32);
    auto scale = halyard::describe_static_scales();
    auto nhd = halyard::describe_nhd_cache(4, 16, 2, 64);
    bool rerotates = false;
    // Making a plan and explaining it give the same error message.
    const CallChecker plans([&](halyard_status, const Words &words) {
        halyard::plan_desc desc(64, {tensor});
        desc.rerotates = rerotates;
        CHECK_THROWS_WITH(halyard::cuda_plan(w.queue, desc, w.angles), words[0]);
        CHECK_THROWS_WITH(halyard::explain(HALYARD_CUDA, desc), words[0]);
    });
    const auto refuse = [&](const std::string &what, const std::vector<Change> &changes) {
        const std::string sentence = "tensors[0].kv." + what + ", which no kernel of a device takes";
        plans.refuse(HALYARD_ERROR_UNSUPPORTED, {sentence}, changes);
    };
    plans.refuse({{HALYARD_ERROR_UNSUPPORTED,
                   {"rerotates is 1, but on a device this version moves no keys from position to position"},
                   {{rerotates, true}}}});
    refuse("position_scales is 1", {{kv.position_scales, 1}});
    refuse("hadamard is set", {{kv.hadamard, 64}});
    kv.norm = &norm;
    refuse("norm.width is HALYARD_NORM_ROW (1)", {{norm.width, HALYARD_NORM_ROW}});
    refuse("norm.kind is HALYARD_NORM_LAYER (1)", {{norm.kind, HALYARD_NORM_LAYER}});
    refuse("norm.weight_per_head is 1", {{norm.weight_per_head, 1}});
    refuse("norm.order is HALYARD_NORM_AFTER (1)", {{norm.order, HALYARD_NORM_AFTER}});
    refuse("norm.rounding is set", {{norm.rounding, HALYARD_NORM_ROUND_BEFORE_WEIGHT}});
    refuse("norm has a window", {{norm.window_size, 32}});
    kv.norm = nullptr;
    kv.scale = &scale;
    refuse("scale.kind is HALYARD_SCALE_DYNAMIC (1)",
           {{scale.kind, HALYARD_SCALE_DYNAMIC}, {kv.out_dtype, HALYARD_E4M3}});
    refuse("scale.per is not HALYARD_SCALE_PER_TENSOR (0)", {{scale.per, HALYARD_SCALE_PER_HEAD}});
    kv.scale = nullptr;
    kv.cache = &nhd;
    refuse("cache has heads that are not dense", {{nhd.tile_elements, 8},
                                                  {nhd.stride_tile_elements, 16 * 8},
                                                  {nhd.stride_token, 8},
                                                  {nhd.stride_head, 16 * 64}});
    refuse("cache has heads that are not dense", {{nhd.stride_element, 2},
                                                  {nhd.stride_head, 128},
                                                  {nhd.stride_token, 256},
                                                  {nhd.stride_block, 16 * 256}});
    refuse("cache has tiles of tokens",
           {{nhd.tile_tokens, 4}, {nhd.stride_tile_tokens, 5 * 128}, {nhd.stride_block, 4 * 5 * 128}});
    nhd.tile_tokens = 4;
    nhd.stride_tile_tokens = 4 * 128;  // tiles that follow each other are as good as no tiles
    halyard::cuda_plan(w.queue, halyard::plan_desc(64, {tensor}), w.angles);
    tensor.dtype = HALYARD_F16;
    kv.out_dtype = HALYARD_BF16;
    CHECK_THROWS_WITH(halyard::cuda_plan(w.queue, halyard::plan_desc(64, {tensor}), w.angles),
                      Catch::Matchers::ContainsSubstring("tensors[0] is taken by no kernel of the list"));
}

namespace {

/// A run that norms, scales and stores four tokens in a cache.
struct KvDeviceRun : WorkingRun {
    struct Desc {
        halyard_norm_desc norm = halyard::describe_norm(halyard::dtype::bf16);
        halyard_scale_desc scale = halyard::describe_static_scales();
        halyard_cache_desc cache = halyard::describe_nhd_cache(1, 4, 2, 64);
        halyard_kv_desc kv = sized<halyard_kv_desc>();
        halyard_tensor_desc tensor = halyard::describe_tensor(halyard::dtype::bf16, 64, halyard::pairing::half);

        Desc() {
            kv.out_dtype = HALYARD_E4M3;
            kv.norm = &norm;
            kv.scale = &scale;
            kv.cache = &cache;
            tensor.kv = &kv;
        }
    };
    cuda_test::Memory weights{queue, std::vector<char>(64 * 2 + 16)};
    cuda_test::Memory slots_memory{queue, std::vector<std::int32_t>{0, 1, 2, 3, 0, 0, 0, 0}};
    halyard_slots slots = halyard::unchecked_slots(static_cast<const std::int32_t *>(slots_memory.data()), {1, 4});
    halyard_stages stages = halyard::stages(weights.data(), 64, to.data());
    float scale = 0.5f;

    KvDeviceRun() : WorkingRun(Desc().tensor, 64) {
        x.dtype = HALYARD_BF16;
        stages.scales = &scale;
        stages.n_scales = 1;
        kv_args.slots = &slots;
        kv_args.stages = &stages;
    }
};

/// A tensor that is only normed, without weights.
struct NormAlone : KvDeviceRun::Desc {
    NormAlone() {
        norm.weight_dtype = 0;
        tensor.dtype = HALYARD_F32;
        kv.out_dtype = 0;
        kv.scale = nullptr;
        kv.cache = nullptr;
    }
};

}  // namespace

TEST_CASE("cuda device: what cannot be launched is refused, and nothing is written", "[cuda]") {
    KvDeviceRun w;
    alignas(16) char here[1024] = {};
    constexpr std::int64_t far = std::int64_t{1} << 32;
    w.runs.refuse({
        {HALYARD_ERROR_UNSUPPORTED,
         {"args.kv.slots.policy is HALYARD_SLOTS_CHECK (0)"},
         {{w.slots.policy, HALYARD_SLOTS_CHECK}}},
        {HALYARD_ERROR_UNSUPPORTED, {"slots"}, {{w.slots.consecutive, 1}}},
        {HALYARD_ERROR_SHAPE, {"slots.shape"}, {{w.slots.shape[1], 3}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"args.kv.slots.size is 8"}, {{w.slots.size, 8}}},
        {HALYARD_ERROR_UNSUPPORTED, {"stages[0].cache is memory that", "does not know"}, {{w.stages.cache, &here[0]}}},
        {HALYARD_ERROR_UNSUPPORTED, {"stages[0].weight is memory that"}, {{w.stages.weight, &here[0]}}},
        {HALYARD_ERROR_UNSUPPORTED, {"slots.data is memory that"}, {{w.slots.data, &here[0]}}},
        {HALYARD_ERROR_UNSUPPORTED, {"stages[0].scales is device memory"}, {{w.stages.scales, w.weights.data()}}},
        {HALYARD_ERROR_OVERLAP, {"error_word", "stages[0].cache"}, {{w.args.error_word, w.to.data(4)}}},
        {HALYARD_ERROR_OVERLAP, {"error_word", "stages[0].weight"}, {{w.args.error_word, w.weights.data(4)}}},
        {HALYARD_ERROR_OVERLAP, {"error_word", "slots.data"}, {{w.args.error_word, w.slots_memory.data(4)}}},
        {HALYARD_ERROR_SCALE, {"scales[0] is 0"}, {{w.scale, 0}}},
        {HALYARD_ERROR_NULL_POINTER, {"cache is NULL"}, {{w.stages.cache, nullptr}}},
        {HALYARD_ERROR_OVERLAP, {"cache", "x[0]"}, {{w.stages.cache, w.x.data}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"elements are not contiguous"},
         {{w.x.strides, std::array<std::int64_t, 4>{0, 64, 64, 2}}}},
        {HALYARD_ERROR_UNSUPPORTED, {"weight"}, {{w.stages.weight, w.weights.data(2)}}},
        {HALYARD_ERROR_UNSUPPORTED, {"not aligned to 16 bytes"}, {{w.x.data, w.from.data(8)}}},
        {HALYARD_ERROR_UNSUPPORTED, {"slots lie more than 2^31 words apart"}, {{w.slots.strides[1], far}}},
        {HALYARD_ERROR_UNSUPPORTED, {"positions lie more than 2^31 words apart"}, {{w.positions.strides[1], far}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"positions have more than 2^31 - 1 tokens"},
         {{w.args.positions, nullptr},
          {w.slots.shape[1], far},
          {w.slots.strides[1], 0},
          {w.x.shape[1], far},
          {w.x.strides[1], 0}}},
    });
    const NormAlone of_norm;
    WorkingRun only_norms(of_norm.tensor, 4 * 2 * 64 * 4);
    CHECK(only_norms.run() == HALYARD_OK);
    only_norms.before = only_norms.to.read();
    only_norms.runs.refuse({{HALYARD_ERROR_UNSUPPORTED,
                             {"elements are not contiguous"},
                             {{only_norms.y.strides, std::array<std::int64_t, 4>{0, 256, 128, 2}}}}});
    w.args.bad_position = HALYARD_BAD_POSITION_CLAMP;  // the error word still reports bad slots
    CHECK(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
}

TEST_CASE("cuda device: a tensor without heads may lie in any way", "[cuda]") {
    const NormAlone of_norm;
    WorkingRun w(of_norm.tensor);
    halyard_tensor x[] = {w.x, w.x}, y[] = {w.y, w.y};
    x[1].shape[2] = y[1].shape[2] = 0;
    x[1].strides[3] = y[1].strides[3] = std::int64_t{1} << 40;
    w.args.x = x;
    w.args.y = y;
    for (const auto &tensor :
         {of_norm.tensor, halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)}) {
        const halyard::cuda_plan of_both(w.queue, halyard::plan_desc(64, {tensor, tensor}), w.angles);
        CHECK(halyard_run_cuda(of_both.get(), &w.args, nullptr) == HALYARD_OK);
    }
    CHECK((w.to.read() != w.before));
}

// A plan without rotations accepts any angles, so its runs must read neither angles nor positions.
TEST_CASE("cuda device: plans that rotate nothing, of fewer angles", "[cuda]") {
    NormAlone of_norm;
    of_norm.kv.no_rotation = 1;
    WorkingRun w(of_norm.tensor);
    const halyard::cuda_angles of_a_pair(w.queue,
                                        halyard::angle_source::table(halyard::frequencies::from_base(10000, 2), 0, 1));
    REQUIRE(w.run() == HALYARD_OK);
    const std::vector<char> expected = w.to.read();
    CHECK((expected != w.before));
    w.args.positions = nullptr;
    for (const std::int64_t rotary_dim : {0, 64, 1 << 20}) {
        CAPTURE(rotary_dim);
        w.to.write(w.before);
        const halyard::cuda_plan plan(w.queue, halyard::plan_desc(rotary_dim, {of_norm.tensor}), of_a_pair);
        REQUIRE(halyard_run_cuda(plan.get(), &w.args, nullptr) == HALYARD_OK);
        CHECK((w.to.read() == expected));
    }
}
