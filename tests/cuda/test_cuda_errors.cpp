// What halyard_cuda.h refuses: each wrong input, one at a time, and nothing is written. More of that is in
// test_cuda_calls.cpp.
#include "cuda/driver.h"
#include "tests/cuda/working_run.h"

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

using cuda_test::Memory;
using halyard::cuda_angles, halyard::cuda_plan;

TEST_CASE("cuda device: a run's wrong arguments are refused", "[cuda]") {
    Working w;
    auto *const other = reinterpret_cast<const void *>(&w.x);  // of another size
    w.runs.refuse({
        {HALYARD_ERROR_STRUCT_SIZE, {"args.size is 0"}, {{w.args.size, 0}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"slots.size is "}, {{w.brought.slots, other}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"stages[0].size is "}, {{w.brought.stages, other}}},
        {HALYARD_ERROR_MISMATCH,
         {"error_word is given, but policy 1 tells of nothing"},
         {{w.args.bad_position, HALYARD_BAD_POSITION_CLAMP}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"x[0].device is HALYARD_CPU (0), but this call runs on HALYARD_CUDA only"},
         {{w.x.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNSUPPORTED, {"y[0].device is HALYARD_CPU (0)"}, {{w.y.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"y[0].device is 2"}, {{w.y.device, 2}}},
        // What each argument of a run on the CPU may not be is checked by the same code: one row for each.
        {HALYARD_ERROR_UNKNOWN_VALUE, {"bad_position is 9"}, {{w.args.bad_position, 9}, {w.args.error_word, nullptr}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"args.reserved is 1"}, {{w.args.reserved, 1}}},
        {HALYARD_ERROR_SHAPE, {"args.n_tensors is 2", "the plan's is 1"}, {{w.args.n_tensors, 2}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, {{w.args.x, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y is NULL"}, {{w.args.y, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"positions.shape is {1, 3}"}, {{w.positions.shape[1], 3}}},
        {HALYARD_ERROR_OVERLAP, {"y[0].data shares elements with positions.data"}, {{w.positions.data, w.y.data}}},
    });
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *error) { return halyard_run_cuda(nullptr, &w.args, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {},
                  [&](auto *error) { return halyard_run_cuda(w.plan.get(), nullptr, error); });
    REQUIRE(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
    // Without tokens, only sizes are checked.
    w.x.shape[1] = w.y.shape[1] = w.positions.shape[1] = 0;
    w.x.data = w.y.data = nullptr;
    CHECK(w.run() == HALYARD_OK);
}

TEST_CASE("cuda device: the error word stays until the caller resets it", "[cuda]") {
    Working w;
    for (const std::int32_t first : {100, 0}) {  // one that is bad, and one that is not
        const Memory places(w.queue, std::vector<std::int32_t>{first, 1, 2, 3});
        w.positions.data = places.data();
        REQUIRE(w.run() == HALYARD_OK);
        CHECK(w.word.read<std::int32_t>()[0] == HALYARD_ERROR_POSITION);
    }
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

TEST_CASE("cuda device: wrong angles are refused", "[cuda]") {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    const cuda_test::Queue foreign;  // of the same device
    const Memory of_foreign(foreign.get(), std::vector<float>(10 * 64));
    const auto *const rows = static_cast<const float *>(of_foreign.data());
    CHECK(status_of<cuda_angles>(queue, halyard::angle_source::given(rows, rows + 32, 4, 64, 64)) == HALYARD_OK);
    CHECK(status_of<cuda_angles>(queue, halyard::angle_source::given_by_token(rows, 10, 64)) ==
          HALYARD_ERROR_UNSUPPORTED);
    CHECK(status_of<cuda_angles>(queue, halyard::angle_source::given(rows, rows, 1 << 25, 64, 64)) ==
          HALYARD_ERROR_OVERFLOW);
}

TEST_CASE("cuda device: wrong plans are refused", "[cuda]") {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    const auto table = table_of_64();
    const halyard::cuda_angles angles(queue, table);
    auto norm = halyard::describe_norm(halyard::dtype::f32);
    norm.weight_dtype = 0;
    auto kv = sized<halyard_kv_desc>();
    kv.norm = &norm;
    kv.no_rotation = 1;
    using Change = std::function<void(halyard::plan_desc &)>;
    const std::tuple<halyard_status, halyard_status, Change> rows[] = {
        {HALYARD_ERROR_MISMATCH, HALYARD_ERROR_MISMATCH, [](auto &desc) { desc.target = "cuda_sm80"; }},
        {HALYARD_ERROR_MISMATCH, HALYARD_ERROR_MISMATCH, [](auto &desc) { desc.max_target = "cuda_sm80"; }},
        {HALYARD_ERROR_MISMATCH, HALYARD_OK, [](auto &desc) { desc.rotary_dim = 32; }},  // than the angles'
        {HALYARD_ERROR_SHAPE, HALYARD_ERROR_SHAPE, [](auto &desc) { desc.tensors.resize(99, desc.tensors[0]); }},
        {HALYARD_OK, HALYARD_OK, [&](auto &desc) {  // rotates nothing, by any angles
             desc.rotary_dim = 32;
             desc.tensors[0].kv = &kv;
         }}};
    for (const auto &[status, explained, change] : rows) {
        auto desc = some_plan;
        change(desc);
        CHECK(status_of<cuda_plan>(queue, desc, angles) == status);
        CHECK(status_of<Explanation>(desc) == explained);
    }
    CHECK(status_of<cuda_plan>(queue, some_plan, halyard::cuda_angles()) == HALYARD_ERROR_NULL_POINTER);
    CHECK(status_of<Explanation>(some_plan, HALYARD_CPU) == HALYARD_ERROR_UNKNOWN_VALUE);
    auto wrong = queue;
    wrong.stream = nullptr;
    CHECK(status_of<cuda_angles>(wrong, table) == HALYARD_OK);
    CHECK(status_of<cuda_plan>(wrong, some_plan, angles) == HALYARD_OK);
    wrong.context = nullptr;
    CHECK(status_of<cuda_angles>(wrong, table) == HALYARD_ERROR_NULL_POINTER);
    wrong.device = HALYARD_CPU;
    CHECK(status_of<cuda_angles>(wrong, table) == HALYARD_ERROR_UNKNOWN_VALUE);
}

TEST_CASE("cuda device: positions of many tokens are checked against a range", "[cuda]") {
    Working w;
    const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 3, 88);
    const halyard::cuda_angles angles(w.queue, table);
    const halyard::cuda_plan plan(
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
        REQUIRE(halyard_run_cuda(plan.get(), &w.args, nullptr) == HALYARD_OK);
        return word.read<std::int32_t>()[0] == HALYARD_ERROR_POSITION;
    };
    for (const std::int32_t place : {3, 90, 2, 91}) {
        CAPTURE(place);
        CHECK(is_told(place) == (place == 2 || place == 91));
        CHECK(is_told(std::int64_t{place}) == (place == 2 || place == 91));
    }
}

TEST_CASE("cuda device: plans are explained", "[cuda]") {
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

TEST_CASE("cuda device: NULL is refused", "[cuda]") {
    const halyard_cuda_queue &queue = cuda_test::device_queue();
    const auto table = table_of_64();
    const halyard::cuda_angles angles(queue, table);
    const auto desc = some_plan.get();
    char few[8];
    std::int64_t n_needed = 0;
    auto error = sized<halyard_error>();
    auto info = sized<halyard_target_info>();
    halyard_cuda_angles *no_angles = nullptr;
    halyard_cuda_plan *no_plan = nullptr;
    const auto refuse = [](auto function, auto... given) {
        check_refused(HALYARD_ERROR_NULL_POINTER, {}, [&](auto *its_error) { return function(given..., its_error); });
    };
    refuse(halyard_explain_cuda_plan, HALYARD_CUDA, &desc, nullptr, 1, nullptr);
    refuse(halyard_explain_cuda_plan, HALYARD_CUDA, nullptr, few, 8, nullptr);
    refuse(halyard_get_cuda_target_info, HALYARD_CUDA, nullptr);
    refuse(halyard_create_cuda_angles, nullptr, table.get(), &no_angles);
    refuse(halyard_create_cuda_angles, &queue, nullptr, &no_angles);
    refuse(halyard_create_cuda_angles, &queue, table.get(), nullptr);
    refuse(halyard_create_cuda_plan, nullptr, &desc, angles.get(), &no_plan);
    refuse(halyard_create_cuda_plan, &queue, nullptr, angles.get(), &no_plan);
    refuse(halyard_create_cuda_plan, &queue, &desc, nullptr, &no_plan);
    refuse(halyard_create_cuda_plan, &queue, &desc, angles.get(), nullptr);
    CHECK((no_angles == nullptr && no_plan == nullptr));
    halyard_destroy_cuda_plan(nullptr);
    halyard_destroy_cuda_angles(nullptr);
    CHECK(halyard_get_cuda_target_info(HALYARD_CPU, &info, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
    CHECK(halyard_explain_cuda_plan(HALYARD_CUDA, &desc, few, -1, nullptr, &error) == HALYARD_ERROR_SHAPE);
    CHECK(halyard_explain_cuda_plan(HALYARD_CUDA, &desc, few, 8, &n_needed, &error) == HALYARD_OK);
    const std::string text = halyard::explain(HALYARD_CUDA, some_plan);
    CHECK(n_needed == static_cast<std::int64_t>(text.size()));
    CHECK(std::string(few) == text.substr(0, 7));
}

TEST_CASE("cuda errors: a target that cannot be had says why", "[cuda]") {
    const auto info = halyard::cuda_target(HALYARD_CUDA);
    CAPTURE(info.name, info.reason);
    CHECK(info.built == 1);
    CHECK(info.active == 0);
    CHECK(std::string(info.reason) ==
          (info.supported == 1 ? "serves its own memory alone" : halyard::cuda::why_no_cuda()));
    if (info.supported == 0) {
        auto queue = halyard::describe_queue(HALYARD_CUDA, nullptr, nullptr);
        const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 10);
        auto error = sized<halyard_error>();
        halyard_cuda_angles *made = nullptr;
        CHECK(halyard_create_cuda_angles(&queue, table.get(), &made, &error) == HALYARD_ERROR_NO_DEVICE);
        CHECK(std::string(error.message).find(info.reason) != std::string::npos);
    }
}
