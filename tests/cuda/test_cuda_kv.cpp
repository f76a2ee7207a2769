// The KV path on a device: what is refused, and what random calls (test_cuda_kernels.cpp) do not come to.
#include "checks/cuda/driver.h"
#include "checks/cuda_device.h"
#include "tests/cuda/working_run.h"

#include <catch2/matchers/catch_matchers.hpp>

#include <algorithm>
#include <limits>

namespace {

/// Has the emulated driver, if that is the one, let blocks write different values to one place.
void allow_torn_writes(bool is_allowed) {
    try {
        void *const access = cuda_test::find_driver_function("emulated_cuda_access");
        reinterpret_cast<decltype(&emulated_cuda_access)>(access)(
            [](emulated_cuda::Driver &driver, void *allowed) {
                driver.allows_torn_writes = *static_cast<bool *>(allowed);
            },
            &is_allowed);
    } catch (const halyard::error &) {  // a device's own driver allows them
    }
}

}  // namespace

TEST_CASE("cuda device: what no kernel of a device does is refused by the plan", "[cuda]") {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    const halyard::cuda_angles angles(queue,
                                     halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 10));
    auto tensor = halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half);
    auto kv = sized<halyard_kv_desc>();
    tensor.kv = &kv;
    auto norm = halyard::describe_norm(halyard::dtype::f32);
    auto scale = halyard::describe_static_scales();
    auto nhd = halyard::describe_nhd_cache(4, 16, 2, 64);
    bool moves = false;
    // A plan and an explanation say it with one sentence.
    const Table plans([&](halyard_status, const Words &words) {
        halyard::plan_desc desc(64, {tensor});
        desc.rerotates = moves;
        CHECK_THROWS_WITH(halyard::cuda_plan(queue, desc, angles), words[0]);
        CHECK_THROWS_WITH(halyard::explain(HALYARD_CUDA, desc), words[0]);
    });
    const std::pair<std::string, std::vector<Set>> rows[] = {
        {".kv.norm.width is HALYARD_NORM_ROW (1), but on a device norms are of heads",
         {{kv.norm, &norm}, {norm.width, HALYARD_NORM_ROW}}},
        {".kv.norm.kind is HALYARD_NORM_LAYER (1), but on a device norms are HALYARD_NORM_RMS",
         {{kv.norm, &norm}, {norm.kind, HALYARD_NORM_LAYER}}},
        {".kv.norm.weight_per_head is 1, but on a device all heads have the same weights",
         {{kv.norm, &norm}, {norm.weight_per_head, 1}}},
        {".kv.norm.order is HALYARD_NORM_AFTER (1), but on a device norms come before the rotation",
         {{kv.norm, &norm}, {norm.order, HALYARD_NORM_AFTER}}},
        {".kv.position_scales is 1, but on a device nothing is scaled by position", {{kv.position_scales, 1}}},
        {".kv.scale.kind is HALYARD_SCALE_DYNAMIC (1), but on a device scales are static",
         {{kv.scale, &scale}, {scale.kind, HALYARD_SCALE_DYNAMIC}, {kv.out_dtype, HALYARD_E4M3}}},
        {".kv.scale.per is not HALYARD_SCALE_PER_TENSOR (0), but on a device a tensor has one scale",
         {{kv.scale, &scale}, {scale.per, HALYARD_SCALE_PER_HEAD}}},
        {".kv.cache has heads that are not dense, which no kernel of a device stores",
         {{kv.cache, &nhd},
          {nhd.tile_elements, 8},
          {nhd.stride_tile_elements, 16 * 8},
          {nhd.stride_token, 8},
          {nhd.stride_head, 16 * 64}}},
        {".kv.cache has heads that are not dense, which no kernel of a device stores",
         {{kv.cache, &nhd},
          {nhd.stride_element, 2},
          {nhd.stride_head, 128},
          {nhd.stride_token, 256},
          {nhd.stride_block, 16 * 256}}},
        {".kv.cache has tiles of tokens, which no kernel of a device stores",
         {{kv.cache, &nhd}, {nhd.tile_tokens, 4}, {nhd.stride_tile_tokens, 5 * 128}, {nhd.stride_block, 4 * 5 * 128}}},
        {".kv.hadamard is set, but no kernel of a device transforms", {{kv.hadamard, 64}}},
        {".kv.norm.rounding is set, but on a device norms are rounded once, at the end",
         {{kv.norm, &norm}, {norm.rounding, HALYARD_NORM_ROUND_BEFORE_WEIGHT}}},
        {".kv.norm has a window, but on a device whole heads are normed", {{kv.norm, &norm}, {norm.window_size, 32}}},
        {"rerotates is 1, but on a device this version moves no keys from position to position", {{moves, true}}},
    };
    for (const auto &[sentence, changes] : rows) {
        plans.refuse(HALYARD_ERROR_UNSUPPORTED, {(sentence[0] == '.' ? "tensors[0]" : "") + sentence}, changes);
    }
    nhd.tile_tokens = 4;
    nhd.stride_tile_tokens = 4 * 128;  // tiles that follow each other are none
    kv.cache = &nhd;
    halyard::cuda_plan(queue, halyard::plan_desc(64, {tensor}), angles);
}

namespace {

/// A run that norms, scales and stores four tokens in a cache.
struct KvThere : Working {
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
    halyard_slots slots =
        halyard::slots(static_cast<const std::int32_t *>(slots_memory.data()), {1, 4}, halyard::keep_last);
    halyard_stages stages = halyard::stages(weights.data(), 64, to.data());
    float scale = 0.5f;

    KvThere() : Working(Desc().tensor, 64) {
        x.dtype = HALYARD_BF16;
        stages.scales = &scale;
        stages.n_scales = 1;
        brought.slots = &slots;
        brought.stages = &stages;
    }
};

/// A tensor that is normed, without weights.
struct NormAlone : KvThere::Desc {
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
    KvThere w;
    constexpr std::int64_t far = std::int64_t{1} << 32;
    w.runs.refuse({
        {HALYARD_ERROR_UNSUPPORTED,
         {"args.kv.slots.policy is HALYARD_SLOTS_CHECK (0)"},
         {{w.slots.policy, HALYARD_SLOTS_CHECK}}},
        {HALYARD_ERROR_UNSUPPORTED, {"slots"}, {{w.slots.consecutive, 1}}},
        {HALYARD_ERROR_SCALE, {"scales[0] is 0"}, {{w.scale, 0}}},
        {HALYARD_ERROR_NULL_POINTER, {"cache is NULL"}, {{w.stages.cache, nullptr}}},
        {HALYARD_ERROR_OVERLAP, {"cache", "x[0]"}, {{w.stages.cache, w.x.data}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"heads that are not dense"},
         {{w.x.strides, std::array<std::int64_t, 4>{0, 64, 64, 2}}}},
        {HALYARD_ERROR_UNSUPPORTED, {"weight"}, {{w.stages.weight, w.weights.data(2)}}},
        {HALYARD_ERROR_UNSUPPORTED, {"slots lie more than 2^31 words apart"}, {{w.slots.strides[1], far}}},
        {HALYARD_ERROR_UNSUPPORTED, {"positions lie more than 2^31 words apart"}, {{w.positions.strides[1], far}}},
    });
    const NormAlone of_norm;
    Working only_norms(of_norm.tensor, 4 * 2 * 64 * 4);
    CHECK(only_norms.run() == HALYARD_OK);
    only_norms.before = only_norms.to.read();
    only_norms.runs.refuse({{HALYARD_ERROR_UNSUPPORTED,
                             {"heads that are not dense"},
                             {{only_norms.y.strides, std::array<std::int64_t, 4>{0, 256, 128, 2}}}}});
    w.args.bad_position = HALYARD_BAD_POSITION_CLAMP;  // the error word still tells of slots
    CHECK(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
}

TEST_CASE("cuda device: a tensor without heads may lie in any way", "[cuda]") {
    const NormAlone of_norm;
    Working w(of_norm.tensor);
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

// A plan that rotates nothing takes any angles, so its runs look none up. Nor do they read positions.
TEST_CASE("cuda device: plans that rotate nothing, of fewer angles", "[cuda]") {
    const auto norm = halyard::describe_norm(halyard::dtype::bf16);
    auto tensor = halyard::describe_tensor(halyard::dtype::bf16, 64, halyard::pairing::half);
    auto kv = sized<halyard_kv_desc>();
    kv.norm = &norm;
    kv.no_rotation = 1;
    tensor.kv = &kv;
    Working w(tensor);
    const halyard::cuda_angles of_a_pair(w.queue,
                                        halyard::angle_source::table(halyard::frequencies::from_base(10000, 2), 0, 1));
    const cuda_test::Memory weight(w.queue, std::vector<char>(64 * 2, '\x3f'));
    const auto stages = halyard::stages(static_cast<const void *>(weight.data()), 64);
    w.x.dtype = w.y.dtype = HALYARD_BF16;
    w.brought.stages = &stages;
    REQUIRE(w.run() == HALYARD_OK);
    const std::vector<char> expected = w.to.read();
    CHECK((expected != w.before));
    w.args.positions = nullptr;
    for (const std::int64_t rotary_dim : {0, 64, 1 << 20}) {
        CAPTURE(rotary_dim);
        const halyard::cuda_plan plan(w.queue, halyard::plan_desc(rotary_dim, {tensor}), of_a_pair);
        const cuda_test::Memory to(w.queue, w.before);
        w.y.data = to.data();
        REQUIRE(halyard_run_cuda(plan.get(), &w.args, nullptr) == HALYARD_OK);
        CHECK((to.read() == expected));
    }
}

// Stores several tokens in one slot. They may be stored at once, so that each element comes from any of them.
TEST_CASE("cuda device: of tokens with one slot each element is one of theirs", "[cuda]") {
    const auto cache = halyard::describe_nhd_cache(1, 4, 1, 64);
    auto tensor = halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half);
    auto kv = sized<halyard_kv_desc>();
    kv.cache = &cache;
    kv.no_rotation = 1;
    tensor.kv = &kv;
    Working w(tensor);
    const std::vector<std::int32_t> given = {2, 2, 2, -1, 2, 0, 2, 2};
    std::vector<std::int32_t> values;
    for (int token = 0; token < 8; token++) {
        values.insert(values.end(), 64, token * 0x01010101);
    }
    const cuda_test::Memory from(w.queue, values), to(w.queue, std::vector<std::int32_t>(4 * 64, 99)),
        where(w.queue, given);
    w.x = w.y = halyard::tensor(from.data(), halyard::dtype::f32, {1, 8, 1, 64});
    w.x.device = HALYARD_CUDA;
    const auto slots = halyard::slots(static_cast<const std::int32_t *>(where.data()), {1, 8}, halyard::keep_last);
    const auto stages = halyard::stages_into(to.data());
    w.brought.slots = &slots;
    w.brought.stages = &stages;
    allow_torn_writes(true);
    REQUIRE(w.run() == HALYARD_OK);
    const auto result = to.read<std::int32_t>();
    allow_torn_writes(false);
    CHECK(w.word.read<std::int32_t>()[0] == 0);
    for (std::size_t i = 0; i < result.size(); i++) {
        CAPTURE(i, result[i]);
        const int token = result[i] & 7;
        CHECK((i / 64 % 2 == 1 ? result[i] == 99 : result[i] == token * 0x01010101));
        CHECK((i / 64 % 2 == 1 || given[static_cast<std::size_t>(token)] == static_cast<int>(i / 64)));
    }
}
