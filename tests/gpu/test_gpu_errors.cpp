// What halyard_gpu.h refuses: each wrong input, one at a time, and nothing is written. More of that is in
// test_cuda_calls.cpp.
#include "gpu/driver.h"
#include "tests/gpu/working_run.h"

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

using gpu_test::Memory;
using halyard::gpu_angles, halyard::gpu_plan;

TEST_CASE("cuda device: a run's wrong arguments are refused", "[gpu][cuda]") {
    Working w;
    w.runs.refuse_each(HALYARD_ERROR_SHAPE, {-1, 2, INT32_MAX}, {{"args.n_tensors", w.args.n_tensors}},
                       {"the plan's is 1"});
    w.runs.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 1}, {{"args.reserved", w.args.reserved}});
    auto *const other = reinterpret_cast<const void *>(&w.x);  // of another size
    w.runs.refuse({
        {HALYARD_ERROR_STRUCT_SIZE, {"args.size is 0"}, {{w.args.size, 0}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, {{w.args.x, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y is NULL"}, {{w.args.y, nullptr}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"slots.size is "}, {{w.brought.slots, other}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"stages[0].size is "}, {{w.brought.stages, other}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"x[0].size is 0"}, {{w.x.size, 0}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"y[0].size is "}, {{w.y.size, w.y.size + 8}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"y[0].reserved is 1"}, {{w.y.reserved, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"x[0].data is NULL"}, {{w.x.data, nullptr}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"bad_position is 9"}, {{w.args.bad_position, 9}, {w.args.error_word, nullptr}}},
        {HALYARD_ERROR_MISMATCH,
         {"error_word is given, but policy 1 tells of nothing"},
         {{w.args.bad_position, HALYARD_BAD_POSITION_CLAMP}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"x[0].device is HALYARD_CPU (0), but this call runs on HALYARD_CUDA only"},
         {{w.x.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNSUPPORTED, {"y[0].device is HALYARD_CPU (0)"}, {{w.y.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"y[0].device is 2"}, {{w.y.device, 2}}},
        {HALYARD_ERROR_MISMATCH, {"x[0].dtype is f16, but the plan's is f32"}, {{w.x.dtype, HALYARD_F16}}},
        {HALYARD_ERROR_MISMATCH, {"x[0].shape[3] is 32"}, {{w.x.shape[3], 32}, {w.y.shape[3], 32}}},
        {HALYARD_ERROR_SHAPE, {"y[0].shape[1] is 3, but must be 4"}, {{w.y.shape[1], 3}}},
        {HALYARD_ERROR_SHAPE, {"x[0].shape[1] is -1"}, {{w.x.shape[1], -1}, {w.y.shape[1], -1}}},
        {HALYARD_ERROR_STRIDE, {"y[0] has strides 512, 128, 1, 1"}, {{w.y.strides[2], 1}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"positions.size is 0"}, {{w.positions.size, 0}}},
        {HALYARD_ERROR_SHAPE, {"positions.shape is {1, 3}"}, {{w.positions.shape[1], 3}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"positions.type is 5"}, {{w.positions.type, 5}}},
        {HALYARD_ERROR_SHAPE, {"positions.n_axes is 3"}, {{w.positions.n_axes, 3}}},
        {HALYARD_ERROR_OVERLAP, {"y[0].data shares elements with positions.data"}, {{w.positions.data, w.y.data}}},
    });
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *error) { return halyard_run_gpu(nullptr, &w.args, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *error) { return halyard_run_gpu(w.plan.get(), nullptr, error); });
    REQUIRE(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
    // Without tokens, only sizes are checked.
    w.x.shape[1] = w.y.shape[1] = w.positions.shape[1] = 0;
    w.x.data = w.y.data = nullptr;
    CHECK(w.run() == HALYARD_OK);
}

TEST_CASE("cuda device: bad positions are told in the error word, and rotated as position 0", "[gpu][cuda]") {
    Working run;
    const auto result_at = [&](const std::vector<std::int32_t> &at) {
        const Memory places(run.queue, at);
        run.positions.data = places.data();
        REQUIRE(run.run() == HALYARD_OK);
        return run.to.read();
    };
    const auto told = [&] { return run.word.read<std::int32_t>()[0]; };
    const auto good = result_at({0, 99, 0, 5});
    CHECK(told() == 0);
    CHECK((result_at({100, 99, -1, 5}) == good));
    CHECK(told() == HALYARD_ERROR_POSITION);
    result_at({0, 1, 2, 3});
    CHECK(told() == HALYARD_ERROR_POSITION);  // it stays until the caller resets it
}

namespace {

struct Explanation {
    explicit Explanation(const halyard::plan_desc &desc, std::int32_t device = HALYARD_CUDA) {
        halyard::explain(device, desc);
    }
};

/// What making angles, a plan or an explanation of these throws, or HALYARD_OK.
template <typename Made, typename... Arguments>
halyard_status status_of(const Arguments &...arguments) {
    try {
        Made(arguments...);
    } catch (const halyard::error &error) {
        CHECK(std::string(error.what()) != "");
        return error.status();
    }
    return HALYARD_OK;
}

const halyard::plan_desc some_plan(64, {halyard::describe_tensor(halyard::dtype::bf16, 64, halyard::pairing::half)});

halyard::angle_source table_of_64() {
    return halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 100);
}

}  // namespace

TEST_CASE("cuda device: wrong angles are refused", "[gpu][cuda]") {
    const halyard_gpu_queue &queue = gpu_test::device_queue();
    const auto frequencies = halyard::frequencies::from_base(10000, 64);
    const Memory rows(queue, std::vector<char>(10 * 64 * 4));
    const auto given = [&](std::int64_t n_rows, std::int32_t dtype) {
        auto desc = sized<halyard_angle_source_desc>();
        desc.kind = HALYARD_ANGLES_GIVEN;
        desc.cos_rows = desc.sin_rows = rows.data();
        desc.n_rows = n_rows;
        desc.stride_row = desc.rotary_dim = 64;
        desc.rows_dtype = dtype;
        return halyard::angle_source(frequencies, desc);
    };
    for (const auto &[dtype, n] : {std::pair{HALYARD_F32, 10}, {HALYARD_F16, 20}, {HALYARD_BF16, 20}}) {
        CHECK(status_of<gpu_angles>(queue, given(n, dtype)) == HALYARD_OK);
    }
    const auto by_token = halyard::angle_source::given_by_token(static_cast<const float *>(rows.data()), 10, 64);
    CHECK(status_of<gpu_angles>(queue, by_token) == HALYARD_ERROR_UNSUPPORTED);
    const gpu_test::Queue foreign;  // of the same device
    const Memory of_foreign(foreign.get(), std::vector<char>(10 * 64 * 4));
    const auto *const first = static_cast<const float *>(of_foreign.data());
    CHECK(status_of<gpu_angles>(queue, halyard::angle_source::given(first, first + 32, 4, 64, 64)) == HALYARD_OK);
    CHECK(status_of<gpu_angles>(queue, given(1 << 25, HALYARD_F32)) == HALYARD_ERROR_OVERFLOW);
}

TEST_CASE("cuda device: wrong plans are refused", "[gpu][cuda]") {
    const halyard_gpu_queue &queue = gpu_test::device_queue();
    const auto table = table_of_64();
    const halyard::plan_desc &desc = some_plan;
    const halyard::gpu_angles angles(queue, table);
    CHECK(status_of<gpu_plan>(queue, desc, halyard::gpu_angles()) == HALYARD_ERROR_NULL_POINTER);
    auto wrong = desc;
    wrong.target = "cuda_sm80";
    CHECK(status_of<gpu_plan>(queue, wrong, angles) == HALYARD_ERROR_MISMATCH);
    CHECK(status_of<Explanation>(wrong) == HALYARD_ERROR_MISMATCH);
    wrong = desc;
    wrong.max_target = "cuda_sm80";
    CHECK_THROWS_WITH(halyard::gpu_plan(queue, wrong, angles), "desc names a target, but the device decides");
    wrong = desc;
    wrong.rotary_dim = 32;
    CHECK(status_of<gpu_plan>(queue, wrong, angles) == HALYARD_ERROR_MISMATCH);
    auto norm = halyard::describe_norm(halyard::dtype::f32);
    norm.weight_dtype = 0;
    auto kv = sized<halyard_kv_desc>();
    kv.norm = &norm;
    kv.no_rotation = 1;  // of any angles
    wrong.tensors[0].kv = &kv;
    CHECK(status_of<gpu_plan>(queue, wrong, angles) == HALYARD_OK);
    wrong = desc;
    wrong.tensors.resize(99, wrong.tensors[0]);
    CHECK(status_of<gpu_plan>(queue, wrong, angles) != HALYARD_OK);
    CHECK(status_of<Explanation>(wrong) == HALYARD_ERROR_SHAPE);
    auto no_context = queue;
    no_context.context = nullptr;
    CHECK(status_of<gpu_angles>(no_context, table) == HALYARD_ERROR_NULL_POINTER);
    auto no_stream = queue;
    no_stream.stream = nullptr;
    CHECK(status_of<gpu_angles>(no_stream, table) == HALYARD_OK);
    CHECK(status_of<gpu_plan>(no_stream, desc, angles) == HALYARD_OK);
    auto no_device = queue;
    no_device.device = HALYARD_CPU;
    CHECK(status_of<gpu_angles>(no_device, table) == HALYARD_ERROR_UNKNOWN_VALUE);
    CHECK(status_of<Explanation>(desc, HALYARD_CPU) == HALYARD_ERROR_UNKNOWN_VALUE);
}

TEST_CASE("cuda device: positions of many tokens are checked against a range", "[gpu][cuda]") {
    Working w;
    const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 3, 88);
    const halyard::gpu_angles angles(w.queue, table);
    const halyard::gpu_plan plan(
        w.queue, halyard::plan_desc(64, {halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)}),
        angles);
    const std::int64_t n_tokens = GENERATE(128, 130);  // a block of threads, and some more
    const std::vector<char> zeros(static_cast<std::size_t>(n_tokens * 64 * 4));
    const Memory from(w.queue, zeros), to(w.queue, zeros);
    for (const auto &[tensor, memory] : {std::pair(&w.x, &from), std::pair(&w.y, &to)}) {
        *tensor = halyard::tensor(memory->data(), halyard::dtype::f32, {1, n_tokens, 1, 64});
        tensor->device = HALYARD_CUDA;
    }
    const auto is_told = [&](const auto last) {
        std::vector at(static_cast<std::size_t>(n_tokens),
                       last < 50 ? last + 1 : last - 1);  // of all positions the last token's is the farthest
        at.back() = last;
        const Memory places(w.queue, at), word(w.queue, std::vector<char>(4));
        w.positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, n_tokens});
        w.positions.type = sizeof(last) == 4 ? HALYARD_INT32 : HALYARD_INT64;
        w.args.error_word = static_cast<std::int32_t *>(word.data());
        REQUIRE(halyard_run_gpu(plan.get(), &w.args, nullptr) == HALYARD_OK);
        return word.read<std::int32_t>()[0] == HALYARD_ERROR_POSITION;
    };
    for (const std::int32_t place : {3, 90, 2, 91}) {
        CAPTURE(place);
        CHECK(is_told(place) == (place == 2 || place == 91));
        CHECK(is_told(std::int64_t{place}) == (place == 2 || place == 91));
    }
}

TEST_CASE("cuda device: plans are explained", "[gpu][cuda]") {
    const auto has = [](const std::string &text, const std::string &part) { return text.find(part) != text.npos; };
    const std::string text = halyard::explain(HALYARD_CUDA, some_plan);
    CHECK(has(text, "halyard_rotate_half_bf16_cuda_sm80: taken where memory, strides and halves are multiples of 16 "
                    "bytes"));
    CHECK(has(text, "halyard_rotate_half_bf16_in_place_by_32_cuda_sm80: taken where memory, strides and halves are "
                    "multiples of 4 bytes"));
    CHECK(has(text, "halyard_rotate_strided_bf16_in_place_cuda_sm80: taken for any other layout"));
    CHECK(!has(text, "interleaved"));
    CHECK(!has(text, "_f32_"));
    const auto in_place_at = text.find("tensor 0, in place:\n");
    CHECK(in_place_at != text.npos);
    CHECK(text.find("_in_place_") > in_place_at);
    CHECK(!has(text.substr(in_place_at), "halyard_rotate_half_bf16_cuda_sm80"));
    halyard::plan_desc converts = some_plan;
    converts.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    const std::string to_other = halyard::explain(HALYARD_CUDA, converts);
    CHECK(has(to_other, "halyard_rotate_strided_bf16_cuda_sm80"));
    CHECK(has(to_other, "halyard_rotate_half_to_interleaved_bf16_cuda_sm80: taken where"));
    CHECK((!has(to_other, "_half_bf16") && !has(to_other, "in place")));
}

TEST_CASE("cuda device: NULL is refused", "[gpu][cuda]") {
    const halyard_gpu_queue &queue = gpu_test::device_queue();
    const auto table = table_of_64();
    const halyard::gpu_angles angles(queue, table);
    const std::string text = halyard::explain(HALYARD_CUDA, some_plan);
    char few[8];
    std::int64_t n_needed = 0;
    auto error = sized<halyard_error>();
    const auto given_desc = some_plan.get();
    CHECK(halyard_explain_gpu_plan(HALYARD_CUDA, &given_desc, few, 8, &n_needed, &error) == HALYARD_OK);
    CHECK(n_needed == static_cast<std::int64_t>(text.size()));
    CHECK(std::string(few) == text.substr(0, 7));
    check_refused(HALYARD_ERROR_SHAPE, {}, [&](auto *its_error) {
        return halyard_explain_gpu_plan(HALYARD_CUDA, &given_desc, few, -1, nullptr, its_error);
    });
    CHECK(halyard_explain_gpu_plan(HALYARD_CUDA, &given_desc, nullptr, 1, nullptr, &error) ==
          HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_explain_gpu_plan(HALYARD_CUDA, nullptr, few, 8, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *its_error) { return halyard_get_gpu_target_info(HALYARD_CUDA, nullptr, its_error); });
    auto info = sized<halyard_target_info>();
    CHECK(halyard_get_gpu_target_info(HALYARD_CPU, &info, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
    halyard_gpu_angles *no_angles = nullptr;
    halyard_gpu_plan *no_plan = nullptr;
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *its_error) { return halyard_create_gpu_angles(&queue, nullptr, &no_angles, its_error); });
    CHECK(halyard_create_gpu_angles(nullptr, table.get(), &no_angles, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_gpu_angles(&queue, table.get(), nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_refused(HALYARD_ERROR_NULL_POINTER, {}, [&](auto *its_error) {
        return halyard_create_gpu_plan(nullptr, &given_desc, angles.get(), &no_plan, its_error);
    });
    CHECK(halyard_create_gpu_plan(&queue, nullptr, angles.get(), &no_plan, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_gpu_plan(&queue, &given_desc, angles.get(), nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK((no_angles == nullptr && no_plan == nullptr));
    halyard_destroy_gpu_plan(nullptr);
    halyard_destroy_gpu_angles(nullptr);
}

TEST_CASE("gpu errors: a target that cannot be had says why", "[gpu]") {
    const auto info = halyard::gpu_target(HALYARD_CUDA);
    CAPTURE(info.name, info.reason);
    CHECK(info.built == 1);
    CHECK(info.active == 0);
    CHECK(std::string(info.reason) ==
          (info.supported == 1 ? "serves its own memory alone" : halyard::gpu::why_no_cuda()));
    if (info.supported == 0) {
        auto queue = halyard::describe_queue(HALYARD_CUDA, nullptr, nullptr);
        const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 10);
        auto error = sized<halyard_error>();
        halyard_gpu_angles *made = nullptr;
        CHECK(halyard_create_gpu_angles(&queue, table.get(), &made, &error) == HALYARD_ERROR_NO_DEVICE);
        CHECK(std::string(error.message).find(info.reason) != std::string::npos);
    }
}
