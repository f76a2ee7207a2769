// Bad arguments of halyard_cuda.h, one at a time: each is refused and nothing is written. test_cuda_calls.cpp has those
// that must be refused before any launch.
#include "cuda/driver.h"
#include "tests/cuda/working_run.h"

#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using Catch::Matchers::ContainsSubstring;
using cuda_test::Memory;
using halyard::cuda_angles, halyard::cuda_plan;

TEST_CASE("cuda device: a run's wrong arguments are refused", "[cuda]") {
    WorkingRun w;
    auto *const other = reinterpret_cast<const void *>(&w.x);  // size is not that of halyard_slots
    w.runs.refuse({
        {HALYARD_ERROR_STRUCT_SIZE, {"args.size is 0"}, {{w.args.size, 0}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"slots.size is "}, {{w.kv_args.slots, other}}},
        {HALYARD_ERROR_STRUCT_SIZE, {"stages[0].size is "}, {{w.kv_args.stages, other}}},
        {HALYARD_ERROR_MISMATCH,
         {"args.error_word is set, but nothing would write it: bad_position is 1, not HALYARD_BAD_POSITION_ERROR (0), "
          "and there are no slots"},
         {{w.args.bad_position, HALYARD_BAD_POSITION_CLAMP}}},
        {HALYARD_ERROR_UNSUPPORTED,
         {"x[0].device is HALYARD_CPU (0), but this call runs on HALYARD_CUDA only"},
         {{w.x.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNSUPPORTED, {"y[0].device is HALYARD_CPU (0)"}, {{w.y.device, HALYARD_CPU}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"y[0].device is 2"}, {{w.y.device, 2}}},
        // Runs on the CPU share these checks (tests/runs, tests/kv), so one row for each argument is enough here.
        {HALYARD_ERROR_UNKNOWN_VALUE, {"bad_position is 9"}, {{w.args.bad_position, 9}, {w.args.error_word, nullptr}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"args.reserved is 1"}, {{w.args.reserved, 1}}},
        {HALYARD_ERROR_SHAPE, {"args.n_tensors is 2", "the plan's is 1"}, {{w.args.n_tensors, 2}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.x is NULL"}, {{w.args.x, nullptr}}},
        {HALYARD_ERROR_NULL_POINTER, {"args.y is NULL"}, {{w.args.y, nullptr}}},
        {HALYARD_ERROR_SHAPE, {"positions.shape is {1, 3}"}, {{w.positions.shape[1], 3}}},
        {HALYARD_ERROR_OVERLAP, {"y[0].data shares elements with positions.data"}, {{w.positions.data, w.y.data}}},
        {HALYARD_ERROR_OVERLAP,
         {"args.error_word shares elements with x[0].data"},
         {{w.args.error_word, w.from.data(4)}}},
        {HALYARD_ERROR_OVERLAP,
         {"args.error_word shares elements with y[0].data"},
         {{w.args.error_word, w.to.data(4)}}},
        {HALYARD_ERROR_OVERLAP,
         {"args.error_word shares elements with positions.data"},
         {{w.args.error_word, w.places.data(12)}}},
    });
    REQUIRE(w.run() == HALYARD_OK);
    CHECK((w.to.read() != w.before));
}

TEST_CASE("cuda device: positions of many tokens are checked against a range", "[cuda]") {
    WorkingRun w(halyard::describe_tensor(halyard::dtype::f32, 64, halyard::pairing::half), 258 * 64 * 4);
    const std::int64_t n_tokens = GENERATE(256, 258);  // two full blocks of 128 threads, or two tokens more
    for (halyard_tensor *const tensor : {&w.x, &w.y}) {
        *tensor = halyard::tensor(tensor->data, halyard::dtype::f32, {1, n_tokens, 1, 64});
        tensor->device = HALYARD_CUDA;
    }
    const std::size_t from_the_end = GENERATE(1, 2);
    const auto word_after_run = [&](const auto place) {
        std::vector at(static_cast<std::size_t>(n_tokens), place * 0 + 50);
        at[at.size() - from_the_end] = place;
        const Memory places(w.queue, at);
        w.positions = halyard::positions(static_cast<const std::int32_t *>(places.data()), {1, n_tokens});
        w.positions.type = sizeof(place) == 4 ? HALYARD_INT32 : HALYARD_INT64;
        REQUIRE(w.run() == HALYARD_OK);
        return w.word.read<std::int32_t>()[0];
    };
    for (const std::int32_t place : {0, 99, -1, 100}) {
        CAPTURE(place);
        const std::int32_t expected = place == -1 || place == 100 ? HALYARD_ERROR_POSITION : 0;
        CHECK(word_after_run(place) == expected);
        CHECK(word_after_run(50) == expected);  // the word stays until the caller resets it
        w.word.write(std::vector<std::int32_t>{0});
        CHECK(word_after_run(std::int64_t{place}) == expected);
        w.word.write(std::vector<std::int32_t>{0});
    }
    CHECK(word_after_run(INT64_MIN + 50) == HALYARD_ERROR_POSITION);  // its low 32 bits are 50, a good position
}

namespace {

/// The status of the exception that make() throws, or HALYARD_OK.
template <typename Make>
halyard_status status_of(Make make) {
    try {
        make();
    } catch (const halyard::error &error) {
        return error.status();
    }
    return HALYARD_OK;
}

const halyard::plan_desc some_plan(64, {halyard::describe_tensor(halyard::dtype::bf16, 64, halyard::pairing::half)});

}  // namespace

TEST_CASE("cuda device: wrong angles and plans are refused", "[cuda]") {
    const WorkingRun w;
    const cuda_test::Queue foreign;  // another context of the same device
    const Memory of_foreign(foreign.get(), std::vector<float>(10 * 64));
    const auto *const rows = static_cast<const float *>(of_foreign.data());
    auto queue = w.queue;
    const auto of_angles = [&](const halyard::angle_source &source) {
        return status_of([&] { cuda_angles(queue, source); });
    };
    CHECK(of_angles(halyard::angle_source::given(rows, rows + 32, 4, 64, 64)) == HALYARD_OK);
    CHECK(of_angles(halyard::angle_source::given_by_token(rows, 10, 64)) == HALYARD_ERROR_UNSUPPORTED);
    CHECK(of_angles(halyard::angle_source::given(rows, rows, 1 << 25, 64, 64)) == HALYARD_ERROR_OVERFLOW);
    const auto of_rows_at = [&](halyard::dtype type, std::int64_t cos_at, std::int64_t sin_at) {
        return of_angles(halyard::angle_source::given(halyard::angle_source::describe_rows(
            of_foreign.data(cos_at), of_foreign.data(sin_at), type, 4, 64, 64)));
    };
    CHECK(of_rows_at(halyard::dtype::f16, 2, 66) == HALYARD_OK);
    CHECK(of_rows_at(halyard::dtype::bf16, 1, 64) == HALYARD_ERROR_UNSUPPORTED);  // inside an element
    CHECK(of_rows_at(halyard::dtype::f32, 0, 66) == HALYARD_ERROR_UNSUPPORTED);
    const std::vector<float> here(10 * 64);
    CHECK(of_angles(halyard::angle_source::given(here.data(), rows, 4, 64, 64)) == HALYARD_ERROR_MISMATCH);
    queue.stream = nullptr;
    CHECK(of_angles(w.source) == HALYARD_OK);
    CHECK(status_of([&] { cuda_plan(queue, some_plan, w.angles); }) == HALYARD_OK);
    queue.context = nullptr;
    CHECK(of_angles(w.source) == HALYARD_ERROR_NULL_POINTER);
    queue.device = HALYARD_CPU;
    CHECK(of_angles(w.source) == HALYARD_ERROR_UNKNOWN_VALUE);

    auto norm = halyard::describe_norm(halyard::dtype::f32);
    norm.weight_dtype = 0;
    auto kv = sized<halyard_kv_desc>();
    kv.norm = &norm;
    kv.no_rotation = 1;
    const std::tuple<halyard_status, halyard_status, std::function<void(halyard::plan_desc &)>> changes[] = {
        {HALYARD_ERROR_MISMATCH, HALYARD_ERROR_MISMATCH, [](auto &desc) { desc.target = "cuda_sm80"; }},
        {HALYARD_ERROR_MISMATCH, HALYARD_ERROR_MISMATCH, [](auto &desc) { desc.max_target = "cuda_sm80"; }},
        {HALYARD_ERROR_MISMATCH, HALYARD_OK, [](auto &desc) { desc.rotary_dim = 32; }},  // not the angles' rotary_dim
        {HALYARD_ERROR_SHAPE, HALYARD_ERROR_SHAPE, [](auto &desc) { desc.tensors.resize(99, desc.tensors[0]); }},
        {HALYARD_ERROR_UNSUPPORTED, HALYARD_ERROR_UNSUPPORTED,
         [&](auto &desc) {
             desc.tensors[0].kv = &kv;
             desc.tensors[0].head_dim = 4096;  // too long for KV stages
         }},
        {HALYARD_OK, HALYARD_OK, [&](auto &desc) {  // without a rotation, any angles are accepted
             desc.rotary_dim = 32;
             desc.tensors[0].kv = &kv;
         }}};
    for (const auto &[status, explained, change] : changes) {
        auto desc = some_plan;
        change(desc);
        CHECK(status_of([&] { cuda_plan(w.queue, desc, w.angles); }) == status);
        CHECK(status_of([&] { halyard::explain(HALYARD_CUDA, desc); }) == explained);
    }
}

TEST_CASE("cuda device: plans are explained", "[cuda]") {
    const std::string text = halyard::explain(HALYARD_CUDA, some_plan), in_place = "tensor 0, in place:\n",
                      first = text.substr(0, text.find(in_place)), second = text.substr(first.size());
    CHECK_THAT(first,
               ContainsSubstring("halyard_rotate_half_bf16_cuda_sm80: taken where memory, strides and halves are "
                                 "multiples of 16 bytes"));
    CHECK_THAT(second, ContainsSubstring("halyard_rotate_half_bf16_in_place_by_32_cuda_sm80: taken where memory, "
                                         "strides and halves are multiples of 4 bytes"));
    CHECK_THAT(second, ContainsSubstring("halyard_rotate_strided_bf16_in_place_cuda_sm80: taken for any other layout"));
    CHECK_THAT(first, !ContainsSubstring("_in_place_"));
    CHECK_THAT(text, !ContainsSubstring("interleaved") && !ContainsSubstring("_f32_"));
    halyard::plan_desc converts = some_plan;
    converts.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    CHECK_THAT(halyard::explain(HALYARD_CUDA, converts),
               ContainsSubstring("halyard_rotate_strided_bf16_cuda_sm80") &&
                   ContainsSubstring("halyard_rotate_half_to_interleaved_bf16_cuda_sm80: taken where") &&
                   !ContainsSubstring("_half_bf16") && !ContainsSubstring("in place"));
}

TEST_CASE("cuda device: NULL is refused", "[cuda]") {
    const WorkingRun w;
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
    refuse(halyard_run_cuda, nullptr, &w.args);
    refuse(halyard_run_cuda, w.plan.get(), nullptr);
    refuse(halyard_explain_cuda_plan, HALYARD_CUDA, &desc, nullptr, 1, nullptr);
    refuse(halyard_explain_cuda_plan, HALYARD_CUDA, nullptr, few, 8, nullptr);
    refuse(halyard_get_cuda_target_info, HALYARD_CUDA, nullptr);
    refuse(halyard_create_cuda_angles, nullptr, w.source.get(), &no_angles);
    refuse(halyard_create_cuda_angles, &w.queue, nullptr, &no_angles);
    refuse(halyard_create_cuda_angles, &w.queue, w.source.get(), nullptr);
    refuse(halyard_create_cuda_plan, nullptr, &desc, w.angles.get(), &no_plan);
    refuse(halyard_create_cuda_plan, &w.queue, nullptr, w.angles.get(), &no_plan);
    refuse(halyard_create_cuda_plan, &w.queue, &desc, nullptr, &no_plan);
    refuse(halyard_create_cuda_plan, &w.queue, &desc, w.angles.get(), nullptr);
    CHECK((no_angles == nullptr && no_plan == nullptr));
    halyard_destroy_cuda_plan(nullptr);
    halyard_destroy_cuda_angles(nullptr);
    CHECK(halyard_get_cuda_target_info(HALYARD_CPU, &info, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
    CHECK(halyard_explain_cuda_plan(HALYARD_CPU, &desc, few, 8, nullptr, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
    CHECK(halyard_explain_cuda_plan(HALYARD_CUDA, &desc, few, -1, nullptr, &error) == HALYARD_ERROR_SHAPE);
    CHECK(halyard_explain_cuda_plan(HALYARD_CUDA, &desc, few, 8, &n_needed, &error) == HALYARD_OK);
    const std::string text = halyard::explain(HALYARD_CUDA, some_plan);
    CHECK(n_needed == static_cast<std::int64_t>(text.size()));
    CHECK(std::string(few) == text.substr(0, 7));
}

TEST_CASE("cuda errors: a target that cannot be had says why", "[cuda]") {
    const auto info = halyard::cuda_target(HALYARD_CUDA);
    CAPTURE(info.name, info.reason);
    CHECK((info.built == 1 && info.active == 0));
    CHECK(std::string(info.reason) ==
          (info.supported == 1 ? "serves its own memory alone" : halyard::cuda::why_no_cuda()));
    if (info.supported == 0) {
        const auto queue = halyard::describe_queue(HALYARD_CUDA, nullptr, nullptr);
        const auto table = halyard::angle_source::table(halyard::frequencies::from_base(10000, 64), 0, 10);
        halyard_cuda_angles *made = nullptr;
        check_refused(HALYARD_ERROR_NO_DEVICE, {info.reason}, [&](auto *error) {
            return halyard_create_cuda_angles(&queue, table.get(), &made, error);
        });
    }
}
