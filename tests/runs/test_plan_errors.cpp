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
    plans.refuse_each(HALYARD_ERROR_ROTARY_DIM, {0, -2, 1, 5, INT64_MAX}, {desc.rotary_dim});
    plans.refuse_each(HALYARD_ERROR_SHAPE, {0, HALYARD_MAX_TENSORS + 1, INT32_MAX}, {desc.n_tensors});
    for (const std::int64_t value : Numbers{5, 8, 9, INT64_MAX, INT64_MAX - 3}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"tensors[1].rotary_offset", text(value), head_dim},
                     {{second.rotary_offset, value}});
    }
    for (const std::int64_t value : Numbers{8, 10, INT64_MAX - 1}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"tensors[0]", text(value), head_dim}, {{desc.rotary_dim, value}});
    }
    plans.refuse({
        {HALYARD_ERROR_SHAPE, {}, {{first.head_dim, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].dtype is not set"}, {{second.dtype, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"pairing is not set, and no frequencies tell it"}, {{second.pairing, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"pairing is 9"}, {{second.out_pairing, 1}, {second.pairing, 9}}},
        {HALYARD_ERROR_WINDOW, {"tensors[1]", "5"}, {{second.head_dim, 5}}},
        {HALYARD_ERROR_MISMATCH, {"target", "max"}, {{desc.target, "reference"}, {desc.max_target, "reference"}}},
    });
    // The window ends where the head ends; and what lies beyond n_tensors is not read.
    plans.accept_each({{{first.rotary_offset, 4}, {second.rotary_offset, 1}},
                       {{desc.rotary_dim, 6}},
                       {{desc.rotary_dim, 6}, {first.head_dim, INT64_MAX}, {first.rotary_offset, INT64_MAX - 6}},
                       {{desc.n_tensors, 1}, {second.dtype, 99}}});
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
