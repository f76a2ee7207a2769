// Records on a device: the CPU's bytes, whatever the preset and however records and scales lie, and nothing else is
// written.
#include "checks/scene/on_device.h"
#include "tests/gpu/working_run.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

// Of each kind and dtype some runs, beside whatever comes.
TEST_CASE("cuda device: records have the CPU's bytes, beside plain tensors too", "[gpu][cuda]") {
    const halyard_gpu_queue &queue = gpu_test::device_queue();
    oracle::Random random(Catch::getSeed());
    struct Kind {
        std::int32_t preset;  // or any
        int head_dim;         // of_head_dim, of which one has to be
    };
    constexpr Kind kinds[] = {{HALYARD_GROUPS_MLA_V32, 9},
                              {HALYARD_GROUPS_MLA_V4, 6},
                              {HALYARD_GROUPS_MLA_V41, 6},
                              {HALYARD_GROUPS_VLLM_INT8, -1},
                              {0, -1},
                              {0, -1}};
    for (const Kind &kind : kinds) {
        for (const std::int32_t dtype : {HALYARD_BF16, HALYARD_F16, HALYARD_F32}) {
            scenes::Choice choice;
            choice.on_device = true;
            choice.step = 16;
            choice.level[scenes::of_dtype] = dtype - HALYARD_F32;
            choice.level[scenes::of_groups] = 1;
            choice.level[scenes::of_head_dim] = kind.head_dim;
            choice.preset = kind.preset;
            for (int i = 0, n = gpu_test::n_calls(6); i < n; i++) {
                INFO("seed " << Catch::getSeed() << ", kind " << &kind - kinds << ", run " << i << ", dtype " << dtype);
                scenes::Draw draw(random);
                scenes::Scene scene(draw, choice);
                REQUIRE(scenes::fault_on_device(scene, queue) == "");
            }
        }
    }
}

TEST_CASE("cuda device: records that the kernel does not store are refused by the plan", "[gpu][cuda]") {
    WorkingPlan plan;
    auto groups = halyard::describe_groups(HALYARD_GROUPS_VLLM_FP8);
    auto &tensor = plan.tensor;
    tensor.groups = &groups;
    tensor.out_dtype = HALYARD_UINT8;
    const char *const none = ".groups->preset is of ggml or OpenVINO, of which no kernel of a device stores records";
    plan.refuse({
        {".from_groups is set, but no kernel of a device reads records",
         {{groups.preset, HALYARD_GROUPS_MX},
          {tensor.from_groups, &groups},
          {tensor.groups, nullptr},
          {tensor.dtype, HALYARD_UINT8},
          {tensor.out_dtype, HALYARD_F32}}},
        {none, {{groups.preset, HALYARD_GROUPS_GGML_Q8_0}}},
        {none, {{groups.preset, HALYARD_GROUPS_GGML_Q8_0_REFERENCE}}},
        {none, {{groups.preset, HALYARD_GROUPS_GGML_Q4_0}}},
        {none, {{groups.preset, HALYARD_GROUPS_OPENVINO_U8}}},
        {none, {{groups.preset, HALYARD_GROUPS_OPENVINO_U4}}},
        {".groups has groups that are no multiples of the 16 elements that a device stores at once",
         {{tensor.head_dim, 72}}},
    });
    CHECK_THAT(halyard::explain(HALYARD_CUDA, halyard::plan_desc(64, {tensor})),
               Catch::Matchers::ContainsSubstring("* halyard_road_records_"));
}

namespace {

/// A run that makes records of four tokens of two heads, with scales in memory of their own.
struct RecordsThere : Working {
    struct Desc {
        halyard_groups_desc groups = halyard::describe_groups(HALYARD_GROUPS_VLLM_FP8);
        halyard_tensor_desc tensor = halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half);

        explicit Desc(std::int64_t stride_token = 0, std::int64_t stride_head = 0) {
            groups.scales_stride_token = stride_token;
            groups.scales_stride_head = stride_head;
            tensor.groups = &groups;
            tensor.out_dtype = HALYARD_UINT8;
        }
    };
    std::vector<char> scales_before = std::vector<char>(4 * 2 * 4 + 4, 9);
    gpu_test::Memory scales{queue, scales_before};
    halyard_stages stages = sized<halyard_stages>();

    explicit RecordsThere(const Desc &desc) : Working(desc.tensor, 64) {
        y.dtype = HALYARD_UINT8;
        stages.group_scales = scales.data();
        args.stages = &stages;
    }
};

}  // namespace

TEST_CASE("cuda device: records that cannot be launched are refused, and nothing is written", "[gpu][cuda]") {
    RecordsThere w{RecordsThere::Desc()};
    int not_of_the_device = 0;
    w.runs.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"group_scales is NULL"}, {{w.stages.group_scales, nullptr}}},
        {HALYARD_ERROR_OVERLAP, {"group_scales", "y[0]"}, {{w.stages.group_scales, w.y.data}}},
        {HALYARD_ERROR_OVERLAP, {"group_scales", "x[0]"}, {{w.stages.group_scales, w.x.data}}},
        {HALYARD_ERROR_UNSUPPORTED, {"begin on 16 bytes"}, {{w.y.data, w.to.data(8)}}},
        {HALYARD_ERROR_UNSUPPORTED, {"group_scales"}, {{w.stages.group_scales, &not_of_the_device}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"begin on 16 bytes"},
         {{w.y.strides[2], 72},
          {w.y.strides[1], 144},
          {w.y.shape[1], 2},
          {w.x.shape[1], 2},
          {w.positions.shape[1], 2}}},
    });
    for (const std::int64_t stride : {std::int64_t{1} << 31, -(std::int64_t{1} << 31) - 4}) {
        RecordsThere far(RecordsThere::Desc(stride, 4));
        // A real device's memories lie so near each other that others may be within so long a span.
        const bool overlaps = far.run() == HALYARD_ERROR_OVERLAP;
        far.runs.refuse({{overlaps ? HALYARD_ERROR_OVERLAP : HALYARD_ERROR_UNSUPPORTED, {"scales"}, {}}});
    }
    CHECK((w.scales.read() == w.scales_before));
    w.y.data = w.to.data(16);
    w.stages.group_scales = w.scales.data(1);
    CHECK(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
    CHECK(w.scales.read()[0] == 9);
}
