// What halyard_gpu.h refuses: each wrong input, one at a time, and nothing is written. OpenCL's buffers have sizes and
// contexts to check against; what only CUDA can refuse is in test_cuda_calls.cpp.
#include "gpu/driver.h"
#include "tests/gpu/working_run.h"

#include <catch2/matchers/catch_matchers.hpp>

#include <limits>

namespace {

using gpu_test::Memory;

void refuse_anywhere(Working &w) {
    w.runs.refuse_each(HALYARD_ERROR_SHAPE, {-1, 2, INT32_MAX}, {{"args.n_tensors", w.args.n_tensors}},
                       {"the plan's is 1"});
    w.runs.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 1}, {{"args.reserved", w.args.reserved}});
    auto *const other = reinterpret_cast<const void *>(&w.x);  // of another size
    const std::int32_t other_device = w.device == HALYARD_CUDA ? HALYARD_OPENCL : HALYARD_CUDA;
    w.runs.refuse({
        {HALYARD_ERROR_STRUCT_SIZE, {"args.size is 0"}, {{w.args.size, 0}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, {{w.args.x, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y is NULL"}, {{w.args.y, nullptr}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"slots.size is "}, {{w.args.slots, other}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"a stage.size is "}, {{w.args.stages, other}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"an x.size is 0"}, {{w.x.size, 0}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"a y.size is "}, {{w.y.size, w.y.size + 8}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"y[0].reserved is 1"}, {{w.y.reserved, 1}}},
        {HALYARD_ERROR_NULL_POINTER, {"x[0].data is NULL"}, {{w.x.data, nullptr}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"bad_position is 9"}, {{w.args.bad_position, 9}, {w.args.error_word, nullptr}}},
        {HALYARD_ERROR_MISMATCH,
         {"error_word is given, but policy 1 tells of nothing"},
         {{w.args.bad_position, HALYARD_BAD_POSITION_CLAMP}}},
        {HALYARD_ERROR_UNSUPPORTED, {"x[0].device is 0"}, {{w.x.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNSUPPORTED, {"y[0].device is " + text(other_device)}, {{w.y.device, other_device}}},
        {HALYARD_ERROR_MISMATCH, {"x[0].dtype is f16, but the plan's is f32"}, {{w.x.dtype, HALYARD_F16}}},
        {HALYARD_ERROR_MISMATCH, {"x[0].shape[3] is 32"}, {{w.x.shape[3], 32}, {w.y.shape[3], 32}}},
        {HALYARD_ERROR_SHAPE, {"y[0].shape[1] is 3, but must be 4"}, {{w.y.shape[1], 3}}},
        {HALYARD_ERROR_SHAPE, {"x[0].shape[1] is -1"}, {{w.x.shape[1], -1}, {w.y.shape[1], -1}}},
        {HALYARD_ERROR_OVERFLOW, {"offset of x is -1"}, {{w.x_offset, -1}}},
        {HALYARD_ERROR_STRIDE, {"y[0] has strides 512, 128, 1, 1"}, {{w.y.strides[2], 1}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"positions.size is 0"}, {{w.positions.size, 0}}},
        {HALYARD_ERROR_SHAPE, {"positions.shape is {1, 3}"}, {{w.positions.shape[1], 3}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"positions.type is 5"}, {{w.positions.type, 5}}},
        {HALYARD_ERROR_SHAPE, {"positions.n_axes is 3"}, {{w.positions.n_axes, 3}}},
        {HALYARD_ERROR_OVERFLOW, {"positions_offset is -1"}, {{w.args.positions_offset, -1}}},
        {HALYARD_ERROR_OVERLAP, {"y[0] shares elements with positions.data"}, {{w.positions.data, w.y.data}}},
        {HALYARD_ERROR_OVERFLOW, {"error_word_offset is -1"}, {{w.args.error_word_offset, -1}}},
    });
}

/// What OpenCL alone refuses: CUDA's pointers tell no size, may be of any of a device's contexts, and have no offsets.
void refuse_in_opencl(Working &w, void *of_foreign) {
    const std::string elsewhere = "lies in another device or context than the plan's";
    w.runs.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"args.stream is NULL"}, {{w.args.stream, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"x[0] reaches beyond its buffer of "}, {{w.x_offset, 8}}},
        {HALYARD_ERROR_SHAPE, {"x[0] reaches beyond its buffer of "}, {{w.x.strides[1], -128}}},
        {HALYARD_ERROR_SHAPE, {"y[0] reaches beyond its buffer of "}, {{w.y.strides[1], 200}}},
        {HALYARD_ERROR_OVERFLOW, {"offset of y is 2199023255552"}, {{w.y_offset, std::int64_t{1} << 41}}},
        {HALYARD_ERROR_UNSUPPORTED, {"elements go backwards"}, {{w.x_offset, 63}, {w.x.strides[3], -1}}},
        {HALYARD_ERROR_OVERLAP,
         {"y[0] shares elements with x[0]"},
         {{w.x.shape[1], 2}, {w.y.shape[1], 2}, {w.positions.shape[1], 2}, {w.y.data, w.x.data}, {w.y_offset, 64}}},
        {HALYARD_ERROR_MISMATCH, {"x[0] " + elsewhere}, {{w.x.data, of_foreign}}},
        {HALYARD_ERROR_MISMATCH, {"y[0] " + elsewhere}, {{w.y.data, of_foreign}}},
        {HALYARD_ERROR_MISMATCH, {"positions[0] " + elsewhere}, {{w.positions.data, of_foreign}}},
        {HALYARD_ERROR_MISMATCH, {"error_word[0] " + elsewhere}, {{w.args.error_word, of_foreign}}},
        {HALYARD_ERROR_SHAPE, {"positions[0] reaches beyond its buffer of "}, {{w.positions.strides[1], 2}}},
        {HALYARD_ERROR_SHAPE, {"error_word[0] reaches beyond its buffer of "}, {{w.args.error_word_offset, 1000}}},
    });
}

void test_wrong_runs(std::int32_t device) {
    Working w{device};
    refuse_anywhere(w);
    if (device == HALYARD_OPENCL) {
        const halyard::device::DeviceQueue foreign(device);
        const Memory of_foreign(foreign.get(), w.before);
        refuse_in_opencl(w, of_foreign.data());
    }
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

void test_bad_positions(std::int32_t device) {
    Working run{device};
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

using halyard::gpu_angles, halyard::gpu_plan;

struct Explanation {
    Explanation(std::int32_t device, const halyard::plan_desc &desc) { halyard::explain(device, desc); }
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
    return halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 99);
}

void test_wrong_angles(std::int32_t device) {
    const halyard_gpu_queue &queue = gpu_test::queue_of(device);
    const auto frequencies = halyard::frequencies::from_base(10000, 64);
    const auto table = table_of_64();
    const std::int32_t index[] = {0};
    CHECK(status_of<gpu_angles>(queue, halyard::angle_source::joined({&table}, index, 1)) == HALYARD_ERROR_UNSUPPORTED);
    const bool is_cuda = device == HALYARD_CUDA;  // whose memory tells no size, and takes no offset
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
        CHECK(status_of<gpu_angles>(queue, given(n, dtype), 0, is_cuda ? 0 : 32) == HALYARD_OK);
        CHECK(status_of<gpu_angles>(queue, given(n, dtype), 0, 33 + 64) ==
              (is_cuda ? HALYARD_ERROR_OVERFLOW : HALYARD_ERROR_SHAPE));
        CHECK(status_of<gpu_angles>(queue, given(n + 1, dtype)) == (is_cuda ? HALYARD_OK : HALYARD_ERROR_SHAPE));
    }
    const auto by_token = halyard::angle_source::given_by_token(static_cast<const float *>(rows.data()), 10, 64);
    CHECK(status_of<gpu_angles>(queue, by_token) == HALYARD_ERROR_UNSUPPORTED);
    auto by_head = halyard::angle_source::describe_rows(rows.data(), rows.data(), halyard::dtype::f32, 10, 64, 64);
    by_head.n_heads = 2;
    CHECK(status_of<gpu_angles>(queue, halyard::angle_source::given(by_head)) == HALYARD_ERROR_UNSUPPORTED);
    for (const std::int64_t offset : {std::int64_t{-1}, std::int64_t{1} << 31, std::int64_t{INT64_MAX}}) {
        CHECK(status_of<gpu_angles>(queue, given(10, HALYARD_F32), offset, 0) == HALYARD_ERROR_OVERFLOW);
        CHECK(status_of<gpu_angles>(queue, given(10, HALYARD_F32), 0, offset) == HALYARD_ERROR_OVERFLOW);
    }
    const halyard::device::DeviceQueue foreign(device);
    const Memory of_foreign(foreign.get(), std::vector<char>(10 * 64 * 4));
    const auto *const first = static_cast<const float *>(of_foreign.data());
    const auto other_rows = halyard::angle_source::given(first, first + 32, 4, 64, 64);
    CHECK(status_of<gpu_angles>(queue, other_rows) ==
          (is_cuda ? HALYARD_OK : HALYARD_ERROR_MISMATCH));  // CUDA: of the same device
    CHECK(status_of<gpu_angles>(queue, given(1 << 25, HALYARD_F32)) == HALYARD_ERROR_OVERFLOW);
}

void test_wrong_plans(std::int32_t device) {
    const halyard_gpu_queue &queue = gpu_test::queue_of(device);
    const auto table = table_of_64();
    const halyard::plan_desc &desc = some_plan;
    const halyard::gpu_angles angles(queue, table);
    CHECK(status_of<gpu_plan>(queue, desc, halyard::gpu_angles()) == HALYARD_ERROR_NULL_POINTER);
    auto wrong = desc;
    wrong.target = "opencl";
    CHECK(status_of<gpu_plan>(queue, wrong, angles) == HALYARD_ERROR_MISMATCH);
    CHECK(status_of<Explanation>(device, wrong) == HALYARD_ERROR_MISMATCH);
    wrong = desc;
    wrong.max_target = "opencl";
    CHECK_THROWS_WITH(halyard::gpu_plan(queue, wrong, angles), "desc names a target, but the device decides");
    wrong = desc;
    wrong.rotary_dim = 32;
    CHECK(status_of<gpu_plan>(queue, wrong, angles) == HALYARD_ERROR_MISMATCH);
    const auto norm = halyard::describe_norm(halyard::dtype::f32);
    wrong.tensors[0].norm = &norm;
    wrong.tensors[0].no_rotation = 1;  // of any angles
    CHECK(status_of<gpu_plan>(queue, wrong, angles) == HALYARD_OK);
    wrong = desc;
    wrong.tensors.resize(99, wrong.tensors[0]);
    CHECK(status_of<gpu_plan>(queue, wrong, angles) != HALYARD_OK);
    CHECK(status_of<Explanation>(device, wrong) == HALYARD_ERROR_SHAPE);
    auto no_context = queue;
    no_context.context = nullptr;
    CHECK(status_of<gpu_angles>(no_context, table) == HALYARD_ERROR_NULL_POINTER);
    auto no_stream = queue;
    no_stream.stream = nullptr;
    const halyard_status no_queue = device == HALYARD_CUDA ? HALYARD_OK : HALYARD_ERROR_NULL_POINTER;
    CHECK(status_of<gpu_angles>(no_stream, table) == no_queue);
    CHECK(status_of<gpu_plan>(no_stream, desc, angles) == no_queue);
    auto no_device = queue;
    no_device.device = HALYARD_CPU;
    CHECK(status_of<gpu_angles>(no_device, table) == HALYARD_ERROR_UNKNOWN_VALUE);
    CHECK(status_of<Explanation>(HALYARD_CPU, desc) == HALYARD_ERROR_UNKNOWN_VALUE);
}

/// Each of two listed positions is known to the check, and none beside them.
void test_listed_positions(std::int32_t device) {
    Working w(device);
    const std::int32_t some[] = {3, 90};
    const auto frequencies = halyard::frequencies::from_base(10000, 64);
    const auto listed = halyard::angle_source::table(frequencies, 0, 99, halyard::positions(some, {1, 2}));
    const halyard::gpu_angles angles(w.queue, listed);
    const halyard::gpu_plan plan(
        w.queue, halyard::plan_desc(64, {halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half)}),
        angles);
    constexpr std::int64_t n_tokens = 130;  // a block of threads, and some more
    const Memory from(w.queue, std::vector<char>(n_tokens * 64 * 4)), to(w.queue, std::vector<char>(n_tokens * 64 * 4));
    for (const auto &[tensor, memory] : {std::pair(&w.x, &from), std::pair(&w.y, &to)}) {
        *tensor = halyard::tensor(memory->data(), halyard::dtype::f32, {1, n_tokens, 1, 64});
        tensor->device = device;
    }
    const auto is_told = [&](const auto place) {
        const Memory places(w.queue, std::vector(n_tokens, place)), word(w.queue, std::vector<char>(4));
        w.positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, n_tokens});
        w.positions.type = sizeof(place) == 4 ? HALYARD_INT32 : HALYARD_INT64;
        w.args.error_word = static_cast<std::int32_t *>(word.data());
        REQUIRE(halyard_run_gpu(plan.get(), &w.args, nullptr) == HALYARD_OK);
        return word.read<std::int32_t>()[0] == HALYARD_ERROR_POSITION;
    };
    for (const std::int32_t place : {3, 90, 2, 4, 89, 91}) {
        CAPTURE(place);
        CHECK(is_told(place) == (place != 3 && place != 90));
        CHECK(is_told(std::int64_t{place}) == (place != 3 && place != 90));
    }
}

void test_explanations(std::int32_t device) {
    const std::string target = halyard::gpu_target(device).name;
    const auto has = [](const std::string &text, const std::string &part) { return text.find(part) != text.npos; };
    const std::string text = halyard::explain(device, some_plan);
    CHECK(has(text, "halyard_rotate_half_bf16_" + target +
                        ": taken where memory, strides and halves are multiples of 16 bytes"));
    CHECK(has(text, "halyard_rotate_half_bf16_in_place_by_32_" + target +
                        ": taken where memory, strides and halves are multiples of 4 bytes"));
    CHECK(has(text, "halyard_rotate_strided_bf16_in_place_" + target + ": taken for any other layout"));
    CHECK(!has(text, "interleaved"));
    CHECK(!has(text, device == HALYARD_CUDA ? "_opencl" : "_cuda_"));
    CHECK(!has(text, "_f32_"));
    const auto in_place_at = text.find("tensor 0, in place:\n");
    CHECK(in_place_at != text.npos);
    CHECK(text.find("_in_place_") > in_place_at);
    CHECK(!has(text.substr(in_place_at), "halyard_rotate_half_bf16_" + target));
    halyard::plan_desc converts = some_plan;
    converts.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    const std::string to_other = halyard::explain(device, converts);
    CHECK(has(to_other, "halyard_rotate_strided_bf16_" + target));
    CHECK(has(to_other, "halyard_rotate_half_to_interleaved_bf16_" + target + ": taken where"));
    CHECK((!has(to_other, "_half_bf16") && !has(to_other, "in place")));
}

void test_null_pointers(std::int32_t device) {
    const halyard_gpu_queue &queue = gpu_test::queue_of(device);
    const auto table = table_of_64();
    const halyard::gpu_angles angles(queue, table);
    const std::string text = halyard::explain(device, some_plan);
    char few[8];
    std::int64_t n_needed = 0;
    auto error = sized<halyard_error>();
    const auto given_desc = some_plan.get();
    CHECK(halyard_explain_gpu_plan(device, &given_desc, few, 8, &n_needed, &error) == HALYARD_OK);
    CHECK(n_needed == static_cast<std::int64_t>(text.size()));
    CHECK(std::string(few) == text.substr(0, 7));
    check_refused(HALYARD_ERROR_SHAPE, {}, [&](auto *its_error) {
        return halyard_explain_gpu_plan(device, &given_desc, few, -1, nullptr, its_error);
    });
    CHECK(halyard_explain_gpu_plan(device, &given_desc, nullptr, 1, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_explain_gpu_plan(device, nullptr, few, 8, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *its_error) { return halyard_get_gpu_target_info(device, nullptr, its_error); });
    auto info = sized<halyard_target_info>();
    CHECK(halyard_get_gpu_target_info(HALYARD_CPU, &info, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
    halyard_gpu_angles *no_angles = nullptr;
    halyard_gpu_plan *no_plan = nullptr;
    check_refused(HALYARD_ERROR_NULL_POINTER, {}, [&](auto *its_error) {
        return halyard_create_gpu_angles(&queue, nullptr, 0, 0, &no_angles, its_error);
    });
    CHECK(halyard_create_gpu_angles(nullptr, table.get(), 0, 0, &no_angles, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_gpu_angles(&queue, table.get(), 0, 0, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_refused(HALYARD_ERROR_NULL_POINTER, {}, [&](auto *its_error) {
        return halyard_create_gpu_plan(nullptr, &given_desc, angles.get(), &no_plan, its_error);
    });
    CHECK(halyard_create_gpu_plan(&queue, nullptr, angles.get(), &no_plan, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK(halyard_create_gpu_plan(&queue, &given_desc, angles.get(), nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    CHECK((no_angles == nullptr && no_plan == nullptr));
    halyard_destroy_gpu_plan(nullptr);
    halyard_destroy_gpu_angles(nullptr);
}

void test_creations(std::int32_t device) {
    test_wrong_angles(device);
    test_wrong_plans(device);
    test_explanations(device);
    test_null_pointers(device);
}

}  // namespace

TEST_CASE("gpu errors: a target that cannot be had says why", "[gpu]") {
    for (const std::int32_t device : {HALYARD_CUDA, HALYARD_OPENCL}) {
        const auto info = halyard::gpu_target(device);
        CAPTURE(info.name, info.reason);
        CHECK(info.built == 1);
        CHECK(info.active == 0);
        CHECK(std::string(info.reason) ==
              (info.supported == 1 ? "serves its own memory alone" : halyard::gpu::why_not(device)));
        if (info.supported == 0) {
            auto queue = halyard::describe_queue(device, nullptr, nullptr);
            const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 9);
            auto error = sized<halyard_error>();
            halyard_gpu_angles *made = nullptr;
            CHECK(halyard_create_gpu_angles(&queue, table.get(), 0, 0, &made, &error) == HALYARD_ERROR_NO_DEVICE);
            CHECK(std::string(error.message).find(info.reason) != std::string::npos);
        }
    }
}

TEST_ON_DEVICES("gpu errors: a run's arguments", "cuda device: a run's wrong arguments are refused", test_wrong_runs)

TEST_ON_DEVICES("gpu errors: bad positions are told in the error word, and rotated as position 0",
                "cuda device: bad positions are told in the error word, and rotated as position 0", test_bad_positions)

TEST_ON_DEVICES("gpu errors: positions of two that are listed",
                "cuda device: positions of many tokens are looked up among two that are listed", test_listed_positions)

TEST_ON_DEVICES("gpu errors: angles, plans and explanations",
                "cuda device: wrong angles and plans are refused, and plans explained", test_creations)
