// Bad descriptions of plans: each field that can be wrong is made wrong, one at a time. What is right at the limits is
// accepted.
#include "rotation_run.h"

#include "core/plan.h"

TEST_CASE("errors: plans", "[errors]") {
    RotationRun s;
    const Table &plans = s.plans;
    auto &desc = s.plan;
    auto &first = s.tensors[0], &second = s.tensors[1];
    const std::string head_dim = text(RotationRun::D);
    plans.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_plan_desc>(), {{"desc.size", desc.size}});
    plans.refuse_each(HALYARD_ERROR_STRUCT_SIZE, bad_sizes<halyard_tensor_desc>(),
                      {{"tensors[0].size", first.size}, {"tensors[1].size", second.size}});
    plans.refuse_each(HALYARD_ERROR_UNKNOWN_VALUE, {-1, 8, INT32_MAX, INT32_MIN},
                      {{"direction", desc.direction},
                       {"tensors[1].pairing", second.pairing},
                       {"tensors[1].out_pairing", second.out_pairing},
                       {"tensors[1].dtype", second.dtype},
                       {"tensors[1].kv.out_dtype", s.kv[1].out_dtype},
                       {"desc.rerotates", desc.rerotates}});
    plans.refuse_each(HALYARD_ERROR_ROTARY_DIM, {0, -2, -1, 1, 5, INT64_MAX, INT64_MIN},
                      {{"rotary_dim", desc.rotary_dim}});
    plans.refuse_each(HALYARD_ERROR_SHAPE, {0, -1, HALYARD_MAX_TENSORS + 1, INT32_MAX, INT32_MIN},
                      {{"n_tensors", desc.n_tensors}});
    plans.refuse_each(HALYARD_ERROR_SHAPE, {0, -1, INT64_MIN}, {{"tensors[0].head_dim", first.head_dim}});
    for (const std::int64_t value : Numbers{-1, 5, 8, 9, INT64_MAX, INT64_MAX - 3, INT64_MIN}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"tensors[1].rotary_offset", text(value), head_dim},
                     {{second.rotary_offset, value}});
    }
    for (const std::int64_t value : Numbers{8, 10, INT64_MAX - 1}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"tensors[0]", text(value), head_dim}, {{desc.rotary_dim, value}});
    }
    plans.refuse({
        {HALYARD_ERROR_NULL_POINTER, {"desc.tensors is NULL"}, {{desc.tensors, nullptr}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].dtype is not set"}, {{second.dtype, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE,
         {"tensors[1].pairing is not set, and no frequencies tell it"},
         {{second.pairing, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE,
         {"tensors[1].pairing is 9, which is no pairing"},
         {{second.pairing, 9}, {second.out_pairing, HALYARD_PAIRING_HALF}}},
        {HALYARD_ERROR_WINDOW, {"tensors[1]", "5"}, {{second.head_dim, 5}}},
        {HALYARD_ERROR_MISMATCH,
         {"target", "max_target"},
         {{desc.target, "reference"}, {desc.max_target, "reference"}}},
    });
    halyard_plan *made = nullptr;
    check_refused(HALYARD_ERROR_NULL_POINTER, {"desc is NULL"},
                  [&](auto *error) { return halyard_create_plan(nullptr, &made, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {"out is NULL"},
                  [&](auto *error) { return halyard_create_plan(&desc, nullptr, error); });
    CHECK(halyard_get_plan_target(nullptr) == nullptr);
    halyard_destroy_plan(nullptr);
}

TEST_CASE("errors: explaining a plan", "[errors]") {
    const RotationRun s;
    char lines[8] = "before";
    std::int64_t n_needed = -7;
    const auto refuse = [&](halyard_status status, const Words &words, const halyard_plan_desc *of, char *to,
                            std::int64_t n_bytes) {
        check_refused(status, words,
                      [&](auto *error) { return halyard_explain_plan(of, to, n_bytes, &n_needed, error); });
    };
    refuse(HALYARD_ERROR_NULL_POINTER, {"desc is NULL"}, nullptr, lines, 8);
    refuse(HALYARD_ERROR_NULL_POINTER, {"text is NULL"}, &s.plan, nullptr, 8);
    refuse(HALYARD_ERROR_SHAPE, {"n_bytes", "-1"}, &s.plan, lines, -1);
    refuse(HALYARD_ERROR_SHAPE, {"n_bytes", text(INT64_MIN)}, &s.plan, lines, INT64_MIN);
    CHECK(lines == std::string("before"));
    CHECK(n_needed == -7);
}

TEST_CASE("plans: what is right at the limits", "[errors]") {
    RotationRun s;
    const Table &plans = s.plans;
    auto &desc = s.plan;
    auto &first = s.tensors[0], &second = s.tensors[1];
    plans.accept({{first.rotary_offset, 4}, {second.rotary_offset, 1}});  // the window ends where the head ends
    plans.accept({{desc.rotary_dim, 6}});
    plans.accept({{desc.rotary_dim, 6}, {first.head_dim, INT64_MAX}, {first.rotary_offset, INT64_MAX - 6}});
    plans.accept({{desc.n_tensors, 1}, {second.dtype, 99}});  // beyond n_tensors, so not read
}

TEST_CASE("plans: what the frequencies of a config tell need not be stated", "[plans]") {
    const auto resolve = [](const char *config, halyard_tensor_desc tensor, std::int64_t rotary_dim = 0) {
        const auto frequencies =
            halyard::frequencies::from_config(config, static_cast<std::int64_t>(std::strlen(config)));
        halyard::plan_desc desc(frequencies, {tensor});
        desc.rotary_dim = rotary_dim;
        const halyard::plan plan(desc);
        CHECK(plan.get()->rotary_dim == 64);
        return plan.get()->tensors[0];
    };
    const char *const llama = R"({"model_type": "llama", "head_dim": 64, "rope_theta": 10000.0})";
    const char *const deepseek = R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_theta": 10000.0})";
    const auto bare = halyard::describe_tensor(halyard::dtype::bf16);
    const auto of_llama = resolve(llama, bare), of_deepseek = resolve(deepseek, bare, 64);
    CHECK(of_llama.dtype == halyard::Dtype::bf16);
    CHECK(of_llama.pairing == halyard::Pairing::half);
    CHECK(of_llama.out_pairing == halyard::Pairing::half);
    CHECK(of_llama.head_dim == 64);
    CHECK(of_deepseek.pairing == halyard::Pairing::interleaved);
    CHECK(of_deepseek.out_pairing == halyard::Pairing::half);
    // What is stated holds.
    const auto stated =
        resolve(deepseek, halyard::describe_tensor(halyard::dtype::f32, 192, halyard::pairing::interleaved, 128));
    CHECK(stated.out_pairing == halyard::Pairing::interleaved);
    CHECK(stated.head_dim == 192);
    CHECK(stated.rotary_offset == 128);
    auto into_half = bare;
    into_half.out_pairing = HALYARD_PAIRING_HALF;
    CHECK(resolve(deepseek, into_half).pairing == halyard::Pairing::interleaved);

    const auto refuse = [](halyard_status status, const Words &words, const halyard::plan_desc &desc) {
        const auto given = desc.get();
        halyard_plan *made = nullptr;
        check_refused(status, words, [&](auto *error) { return halyard_create_plan(&given, &made, error); });
    };
    const auto from_base = halyard::frequencies::from_base(10000.0, 64);
    refuse(HALYARD_ERROR_UNKNOWN_VALUE, {"pairing is not set"},
           {from_base, {halyard::describe_tensor(halyard::dtype::f32, 64)}});
    auto half = bare;
    half.pairing = HALYARD_PAIRING_HALF;
    refuse(HALYARD_ERROR_SHAPE, {"head_dim is 0"}, {from_base, {half}});
    half.head_dim = 128;
    halyard::plan_desc other(from_base, {half});
    other.rotary_dim = 128;
    refuse(HALYARD_ERROR_MISMATCH, {"rotary_dim is 128, but the frequencies' is 64"}, other);
}
